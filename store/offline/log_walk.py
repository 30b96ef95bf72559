"""Walking a whole commit log that may be damaged anywhere: records, holes, the tail.

The broker's own scanner stops at the first bytes that are no record. This walk looks for the next
whole record behind them; what lies between is a hole. Bad bytes that no record follows are the
tail. Bytes are believed only where a record says the physical offset at which it lies, and the body
has its CRC.

Source: what a record must be is RocketMQ 5.3.3 store/CommitLog.java checkMessageAndReturnSize.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...remoting.errors import RemoteProtocolError
from ...remoting.message import MessageExt
from ...remoting.message_codec import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTY_CRC_SIZE,
    RECORD_PREFIX,
    RECORD_SIZE_MIN,
    check_record_crc,
    decode_record,
)
from ..disk.topic_path import topic_path
from .log_files import CHUNK, RECORD_SIZE_MAX, LogFiles

HOLES_MAX = 10_000
"""Holes kept; a log with more is beyond repair in place."""

TOPICS_MAX = 100_000
"""Topics remembered as possible ones."""

_PREFIX = RECORD_PREFIX.size
_CRC_NAME = b"__CRC32#\x01"
_CRC_SIZE, _CRC_REST = PROPERTY_CRC_SIZE, PROPERTY_CRC_SIZE - len(_CRC_NAME)
_MAGIC = re.compile(
    b"|".join(re.escape(RECORD_PREFIX.pack(0, magic)[4:]) for magic in (MAGIC_V1, MAGIC_V2))
)


class Hole(NamedTuple):
    """Bytes of the log that are no records, with whole records behind them."""

    start: int  # physical offset of the first bad byte
    end: int  # physical offset of the next whole record, or where the log should end
    reason: str
    newest_ms: int = 0  # the newest store timestamp before it


class LogWalk:
    """One pass over the log.

    Args:
      files: the log's files.
      start: physical offset of a record, a blank or the end; None: the oldest file's.
      stop: do not go beyond this physical offset; None: the end of the files.
      read_body: give bodies, too.
      ours_from: physical offset from which on the records are known to be written by us; -1: none.
        Such a record whose properties hold a NUL and no checksum is a torn one.
      is_leftover: says of a record found behind bad bytes that it is none of this log's: arguments
        are the bad bytes' start, the record, and the newest store timestamp before.
      progress: called with the physical offset reached, about once per MiB.

    Attributes, valid while and after `records` runs:
      end: physical offset after the last good record.
      reason: why it ended there; "" for zeros or the end of the files.
      nonzero_end: where the last byte that is not zero lies behind `end`; `end` when there is none.
      leftover_at: a whole record behind the end that is a leftover; -1: there is none.
      holes: what was found, in order, at most `HOLES_MAX`; hole_count counts all.
      newest_ms: the newest store timestamp; that of one record far ahead of all does not count.
      last_offset: where the last record is; -1: nowhere.
      record_count, blank_count, back_count: records, blanks, and records older than the one before.
      first_back: physical offset of the first of those; -1: none.
      bad_crc_count, first_bad_crc: records whose `__CRC32#` alone is wrong, and the first of them.
    """

    def __init__(
        self,
        files: LogFiles,
        *,
        start: int | None = None,
        stop: int | None = None,
        read_body: bool = False,
        ours_from: int = -1,
        is_leftover: Callable[[int, MessageExt, int], bool] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.end = files.min_offset if start is None else start
        self.reason = ""
        self.nonzero_end = self.end
        self.leftover_at = -1
        self.holes: list[Hole] = []
        self.hole_count = 0
        self.newest_ms = 0
        self.last_offset = -1
        self._last_ms = self._older_ms = 0
        self.record_count = self.blank_count = 0
        self.back_count, self.first_back = 0, -1
        self.bad_crc_count, self.first_bad_crc = 0, -1
        self._topics: set[str] = set()
        self._good_crc_count = self._plain_count = 0
        self._files = files
        self._stop = files.end_of_files if stop is None else min(stop, files.end_of_files)
        self._read_body = read_body
        self._ours_from = ours_from
        self._is_leftover = is_leftover
        self._progress = progress

    def records(self) -> Iterator[MessageExt]:
        """The whole records in order.

        Raises:
          StoreIOError: a file cannot be read.
        """
        while self.end < self._stop:
            yield from self._good_records()
            if self.end >= self._stop:
                break
            found = self._next_record(self.end)
            if found < 0:
                break
            self.hole_count += 1
            if len(self.holes) < HOLES_MAX:
                self.holes.append(Hole(self.end, found, self.reason or "zeros", self.newest_ms))
            self.end, self.reason, self.leftover_at = found, "", -1
        self.nonzero_end = self.end
        if self.end < self._stop:
            self.nonzero_end = self._files.last_nonzero(self.end)

    def _good_records(self) -> Iterator[MessageExt]:
        """Records from `end` on up to the first bytes that are none."""
        files, stop, file_size = self._files, self._stop, self._files.file_size
        self.reason = ""
        while self.end < stop:
            chunk_at = self.end
            file_end = files.base(chunk_at) + file_size
            chunk = files.read(chunk_at, CHUNK)
            if self._progress is not None:
                self._progress(chunk_at)
            at = 0
            while chunk_at + at < min(file_end, stop):
                offset = chunk_at + at
                if at + _PREFIX > len(chunk):
                    if at == 0:
                        self.reason = self._short(offset)
                        return
                    break  # the next chunk begins here
                size, magic = RECORD_PREFIX.unpack_from(chunk, at)
                if magic == MAGIC_BLANK and size == file_end - offset:
                    self.blank_count += 1
                    at = file_end - chunk_at
                    self.end = file_end
                    break
                problem = self._prefix_problem(size, magic, file_end - offset)
                if problem is not None:
                    self.reason = problem
                    return
                if at + size > len(chunk):
                    if at:
                        break  # the next chunk begins here
                    chunk = files.read(offset, size)
                    if len(chunk) < size:
                        self.reason = self._short(offset + len(chunk))
                        return
                record = self._checked(chunk, at, offset)
                if record is None:
                    return
                at += size
                self._count(record)
                yield record
                self.end = offset + size

    def _count(self, record: MessageExt) -> None:
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

    def _short(self, offset: int) -> str:
        files = self._files
        base = files.base(offset)
        if base not in files.sizes:
            return f"the file {files.path(offset)} is missing"
        if files.sizes[base] < files.file_size:
            return f"the file ends after {files.sizes[base]} of {files.file_size} bytes"
        left = base + files.file_size - offset
        return f"{left} bytes are left in the file, too few even for a blank"

    def _prefix_problem(self, size: int, magic: int, remaining: int) -> str | None:
        """Why no record can begin with these two; "" for zeros, None if one can."""
        if size == 0 and magic == 0:
            return ""
        if magic not in (MAGIC_V1, MAGIC_V2):
            return f"no record starts here (magic {magic & 0xFFFFFFFF:08x})"
        if not RECORD_SIZE_MIN <= size <= min(remaining, RECORD_SIZE_MAX):
            return f"a record of {size} bytes with {remaining} left in the file"
        return None

    def _checked(self, chunk: bytes, at: int, offset: int) -> MessageExt | None:
        """The record there, with `reason` set if it is none."""
        try:
            record = decode_record(chunk, at, read_body=self._read_body)
        except RemoteProtocolError as error:
            self.reason = error.reason
            return None
        if record.physical_offset != offset:
            self.reason = f"the record says it lies at {record.physical_offset}"
            return None
        topic = record.topic
        if topic not in self._topics:
            if topic_path(topic) is None:
                self.reason = f"the record's topic is {topic[:20]!r}"
                return None
            if len(self._topics) >= TOPICS_MAX:
                self._topics.clear()
            self._topics.add(topic)
        properties = record.properties_bytes
        crc = None
        if properties[-_CRC_SIZE:-_CRC_REST] == _CRC_NAME:
            crc = check_record_crc(chunk, at, record.store_size)
        if crc is None:
            self._plain_count += 1
            if 0 <= self._ours_from <= offset and b"\0" in properties:
                self.reason = "the properties hold a NUL and no checksum: it was torn there"
                return None
        elif crc:
            self._good_crc_count += 1
        elif self._good_crc_count and not self._plain_count:
            self.reason = "the CRC over the whole record is wrong"
            return None
        else:
            # A client that forwards a message forwards the old record's checksum with it.
            self.bad_crc_count += 1
            if self.first_bad_crc < 0:
                self.first_bad_crc = offset
        return record

    def _next_record(self, start: int) -> int:
        """Where the next whole record lies that counts, after `start`; -1 when there is none."""
        reason = self.reason
        found = -1
        for chunk_at, chunk in self._files.chunks(start, overlap=_PREFIX - 1):
            if chunk_at >= self._stop:
                break
            if self._progress is not None:
                self._progress(chunk_at)
            for match in _MAGIC.finditer(chunk, _PREFIX // 2):
                offset = chunk_at + match.start() - _PREFIX // 2
                if offset <= start or offset >= self._stop:
                    continue
                record = self._record_at(offset)
                if record is None:
                    continue
                if self._is_leftover is not None and self._is_leftover(
                    start, record, self.newest_ms
                ):
                    if self.leftover_at < 0:
                        self.leftover_at = offset
                    continue
                found = offset
                break
            if found >= 0:
                break
        self.reason = reason
        return found

    def _record_at(self, offset: int) -> MessageExt | None:
        record = self._files.record_at(offset)
        if record is None or topic_path(record.topic) is None:
            return None
        return record
