"""The scan of recovery: reads the log from a known good offset to its end, and beyond holes.

Nothing on disk is changed here: the result says what to do. recovery_table.py decides about the
bytes after the last good record; after a hole the scan continues at the next record.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from ...common.clock import LATEST_MS
from ..config import MessageStoreConfig
from ..log.commit_log import CommitLog
from ..log.log_bytes import has_unwritten_sector, last_nonzero
from ..log.log_reader import CANDIDATE_CHUNK, Hole, LogReader, find_record
from .recovered_queues import UNITS_MAX, RecoveredQueues, UnexplainedOffsetError
from .recovery_table import Action, Case, Place, Rest, decide

logger = logging.getLogger(__name__)

HOLES_MAX = 1000
"""Holes that are kept. The scan ends after the last of them."""


@dataclass(slots=True)
class ScanResult:
    """The result of a scan.

    Attributes:
      end: physical offset after the last good record.
      case: what to do about the bytes after it.
      nonzero_end: end of the last byte after `end` that is not zero.
      reason: why the scan ended; "" for zeros.
      holes: oldest first; the store must start read-only if there are any.
      newest_ms: the newest plausible store timestamp (`LATEST_MS`), 0: none.
      segments: [start, end) of the ranges that were read without a break.
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
    """A scan of the log.

    Args:
      config: checkCRCOnRecover, flushDiskType.
      log: loaded.
      clean: there was no abort file.
      vouched: physical offset up to which the log is known to be on the device.
      is_known: nothing after `vouched` was synced; otherwise that is unknown.
      own_from: physical offset from which on records are known to be this program's, see
        `LogReader`.
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
          states: gets every record.

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
                except UnexplainedOffsetError as error:
                    states.after_hole = True
                    if len(holes) < HOLES_MAX:
                        holes.append(Hole(offset, offset + size, str(error)))
                if states.unit_count >= UNITS_MAX and not states.is_full:
                    states.is_full = True
                    collected_until = offset + size
            end = reader.end
            if end > start:
                segments.append((start, end))
            if last_ms > LATEST_MS:
                logger.warning(
                    "%(folder)s: the store timestamp %(last_ms)d of a record before offset "
                    "%(end)d is impossible and is ignored as the newest",
                    {"folder": log.folder, "last_ms": last_ms, "end": end},
                )
                last_ms = newest_ms
            nonzero_end, found, case = self._classify_end(reader, last_ms)
            result = ScanResult(
                end=end,
                case=case,
                nonzero_end=nonzero_end,
                reason=reader.reason,
                holes=holes,
                newest_ms=newest_ms,
                segments=segments,
                collected_until=collected_until,
            )
            if case.action is not Action.READ_ONLY:
                return result
            reason = f"{reader.reason or 'zeros or a missing file'} (case {case.label}: {case.why})"
            # Kept as a hole, and skipped: messages on both sides are served read-only.
            at_end = found < 0
            hole_end = max(self._vouched, end) if at_end else found
            holes.append(Hole(end, hole_end, reason, at_end=at_end))
            if found < 0 or len(holes) > HOLES_MAX:
                return result
            states.after_hole = True
            start = found

    def damaged_starts(self, until: int) -> list[Hole]:
        """Holes at the beginning of older files, which the scan does not read.

        Args:
          until: files that begin before this physical offset are checked.

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

    def _classify_end(self, reader: LogReader, last_ms: int) -> tuple[int, int, Case]:
        """(end of the non-zero bytes, next record or -1, what to do) for the end of a scan."""
        log, end = self._log, reader.end
        if self._nonzero_end < 0 and self._is_exact(reader):
            self._nonzero_end = end
        if self._nonzero_end < 0:
            self._nonzero_end = last_nonzero(log, end)
        nonzero_end = max(self._nonzero_end, end)
        rest, found = Rest.ZEROS, -1
        if nonzero_end > end:
            # An older record was cut off before, and its zeros never reached the device.
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
        """Whether a clean exit of this program ended here: then only zeros follow."""
        return (
            self._clean
            and not reader.reason
            and self._own_from <= reader.end == self._vouched
            and reader.end - reader.end % self._log.file_size >= self._last_base()
        )

    def _last_base(self) -> int:
        return self._log.end_of_files - self._log.file_size


def describe(holes: list[Hole], log: CommitLog, root: str) -> str:
    """The message for the operator: where, what, and what to do."""
    first = holes[0]
    extent = f"The next record is at {first.end}, the bytes in between are lost."
    if first.at_end:
        extent = f"No record follows, but the log reached up to {first.end}."
    more = f" There are {len(holes) - 1} more such places." if len(holes) > 1 else ""
    return (
        f"{log.path_at(first.start)}: at offset {first.start}: {first.reason}. {extent}{more} "
        "The store is read-only and nothing was changed. Restore the file from a replica or a "
        f"backup, or stop the broker and run `trocket store repair {root}`"
    )
