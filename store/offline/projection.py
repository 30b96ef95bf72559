"""What a decoded record makes of the queues: `store.projection` for the tools' records."""

from __future__ import annotations

from collections.abc import Iterator

from ...remoting.message import MessageExt
from ..queues.projection import Place, Places


def places_of(places: Places, record: MessageExt) -> Iterator[Place]:
    """The places of a record in the queues, see `Places.of`."""
    return places.of(
        (
            record.physical_offset,
            record.store_size,
            record.topic,
            record.queue_id,
            record.queue_offset,
            record.sys_flag,
            record.store_timestamp_ms,
            record.properties_bytes,
        )
    )


def record_tags_code(places: Places, record: MessageExt) -> int:
    """The tags code of a record's own unit."""
    return places.tags_code(record.topic, record.store_timestamp_ms, record.properties_bytes)
