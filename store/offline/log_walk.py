"""A walk over a whole commit log that may be damaged anywhere: records, holes, the tail.

It continues the store's reader after damage: the bytes up to the next whole record are a hole. Bad
bytes that no record follows are the tail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...remoting.message import MessageExt
from ..log.commit_log import CommitLog
from ..log.log_bytes import last_nonzero
from ..log.log_reader import RECORD_SIZE_MAX, Hole, LogReader, LogRecord

HOLES_MAX = 10_000
"""Holes kept; a log with more cannot be repaired in place."""


class LogWalk:
    """One pass over the log.

    Args:
      log: its files may be missing or short.
      start: physical offset of a record, a blank or the end; None: the oldest file's.
      stop: records from this physical offset on are ignored; None: the end of the files.
      ours_from: physical offset from which on the records are known to be this program's; -1: none.
        Such a record whose properties hold a NUL and no checksum is torn.
      is_leftover: whether a record after bad bytes does not belong to this log: arguments are the
        bad bytes' start, the record, and the newest store timestamp before.
      progress: called with (bytes done, bytes in all), about once per MiB.

    Attributes, valid while and after `records` runs:
      reason: why the log ended at `end`; "" for zeros or the end of the files.
      nonzero_end: end of the last byte after `end` that is not zero; `end` when there is none.
      leftover_at: physical offset of a leftover record after the end; -1 if there is none.
      holes: in order, at most `HOLES_MAX`; hole_count counts all.
      newest_ms: the newest store timestamp, without a single record far ahead of all others.
      last_offset: physical offset of the last record; -1 if there is none.
      record_count, back_count: records, and records older than the one before.
      first_back: physical offset of the first of those; -1: none.
      bad_crc_count, first_bad_crc: records whose `__CRC32#` alone is wrong, and the first of them.
    """

    def __init__(
        self,
        log: CommitLog,
        *,
        start: int | None = None,
        stop: int | None = None,
        ours_from: int = -1,
        is_leftover: Callable[[int, LogRecord, int], bool] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        start = log.min_offset if start is None else start
        self.reason = ""
        self.nonzero_end = start
        self.leftover_at = -1
        self.holes: list[Hole] = []
        self.hole_count = 0
        self.newest_ms = 0
        self.last_offset = -1
        self.record_count = 0
        self.back_count, self.first_back = 0, -1
        self.bad_crc_count, self.first_bad_crc = 0, -1
        self._last_ms = self._older_ms = 0
        self._good_crc_count = self._torn_count = 0
        self._log = log
        self._stop = log.end_of_files if stop is None else min(stop, log.end_of_files)
        self._ours_from = ours_from
        self._is_leftover = is_leftover
        total = max(self._stop - start, 1)

        # The reader may pass the end by a record.
        def on_read(offset: int) -> None:
            if progress is not None:
                progress(min(offset - start, total), total)

        self._reader = LogReader(
            log,
            start,
            crc_problem=self._crc_problem,
            size_max=RECORD_SIZE_MAX,
            progress=on_read,
        )

    @property
    def end(self) -> int:
        """Physical offset after the last good record."""
        return self._reader.end

    @property
    def blank_count(self) -> int:
        """Blanks, each at the end of a file."""
        return self._reader.blank_count

    def records(self) -> Iterator[LogRecord]:
        """The whole records in order.

        Raises:
          StoreIOError: a file cannot be read.
        """
        reader, stop = self._reader, self._stop
        while reader.end < stop:
            self.reason = ""
            for record in reader.records():
                if record.physical_offset >= stop:
                    break
                self._count(record)
                yield record
            if reader.end >= stop:
                break
            # Before the skip, which reads on and gives another reason.
            self.reason = reader.reason or self._missing_file()
            hole = reader.skip_damage(stop, counts=self._counts)
            if hole is None:
                break
            self.hole_count += 1
            if len(self.holes) < HOLES_MAX:
                reason = self.reason or "zeros"
                self.holes.append(hole._replace(reason=reason, newest_ms=self.newest_ms))
            self.leftover_at = -1
        self.nonzero_end = self.end
        if self.end < stop:
            self.nonzero_end = last_nonzero(self._log, self.end)

    def messages(self, *, read_body: bool = False) -> Iterator[MessageExt]:
        """The whole records as messages."""
        return (self.message(read_body=read_body) for _ in self.records())

    def message(self, *, read_body: bool = False) -> MessageExt:
        """The last record as a message; valid until the next one is read."""
        return self._reader.message(read_body=read_body)

    def _count(self, record: LogRecord) -> None:
        self.record_count += 1
        self.last_offset = record.physical_offset
        timestamp_ms = record.store_timestamp_ms
        if timestamp_ms < self._last_ms:
            self.back_count += 1
            if self.first_back < 0:
                self.first_back = record.physical_offset
            if self._older_ms <= timestamp_ms:
                self.newest_ms = timestamp_ms  # the one record before it was off
        else:
            self._older_ms = self._last_ms
        self._last_ms = timestamp_ms
        if timestamp_ms > self.newest_ms:
            self.newest_ms = timestamp_ms

    def _crc_problem(self, physical_offset: int, properties: bytes, right: bool | None) -> str:
        """Why a record is not whole, by its CRC property or the lack of one; "" when it is."""
        if right is None:
            if 0 <= self._ours_from <= physical_offset and b"\0" in properties:
                self._torn_count += 1
                return "the properties hold a NUL and no checksum: it was torn there"
        elif right:
            self._good_crc_count += 1
        else:
            known = self._good_crc_count + self.bad_crc_count
            if self._good_crc_count and known == self.record_count and not self._torn_count:
                # A broker that gives the property to every record.
                return "the CRC over the whole record is wrong"
            # A client that forwards a message forwards the old record's checksum with it.
            self.bad_crc_count += 1
            if self.first_bad_crc < 0:
                self.first_bad_crc = physical_offset
        return ""

    def _missing_file(self) -> str:
        base = self.end - self.end % self._log.file_size
        return "" if base in self._log.files else f"the file {self._log.path_of(base)} is missing"

    def _counts(self, record: LogRecord) -> bool:
        """Whether a record after bad bytes belongs to this log."""
        if self._is_leftover is None or not self._is_leftover(self.end, record, self.newest_ms):
            return True
        if self.leftover_at < 0:
            self.leftover_at = record.physical_offset
        return False
