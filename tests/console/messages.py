"""Messages as a broker gives them, for tests without one."""

from __future__ import annotations

from collections.abc import Mapping

from trocket.client.messages.message import ReceivedMessage
from trocket.common.message_properties import properties_to_bytes
from trocket.remoting.bodies import MessageQueue
from trocket.remoting.hosts import host_bytes
from trocket.remoting.message_codec import decode_record, encode_record

HOST = host_bytes("127.0.0.1", 10911)


def received(
    body: bytes = b"",
    topic: str = "orders",
    properties: Mapping[str, str] | None = None,
    *,
    sys_flag: int = 0,
    sent_to: str | None = None,
) -> ReceivedMessage:
    """A message.

    Args:
      topic: where it is stored.
      sys_flag: with COMPRESSED, the body is compressed, and is left so.
      sent_to: its first topic; None: the same.
    """
    record = encode_record(
        topic,
        3,
        120,
        5000,
        body,
        properties_to_bytes(properties or {}),
        born_timestamp_ms=1_000,
        born_host=HOST,
        store_timestamp_ms=2_000,
        store_host=HOST,
        sys_flag=sys_flag,
    )
    return ReceivedMessage(
        decode_record(record), MessageQueue(topic, "broker-a", 3), sent_to or topic
    )
