"""Answers of Apache's brokers that have a message twice."""

from __future__ import annotations

from tests.client.scripted_broker import URL, scripted
from trocket.client import Admin
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message_codec import encode_record
from trocket.remoting.request_codes import RequestCode

HOST = bytes([192, 0, 2, 9, 0, 0, 0x9C, 0x40])


def record(physical_offset: int, body: bytes) -> bytes:
    return encode_record(
        "T", 0, 0, physical_offset, body, b"KEYS\x01K K\x02", born_timestamp_ms=1,
        born_host=HOST, store_timestamp_ms=1, store_host=HOST,
    )  # fmt: skip


async def test_a_message_that_a_broker_gives_twice_for_its_key_is_found_once() -> None:
    answer = RemotingCommand(0, body=record(0, b"a") * 2 + record(200, b"b") * 2)
    async with scripted() as brokers:
        brokers.answer(RequestCode.QUERY_MESSAGE, answer)
        async with Admin(URL, dial=brokers.dial) as admin:
            found = await admin.messages_by_key("T", "K")
    assert [message.body for message in found] == [b"a", b"b"]
