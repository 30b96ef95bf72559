"""Reading the commit log record by record, believing nothing.

Java counterpart: CommitLog.checkMessageAndReturnSize of 5.3.3. Beyond Apache's checks a record must
say the physical offset at which it lies, and in bytes that this program wrote (`own_from`) its
properties must be whole, which the body's checksum does not cover: properties with a NUL byte, as
blocks that never reached the device leave them, count only with a right CRC property (our puts give
one to each record whose properties hold a NUL), and a wrong CRC property counts as damage.

Reads with pread, not through maps: a failing device is then an error and not a signal. A record
costs some 2 us: recovery's time is spent here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Protocol, TypeAlias
from zlib import crc32

from ...remoting.message import MessageExt
from ...remoting.message_codec import (
    BORNHOST_V6,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_LENGTH,
    PROPERTY_CRC_SIZE,
    RECORD_HEAD,
    RECORD_HEADS,
    RECORD_PREFIX,
    RECORD_SIZE_MIN,
    STOREHOSTADDRESS_V6,
    TOPIC_SIZE_MAX_V1,
    check_record_crc,
    decode_record,
)
from ...remoting.record_schema import TOPIC_LENGTH_V2
from ..disk.topic_path import topic_path
from .commit_log import CommitLog

CHUNK = 1024 * 1024
TOPICS_MAX = 65_536
"""Topic names remembered as checked."""
CANDIDATE_CHUNK = 4096
"""Bytes read at a time where a record may begin."""
NOWHERE = 1 << 62
"""An `own_from` that no record reaches: nothing is known to be our own."""
SECTOR = 512
"""Bytes that a device writes whole or not at all."""
TORN_ZEROS = 16
"""Zero bytes before a sector's end that make it one that was not (wholly) written. A record's head
has at most 15 in a row."""

ScannedRecord: TypeAlias = tuple[int, int, str, int, int, int, int, bytes]
"""(physical_offset, size, topic, queue_id, queue_offset, sys_flag, store_timestamp_ms, properties):
what queues and index need of a record. A plain tuple: there are a million of them in 1 GiB."""

_PREFIX_SIZE = RECORD_PREFIX.size
_HEAD_SIZE = RECORD_HEAD.size
_CRC_NAME = b"__CRC32#"
_CRC_AT = -PROPERTY_CRC_SIZE
_CRC_NAME_END = _CRC_AT + len(_CRC_NAME)
_V6 = BORNHOST_V6 | STOREHOSTADDRESS_V6
_MAGICS = tuple(RECORD_PREFIX.pack(0, magic)[4:] for magic in (MAGIC_V1, MAGIC_V2))


class Readable(Protocol):
    """One file's bytes."""

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer only where they end."""


class ReadableLog(Protocol):
    """Bytes of a log: a `CommitLog`, or what has just come from another one."""

    @property
    def file_size(self) -> int:
        """Bytes of each file."""

    @property
    def files(self) -> Mapping[int, Readable]:
        """The files that can be read, by base."""


class LogScanner:
    """Walks the log from a record's start to the first bytes that are no record.

    Args:
      log: its files are read only.
      start: physical offset of a record, a blank, or the end.
      check_crc: recompute body checksums.
      stop: the physical offset not to go beyond, asked again and again (the log may grow while
        it is read); None: the end of the files.
      own_from: from this physical offset on all records are known to be written by this program.
      chunk_size: bytes read at a time.

    Attributes:
      end: physical offset after the last good record, valid while and after `scan` runs.
      reason: why it ended there; "" for zeros, the end of the files or a file that is not there.
    """

    def __init__(
        self,
        log: ReadableLog,
        start: int,
        *,
        check_crc: bool = True,
        stop: Callable[[], int] | None = None,
        own_from: int = NOWHERE,
        chunk_size: int = CHUNK,
    ) -> None:
        self.end = start
        self.reason = ""
        self._log = log
        self._check_crc = check_crc
        self._stop = stop
        self._own_from = own_from
        self._chunk_size = chunk_size
        self._chunk = b""
        self._chunk_at = start
        self._topics: dict[bytes, str | None] = {}

    def scan(self) -> Iterator[ScannedRecord]:
        """The records in order.

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
            if not self._fill(offset, _PREFIX_SIZE):
                self.reason = f"{remaining} bytes are left in the file, too few even for a blank"
                return
            self.reason = yield from self._records_in_chunk(base + file_size)
            if self.reason:
                return
            if self.end != offset:
                continue
            # Zeros, a blank, or a record larger than what was read.
            size, magic = RECORD_PREFIX.unpack_from(self._chunk, offset - self._chunk_at)
            if size == 0 and magic == 0:
                return
            if magic == MAGIC_BLANK:
                if size != remaining:
                    self.reason = f"a blank of {size} bytes with {remaining} left in the file"
                    return
                self.end = base + file_size
            elif not self._fill(offset, size):
                self.reason = "the file ends inside a record"
                return

    def records(self) -> Iterator[MessageExt]:
        """The records in order as messages, without their bodies: `scan` in comfort.

        Raises:
          StoreIOError: a file could not be read.
        """
        for scanned in self.scan():
            yield decode_record(
                self._chunk, scanned[0] - self._chunk_at, check_crc=False, read_body=False
            )

    def _records_in_chunk(self, file_end: int) -> Generator[ScannedRecord, None, str]:
        """The records of one file that lie whole in the chunk, from `end` on.

        Returns: why no record follows; "" at zeros, a blank, the file's or the chunk's end.
        """
        chunk, chunk_at, chunk_size = self._chunk, self._chunk_at, len(self._chunk)
        check_crc, own_from, topics = self._check_crc, self._own_from, self._topics
        view = memoryview(chunk)
        unpack_prefix, unpack_head = RECORD_PREFIX.unpack_from, RECORD_HEAD.unpack_from
        unpack_length = PROPERTIES_LENGTH.unpack_from
        position = self.end - chunk_at
        if self._stop is not None:
            file_end = min(file_end, self._stop())
        file_end -= chunk_at
        last = min(chunk_size, file_end) - _PREFIX_SIZE
        while position <= last:
            size, magic = unpack_prefix(chunk, position)
            if magic != MAGIC_V1 and magic != MAGIC_V2:
                if magic == MAGIC_BLANK or size == magic == 0:
                    return ""
                return f"no record starts here (magic {magic & 0xFFFFFFFF:08x})"
            end = position + size
            if not RECORD_SIZE_MIN <= size <= file_end - position:
                return f"a record of {size} bytes with {file_end - position} left in the file"
            if end > chunk_size:
                return ""
            (
                _, _, body_crc, queue_id, _, queue_offset, physical_offset, sys_flag, _, _,
                timestamp_ms, _, _, _, body_size,
            ) = unpack_head(chunk, position)  # fmt: skip
            body_at = position + _HEAD_SIZE
            if sys_flag & _V6:
                body_at, timestamp_ms, body_size = _with_ipv6(chunk, position, end, sys_flag)
            topic_at = body_at + body_size
            if body_size < 0 or topic_at + 3 > end:
                return f"a body of {body_size} bytes in a record of {size}"
            if magic == MAGIC_V1:
                topic_begin, topic_size = topic_at + 1, chunk[topic_at]
            else:
                (topic_size,) = TOPIC_LENGTH_V2.unpack_from(view, topic_at)
                topic_begin = topic_at + 2
            topic_end = topic_begin + topic_size
            if not 0 < topic_size <= end - 2 - topic_begin or (
                topic_end + 2 + unpack_length(chunk, topic_end)[0] != end
            ):
                return f"the fields do not add up to the record's {size} bytes"
            if physical_offset != chunk_at + position:
                return f"the record says it lies at {physical_offset}"
            if check_crc and body_size and crc32(view[body_at:topic_at]) & 0x7FFFFFFF != body_crc:
                return "the CRC of the body is wrong"
            topic_raw = chunk[topic_begin:topic_end]
            topic = topics.get(topic_raw) or self._topic(topic_raw, magic)
            if topic is None:
                # Never stored; the checksum covers the body only, so a tear can look like this.
                return f"the record's topic is {topic_raw[:20]!r}"
            properties = chunk[topic_end + 2 : end]
            if physical_offset >= own_from and (
                b"\0" in properties or properties[_CRC_AT:_CRC_NAME_END] == _CRC_NAME
            ):
                reason = self._torn(position, size, properties)
                if reason:
                    return reason
            yield (
                physical_offset, size, topic, queue_id, queue_offset, sys_flag, timestamp_ms,
                properties,
            )  # fmt: skip
            self.end = chunk_at + end
            position = end
        return ""

    def _topic(self, raw: bytes, magic: int) -> str | None:
        if magic == MAGIC_V1 and len(raw) > TOPIC_SIZE_MAX_V1:
            return None
        try:
            topic = raw.decode()
        except UnicodeDecodeError:
            return None
        if topic_path(topic) is None:
            return None
        if len(self._topics) >= TOPICS_MAX:
            self._topics.clear()
        self._topics[raw] = topic
        return topic

    def _torn(self, position: int, size: int, properties: bytes) -> str:
        """Why a record of our own is not whole though all its fields fit; "" when it is."""
        right = check_record_crc(self._chunk, position, size)
        if right is None and b"\0" in properties:
            return "the properties hold a NUL byte, they were not written whole"
        return "the CRC of the record is wrong" if right is False else ""

    def _fill(self, offset: int, size: int) -> bool:
        """Have `size` bytes from an offset on in the chunk; False when the file is too short."""
        if offset < self._chunk_at or offset + size > self._chunk_at + len(self._chunk):
            base = offset - offset % self._log.file_size
            want = max(size, self._chunk_size)
            if self._stop is not None:
                want = max(min(want, self._stop() - offset), size)
            self._chunk = self._log.files[base].pread(want, offset - base)
            self._chunk_at = offset
        return offset + size <= self._chunk_at + len(self._chunk)


