"""The appending half of a store: what is put.

Java counterpart: the append half of store/CommitLog.java and MessageExtEncoder.java of 5.3.3. This
is the broker's hottest code: a put costs two `struct.pack` calls and some list appends; the system
call, and everything that can fail, is in `LogWriter.commit`, once per burst.

Invariant: offsets are handed out by `put_message` in the order of the log.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from zlib import crc32

from ...common.java_hash import tags_code as code_of_tags
from ...common.message_properties import find_property
from ...remoting.errors import LocalProtocolError, RemoteProtocolError
from ...remoting.message_codec import (
    MAGIC_V1,
    PROPERTIES_LENGTH,
    PROPERTIES_SIZE_MAX,
    RECORD_HEAD,
    encode_record,
    iter_batch,
    record_topic,
)
from ...remoting.message_crc import PROPERTY_CRC_SIZE, crc_property
from ...remoting.record_schema import BATCH_ENTRY_HEAD
from ...remoting.sys_flag import (
    INNER_BATCH,
    NEED_UNWRAP,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from ..clock import Clock
from ..config import MessageStoreConfig
from ..format import UNIT
from ..index.index_service import IndexService
from ..log.commit_log import CommitLog
from ..queues.batch_consume_queue import BATCH_SIZE_MAX, batch_refusal, with_inner_base
from ..queues.consume_queue import ConsumeQueue
from ..queues.consume_queue_store import ConsumeQueueStore
from ..status import PutMessageStatus
from .log_writer import LogWriter

PutResult = tuple[PutMessageStatus, int, int]
"""(status, physical_offset, queue_offset); both offsets -1 when nothing was stored."""

BatchResult = tuple[PutMessageStatus, list[int], int]
"""(status, physical_offset of each message, queue_offset of the first)."""

_PUT_OK = PutMessageStatus.PUT_OK
_pack_head = RECORD_HEAD.pack
_unpack_entry = BATCH_ENTRY_HEAD.unpack_from
_unpack_length = PROPERTIES_LENGTH.unpack_from
_ENTRY_HEAD_SIZE = BATCH_ENTRY_HEAD.size
_pack_length = PROPERTIES_LENGTH.pack
_pack_unit = UNIT.pack
_NOT_V6 = -49  # ~(BORNHOST_V6 | STOREHOSTADDRESS_V6)
_NO_MAGIC = 0
_CRC_NAME = b"__CRC32#\x01"
_CRC_ROOM = bytes(PROPERTY_CRC_SIZE)


class MessageAppender(LogWriter):
    """Puts messages; `MessageStore` is the public face.

    Args:
      config, clock: the store's.
      log, queue_store, index: the store's.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        clock: Clock,
        log: CommitLog,
        queue_store: ConsumeQueueStore,
        index: IndexService,
    ) -> None:
        super().__init__(config, clock, log, queue_store, index)
        self._body_size_max = config.max_message_size
        self._append_crc = config.enabled_append_prop_crc
        # Every put goes the slow way when each record gets a checksum.
        self._usual_magic = _NO_MAGIC if self._append_crc else MAGIC_V1

    def put_message(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        *,
        born_timestamp_ms: int,
        born_host: bytes,
        store_host: bytes,
        tags_code: int,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> PutResult:
        """Append one message to what the next `commit` writes.

        Args:
          topic, queue_id: the broker has checked that they exist; 0 … 2^31 - 1.
          body: as it is to be stored (compressed when `sys_flag` says so); properties: encoded.
          born_timestamp_ms: the sender's clock, ms since 1970.
          born_host, store_host: what `host_bytes` gives, 8 or 20 bytes.
          tags_code: `java_hash.tags_code` of TAGS (for SCHEDULE_TOPIC_XXXX the delivery time, ms).
          flag, sys_flag, reconsume_times: int32; the IPv6 bits of sys_flag are set here.
          prepared_transaction_offset: physical offset of the half message.

        Returns: (PUT_OK, physical_offset, queue_offset), or a refusal that stored nothing, with
          -1, -1: MESSAGE_ILLEGAL (topic, sizes, an inner batch where there are none),
          PROPERTIES_SIZE_EXCEEDED, CREATE_MAPPED_FILE_FAILED, SERVICE_NOT_AVAILABLE.

        Raises: struct.error: a number is beyond its field; nothing was stored.
        """
        queue = self._queues.get((topic, queue_id)) or self.queue_store.create(topic, queue_id)
        body_size = len(body)
        properties_size = len(properties)
        if queue is None or body_size > self._body_size_max:
            return self._illegal(topic, body_size)
        if properties_size > PROPERTIES_SIZE_MAX:
            return self._too_many_properties(properties_size)
        if (
            sys_flag & 0x84 or queue.magic != self._usual_magic or b"\0" in properties
            or b"#" in properties or len(born_host) + len(store_host) != 16
        ):  # fmt: skip
            return self._put_unusual(
                queue, body, properties, tags_code, born_timestamp_ms, born_host, store_host,
                flag, sys_flag, reconsume_times, prepared_transaction_offset,
            )  # fmt: skip
        size = queue.record_overhead + body_size + properties_size
        physical_offset = self._append_offset
        if physical_offset + size + 8 > self._file_end:
            status = self._roll(size)
            if status is not _PUT_OK:
                return (status, -1, -1)
            physical_offset = self._append_offset
        queue_offset = queue.next_offset
        now_ms = self.now_ms
        head = _pack_head(
            size, MAGIC_V1, crc32(body) & 0x7FFFFFFF, queue_id, flag, queue_offset,
            physical_offset, sys_flag & _NOT_V6, born_timestamp_ms, born_host, now_ms, store_host,
            reconsume_times, prepared_transaction_offset, body_size,
        )  # fmt: skip
        queue.tail += _pack_unit(physical_offset, size, tags_code)
        self._pending += (head, body, queue.topic_field, _pack_length(properties_size), properties)
        queue.next_offset = queue_offset + 1
        self._append_offset = physical_offset + size
        if queue_offset == queue.committed_offset:
            self._touched.append(queue)
        self._index_items.append((queue.topic_hash, properties, physical_offset, now_ms))
        return (_PUT_OK, physical_offset, queue_offset)

    def fits(
        self,
        topic: str,
        body_size: int,
        properties_size: int,
        hosts_size: int = 16,
        *,
        has_nul: bool = False,
    ) -> bool:
        """Whether a record of these sizes, bytes, is within the limits of a put.

        What waits is stored twice, and the second record may be the larger one.

        Args:
          topic: of the record.
          body_size: as stored.
          properties_size: encoded, with the separator at their end, without a checksum.
          hosts_size: of both hosts, 16 to 40.
          has_nul: the properties hold a NUL byte, so the record gets a checksum.
        """
        if has_nul or self._append_crc:
            properties_size += PROPERTY_CRC_SIZE
        try:
            topic_size = len(record_topic(topic)[1])
        except LocalProtocolError:
            return False
        size = RECORD_HEAD.size + topic_size + 2 + hosts_size - 16 + body_size + properties_size
        return (
            body_size <= self._body_size_max
            and properties_size <= PROPERTIES_SIZE_MAX
            and size <= self._file_size - 8
        )

    def put_batch(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        *,
        born_timestamp_ms: int,
        born_host: bytes,
        store_host: bytes,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
    ) -> BatchResult:
        """Append every message of a batch, or none.

        Args:
          body: the batch's body, see `message_codec.iter_batch`.
          properties: encoded; they follow each message's own, as in Apache. In a queue of batches
            they are the record's own, and a UNIQ_KEY among them makes one record, an inner batch,
            of the whole body.
          flag: of an inner batch; else not used: each message has its own.
          others: as `put_message`.

        Returns: (PUT_OK, physical offsets, queue_offset of the first), or a refusal with no offsets
          and -1, as `put_message`; MESSAGE_ILLEGAL also for a body that is no batch, an empty one,
          and one that no file could hold.
        """
        queue = self._queues.get((topic, queue_id)) or self.queue_store.create(topic, queue_id)
        if queue is None or len(body) > self._body_size_max:
            return (self._illegal(topic, len(body))[0], [], -1)
        if (
            queue.magic == self._usual_magic and queue.is_plain and not sys_flag & 0x84
            and len(born_host) + len(store_host) == 16
        ):  # fmt: skip
            first = queue.next_offset
            offsets = self._put_usual_batch(
                queue, body, properties, born_timestamp_ms, born_host, store_host, sys_flag,
                reconsume_times,
            )  # fmt: skip
            if offsets:
                return (_PUT_OK, offsets, first)
        return self._put_unusual_batch(
            queue, body, properties, born_timestamp_ms, born_host, store_host, flag, sys_flag,
            reconsume_times,
        )  # fmt: skip

    def _put_unusual_batch(
        self,
        queue: ConsumeQueue,
        body: bytes,
        properties: bytes,
        born_timestamp_ms: int,
        born_host: bytes,
        store_host: bytes,
        flag: int,
        sys_flag: int,
        reconsume_times: int,
    ) -> BatchResult:
        """`put_batch` for what is rare, or wrong; message for message."""
        try:
            entries = list(iter_batch(body))
        except RemoteProtocolError as error:
            self.refusal = f"the batch cannot be read: {error}"
            return (PutMessageStatus.MESSAGE_ILLEGAL, [], -1)
        if queue.is_batch and find_property(properties, b"UNIQ_KEY") is not None:
            return self._put_inner_batch(
                queue, body, properties, len(entries), born_timestamp_ms, born_host, store_host,
                flag, sys_flag, reconsume_times,
            )  # fmt: skip
        messages, total = [], 0
        hosts_size = len(born_host) + len(store_host) - 16
        for _, message_body, own in entries:
            if own and properties and own[-1] != 2:
                own += b"\x02"
            own, crc_size = self._with_room_for_crc(own + properties)
            if len(own) + crc_size > PROPERTIES_SIZE_MAX:
                return (self._too_many_properties(len(own) + crc_size)[0], [], -1)
            messages.append(own)
            total += queue.record_overhead + hosts_size + len(message_body) + len(own) + crc_size
        if not entries or total > self._file_size - 8:
            return (self._illegal(queue.key[0], total)[0], [], -1)
        if self._append_offset + total + 8 > self._file_end:
            status = self._roll(total)
            if status is not _PUT_OK:
                return (status, [], -1)
        first = queue.next_offset
        offsets = []
        for (message_flag, message_body, _), own in zip(entries, messages, strict=True):
            tags = find_property(own, b"TAGS")
            code = code_of_tags(str(tags, "utf-8", "replace")) if tags is not None else 0
            offsets.append(
                self._put_record(
                    queue, message_body, own, code, born_timestamp_ms, born_host, store_host,
                    message_flag, sys_flag, reconsume_times, 0,
                )
            )  # fmt: skip
        return (_PUT_OK, offsets, first)

    def _put_usual_batch(
        self,
        queue: ConsumeQueue,
        body: bytes,
        properties: bytes,
        born_timestamp_ms: int,
        born_host: bytes,
        store_host: bytes,
        sys_flag: int,
        reconsume_times: int,
    ) -> list[int]:
        """`put_batch` in one loop, as `put_message` is for one message.

        Returns: the physical offsets; empty: nothing was appended, the batch is for the slow way,
          which also finds out what is wrong with it.
        """
        entries = even_entries(body, properties) or usual_entries(body, properties)
        physical_offset, queue_offset = self._append_offset, queue.next_offset
        overhead, now_ms, queue_id = queue.record_overhead, self.now_ms, queue.key[1]
        topic_field, topic_hash = queue.topic_field, queue.topic_hash
        stored_flags = sys_flag & _NOT_V6
        pending: list[bytes] = []
        items: list[tuple[int, bytes, int, int]] = []
        units: list[bytes] = []
        offsets: list[int] = []
        for flag, message_body, own, code in entries:
            body_size, own_size = len(message_body), len(own)
            size = overhead + body_size + own_size
            head = _pack_head(
                size, MAGIC_V1, crc32(message_body) & 0x7FFFFFFF, queue_id, flag, queue_offset,
                physical_offset, stored_flags, born_timestamp_ms, born_host, now_ms, store_host,
                reconsume_times, 0, body_size,
            )  # fmt: skip
            pending += (head, message_body, topic_field, _pack_length(own_size), own)
            units.append(_pack_unit(physical_offset, size, code))
            items.append((topic_hash, own, physical_offset, now_ms))
            offsets.append(physical_offset)
            physical_offset += size
            queue_offset += 1
        if not offsets or physical_offset + 8 > self._file_end:
            return []
        self._pending += pending
        self._index_items += items
        self._append_offset = physical_offset
        queue.tail += b"".join(units)
        if queue.next_offset == queue.committed_offset:
            self._touched.append(queue)
        queue.next_offset = queue_offset
        return offsets

    def _put_inner_batch(
        self,
        queue: ConsumeQueue,
        body: bytes,
        properties: bytes,
        count: int,
        born_timestamp_ms: int,
        born_host: bytes,
        store_host: bytes,
        flag: int,
        sys_flag: int,
        reconsume_times: int,
    ) -> BatchResult:
        """`put_batch` as one record of a queue of batches. Source: sendBatchMessage of 5.3.3."""
        if not 0 < count <= BATCH_SIZE_MAX:
            return (self._illegal(queue.key[0], len(body))[0], [], -1)
        separator = b"" if properties.endswith(b"\x02") else b"\x02"
        tags = find_property(properties, b"TAGS")
        code = code_of_tags(str(tags, "utf-8", "replace")) if tags is not None else 0
        status, physical_offset, first = self._put_unusual(
            queue, body, b"%s%sINNER_NUM\x01%d\x02" % (properties, separator, count), code,
            born_timestamp_ms, born_host, store_host, flag, sys_flag | NEED_UNWRAP | INNER_BATCH,
            reconsume_times, 0,
        )  # fmt: skip
        return (status, [physical_offset] if status is _PUT_OK else [], first)

    def _put_unusual(
        self,
        queue: ConsumeQueue,
        body: bytes,
        properties: bytes,
        tags_code: int,
        born_timestamp_ms: int,
        born_host: bytes,
        store_host: bytes,
        flag: int,
        sys_flag: int,
        reconsume_times: int,
        prepared_transaction_offset: int,
    ) -> PutResult:
        """`put_message` for what is rare: IPv6 hosts, topics over 127 bytes, half and rolled back
        messages, queues of batches and queues with an extension."""
        if queue.is_batch or sys_flag & INNER_BATCH:
            reason = batch_refusal(queue, properties, sys_flag)
            if reason:
                self.refusal = reason
                return (PutMessageStatus.MESSAGE_ILLEGAL, -1, -1)
            if sys_flag & INNER_BATCH:
                properties = with_inner_base(properties, queue.next_offset)
                if len(properties) > PROPERTIES_SIZE_MAX:
                    return self._too_many_properties(len(properties))
        properties, crc_size = self._with_room_for_crc(properties)
        if len(properties) + crc_size > PROPERTIES_SIZE_MAX:
            return self._too_many_properties(len(properties) + crc_size)
        hosts_size = len(born_host) + len(store_host) - 16
        size = queue.record_overhead + hosts_size + len(body) + len(properties) + crc_size
        if self._append_offset + size + 8 > self._file_end:
            status = self._roll(size)
            if status is not _PUT_OK:
                return (status, -1, -1)
        queue_offset = 0 if sys_flag & TRANSACTION_PREPARED_TYPE else queue.next_offset
        try:
            physical_offset = self._put_record(
                queue, body, properties, tags_code, born_timestamp_ms, born_host, store_host,
                flag, sys_flag, reconsume_times, prepared_transaction_offset,
            )  # fmt: skip
        except LocalProtocolError as error:
            raise struct.error(str(error)) from error
        return (_PUT_OK, physical_offset, queue_offset)

    def _put_record(
        self,
        queue: ConsumeQueue,
        body: bytes,
        properties: bytes,
        tags_code: int,
        born_timestamp_ms: int,
        born_host: bytes,
        store_host: bytes,
        flag: int,
        sys_flag: int,
        reconsume_times: int,
        prepared_transaction_offset: int,
    ) -> int:
        """Append one record that is known to fit; returns its physical offset."""
        in_queue = not sys_flag & TRANSACTION_PREPARED_TYPE
        physical_offset, now_ms = self._append_offset, self.now_ms
        has_crc = self._append_crc or b"\0" in properties
        record = encode_record(
            queue.key[0],
            queue.key[1],
            queue.next_offset if in_queue else 0,
            physical_offset,
            body,
            properties + _CRC_ROOM if has_crc else properties,
            born_timestamp_ms,
            born_host,
            now_ms,
            store_host,
            flag,
            sys_flag,
            reconsume_times,
            prepared_transaction_offset,
        )
        if has_crc:
            protected = record[:-PROPERTY_CRC_SIZE]
            record = protected + crc_property((protected,))
        self._pending.append(record)
        self._append_offset = physical_offset + len(record)
        if in_queue:
            if queue.next_offset == queue.committed_offset:
                self._touched.append(queue)
            if queue.is_plain:
                queue.tail += _pack_unit(physical_offset, len(record), tags_code)
                queue.next_offset += 1
            else:
                queue.append_put(physical_offset, len(record), tags_code, now_ms, properties)
        if sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK_TYPE:
            self._index_items.append((queue.topic_hash, properties, physical_offset, now_ms))
        return physical_offset

    def _with_room_for_crc(self, properties: bytes) -> tuple[bytes, int]:
        """Properties without a checksum that came with them, and the bytes that ours will take.

        Every record whose properties hold a NUL byte gets one: without it recovery could not tell
        such a record from one of which only the beginning reached the disk.
        """
        if _CRC_NAME in properties:
            pieces = properties.split(b"\x02")
            properties = b"\x02".join(piece for piece in pieces if not piece.startswith(_CRC_NAME))
        if not self._append_crc and b"\0" not in properties:
            return properties, 0
        if properties and not properties.endswith(b"\x02"):
            properties += b"\x02"
        return properties, PROPERTY_CRC_SIZE

    def _illegal(self, topic: str, size: int) -> PutResult:
        self.refusal = f"topic {topic!r} or a size of {size} bytes is not allowed"
        return (PutMessageStatus.MESSAGE_ILLEGAL, -1, -1)

    def _too_many_properties(self, size: int) -> PutResult:
        self.refusal = f"{size} bytes of properties, at most {PROPERTIES_SIZE_MAX} are allowed"
        return (PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, -1, -1)


@lru_cache(maxsize=64)
def _entry_struct(body_size: int, properties_size: int) -> struct.Struct:
    """An entry of a batch whose entries are all of these sizes; see `BATCH_ENTRY`."""
    return struct.Struct(f">12xii{body_size}sh{properties_size}s")


def even_entries(body: bytes, added: bytes) -> list[tuple[int, bytes, bytes, int]]:
    """`usual_entries` of a batch whose messages have all the same sizes and no tags.

    Most batches are such ones, and are split by one call.

    Returns: nothing for any other batch.
    """
    try:
        _, _, _, _, size = _unpack_entry(body)
        (own_size,) = _unpack_length(body, _ENTRY_HEAD_SIZE + size)
        if size < 0 or own_size <= 0:
            return []
        rows = list(_entry_struct(size, own_size).iter_unpack(body))
    except struct.error:
        return []
    owns = b"".join([row[4] for row in rows])
    if (
        {(row[1], row[3]) for row in rows} != {(size, own_size)}
        or b"TAGS\1" in owns or b"\0" in owns or b"#" in owns
        or own_size + len(added) >= PROPERTIES_SIZE_MAX
    ):  # fmt: skip
        return []
    after = b"\2" + added if added else b""
    return [
        (flag, message_body, own + (added if own[-1] == 2 else after), 0)
        for flag, _, message_body, _, own in rows
    ]


def usual_entries(body: bytes, added: bytes) -> list[tuple[int, bytes, bytes, int]]:
    """(flag, body, properties, tags code) of each message of a batch.

    Args:
      body: see `iter_batch`.
      added: follow each message's own properties.
    Returns: nothing when the batch is empty, or not read here: it is no batch, or one of its
      messages needs a checksum of its own or has too many properties.
    """
    entries: list[tuple[int, bytes, bytes, int]] = []
    position, end_of_batch = 0, len(body)
    try:
        while position < end_of_batch:
            _, _, _, flag, size = _unpack_entry(body, position)
            body_at = position + _ENTRY_HEAD_SIZE
            body_end = body_at + size
            (own_size,) = _unpack_length(body, body_end)
            position = body_end + 2 + own_size
            own = body[body_end + 2 : position]
            if size < 0 or own_size < 0 or position > end_of_batch or b"\0" in own or b"#" in own:
                return []
            code = 0
            if b"TAGS\1" in own:
                tags = find_property(own, b"TAGS")
                code = code_of_tags(str(tags, "utf-8", "replace")) if tags is not None else 0
            own += b"\2" + added if own and added and own[-1] != 2 else added
            if len(own) > PROPERTIES_SIZE_MAX:
                return []
            entries.append((flag, body[body_at:body_end], own, code))
    except struct.error:
        return []
    return entries
