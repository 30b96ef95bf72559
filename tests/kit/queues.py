"""What a queue of a broker holds, written and read over the wire."""

from __future__ import annotations

from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message import MessageExt
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.request_codes import RequestCode

from .client import Client
from .fields import pull_fields, send_fields


async def send(client: Client, *bodies: bytes, tag: str = "", queue_id: int = 0) -> None:
    """Store messages in a queue of the topic T, one after the other."""
    properties = "UNIQ_KEY\1AB\2" + (f"TAGS\1{tag}\2" if tag else "")
    for body in bodies:
        fields = send_fields(queue_id=queue_id, i=properties)
        answer = await client.ask(RequestCode.SEND_MESSAGE_V2, fields, body)
        assert answer.code == 0, answer.remark


async def stored(
    client: Client, topic: str = "T", queue_id: int = 0, offset: int = 0
) -> list[MessageExt]:
    """All messages of a queue from an offset on."""
    found: list[MessageExt] = []
    while True:
        fields = pull_fields(topic, queue_id, sysFlag=4, queueOffset=offset)
        answer = await client.ask(RequestCode.PULL_MESSAGE, fields)
        if answer.code != 0:
            return found
        found += decode_messages(answer.body, check_crc=True)
        offset = int(answer.ext_fields["nextBeginOffset"])


async def bodies(client: Client, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    """The bodies of all messages of a queue."""
    return [message.body for message in await stored(client, topic, queue_id)]


def bodies_of(answer: RemotingCommand) -> list[bytes]:
    """The bodies of the messages of an answer."""
    return [message.body for message in decode_messages(answer.body, check_crc=True)]