def _with_ipv6(chunk: bytes, position: int, end: int, sys_flag: int) -> tuple[int, int, int]:
    """(where the body begins, store timestamp ms, body size) of a record with an IPv6 host."""
    head = RECORD_HEADS[sys_flag >> 4 & 3]
    if position + head.size + 3 > end:
        return end, 0, -1
    fields = head.unpack_from(chunk, position)
    return position + head.size, fields[10], fields[14]


def find_record_after(
    log: CommitLog, start: int, end: int, timestamp_ms: int, *, own_from: int = NOWHERE
) -> int:
    """Where a whole record lies in [start, end) that says that very physical offset.

    Args:
      timestamp_ms: records stored before it do not count: they are leftovers of an older time line
        that some truncation left in the file.
      own_from: as `LogScanner`'s.

    Returns: its physical offset; -1 when there is none.

    Raises:
      StoreIOError: a file could not be read.
    """
    for base in [base for base in log.files if start - log.file_size < base < end]:
        position = max(start - base, 0)
        stop = min(end - base, log.file_size)
        while position < stop:
            chunk = log.files[base].pread(CHUNK, position)
            if not chunk:
                break
            at = _next_magic(chunk, 4)
            while at >= 0:
                offset = base + position + at - 4
                if offset >= end:
                    return -1
                scanner = LogScanner(log, offset, own_from=own_from, chunk_size=CANDIDATE_CHUNK)
                record = next(scanner.scan(), None)
                if record is not None and record[6] >= timestamp_ms:
                    return offset
                at = _next_magic(chunk, at + (1 if record is None else record[1]))
            # The next chunk begins where a size and magic cut in two would.
            position += max(len(chunk) - 7, 1)
    return -1


def _next_magic(chunk: bytes, start: int) -> int:
    found = [at for at in (chunk.find(magic, start) for magic in _MAGICS) if at >= 0]
    return min(found, default=-1)


def has_unwritten_sector(log: CommitLog, start: int, end: int) -> bool:
    """Whether [start, end) looks as if a sector of it never reached the device.

    Files are made of zeros and written once, so what a power cut left out reads as zeros up to the
    end of a sector; damage done to bytes that were written does not.

    Raises:
      StoreIOError: a file could not be read.
    """
    position = start
    while position < end:
        base = position - position % log.file_size
        file = log.files.get(base)
        if file is None:
            position = base + log.file_size
            continue
        first = position - base
        chunk = file.pread(CHUNK - first % SECTOR, first)
        if not chunk:
            position = base + log.file_size
            continue
        for sector_end in range(SECTOR - first % SECTOR, len(chunk) + 1, SECTOR):
            zeros = chunk[max(sector_end - TORN_ZEROS, 0) : sector_end]
            if len(zeros) >= 4 and not any(zeros):
                return position + sector_end - len(zeros) < end
        position += len(chunk)
    return False
