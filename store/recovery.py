"""What to do where reading the commit log ends: a table, and nothing but the table.

Java counterpart: CommitLog.recoverNormally and recoverAbnormally of 5.3.3, which cut the log at the
first bad record, whatever follows. Two rules go beyond that:

- a bad record that others follow is a hole and not a tail: cutting there would throw acknowledged
  messages away, so the store refuses to start instead;
- cutting means writing zeros over the rest and syncing, before anything new is appended. Bytes left
  behind would be records again after the next crash.

Not done: starting read-only around a hole, and repair from a replica.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from .config import FlushDiskType


class Rest(Enum):
    """What lies behind the last good record."""

    ZEROS = "zeros"
    GARBAGE = "bytes that hold no whole record"
    RECORDS = "a bad record, then good ones"


class Action(Enum):
    """What to do about it."""

    KEEP = "append here"
    TRUNCATE = "write zeros over the rest, sync, append here"
    REFUSE = "do not start"


class Place(Enum):
    """Where the first bad byte lies."""

    SYNCED = "before what the checkpoint or a clean exit vouches for"
    UNSYNCED = "behind it"


@dataclass(frozen=True, slots=True)
class Case:
    """One row: None matches everything."""

    label: str
    rest: Rest
    clean: bool | None
    place: Place | None
    flush: FlushDiskType | None
    action: Action
    why: str


TABLE: Final = (
    Case("A", Rest.ZEROS, None, None, None, Action.KEEP, "the usual end"),
    Case("B", Rest.GARBAGE, None, None, None, Action.TRUNCATE, "a torn last write"),
    Case(
        "C", Rest.RECORDS, True, Place.UNSYNCED, None, Action.TRUNCATE,
        "a clean exit ended here; what follows is left over from a truncation by Apache's broker",
    ),
    Case(
        "D", Rest.RECORDS, False, Place.UNSYNCED, FlushDiskType.ASYNC_FLUSH, Action.TRUNCATE,
        "a power cut kept later pages and lost earlier ones, within what async flush may lose",
    ),
    Case(
        "E", Rest.RECORDS, False, Place.UNSYNCED, FlushDiskType.SYNC_FLUSH, Action.REFUSE,
        "what follows may have been acknowledged",
    ),
    Case("F", Rest.RECORDS, None, Place.SYNCED, None, Action.REFUSE, "a hole in synced bytes"),
)  # fmt: skip
"""Every combination meets exactly one row (tested)."""


def decide(*, rest: Rest, clean: bool, place: Place, flush: FlushDiskType) -> Case:
    """The row for a log's end.

    Args:
      rest: what lies behind the last good record.
      clean: there was no abort file.
      place: whether the end lies before what is known to be on the device.
      flush: the configured flushDiskType.
    """
    for case in TABLE:
        if (
            case.rest is rest
            and case.clean in (None, clean)
            and case.place in (None, place)
            and case.flush in (None, flush)
        ):
            return case
    raise AssertionError(f"no row for {rest}, {clean}, {place}, {flush}")


def scan_start(
    *,
    clean: bool,
    dispatched_offset: int,
    files: list[tuple[int, int]],
    queues_end: int,
    safe_timestamp_ms: int,
) -> int:
    """Where recovery starts reading the log.

    Args:
      clean: there was no abort file.
      dispatched_offset: the checkpoint's, -1 when it is not ours.
      files: (base, store timestamp ms of the first record or 0) of each log file, oldest first.
      queues_end: the highest byte of the log that a queue unit points behind.
      safe_timestamp_ms: what the checkpoint vouches for, 3 s taken off.

    Returns: a record's physical offset, or the oldest file's base.

    Source: the fallbacks are RocketMQ 5.3.3 store/CommitLog.java recoverNormally (newest file that
      starts at or before the queues' end) and recoverAbnormally (newest file whose first record is
      older than the checkpoint).
    """
    if not files:
        return 0
    oldest = files[0][0]
    if dispatched_offset >= oldest:
        return dispatched_offset
    for base, timestamp_ms in reversed(files):
        if clean and base <= queues_end:
            return base
        if not clean and 0 < timestamp_ms <= safe_timestamp_ms:
            return base
    return oldest
