"""The reader of the commit log: record by record, with every field verified.

Recovery, serving, replication, the index and the tools share this reader. It reads records up to
the first bytes that are not a record, and gives the reason; `skip_damage` finds the next whole
record. The bytes in between are a `Hole`; bad bytes that no record follows are the log's tail.

Java counterpart: CommitLog.checkMessageAndReturnSize of 5.3.3. Beyond Apache's checks a record must
contain its own physical offset. In bytes that this program wrote (`own_from`) its properties, which
the body's checksum does not cover, must be whole, too: properties with a NUL byte, the trace of
blocks that never reached the device, need a correct CRC property (our puts add one to each record
whose properties hold a NUL), and a wrong CRC property counts as damage.

Reads with pread, not through maps: a failing device is then an error and not a signal. A record
costs about 2 us: recovery spends its time here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, TypeAlias
from zlib import crc32

from ...common.message_properties import CRC32_NAME
from ...disk.position import Position
from ...remoting.errors import RemoteProtocolError
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
from ..topic_path import topic_path
from .log_bytes import CHUNK, EVERYWHERE, ReadableLog, record_candidates

TOPICS_MAX = 65_536
"""Topic names remembered as checked."""
CANDIDATE_CHUNK = 4096
"""Bytes read at a time where a record may begin."""
NOWHERE = EVERYWHERE
"""An `own_from` beyond every record: no record is known to be from this program."""
RECORD_SIZE_MAX = 128 * 1024 * 1024
"""A `size_max`: a larger size is damage; RocketMQ's limit for a body is 4 MiB by default."""
ANY_SIZE = (1 << 31) - 1
"""A `size_max` that limits a record only by the file's end."""

ScannedRecord: TypeAlias = tuple[int, int, str, int, int, int, int, bytes]
"""The fields of a `LogRecord` as a plain tuple. 1 GiB may hold a million records, and a NamedTuple
costs 0.4 us more, where reading takes 1 to 2 us."""

CrcProblem: TypeAlias = Callable[[int, bytes, bool | None], str]
"""Why a record is not whole, "": it is. Arguments: its physical offset, its properties, and whether
its CRC property is correct (None: it has none)."""

_PREFIX_SIZE = RECORD_PREFIX.size
_HEAD_SIZE = RECORD_HEAD.size
_CRC_AT = -PROPERTY_CRC_SIZE
_CRC_NAME_END = _CRC_AT + len(CRC32_NAME)
_V6 = BORNHOST_V6 | STOREHOSTADDRESS_V6


