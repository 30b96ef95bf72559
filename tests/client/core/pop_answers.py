"""Answers to pops, made by hand: their records and texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from trocket.common.message_properties import properties_to_bytes
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.hosts import host_bytes
from trocket.remoting.message_codec import encode_record
from trocket.remoting.response_codes import ResponseCode

TIME_MS: Final = 1_700_000_000_000
HOST: Final = host_bytes("127.0.0.1", 10911)


def record(
    topic: str,
    queue_id: int,
    offset: int,
    properties: Mapping[str, str] | None = None,
    *,
    tries: int = 0,
) -> bytes:
    """A record whose body is its queue id and offset."""
    return encode_record(
        topic,
        queue_id,
        offset,
        4096 * offset,
        f"{queue_id}@{offset}".encode(),
        properties_to_bytes(properties or {}),
        born_timestamp_ms=TIME_MS,
        born_host=HOST,
        store_timestamp_ms=TIME_MS,
        store_host=HOST,
        reconsume_times=tries,
    )


def of_queue(
    offsets: Sequence[int],
    queue_id: int = 0,
    properties: Mapping[str, str] | None = None,
    *,
    tries: int = 0,
) -> RemotingCommand:
    """An answer with messages of one queue of the topic T."""
    records = [record("T", queue_id, offset, properties, tries=tries) for offset in offsets]
    texts = ",".join(map(str, offsets))
    return found(records, f"0 {queue_id} {offsets[0]}", f"0 {queue_id} {texts}")


def found(
    records: Sequence[bytes],
    starts: str | None,
    offsets: str | None,
    *,
    revive_queue: int = 3,
    counts: str | None = None,
) -> RemotingCommand:
    """An answer with messages."""
    fields = {
        "popTime": str(TIME_MS),
        "invisibleTime": "60000",
        "reviveQid": str(revive_queue),
        "restNum": "0",
    }
    more = {"startOffsetInfo": starts, "msgOffsetInfo": offsets, "orderCountInfo": counts}
    fields |= {name: text for name, text in more.items() if text is not None}
    return RemotingCommand(ResponseCode.SUCCESS, fields, b"".join(records))
