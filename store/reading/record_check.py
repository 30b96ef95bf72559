"""Verification of records from before the start, when they are served.

A record that was appended since the store was opened is served unverified. An older one may have
changed on the device, and so may the unit that points to it: each is read again with pread (a
failing device is then an error and not a signal) and must agree with its unit, its checksums and
its queue. A record that does not agree is never served and never skipped.

Java counterpart: none; Apache's broker serves the bytes that the unit points to, and leaves the
checksum to the consumer, which checks only bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final
from zlib import crc32

from ...common.java_hash import tags_code as code_of_tags
from ...common.message_properties import (
    INNER_MULTI_DISPATCH_NAME,
    KEY_SEPARATOR,
    KEYS_NAME,
    TAGS_HEAD,
    TAGS_NAME,
    UNIQUE_KEY_NAME,
    find_property,
)
from ...disk.errors import CorruptRecordError, StoreIOError
from ...disk.position import Position
from ...remoting.message_codec import (
    MAGIC_V1,
    PROPERTIES_LENGTH,
    RECORD_HEAD,
    RECORD_HEADS,
    RECORD_SIZE_MIN,
    check_record_crc,
    decode_record,
)
from ...remoting.record_schema import SYS_FLAG_POSITION, WORD
from ...remoting.sys_flag import BORNHOST_V6, STOREHOSTADDRESS_V6
from ..format import PRE_BLANK_SIZE, UNIT, UNIT_SIZE, Unit
from ..log.commit_log import CommitLog
from ..log.log_reader import LogReader, LogRecord, record_at
from ..queues.batch_consume_queue import BatchConsumeQueue, BatchUnit, unit_of_record
from ..queues.consume_queue import ConsumeQueue
from ..queues.projection import LIGHT_PREFIX, Place, Places
from ..queues.unit_check import UnitFault, unit_fault

USUAL_SIZE_MAX = 1024 * 1024
"""Bytes of a record that are read before its size is verified: a damaged unit may hold any size."""

TIMED_SIZE_MAX: Final = 64 * 1024
"""Bytes of a record that is verified whole for its store timestamp, in some 50 us. A body of 4 MB
takes 2 ms, a search by time asks some 17 messages, and its checksum does not cover the timestamp:
of larger records the fixed fields and the topic are verified."""

_unpack_head = RECORD_HEAD.unpack_from
_HEAD_SIZE = RECORD_HEAD.size
_length_at = PROPERTIES_LENGTH.unpack_from
_V6 = BORNHOST_V6 | STOREHOSTADDRESS_V6

WHAT_TO_DO = (
    "check the store with `trocket store fsck`, restore the file from a replica or a backup, or "
    "cut the damage out with `trocket store repair`"
)

WRONG_CRC = (
    "the CRC of the record, its last property, is wrong (if a client copied that property from "
    "another message, and an Apache broker stored it, set verifyOldRecords=false to serve it)"
)


class RecordCheck:
    """Verifies records of one log. Owned by the store's task.

    Args:
      log: the log with the records.

    Attributes:
      own_from: from this physical offset on all records are known to be written by this program,
        which gives the CRC property to those whose properties hold a NUL byte.
    """

    def __init__(self, log: CommitLog) -> None:
        self.own_from = 0
        self._log = log
        self._places = Places("")  # delays are not compared
        self._reader = LogReader(log, 0, crc_problem=self._crc_problem)

    def verified(
        self, queue: ConsumeQueue, queue_offset: int, units: bytes, log_end: int
    ) -> Iterator[Unit]:
        """The units of a queue; the record of each is verified just before it is yielded.

        Ends before the first unit that cannot be served, if others came before. Units from
        `cold_end` on, and those whose log file was deleted, are not verified.

        Args:
          queue: of plain units, 20 bytes each.
          queue_offset: of the first unit.
          units: the bytes of the units.
          log_end: the end of the commit log.

        Raises:
          CorruptRecordError: the first unit cannot be served.
          StoreIOError: the first record could not be read.
        """
        cold_end = queue.cold_end
        first = queue_offset
        for unit in UNIT.iter_unpack(units[: len(units) // UNIT_SIZE * UNIT_SIZE]):
            if queue_offset < cold_end:
                physical_offset, size, _ = unit
                try:
                    data = b""
                    if RECORD_SIZE_MIN <= size <= USUAL_SIZE_MAX and physical_offset >= 0:
                        data = self._read(physical_offset, size)
                    if not self._is_usual(queue, queue_offset, unit, data):
                        self._check_unit(queue, queue_offset, unit, log_end, data)
                except (CorruptRecordError, StoreIOError):
                    if queue_offset == first:
                        raise
                    return  # the next get begins here
            yield unit
            queue_offset += 1

    def check(self, queue: ConsumeQueue, queue_offset: int, log_end: int) -> Unit:
        """One unit, verified.

        Raises:
          CorruptRecordError: it cannot be served.
          StoreIOError: its record could not be read.
        """
        units = queue.read(queue_offset, 1)
        for unit in self.verified(queue, queue_offset, units, log_end):
            return unit
        raise no_unit(queue, queue_offset)

    def large_store_time_at(
        self, queue: ConsumeQueue, queue_offset: int, log_end: int
    ) -> int | None:
        """Store timestamp (ms) of an old message of more than TIMED_SIZE_MAX bytes.

        It is from before the start. Body and properties are not read: damage there is not seen.

        Returns: None: it is newer, not as large, in a batch, not of the usual kind, or damaged;
          `check` decides.

        Raises:
          StoreIOError: it could not be read.
        """
        if queue_offset >= queue.cold_end or queue.is_batch:
            return None
        units = queue.read(queue_offset, 1)
        if len(units) < UNIT_SIZE:
            return None
        physical_offset, size, _ = UNIT.unpack_from(units)
        if physical_offset < 0 or not TIMED_SIZE_MAX < size <= log_end - physical_offset:
            return None
        data = self._read(physical_offset, RECORD_HEADS[-1].size)
        if not data:
            return None
        head = RECORD_HEADS[WORD.unpack_from(data, SYS_FLAG_POSITION)[0] >> 4 & 3]
        (
            total_size, magic, _, queue_id, _, its_queue_offset, its_physical_offset,
            _, _, _, stored_ms, _, _, _, body_size,
        ) = head.unpack_from(data)  # fmt: skip
        topic_field = queue.topic_field
        if (
            its_physical_offset != physical_offset
            or its_queue_offset != queue_offset
            or total_size != size
            or magic != MAGIC_V1
            or queue_id != queue.key[1]
            or not 0 <= body_size <= size - head.size - len(topic_field) - PROPERTIES_LENGTH.size
            or self._read(physical_offset + head.size + body_size, len(topic_field)) != topic_field
        ):
            return None
        return int(stored_ms)

    def record_at(self, physical_offset: int, log_end: int) -> bytes | None:
        """The record at a physical offset; None when none starts there.

        Raises:
          CorruptRecordError: one starts there, but its checksums are wrong.
          StoreIOError: it could not be read.
        """
        reader = self._reader
        record = reader.at(physical_offset)
        if record is not None:
            return reader.raw() if record.size <= log_end - physical_offset else None
        record = record_at(self._log, physical_offset, check_crc=False)
        if record is not None and record.size <= log_end - physical_offset:
            raise self._corrupt(physical_offset, f"the record here is damaged: {reader.reason}")
        return None

    def batches(
        self, queue: BatchConsumeQueue, queue_offset: int, log_end: int
    ) -> Callable[[BatchUnit], None] | None:
        """The verification of a queue of batches for a get at an offset.

        Returns: a function that raises CorruptRecordError or StoreIOError as `verified` does; None:
          all units are new.
        """
        if queue_offset >= queue.cold_end:
            return None
        expected = queue_offset

        def verify(unit: BatchUnit) -> None:
            nonlocal expected
            if expected == queue_offset and unit.base_offset > queue_offset:
                # Offsets may be left out; but a bad unit may have misled the binary search.
                before = queue.unit_before(queue_offset)
                if before is not None:
                    self._check_batch(queue, before, log_end)
            if expected < queue.cold_end:
                self._check_batch(queue, unit, log_end)
            expected = unit.end_offset

        return verify

    def _check_batch(self, queue: BatchConsumeQueue, unit: BatchUnit, log_end: int) -> None:
        plain = (unit.physical_offset, unit.size, unit.tags_code)
        if unit.physical_offset < self._log.min_offset:
            # Expired with its file, unless a message before it is still there.
            oldest = queue.unit_at(queue.min_offset)[0]
            if unit.base_offset > queue.min_offset and oldest >= self._log.min_offset:
                reason = "the message before it has a higher offset in the log"
                raise _bad_unit(queue, unit.base_offset, plain, reason)
            return
        record = self._record_of(queue, unit.base_offset, plain, log_end)
        expected = unit_of_record(record, unit.tags_code)
        place = Place(queue.key, unit.base_offset, self._places.code_of(record))
        reason = _tags_problem(plain, record, place)
        if (record.topic, record.queue_id) != queue.key:
            reason = f"the record is of queue {record.queue_id} of topic {record.topic[:80]!r}"
        elif unit != expected:
            reason = f"its unit is {tuple(unit)}, the record says {tuple(expected)}"
        if reason:
            raise self._unservable(queue, unit.base_offset, unit.physical_offset, reason)

    def _is_usual(self, queue: ConsumeQueue, queue_offset: int, unit: Unit, data: bytes) -> bool:
        """The fast check, 3 us instead of 8: whether a record is of the usual kind and correct.

        False proves nothing: `_check_unit` decides.
        """
        physical_offset, size, code = unit
        if not data or len(data) < size:
            return False
        (
            total_size, magic, body_crc, queue_id, _, its_queue_offset, its_physical_offset,
            sys_flag, _, _, _, _, _, _, body_size,
        ) = _unpack_head(data)  # fmt: skip
        # No size is used before its bounds are checked: `or` stops at the first wrong field.
        topic_field = queue.topic_field
        topic_at = _HEAD_SIZE + body_size
        length_at = topic_at + len(topic_field)
        if (
            its_physical_offset != physical_offset
            or its_queue_offset != queue_offset
            or total_size != size
            or magic != MAGIC_V1
            or queue_id != queue.key[1]
            or sys_flag & _V6
            or not 0 <= body_size <= size - _HEAD_SIZE - len(topic_field) - 2
            or data[topic_at:length_at] != topic_field
            or data.find(b"\0", length_at + 2) >= 0
            or _length_at(data, length_at)[0] != size - length_at - 2
            or (body_size and crc32(memoryview(data)[_HEAD_SIZE:topic_at]) & 0x7FFFFFFF != body_crc)
            or check_record_crc(data, 0, size) is False
        ):
            return False
        # The tags code of the unit must be that of the record, or a filter by tags would miss it.
        # TAGS must stand once, at the start of a property, for the short way to know its value.
        at = data.find(TAGS_HEAD, length_at + 2)
        if at < 0:
            return code == 0
        end = data.find(b"\x02", at)
        tags = data[at + 5 : end if end >= 0 else size]
        return (
            bool(tags)
            and (at == length_at + 2 or data[at - 1] == 2)
            and data.find(TAGS_HEAD, at + 5) < 0
            and code_of_tags(str(tags, "utf-8", "replace")) == code
        )

    def _check_unit(
        self, queue: ConsumeQueue, queue_offset: int, unit: Unit, log_end: int, data: bytes
    ) -> None:
        physical_offset, size, _ = unit
        if 0 <= physical_offset < self._log.min_offset and size != PRE_BLANK_SIZE and size > 0:
            self._check_removed(queue, queue_offset, unit)
            return
        record = self._record_of(queue, queue_offset, unit, log_end, data)
        place = self._places.place_in(record, queue.key, queue_offset)
        if place is not None:
            reason = _tags_problem(unit, record, place)
        elif record.topic != queue.key[0]:
            place = Place(queue.key, queue_offset, self._places.code_of(record))
            reason = _not_dispatched(queue, queue_offset, record)
            reason = reason or _tags_problem(unit, record, place)
        else:
            reason = (
                f"the record says it is message {record.queue_offset} of queue {record.queue_id}"
            )
        if reason:
            raise self._unservable(queue, queue_offset, physical_offset, reason)

    def _record_of(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        unit: Unit,
        log_end: int,
        data: bytes = b"",
    ) -> LogRecord:
        """The record that a unit points to, with correct checksums and physical offset.

        Args:
          data: bytes that were just read from there.
        """
        physical_offset, size, _ = unit
        if size == PRE_BLANK_SIZE or not RECORD_SIZE_MIN <= size <= log_end - physical_offset:
            raise _bad_unit(queue, queue_offset, unit, "no record can lie there")
        record = self._reader.at(physical_offset, min(size, USUAL_SIZE_MAX), data)
        if record is None:
            reason = self._reader.reason or f"the log has no record of {size} bytes here"
        elif record.size != size:
            reason = f"the record is {record.size} bytes long, its unit says {size}"
        else:
            return record
        raise self._unservable(queue, queue_offset, physical_offset, reason)

    def _crc_problem(self, physical_offset: int, properties: bytes, right: bool | None) -> str:
        """What is wrong with the CRC property of a record, or with its absence; "" if nothing."""
        if right is False:
            return WRONG_CRC
        if right is None and b"\0" in properties and physical_offset >= self.own_from:
            return "its properties hold a NUL byte: they were not written whole, or overwritten"
        return ""

    def _check_removed(self, queue: ConsumeQueue, queue_offset: int, unit: Unit) -> None:
        """Accept a unit whose log file retention has deleted, but not a wrong offset.

        The oldest unit of a queue points into the log once its min_offset is corrected, and so do
        all units after it.
        """
        oldest = queue.min_offset
        if oldest < queue_offset and queue.unit_at(oldest)[0] >= self._log.min_offset:
            reason = "a message before it has a higher offset in the log"
            raise _bad_unit(queue, queue_offset, unit, reason)

    def _read(self, physical_offset: int, size: int) -> bytes:
        """Bytes of one log file; none when the range is not within one file."""
        position = Position(physical_offset % self._log.file_size)
        file = self._log.files.get(physical_offset - position)
        if file is None or size > self._log.file_size - position:
            return b""
        return file.pread(size, position)

    def _unservable(
        self, queue: ConsumeQueue, queue_offset: int, physical_offset: int, reason: str
    ) -> CorruptRecordError:
        topic, queue_id = queue.key
        return self._corrupt(
            physical_offset,
            f"message {queue_offset} of queue {queue_id} of topic {topic} cannot be served: "
            f"{reason}",
        )

    def _corrupt(self, physical_offset: int, reason: str) -> CorruptRecordError:
        path = self._log.path_at(physical_offset)
        return CorruptRecordError(path, physical_offset, f"{reason}; {WHAT_TO_DO}")


def no_unit(queue: ConsumeQueue, queue_offset: int) -> CorruptRecordError:
    """The error where a queue has no unit between its ends."""
    topic, queue_id = queue.key
    return CorruptRecordError(
        queue.folder,
        queue_offset * UNIT_SIZE,
        f"message {queue_offset} of queue {queue_id} of topic {topic} has no unit here; restart "
        "the broker, so that the queue is rebuilt from the log",
    )


def _bad_unit(
    queue: ConsumeQueue, queue_offset: int, unit: Unit, reason: str
) -> CorruptRecordError:
    topic, queue_id = queue.key
    if unit[1] == PRE_BLANK_SIZE:
        problem = "the message lies in a part of the log that is missing"
    else:
        problem = f"its unit says {unit[1]} bytes at {unit[0]} of the log, and {reason}"
    return CorruptRecordError(
        queue.folder,
        queue_offset * UNIT_SIZE,
        f"message {queue_offset} of queue {queue_id} of topic {topic} cannot be served: {problem}; "
        f"{WHAT_TO_DO}",
    )


def _tags_problem(unit: Unit, record: LogRecord, place: Place) -> str:
    """What is wrong with a unit's tags code; "" if nothing. Extensions are not checked."""
    if unit_fault(unit, record, place) is not UnitFault.TAGS:
        return ""
    tags = find_property(record.properties, TAGS_NAME)
    return f"the record's tags are {tags!r}, for which its unit's tags code {unit[2]} is wrong"


