"""The decision table of recovery: the action at the end of the readable commit log. Pure.

Java counterpart: CommitLog.recoverNormally and recoverAbnormally of 5.3.3, which cut the log at the
first bad record in any case. Three rules go beyond that:

- a bad record that others follow is a hole and not a tail: cutting there would lose acknowledged
  messages. So would cutting before an offset that is known to be on the device. The store then
  starts read-only, changes nothing on disk, and serves the messages on both sides;
- sectors that a power cut left unwritten are not a hole, though good records follow: no later
  record can have been acknowledged, because an fsync of later bytes of a file covers the earlier
  ones;
- cutting means overwriting the rest with zeros and syncing, before anything is appended. Otherwise
  the old bytes would be records again after the next crash.

Not done: repair from a replica.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ..config import FlushDiskType


class Rest(Enum):
    """The bytes after the last good record."""

    ZEROS = "zeros"
    GARBAGE = "bytes that hold no whole record"
    SKIPPED = "sectors that were never written, then good records"
    RECORDS = "a bad record, then good ones"


class Action(Enum):
    """The action of a start."""

    KEEP = "append here"
    TRUNCATE = "write zeros over the rest, sync, append here"
    READ_ONLY = "change nothing, refuse sends, serve what is readable before and behind"


class Place(Enum):
    """The position of the first bad byte."""

    SYNCED = "before the synced end that our checkpoint or a clean exit guarantees"
    UNSYNCED = "after it"
    UNKNOWN = "unknown: an abnormal exit without a checkpoint of ours"


@dataclass(frozen=True, slots=True)
class Case:
    """One row: each column holds the values it matches, None matches everything."""

    label: str
    rest: tuple[Rest, ...]
    clean: bool | None
    place: tuple[Place, ...]
    flush: FlushDiskType | None
    action: Action
    why: str

    def matches(self, rest: Rest, clean: bool, place: Place, flush: FlushDiskType) -> bool:
        """Whether this is the row for a log's end."""
        return (
            rest in self.rest
            and self.clean in (None, clean)
            and place in self.place
            and self.flush in (None, flush)
        )


_SYNCED = (Place.SYNCED,)
_UNSYNCED = (Place.UNSYNCED,)
_NOT_SYNCED = (Place.UNSYNCED, Place.UNKNOWN)
_NOT_BEHIND = (Place.SYNCED, Place.UNKNOWN)
_ANY_RECORDS = (Rest.RECORDS, Rest.SKIPPED)

TABLE: Final = (
    Case("A", (Rest.ZEROS,), None, _NOT_SYNCED, None, Action.KEEP, "the usual end"),
    Case(
        "B", (Rest.GARBAGE,), None, _NOT_SYNCED, None, Action.TRUNCATE,
        "a torn last write",
    ),
    Case(
        "C", _ANY_RECORDS, True, _UNSYNCED, None, Action.TRUNCATE,
        "a clean exit ended here; what follows is left over from a truncation by Apache's broker",
    ),
    Case(
        "D", (Rest.RECORDS,), False, _UNSYNCED, FlushDiskType.ASYNC_FLUSH, Action.TRUNCATE,
        "a power cut kept later pages and lost earlier ones, within what async flush may lose",
    ),
    Case(
        "E", (Rest.RECORDS,), False, _UNSYNCED, FlushDiskType.SYNC_FLUSH, Action.READ_ONLY,
        "what follows may have been acknowledged",
    ),
    Case(
        "F", _ANY_RECORDS, None, _NOT_BEHIND, None, Action.READ_ONLY,
        "a hole in bytes that may have been on the device",
    ),
    Case(
        "G", (Rest.ZEROS, Rest.GARBAGE), None, _SYNCED, None, Action.READ_ONLY,
        "bytes that were on the device are gone from the log's end",
    ),
    Case(
        "H", (Rest.SKIPPED,), False, _UNSYNCED, None, Action.TRUNCATE,
        "a power cut kept later pages of writes that no fsync had covered yet",
    ),
)  # fmt: skip
"""Every combination meets exactly one row (tested)."""


def decide(*, rest: Rest, clean: bool, place: Place, flush: FlushDiskType) -> Case:
    """The row for a log's end.

    Args:
      rest: the bytes after the last good record.
      clean: there was no abort file.
      place: whether the end is before an offset that is known to be on the device.
      flush: the configured flushDiskType.
    """
    for case in TABLE:
        if case.matches(rest, clean, place, flush):
            return case
    raise AssertionError(f"no row for {rest}, {clean}, {place}, {flush}")


def scan_start(
    *,
    clean: bool,
    dispatched_offset: int,
    bases: list[int],
    first_timestamp_ms: Callable[[int], int],
    queues_end: int,
    safe_timestamp_ms: int,
) -> int:
    """The physical offset at which recovery starts to read the log.

    Args:
      clean: there was no abort file.
      dispatched_offset: the checkpoint's, -1 when it is not ours.
      bases: of the log files, oldest first.
      first_timestamp_ms: store timestamp of a file's first record, by its base; 0 if it has none.
      queues_end: first byte of the log after the last record that a queue unit points to.
      safe_timestamp_ms: the time up to which the checkpoint covers the log, less 3 s.

    Returns: a record's physical offset, or a file's base.

    Source: the fallbacks are RocketMQ 5.3.3 store/CommitLog.java recoverNormally (newest file that
      starts at or before the queues' end) and recoverAbnormally (newest file whose first record is
      older than the checkpoint).
    """
    if not bases:
        return 0
    oldest = bases[0]
    if dispatched_offset >= oldest:
        return dispatched_offset
    for base in reversed(bases):
        if clean and base <= queues_end:
            return base
        if not clean and 0 < first_timestamp_ms(base) <= safe_timestamp_ms:
            return base
    return oldest
