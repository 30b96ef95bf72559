"""The comparison of two stores of one broker set: the common part of their logs and queues.

A slave's log is its master's byte for byte, and its queues are made from it. So in the part that
both logs have, below the shorter one's end, all bytes and all units must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import zip_longest
from typing import Final, NamedTuple

from ...disk.os_disk import Disk
from ..format import Key
from ..log.commit_log import CommitLog
from ..log.log_reader import LogRecord
from .findings import Findings
from .layout import Layout
from .log_walk import LogWalk
from .queue_files import QueueOnDisk, QueuesOnDisk

QUEUES_SHOWN_MAX: Final = 20
"""Queues that differ, of which a comparison keeps the first differences."""


class QueueDifference(NamedTuple):
    """The first offset at which a queue of both stores differs."""

    topic: str
    queue_id: int
    queue_offset: int


class StoreDifference(NamedTuple):
    """What a comparison found.

    Attributes:
      start, end: physical offsets between which both logs were compared.
      ends: where each log ends.
      record_count: records that are equal.
      log_offset: physical offset of the first record that differs; -1: none does.
      queues: first differences of queues, the first few; empty also when the log differs.
      queue_count: queues that differ.
    """

    start: int
    end: int
    ends: tuple[int, int]
    record_count: int
    log_offset: int
    queues: tuple[QueueDifference, ...]
    queue_count: int

    @property
    def is_none(self) -> bool:
        """Whether the common parts are equal."""
        return self.log_offset < 0 and not self.queue_count


def compare(
    disk: Disk, first: Layout, second: Layout, *, until: int | None = None
) -> StoreDifference:
    """Compare the common part of two stores.

    Args:
      until: compare below this physical offset only; None: up to the shorter log's end.

    Raises:
      StoreIOError: a file cannot be read.
    """
    with (
        closing(first.commit_log(disk)) as log,
        closing(second.commit_log(disk)) as other,
    ):
        logs = (log, other)
        start = max(each.min_offset for each in logs)
        walks = tuple(LogWalk(each, stop=until) for each in logs)
        records = [_from(start, walk.records()) for walk in walks]
        count, differs = 0, -1
        for ours, theirs in zip(*records, strict=False):
            if not _are_equal(logs, ours, theirs):
                differs = min(ours.physical_offset, theirs.physical_offset)
                break
            count += 1
        if differs < 0:
            for rest in records:  # to the end of the longer one
                for _ in rest:
                    pass
    ends = (walks[0].end, walks[1].end)
    end = min(ends) if differs < 0 else differs
    found = [] if differs >= 0 else list(_queues(disk, first, second, start, end))
    return StoreDifference(
        start, end, ends, count, differs, tuple(found[:QUEUES_SHOWN_MAX]), len(found)
    )


def _from(start: int, records: Iterator[LogRecord]) -> Iterator[LogRecord]:
    return (each for each in records if each.physical_offset >= start)


def _are_equal(logs: tuple[CommitLog, CommitLog], ours: LogRecord, theirs: LogRecord) -> bool:
    if (ours.physical_offset, ours.size) != (theirs.physical_offset, theirs.size):
        return False
    first, second = (log.read(ours.physical_offset, ours.size) for log in logs)
    return first is not None and second is not None and first == second


def _queues(
    disk: Disk, first: Layout, second: Layout, start: int, end: int
) -> Iterator[QueueDifference]:
    """The first difference of each queue, in units of messages between two physical offsets."""
    with (
        closing(_queues_of(disk, first)) as ours,
        closing(_queues_of(disk, second)) as theirs,
    ):
        for key in sorted({*ours.queues, *theirs.queues}):
            units = (_units(each, key, start, end) for each in (ours, theirs))
            for unit, other in zip_longest(*units):
                if unit != other:
                    yield QueueDifference(*key, min(each[0] for each in (unit, other) if each))
                    break


def _queues_of(disk: Disk, layout: Layout) -> QueuesOnDisk:
    return QueuesOnDisk(disk, layout.root, layout.queue_file_size, Findings())


def _units(
    queues: QueuesOnDisk, key: Key, start: int, end: int
) -> Iterator[tuple[int, tuple[int, int, int]]]:
    queue: QueueOnDisk | None = queues.queues.get(key)
    if queue is None:
        return
    for offset, unit in queues.written(queue, 0, queues.end_offset(queue)):
        if start <= unit[0] < end:
            yield offset, unit
