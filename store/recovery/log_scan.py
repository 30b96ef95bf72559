"""Reading the log from where it is known to be good to its end, and beyond holes.

Nothing on disk is changed here: the outcome says what is to be done. What lies behind the last good
record is judged by recovery_table.py; behind a hole reading goes on at the next record.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from ..clock import LATEST_MS
from ..config import MessageStoreConfig
from ..log.commit_log import CommitLog
from ..log.log_bytes import has_unwritten_sector, last_nonzero
from ..log.log_reader import CANDIDATE_CHUNK, Hole, LogReader, find_record
from .recovered_queues import UNITS_MAX, Oddity, RecoveredQueues
from .recovery_table import Action, Case, Place, Rest, decide

logger = logging.getLogger(__name__)

HOLES_MAX = 1000
"""Holes kept one by one. Reading goes no further than behind the last of them."""


@dataclass(slots=True)
class ScanResult:
    """What one reading found.

    Attributes:
      end: physical offset after the last good record.
      case: what to do about what lies behind it.
      nonzero_end: up to where bytes behind `end` are not all zero.
      reason: why reading ended; "" for zeros.
      holes: oldest first; the store must start read-only if there are any.
      newest_ms: the newest store timestamp seen that can be one (`LATEST_MS`), 0: none.
      segments: [start, end) of what was read without a break.
      collected_until: physical offset up to which the queues' units were collected; -1: all were.
    """

    end: int
    case: Case
    nonzero_end: int
    reason: str
    holes: list[Hole] = field(default_factory=list)
    newest_ms: int = 0
    segments: list[tuple[int, int]] = field(default_factory=list)
    collected_until: int = -1


class LogScan:
    """One reading.

    Args:
      config: checkCRCOnRecover, flushDiskType.
      log: loaded.
      clean: there was no abort file.
      vouched: physical offset up to which all is known to be on the device.
      is_known: whether `vouched` says all there is to know; else what lies behind it may have been
        on the device too.
      own_from: physical offset from which on records are known to be ours, see `LogReader`.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        log: CommitLog,
        *,
        clean: bool,
        vouched: int,
        is_known: bool,
        own_from: int,
    ) -> None:
        self._config = config
        self._log = log
        self._clean = clean
        self._vouched = vouched
        self._is_known = is_known
        self._own_from = own_from
        self._nonzero_end = -1

    def read(self, start: int, states: RecoveredQueues) -> ScanResult:
        """Read from a record's physical offset to the log's end.

        Args:
          states: gets every record; only looked at after that.

        Raises:
          StoreIOError: a file could not be read.
        """
        holes: list[Hole] = []
        segments: list[tuple[int, int]] = []
        newest_ms, collected_until = 0, -1
        feed, log = states.feed, self._log
        while True:
            reader = LogReader(
                log, start, check_crc=self._config.check_crc_on_recover, own_from=self._own_from
            )
            last_ms = 0
            for record in reader.scan():
                offset, size, _, _, _, _, last_ms, _ = record
                if newest_ms < last_ms <= LATEST_MS:
                    newest_ms = last_ms
                try:
                    feed(record)
                except Oddity as oddity:
                    states.after_hole = True
                    if len(holes) < HOLES_MAX:
                        holes.append(Hole(offset, offset + size, str(oddity)))
                if states.unit_count >= UNITS_MAX and not states.is_full:
                    states.is_full = True
                    collected_until = offset + size
            end = reader.end
            if end > start:
                segments.append((start, end))
            if last_ms > LATEST_MS:
                logger.warning(
                    "%s: the store timestamp %d of a record before offset %d is no time: it does "
                    "not count as the newest", log.folder, last_ms, end,
                )  # fmt: skip
                last_ms = newest_ms
            nonzero_end, found, case = self._judge(reader, last_ms)
            result = ScanResult(
                end, case, nonzero_end, reader.reason, holes, newest_ms, segments, collected_until
            )
            if case.action is not Action.READ_ONLY:
                return result
            reason = f"{reader.reason or 'zeros or a missing file'} (case {case.label}: {case.why})"
            at_end = found < 0
            hole_end = max(self._vouched, end) if at_end else found
            holes.append(Hole(end, hole_end, reason, at_end=at_end))
            if found < 0 or len(holes) > HOLES_MAX:
                return result
            states.after_hole = True
            start = found

    def damaged_starts(self, until: int) -> list[Hole]:
        """Holes at the beginning of files that are not read because they were synced long ago.

        Args:
          until: files that begin before this physical offset are looked at.

        Raises:
          StoreIOError: a file could not be read.
        """
        log = self._log
        holes = []
        for base in range(log.min_offset, until, log.file_size):
            reason = "the commit log file is missing"
            if base in log.files:
                reader = LogReader(log, base, chunk_size=CANDIDATE_CHUNK)
                if next(reader.scan(), None) is not None or reader.end > base:
                    continue
                reason = reader.reason or "zeros where the file's first record should be"
            end = base + log.file_size
            found = find_record(log, base + 1, end)
            holes.append(Hole(base, found if found >= 0 else min(end, until), reason))
        return holes

    def _judge(self, reader: LogReader, last_ms: int) -> tuple[int, int, Case]:
        """(end of what is not zero, next record or -1, what to do) for where a scan ended."""
        log, end = self._log, reader.end
        if self._nonzero_end < 0 and self._is_exact(reader):
            self._nonzero_end = end
        if self._nonzero_end < 0:
            self._nonzero_end = last_nonzero(log, end)
        nonzero_end = max(self._nonzero_end, end)
        rest, found = Rest.ZEROS, -1
        if nonzero_end > end:
            # What is older is left of an earlier time line: cut off once, in memory only.
            found = find_record(
                log, end + 1, nonzero_end, lambda record: record.store_timestamp_ms >= last_ms,
                own_from=self._own_from,
            )  # fmt: skip
            rest = Rest.GARBAGE
            if found >= 0:
                unwritten = has_unwritten_sector(log, end, found)
                rest = Rest.SKIPPED if unwritten else Rest.RECORDS
        place = Place.UNSYNCED if self._is_known else Place.UNKNOWN
        if self._is_known and end < self._vouched:
            place = Place.SYNCED
        case = decide(rest=rest, clean=self._clean, place=place, flush=self._config.flush_disk_type)
        return nonzero_end, found, case

    def _is_exact(self, reader: LogReader) -> bool:
        """Whether a clean exit of ours ended just here: then nothing lies behind it."""
        return (
            self._clean
            and not reader.reason
            and self._own_from <= reader.end == self._vouched
            and reader.end - reader.end % self._log.file_size >= self._last_base()
        )

    def _last_base(self) -> int:
        return self._log.end_of_files - self._log.file_size


def describe(holes: list[Hole], log: CommitLog, root: str) -> str:
    """What to tell the operator: where, what, and what to do."""
    first = holes[0]
    goes_on = f"The log goes on at {first.end}, what lies between is missing."
    if first.at_end:
        goes_on = f"No record follows, but the log reached up to {first.end}."
    more = f" There are {len(holes) - 1} more such places." if len(holes) > 1 else ""
    return (
        f"{log.path_at(first.start)}: at offset {first.start}: {first.reason}. {goes_on}{more} "
        "The store is read-only and nothing was changed. Restore the file from a replica or a "
        f"backup, or stop the broker and run `trocket store repair {root}`"
    )
