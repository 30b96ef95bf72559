"""In what a store's queues are not the projection of its log; in memory for their ends only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trocket.store.config import MessageStoreConfig
from trocket.store.format import UNIT, Key
from trocket.store.log.commit_log import CommitLog
from trocket.store.log.log_reader import LogReader
from trocket.store.queues.consume_queue_store import ConsumeQueueStore
from trocket.store.queues.projection import Places


class Span(NamedTuple):
    """What the log holds of one queue as it now is: since its topic was made the last time."""

    first: int  # queue offset of the oldest record
    end: int  # queue offset after the newest
    begins_at: int  # physical offset of the oldest


class Difference(NamedTuple):
    """One thing in which a queue is not what the log says.

    Attributes:
      key: (topic, queue id).
      queue_offset: where; -1: the queue as a whole.
      expected, found: (physical offset, size, tags code), or (min, max) offsets of the queue.
    """

    key: Key
    queue_offset: int
    expected: tuple[int, ...]
    found: tuple[int, ...]


def spans(log: CommitLog, places: Places) -> dict[Key, Span]:
    """Every queue that the log knows.

    Raises:
      StoreIOError: a file could not be read.
    """
    found: dict[Key, Span] = {}
    for record in LogReader(log, log.min_offset, check_crc=False).scan():
        for key, queue_offset, _ in places.of(record):
            span = found.get(key)
            if span is None or queue_offset < span.end:
                found[key] = Span(queue_offset, queue_offset + 1, record[0])
            else:
                found[key] = span._replace(end=queue_offset + 1)
    return found


def differences(
    log: CommitLog, queue_store: ConsumeQueueStore, config: MessageStoreConfig
) -> Iterator[Difference]:
    """Everything in which the queues are not the projection of the log.

    Queues of batches are not looked at, and neither are messages that are not visible yet: call it
    on a store that is loaded and idle. Topics that were deleted show as missing queues.

    Raises:
      StoreIOError: a file could not be read.
    """
    places = Places(config.message_delay_level)
    known = spans(log, places)
    queues = {key: queue for key, queue in queue_store.queues.items() if not queue.is_batch}
    for key, span in known.items():
        queue = queues.get(key)
        ends = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
        if key[0] not in queue_store.batch_topics and ends != (span.first, span.end):
            yield Difference(key, -1, (span.first, span.end), ends)
    for key, queue in queues.items():
        if key not in known and queue.min_offset != queue.max_offset:
            yield Difference(key, -1, (), (queue.min_offset, queue.max_offset))
    for record in LogReader(log, log.min_offset, check_crc=False).scan():
        physical_offset, size = record[:2]
        for key, queue_offset, code in places.of(record):
            queue = queues.get(key)
            if queue is None or physical_offset < known[key].begins_at:
                continue
            unit = UNIT.unpack(queue.read(queue_offset, 1).ljust(UNIT.size, b"\0"))
            found = queue.real_tags_code(unit[2])  # None: its extension is lost, and says nothing
            if unit[:2] != (physical_offset, size) or found not in (None, code):
                yield Difference(key, queue_offset, (physical_offset, size, code), unit)