def _not_dispatched(queue: ConsumeQueue, queue_offset: int, record: LogRecord) -> str:
    """Why a record of another topic does not belong into this queue; "" if it does.

    Source: RocketMQ 5.3.3 store/ConsumeQueue.java multiDispatchLmqQueue.
    """
    topic, queue_id = queue.key
    names = find_property(record.properties, INNER_MULTI_DISPATCH_NAME) or b""
    offsets = find_property(record.properties, b"INNER_MULTI_QUEUE_OFFSET") or b""
    wanted = (topic.encode("utf-8", "replace"), b"%d" % queue_offset)
    if wanted in zip(names.split(b","), offsets.split(b","), strict=False) and queue_id == (
        # Apache's broker fills queues of any name in the properties, trocket's only light queues.
        0 if topic.startswith(LIGHT_PREFIX) else record.queue_id
    ):
        return ""
    return f"the record is of topic {record.topic[:80]!r}, and does not name this queue"


def holds_tags(record: bytes | memoryview, topic: str, tags: str) -> bool:
    """Whether a record has a topic and these tags: the index has only the hash of both.

    Args:
      record: whole, as in the log.
      tags: the whole value of TAGS.
    """
    message = decode_record(record, 0, check_crc=False, read_body=False)
    found = find_property(message.properties_bytes, TAGS_NAME) or b""
    return message.topic == topic and str(found, "utf-8", "replace") == tags


def holds_key(record: bytes | memoryview, topic: str, key: str) -> bool:
    """Whether a record has a topic and a key: the index has only the hash of both.

    Args:
      record: whole, as in the log.
      key: of KEYS, or UNIQ_KEY.
    """
    message = decode_record(record, 0, check_crc=False, read_body=False)
    properties = message.properties_bytes
    unique_key = find_property(properties, UNIQUE_KEY_NAME) or b""
    keys = find_property(properties, KEYS_NAME) or b""
    return message.topic == topic and (
        str(unique_key, "utf-8", "replace") == key
        or key in str(keys, "utf-8", "replace").split(KEY_SEPARATOR)
    )


def stored_since(record: bytes | memoryview, begin_ms: int) -> bool:
    """Whether a record, whole as in the log, was stored at or after a time, ms since 1970."""
    message = decode_record(record, 0, check_crc=False, read_body=False)
    return message.store_timestamp_ms >= begin_ms
