"""Reading the commit log record by record, believing nothing.

Java counterpart: CommitLog.checkMessageAndReturnSize of 5.3.3. Beyond Apache's checks a record must
say the physical offset at which it lies. Reads with pread, not through maps: a failing device is
then an error and not a signal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..remoting.errors import RemoteProtocolError
from ..remoting.message import MessageExt
from ..remoting.message_codec import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_PREFIX,
    RECORD_SIZE_MIN,
    decode_record,
)
from .commit_log import CommitLog
from .topic_path import topic_path

CHUNK = 1024 * 1024

_PREFIX_SIZE = RECORD_PREFIX.size
_MAGICS = tuple(RECORD_PREFIX.pack(0, magic)[4:] for magic in (MAGIC_V1, MAGIC_V2))


class LogScanner:
    """Walks the log from a record's start to the first bytes that are no record.

    Args:
      log: its files are read only.
      start: physical offset of a record, a blank, or the end.
      check_crc: recompute body checksums.
      stop: the physical offset not to go beyond, asked again and again (the log may grow while
        it is read); None: the end of the files.

    Attributes:
      end: physical offset after the last good record, valid while and after `records` runs.
      reason: why it ended there; "" for zeros or the end of the files.
    """

    def __init__(
        self,
        log: CommitLog,
        start: int,
        *,
        check_crc: bool = True,
        stop: Callable[[], int] | None = None,
    ) -> None:
        self.end = start
        self.reason = ""
        self._log = log
        self._check_crc = check_crc
        self._stop = stop
        self._chunk = b""
        self._chunk_at = start

    def records(self) -> Iterator[MessageExt]:
        """The records in order, without their bodies.

        Raises:
          StoreIOError: a file could not be read.
        """
        file_size = self._log.file_size
        while self._stop is None or self.end < self._stop():
            offset = self.end
            base = offset - offset % file_size
            if base not in self._log.files:
                return
            remaining = base + file_size - offset
            head = self._bytes(offset, _PREFIX_SIZE)
            if len(head) < _PREFIX_SIZE:
                self.reason = f"{remaining} bytes are left in the file, too few even for a blank"
                return
            size, magic = RECORD_PREFIX.unpack(head)
            if magic == MAGIC_BLANK and size == remaining:
                self.end = base + file_size
                continue
            if size == 0 and magic == 0:
                return
            record = self._record(offset, size, magic, remaining)
            if record is None:
                return
            yield record
            self.end = offset + size

    def _record(self, offset: int, size: int, magic: int, remaining: int) -> MessageExt | None:
        if magic not in (MAGIC_V1, MAGIC_V2):
            self.reason = f"no record starts here (magic {magic & 0xFFFFFFFF:08x})"
            return None
        if not RECORD_SIZE_MIN <= size <= remaining:
            self.reason = f"a record of {size} bytes with {remaining} left in the file"
            return None
        data = self._bytes(offset, size)
        try:
            record = decode_record(data, 0, check_crc=self._check_crc, read_body=False)
        except RemoteProtocolError as error:
            self.reason = str(error)
            return None
        if record.store_size != size or record.physical_offset != offset:
            self.reason = f"the record says it lies at {record.physical_offset}"
            return None
        if topic_path(record.topic) is None:
            # Never stored; the checksum covers the body only, so a tear can look like this.
            self.reason = f"the record's topic is {record.topic[:20]!r}"
            return None
        return record

    def _bytes(self, offset: int, size: int) -> bytes:
        position = offset - self._chunk_at
        if position < 0 or position + size > len(self._chunk):
            base = offset - offset % self._log.file_size
            want = max(size, CHUNK)
            if self._stop is not None:
                want = max(min(want, self._stop() - offset), size)
            self._chunk = self._log.files[base].pread(want, offset - base)
            self._chunk_at = offset
            position = 0
        return self._chunk[position : position + size]


def find_record_after(log: CommitLog, start: int, end: int, timestamp_ms: int) -> int:
    """Where a whole record lies in [start, end) that says that very physical offset.

    Args:
      timestamp_ms: records stored before it do not count: they are leftovers of an older time line
        that some truncation left in the file.

    Returns: its physical offset; -1 when there is none.

    Raises:
      StoreIOError: a file could not be read.
    """
    for base, file in log.files.items():
        position = max(start - base, 0)
        stop = min(end - base, log.file_size)
        while position < stop:
            chunk = file.pread(CHUNK, position)
            if not chunk:
                break
            for magic in _MAGICS:
                at = chunk.find(magic, 4)
                while at >= 0:
                    offset = base + position + at - 4
                    if _is_record(log, offset, timestamp_ms):
                        return offset
                    at = chunk.find(magic, at + 1)
            # The next chunk begins where a size and magic cut in two would.
            position += max(len(chunk) - 7, 1)
    return -1


def _is_record(log: CommitLog, offset: int, timestamp_ms: int) -> bool:
    scanner = LogScanner(log, offset)
    record = next(scanner.records(), None)
    return record is not None and record.store_timestamp_ms >= timestamp_ms
