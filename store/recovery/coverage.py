"""The check that every record of the log has its unit, for a store without queue_ends.trocket.

That file tells a start where each queue ended. After a stop of RocketMQ's broker, or without the
file, a queue whose folder was lost looks like one that never had a message: it would begin again at
0. Reading the whole log would show it, and take an hour per few TB. So the units are read, 20 bytes
for each record: where the sizes of a log file's units add up to its records' bytes, each record has
its unit. Only files where they do not are read; half messages and deleted topics are the usual
reasons.

A record whose queue has a later message at its offset was stored before its topic was deleted and
created again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from ..format import PRE_BLANK_SIZE, UNIT, Key
from ..log.commit_log import CommitLog
from ..log.log_reader import CANDIDATE_CHUNK, LogReader
from ..queues.batch_consume_queue import BatchConsumeQueue
from ..queues.consume_queue import ConsumeQueue
from ..queues.consume_queue_store import ConsumeQueueStore
from ..queues.projection import LIGHT_PREFIX, Places

UNITS_PER_READ: Final = 4096

_FileSums = dict[int, list[int]]
"""Bytes of the records with a unit, and the end of the last of them, by the log file's base."""


def queues_without_units(
    log: CommitLog,
    queue_store: ConsumeQueueStore,
    places: Places,
    *,
    end: int,
    is_topic: Callable[[str], bool],
) -> set[Key]:
    """The queues that lack the unit of a record before a physical offset.

    Args:
      log, queue_store: loaded; only read.
      end: records from here on are not expected to have units.
      is_topic: whether a topic exists; queues of others were deleted.

    Raises:
      StoreIOError: a file could not be read.
    """
    sums = _sums(log, queue_store, end)
    found: set[Key] = set()
    for base in log.files:
        if base < end and not _is_covered(log, base, min(base + log.file_size, end), sums[base]):
            found |= _lacking(log, queue_store, places, base, end)
    return {key for key in found if is_topic(key[0])}


def _sums(log: CommitLog, queue_store: ConsumeQueueStore, end: int) -> _FileSums:
    sums: _FileSums = defaultdict(lambda: [0, 0])
    file_size, start = log.file_size, log.min_offset
    for key, queue in queue_store.queues.items():
        if key[0].startswith(LIGHT_PREFIX):
            continue
        for physical_offset, size in _units(queue):
            unit_end = physical_offset + size
            if size > 0 and start <= physical_offset < unit_end <= end:
                sum_of = sums[physical_offset - physical_offset % file_size]
                sum_of[0] += size
                if unit_end > sum_of[1]:
                    sum_of[1] = unit_end
    return sums


def _units(queue: ConsumeQueue) -> list[tuple[int, int]]:
    """(physical offset, size) of the units of a queue; one for each batch."""
    if isinstance(queue, BatchConsumeQueue):
        return [(unit[0], unit[1]) for unit in queue.units(0)]
    found: list[tuple[int, int]] = []
    offset = queue.lowest_offset
    while offset < queue.max_offset:
        data = queue.read(offset, min(UNITS_PER_READ, queue.max_offset - offset))
        if not data:
            break
        found += [
            (physical, size) for physical, size, _ in UNIT.iter_unpack(data)
            if size != PRE_BLANK_SIZE
        ]  # fmt: skip
        offset += len(data) // UNIT.size
    return found


def _is_covered(log: CommitLog, base: int, stop: int, sum_of: list[int]) -> bool:
    """Whether the units of a file stand for all its records before an offset."""
    covered, last_end = sum_of
    if not covered or covered != last_end - base:
        return False
    rest = LogReader(log, last_end, check_crc=False, stop=lambda: stop, chunk_size=CANDIDATE_CHUNK)
    return last_end >= stop or next(rest.scan(), None) is None


def _lacking(
    log: CommitLog, queue_store: ConsumeQueueStore, places: Places, base: int, end: int
) -> set[Key]:
    """The queues without the unit of a record of one file."""
    stop = min(base + log.file_size, end)
    found: set[Key] = set()
    for record in LogReader(log, base, check_crc=False, stop=lambda: stop).scan():
        for key, queue_offset, _ in places.of(record):
            queue = queue_store.queues.get(key)
            if key in found or not queue_store.is_possible(*key):
                continue
            if queue is None or not _has_unit(queue, queue_offset, record[0]):
                found.add(key)
    return found


def _has_unit(queue: ConsumeQueue, queue_offset: int, physical_offset: int) -> bool:
    """Whether a queue has a unit of a record, or began again after it."""
    if queue.is_batch:
        return queue.max_offset > 0
    if not queue.lowest_offset <= queue_offset < queue.max_offset:
        first = queue.unit_at(queue.lowest_offset)[0] if queue.max_offset else -1
        return queue.lowest_offset == 0 and first > physical_offset
    return queue.unit_at(queue_offset)[0] >= physical_offset