class LogRecord(NamedTuple):
    """The fields of a record that queues and index need."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp_ms: int
    properties: bytes


class Hole(NamedTuple):
    """A damaged or missing range of the log.

    Attributes:
      start, end: physical offsets; the end is the next record, or the offset up to which the
        checkpoint guarantees records.
      reason: what is wrong at the start; "": zeros, or a missing file.
      at_end: no record follows.
      newest_ms: the newest store timestamp before it, where that is known.
    """

    start: int
    end: int
    reason: str
    at_end: bool = False
    newest_ms: int = 0


class LogReader:
    """Reads the log from a record's start to the first bytes that are not a record.

    Args:
      log: only read.
      start: physical offset of a record, a blank, or the end.
      check_crc: recompute body checksums.
      stop: returns the physical offset to stop at, called repeatedly because the log may grow
        meanwhile; None: the end of the files.
      own_from: from this physical offset on all records are known to be written by this program.
      crc_problem: called, instead of applying `own_from`, for every record whose properties hold a
        NUL or a CRC property; None: the rule of this module.
      size_max: most bytes of a record; a larger size is damage.
      chunk_size: bytes per read.
      progress: called with the physical offset at each read.

    Attributes:
      end: physical offset after the last good record, valid while and after `scan` runs.
      reason: why it ended there; "" for zeros, the end of the files or a missing file.
      blank_count: blanks that were read, each at the end of a file.
    """

    def __init__(
        self,
        log: ReadableLog,
        start: int,
        *,
        check_crc: bool = True,
        stop: Callable[[], int] | None = None,
        own_from: int = NOWHERE,
        crc_problem: CrcProblem | None = None,
        size_max: int = ANY_SIZE,
        chunk_size: int = CHUNK,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.end = start
        self.reason = ""
        self.blank_count = 0
        self._log = log
        self._check_crc = check_crc
        self._stop = stop
        self._own_from = own_from
        self._asked_from = own_from if crc_problem is None else 0
        self._crc_problem = crc_problem or own_crc_problem
        self._size_max = size_max
        self._chunk_size = chunk_size
        self._progress = progress
        self._chunk = b""
        self._chunk_at = start
        self._topics: dict[bytes, str | None] = {}

    def scan(self) -> Iterator[ScannedRecord]:
        """The records in order.

        Raises:
          StoreIOError: a file could not be read.
        """
        file_size = self._log.file_size
        self.reason = ""
        while self._stop is None or self.end < self._stop():
            offset = self.end
            base = offset - offset % file_size
            if base not in self._log.files:
                return
            remaining = base + file_size - offset
            if not self._fill(offset, _PREFIX_SIZE):
                self.reason = self._file_end()
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
                self.blank_count += 1
                self.end = base + file_size
            elif size > self._size_max:
                self.reason = _bad_size(size, remaining)
                return
            elif not self._fill(offset, size):
                self.reason = self._file_end()
                return

    def records(self) -> Iterator[LogRecord]:
        """`scan` with `LogRecord`s."""
        return map(LogRecord._make, self.scan())

    def at(
        self, physical_offset: int, chunk_size: int = CANDIDATE_CHUNK, chunk: bytes = b""
    ) -> LogRecord | None:
        """The record at an arbitrary offset.

        Args:
          chunk_size: bytes to read at once; the record's size, if it is known.
          chunk: bytes that were just read from there.

        Returns: None when no whole record starts there; `reason` may give the cause.

        Raises:
          StoreIOError: a file could not be read.
        """
        self.end = self._chunk_at = physical_offset
        self._chunk, self._chunk_size = chunk, chunk_size
        record = next(self.scan(), None)
        # At a blank the scan continues with the next file: that record is another one.
        return LogRecord._make(record) if record and record[0] == physical_offset else None

    def message(self, *, read_body: bool = False) -> MessageExt:
        """The last record as a message; valid until the next one is read."""
        at = self.end - self._chunk_at
        return decode_record(self._chunk, at, check_crc=False, read_body=read_body)

    def raw(self) -> bytes:
        """The bytes of the last record; valid until the next one is read."""
        at = self.end - self._chunk_at
        size, _ = RECORD_PREFIX.unpack_from(self._chunk, at)
        return self._chunk[at : at + size]

    def skip_damage(
        self, end: int = EVERYWHERE, *, counts: Callable[[LogRecord], bool] | None = None
    ) -> Hole | None:
        """Move to the next whole record behind the bytes at which reading ended.

        Args:
          end, counts: see `find_record`.

        Returns: the skipped range; None when no record follows, and the position is unchanged.

        Raises:
          StoreIOError: a file could not be read.
        """
        found = find_record(self._log, self.end + 1, end, counts, own_from=self._own_from)
        if found < 0:
            return None
        hole = Hole(self.end, found, self.reason)
        self.end, self.reason = found, ""
        return hole

    def _records_in_chunk(self, file_end: int) -> Generator[ScannedRecord, None, str]:
        """The records of one file that are whole in the chunk, from `end` on.

        Returns: why no record follows; "" at zeros, a blank, the file's or the chunk's end.
        """
        chunk, chunk_at, chunk_size = self._chunk, self._chunk_at, len(self._chunk)
        check_crc, asked_from, topics = self._check_crc, self._asked_from, self._topics
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
                return _bad_size(size, file_end - position)
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
                return self._damage(position, end)
            if magic == MAGIC_V1:
                topic_begin, topic_size = topic_at + 1, chunk[topic_at]
            else:
                (topic_size,) = TOPIC_LENGTH_V2.unpack_from(view, topic_at)
                topic_begin = topic_at + 2
            topic_end = topic_begin + topic_size
            if not 0 < topic_size <= end - 2 - topic_begin or (
                topic_end + 2 + unpack_length(chunk, topic_end)[0] != end
            ):
                return self._damage(position, end)
            if check_crc and body_size and crc32(view[body_at:topic_at]) & 0x7FFFFFFF != body_crc:
                return "the CRC of the body is wrong"
            if physical_offset != chunk_at + position:
                return f"the record says it lies at {physical_offset}"
            topic_raw = chunk[topic_begin:topic_end]
            topic = topics.get(topic_raw) or self._topic(topic_raw, magic)
            if topic is None:
                # No broker stores such a topic: a torn write, which the body's CRC does not cover.
                return self._damage(position, end)
            properties = chunk[topic_end + 2 : end]
            if physical_offset >= asked_from and (
                b"\0" in properties or properties[_CRC_AT:_CRC_NAME_END] == CRC32_NAME
            ):
                right = check_record_crc(chunk, position, size)
                reason = self._crc_problem(physical_offset, properties, right)
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

    def _damage(self, position: int, end: int) -> str:
        """The wrong field of a record: one of its lengths, or its topic."""
        try:
            record = decode_record(self._chunk[position:end], check_crc=False, read_body=False)
        except RemoteProtocolError as error:
            return error.reason
        return f"the record's topic is {record.topic[:20]!r}"

    def _file_end(self) -> str:
        """Why the file has fewer bytes than needed."""
        file_size = self._log.file_size
        held = self.end % file_size + len(self._chunk)
        if held < file_size:
            return f"the file ends after {held} of {file_size} bytes"
        left = file_size - self.end % file_size
        return f"{left} bytes are left in the file, too few even for a blank"

    def _fill(self, offset: int, size: int) -> bool:
        """Read `size` bytes from an offset on into the chunk; False when the file is too short."""
        if offset < self._chunk_at or offset + size > self._chunk_at + len(self._chunk):
            if self._progress is not None:
                self._progress(offset)
            position = Position(offset % self._log.file_size)
            want = max(size, self._chunk_size)
            if self._stop is not None:
                want = max(min(want, self._stop() - offset), size)
            want = min(want, self._log.file_size - position)
            self._chunk = self._log.files[offset - position].pread(want, position)
            self._chunk_at = offset
        return offset + size <= self._chunk_at + len(self._chunk)


def _with_ipv6(chunk: bytes, position: int, end: int, sys_flag: int) -> tuple[int, int, int]:
    """(position of the body, store timestamp ms, body size) of a record with an IPv6 host."""
    head = RECORD_HEADS[sys_flag >> 4 & 3]
    if position + head.size + 3 > end:
        return end, 0, -1
    fields = head.unpack_from(chunk, position)
    return position + head.size, fields[10], fields[14]


def own_crc_problem(physical_offset: int, properties: bytes, right: bool | None) -> str:
    """Why a record of this program is not whole though its fields are valid, see `CrcProblem`."""
    if right is None and b"\0" in properties:
        return "the properties hold a NUL byte, they were not written whole"
    return "the CRC of the record is wrong" if right is False else ""


def record_at(
    log: ReadableLog, physical_offset: int, *, check_crc: bool = True, own_from: int = NOWHERE
) -> LogRecord | None:
    """The record at an arbitrary offset; None when no whole one starts there.

    Raises:
      StoreIOError: a file could not be read.
    """
    reader = LogReader(log, physical_offset, check_crc=check_crc, own_from=own_from)
    return reader.at(physical_offset)


def message_at(
    log: ReadableLog, physical_offset: int, *, read_body: bool = False
) -> MessageExt | None:
    """The record at an arbitrary offset, with all fields; None when no whole one starts there.

    Raises:
      StoreIOError: a file could not be read.
    """
    reader = LogReader(log, physical_offset)
    found = reader.at(physical_offset) is not None
    return reader.message(read_body=read_body) if found else None


def find_record(
    log: ReadableLog,
    start: int,
    end: int,
    counts: Callable[[LogRecord], bool] | None = None,
    *,
    own_from: int = NOWHERE,
) -> int:
    """The physical offset of the first whole record in [start, end).

    Args:
      counts: whether a whole record belongs to this log; the bytes of others are skipped. None: all
        do.
      own_from: see `LogReader`.

    Returns: -1 when there is none.

    Raises:
      StoreIOError: a file could not be read.
    """
    for offset in record_candidates(log, start, end):
        if offset < start:
            continue
        record = record_at(log, offset, own_from=own_from)
        if record is not None:
            if counts is None or counts(record):
                return offset
            start = offset + record.size
    return -1


def _bad_size(size: int, remaining: int) -> str:
    return f"a record of {size} bytes with {remaining} left in the file"
