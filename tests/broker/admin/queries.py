"""Messages with keys, and the requests that look for them."""

from __future__ import annotations

from typing import Any

from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message_codec import decode_messages

from ...kit import Broker, Client, send_fields

QUERY, SEND = 12, 310
LONG_MAX = 2**63 - 1


def query_fields(key: str, topic: str = "T", **more: object) -> dict[str, object]:
    """The header of QUERY_MESSAGE as a 4.9.7 client sends it: 64 messages of any time."""
    fields: dict[str, object] = {
        "topic": topic, "key": key, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": LONG_MAX,
        "_UNIQUE_KEY_QUERY": "false",
    }  # fmt: skip
    return fields | more


def properties(keys: str, unique_key: str = "0123456789ABCDEF") -> str:
    return f"UNIQ_KEY\1{unique_key}\2" + (f"KEYS\1{keys}\2" if keys else "")


async def store_message(client: Client, body: bytes, keys: str = "", **more: Any) -> str:
    """Send a message; its offset id."""
    fields = send_fields(**({"i": properties(keys)} | more))
    answer = await client.ask(SEND, fields, body)
    assert answer.code == 0
    return answer.ext_fields["msgId"]


async def query(broker: Broker, client: Client, key: str, **more: Any) -> RemotingCommand:
    """Ask when the index has everything."""
    broker.controller.store.index.work(60.0)
    return await client.ask(QUERY, query_fields(key, **more))


def bodies_of(answer: RemotingCommand) -> list[bytes]:
    assert answer.code == 0, answer.remark
    return [message.body for message in decode_messages(answer.body, check_crc=True)]
