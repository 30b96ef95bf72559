"""Messages for filters."""

from __future__ import annotations

from typing import Any

from trocket.common.message_properties import properties_to_bytes
from trocket.remoting.hosts import host_bytes
from trocket.remoting.message import MessageExt
from trocket.remoting.message_codec import decode_record, encode_record


def record(
    body: bytes = b"x", *, properties: dict[str, str] | None = None, sys_flag: int = 0,
    topic: str = "T", offset: int = 0, host: str = "127.0.0.1",
) -> bytes:  # fmt: skip
    """A stored record."""
    return encode_record(
        topic, 1, offset, 1_000 + offset, body, properties_to_bytes(properties or {}),
        born_timestamp_ms=1_700_000_000_000, born_host=host_bytes(host, 1234),
        store_timestamp_ms=1_700_000_000_001, store_host=host_bytes(host, 10911),
        flag=7, sys_flag=sys_flag, reconsume_times=2, prepared_transaction_offset=3,
    )  # fmt: skip


def message(body: bytes = b"x", **more: Any) -> MessageExt:
    """A stored message."""
    return decode_record(record(body, **more))
