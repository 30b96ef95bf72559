"""The appender of messages: encodes puts as records of a burst.

Java counterpart: the append half of store/CommitLog.java and MessageExtEncoder.java of 5.3.3. This
is the broker's hottest code: a put costs two `struct.pack` calls and some list appends; the system
call, and everything that can fail, is in `LogWriter.commit`, once per burst.

Invariant: puts assign offsets in the order of the log.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import repeat
from typing import TypeAlias
from zlib import crc32

from ...common.java_hash import tags_code as code_of_tags
from ...common.message_properties import TAGS_HEAD, TAGS_NAME, UNIQUE_KEY_NAME, find_property
from ...native import Extension, extension
from ...native.path_counts import PathCounts
from ...remoting.errors import LocalProtocolError, RemoteProtocolError
from ...remoting.message_codec import (
    MAGIC_V1,
    PROPERTIES_LENGTH,
    PROPERTIES_SIZE_MAX,
    RECORD_HEAD,
    RECORD_PREFIX,
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
from ..config import MessageStoreConfig
from ..format import UNIT
from ..index.index_backlog import IndexItem, IndexRun
from ..offsets import PhysicalOffset, QueueOffset
from ..queues.batch_consume_queue import BATCH_SIZE_MAX, batch_refusal, with_inner_base
from ..queues.consume_queue import ConsumeQueue
from ..queues.consume_queue_store import ConsumeQueueStore
from ..status import BatchResult, PutMessageStatus, PutRefusal, PutResult
from .even_batch import (
    EvenMessages,
    RecordPlace,
    even_messages,
    pack_records,
    pack_units,
    record_size,
)
from .inner_message import InnerMessage
from .log_writer import LogWriter

_pack_head = RECORD_HEAD.pack
_unpack_entry = BATCH_ENTRY_HEAD.unpack_from
_unpack_length = PROPERTIES_LENGTH.unpack_from
_ENTRY_HEAD_SIZE = BATCH_ENTRY_HEAD.size
_pack_length = PROPERTIES_LENGTH.pack
_pack_unit = UNIT.pack
_NOT_V6 = -49  # ~(BORNHOST_V6 | STOREHOSTADDRESS_V6)
BatchEntry: TypeAlias = tuple[int, bytes, bytes, int]
"""(flag, body, properties, tags code) of one message of a batch. A plain tuple: each message of a
batch makes one in 0.4 us, and a NamedTuple takes as long again."""

_NO_MAGIC = 0
_NOWHERE, _NO_PLACE = PhysicalOffset(-1), QueueOffset(-1)
_UNUSUAL = INNER_BATCH | TRANSACTION_PREPARED_TYPE
"""Bits of the sys flag that only the slow path handles."""
_CRC_NAME = b"__CRC32#\x01"
_CRC_ROOM = bytes(PROPERTY_CRC_SIZE)


class MessageAppender:
    """Adds messages to the next `LogWriter.commit`.

    Args:
      writer: commits what is put.
      native: the C extension, which packs the usual batches; None: pure Python.

    Attributes:
      batches: counts of batches that the extension was asked to pack.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        queue_store: ConsumeQueueStore,
        writer: LogWriter,
        native: Extension | None = extension,
    ) -> None:
        self._writer = writer
        self._burst = writer.burst
        self._queues = queue_store.queues
        self._create_queue = queue_store.create
        self._record_size_max = config.mapped_file_size_commit_log - RECORD_PREFIX.size
        self._append_crc = config.enabled_append_prop_crc
        # No queue has this magic, so every put takes the slow path when records get a checksum.
        self._usual_magic = _NO_MAGIC if self._append_crc else MAGIC_V1
        self._native = native
        self.batches = PathCounts()
        self._put_fast = self._put_usual_batch if native is None else self._put_packed_batch
        # It packs no record with a checksum.
        self._pack_put = None if native is None or self._append_crc else native.pack_put

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
        """Add one message to the next `commit`.

        The hottest call of a broker: it takes the fields of an `InnerMessage` by name, because
        creating the object would cost 0.15 us.

        Args:
          tags_code: see `put`.
          topic, queue_id, body and the rest: see `InnerMessage`.

        Returns: see `PutResult`.

        Raises: struct.error: a number does not fit into its field; nothing was stored.
        """
        burst = self._burst
        queue = self._queues.get((topic, queue_id)) or self._create_queue(topic, queue_id)
        body_size = len(body)
        pack = self._pack_put
        if (
            pack is not None and queue is not None and body_size <= burst.body_size_max
            and not sys_flag & _UNUSUAL
        ):  # fmt: skip
            physical_offset, queue_offset = burst.append_offset, queue.next_offset
            now_ms = burst.store_time_ms
            record = pack(
                queue, queue_id, body, properties, flag, sys_flag, born_timestamp_ms, born_host,
                now_ms, store_host, reconsume_times, prepared_transaction_offset, physical_offset,
                burst.file_end, tags_code, burst.touched,
            )  # fmt: skip
            if record is not None:
                burst.pending.append(record)
                burst.append_offset = physical_offset + len(record)
                burst.index_items.append((queue.topic_hash, properties, physical_offset, now_ms))
                # Calling the NewTypes of both offsets would cost a tenth of a put.
                return (None, physical_offset, queue_offset)  # type: ignore[return-value]
        properties_size = len(properties)
        if queue is None or body_size > burst.body_size_max:
            return (_illegal(topic, body_size), _NOWHERE, _NO_PLACE)
        if properties_size > PROPERTIES_SIZE_MAX:
            return (_too_many_properties(properties_size), _NOWHERE, _NO_PLACE)
        if (
            sys_flag & _UNUSUAL or queue.magic != self._usual_magic or b"\0" in properties
            or b"#" in properties or len(born_host) + len(store_host) != 16
        ):  # fmt: skip
            message = InnerMessage(
                topic, queue_id, body, properties, born_timestamp_ms, born_host, store_host,
                flag, sys_flag, reconsume_times, prepared_transaction_offset,
            )  # fmt: skip
            return self._put_unusual(queue, message, tags_code)
        size = queue.record_overhead + body_size + properties_size
        physical_offset = burst.append_offset
        if physical_offset + size + 8 > burst.file_end:
            refusal = self._writer.roll(size)
            if refusal is not None:
                return (refusal, _NOWHERE, _NO_PLACE)
            physical_offset = burst.append_offset
        queue_offset = queue.next_offset
        now_ms = burst.store_time_ms
        head = _pack_head(
            size, MAGIC_V1, crc32(body) & 0x7FFFFFFF, queue_id, flag, queue_offset,
            physical_offset, sys_flag & _NOT_V6, born_timestamp_ms, born_host, now_ms, store_host,
            reconsume_times, prepared_transaction_offset, body_size,
        )  # fmt: skip
        if queue.append_units(_pack_unit(physical_offset, size, tags_code), 1):
            burst.touched.append(queue)
        burst.pending += (head, body, queue.topic_field, _pack_length(properties_size), properties)
        burst.append_offset = physical_offset + size
        burst.index_items.append((queue.topic_hash, properties, physical_offset, now_ms))
        return (None, physical_offset, queue_offset)  # type: ignore[return-value]

    def put(self, message: InnerMessage, tags_code: int) -> PutResult:
        """As `put_message`, for a message that the broker itself stores.

        Args:
          tags_code: `java_hash.tags_code` of TAGS (for SCHEDULE_TOPIC_XXXX the delivery time, ms).
        """
        return self.put_message(
            message.topic,
            message.queue_id,
            message.body,
            message.properties,
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host,
            store_host=message.store_host,
            tags_code=tags_code,
            flag=message.flag,
            sys_flag=message.sys_flag,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )

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

        Delayed and half messages are stored twice, and the second record may be the larger one:
        its sizes are checked before the first is stored.

        Args:
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
            body_size <= self._burst.body_size_max
            and properties_size <= PROPERTIES_SIZE_MAX
            and size <= self._record_size_max
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
          properties: encoded; appended to each message's own, as in Apache. In a queue of batches
            they are the record's own, and a UNIQ_KEY among them makes one record, an inner batch,
            of the whole body.
          flag: of an inner batch; otherwise unused: each message has its own.
          topic, queue_id and the rest: see `InnerMessage`.

        Returns: see `BatchResult`; MESSAGE_ILLEGAL also for a body that is no batch, an empty one,
          and one that is too large for a file.
        """
        queue = self._queues.get((topic, queue_id)) or self._create_queue(topic, queue_id)
        if queue is None or len(body) > self._burst.body_size_max:
            return (_illegal(topic, len(body)), [], _NO_PLACE)
        batch = InnerMessage(
            topic, queue_id, body, properties, born_timestamp_ms, born_host, store_host, flag,
            sys_flag, reconsume_times,
        )  # fmt: skip
        if (
            queue.magic == self._usual_magic and queue.is_plain and not sys_flag & _UNUSUAL
            and len(born_host) + len(store_host) == 16
        ):  # fmt: skip
            first = QueueOffset(queue.next_offset)
            offsets = self._put_fast(queue, batch)
            # Empty for a batch that the fast way does not know; nothing was changed then.
            if offsets:
                return (None, offsets, first)
        return self._put_unusual_batch(queue, batch)

    def _put_unusual_batch(self, queue: ConsumeQueue, batch: InnerMessage) -> BatchResult:
        """The slow path of `put_batch`: any batch, message by message; finds what is wrong."""
        properties = batch.properties
        try:
            entries = list(iter_batch(batch.body))
        except RemoteProtocolError as error:
            remark = f"the batch cannot be read: {error}"
            return (PutRefusal(PutMessageStatus.MESSAGE_ILLEGAL, remark), [], _NO_PLACE)
        if queue.is_batch and find_property(properties, UNIQUE_KEY_NAME) is not None:
            return self._put_inner_batch(queue, batch, len(entries))
        messages, total = [], 0
        hosts_size = len(batch.born_host) + len(batch.store_host) - 16
        for message_flag, message_body, own in entries:
            if own and properties and own[-1] != 2:
                own += b"\x02"
            own, crc_size = self._with_room_for_crc(own + properties)
            if len(own) + crc_size > PROPERTIES_SIZE_MAX:
                return (_too_many_properties(len(own) + crc_size), [], _NO_PLACE)
            messages.append(replace(batch, body=message_body, properties=own, flag=message_flag))
            total += queue.record_overhead + hosts_size + len(message_body) + len(own) + crc_size
        # Checked for all before the first is put, because a put cannot be taken back alone.
        if not entries or total > self._record_size_max:
            return (_illegal(queue.key[0], total), [], _NO_PLACE)
        # All or none: a batch must not be divided by a file's end, where rolling may be refused.
        if self._burst.append_offset + total + 8 > self._burst.file_end:
            refusal = self._writer.roll(total)
            if refusal is not None:
                return (refusal, [], _NO_PLACE)
        first = QueueOffset(queue.next_offset)
        offsets = []
        for message in messages:
            tags = find_property(message.properties, TAGS_NAME)
            code = code_of_tags(str(tags, "utf-8", "replace")) if tags is not None else 0
            offsets.append(self._put_record(queue, message, code))
        return (None, offsets, first)

    def _put_usual_batch(self, queue: ConsumeQueue, batch: InnerMessage) -> list[PhysicalOffset]:
        """The fast path of `put_batch`: one loop over messages of the usual kind.

        Returns: the physical offsets; empty: nothing was appended, and the batch needs the slow
          path, which also finds what is wrong with it.
        """
        messages = even_messages(batch.body, batch.properties)
        if messages is not None:
            return self._put_even_batch(queue, batch, messages)
        burst = self._burst
        entries = usual_entries(batch.body, batch.properties)
        physical_offset, queue_offset = burst.append_offset, queue.next_offset
        overhead, now_ms, queue_id = queue.record_overhead, burst.store_time_ms, queue.key[1]
        topic_field, topic_hash = queue.topic_field, queue.topic_hash
        born_timestamp_ms, born_host, store_host = (
            batch.born_timestamp_ms, batch.born_host, batch.store_host,
        )  # fmt: skip
        stored_flags, reconsume_times = batch.sys_flag & _NOT_V6, batch.reconsume_times
        pending: list[bytes] = []
        items: list[IndexItem] = []
        units: list[bytes] = []
        offsets: list[PhysicalOffset] = []
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
            offsets.append(PhysicalOffset(physical_offset))
            physical_offset += size
            queue_offset += 1
        # All or nothing: until here the burst and the queue are unchanged.
        if not offsets or physical_offset + 8 > burst.file_end:
            return []
        burst.pending += pending
        burst.index_items += items
        burst.append_offset = physical_offset
        if queue.append_units(b"".join(units), len(units)):
            burst.touched.append(queue)
        return offsets

    def _put_even_batch(
        self, queue: ConsumeQueue, batch: InnerMessage, messages: EvenMessages
    ) -> list[PhysicalOffset]:
        """`_put_usual_batch` of messages with the same sizes."""
        burst, queue_offset = self._burst, queue.next_offset
        first, now_ms = burst.append_offset, burst.store_time_ms
        place = RecordPlace(
            topic_field=queue.topic_field,
            queue_id=queue.key[1],
            queue_offset=queue_offset,
            physical_offset=first,
            sys_flag=batch.sys_flag & _NOT_V6,
            born_timestamp_ms=batch.born_timestamp_ms,
            born_host=batch.born_host,
            store_timestamp_ms=now_ms,
            store_host=batch.store_host,
            reconsume_times=batch.reconsume_times,
        )
        size, count = record_size(messages, place), len(messages.bodies)
        end = first + size * count
        if end + 8 > burst.file_end:
            return []
        burst.pending.append(pack_records(messages, place))
        offsets = [*range(first, end, size)]
        after = messages.after
        burst.index_items += zip(
            repeat(queue.topic_hash),
            [own + after for own in messages.properties],
            offsets,
            repeat(now_ms),
            strict=False,
        )
        burst.append_offset = end
        if queue.append_units(pack_units(first, size, count), count):
            burst.touched.append(queue)
        return offsets

    def _put_packed_batch(self, queue: ConsumeQueue, batch: InnerMessage) -> list[PhysicalOffset]:
        """`_put_usual_batch` by the C extension, which leaves some batches to pure Python."""
        assert self._native is not None
        burst = self._burst
        try:
            packed = self._native.pack_batch(
                batch.body, batch.properties, queue.key[1], queue.next_offset, burst.append_offset,
                burst.file_end, queue.topic_field, queue.topic_hash, batch.sys_flag & _NOT_V6,
                batch.born_timestamp_ms, batch.born_host, burst.store_time_ms, batch.store_host,
                batch.reconsume_times,
            )  # fmt: skip
        except Exception:
            self.batches.failed += 1
            raise
        if packed is None:
            self.batches.left += 1
            return self._put_usual_batch(queue, batch)
        self.batches.taken += 1
        records, units, offsets, entries = packed
        burst.pending.append(records)
        burst.index_items.append(IndexRun(len(offsets), entries, burst.append_offset))
        burst.append_offset += len(records)
        # The queue's first put of this commit.
        if queue.append_units(units, len(offsets)):
            burst.touched.append(queue)
        return offsets

    def _put_inner_batch(self, queue: ConsumeQueue, batch: InnerMessage, count: int) -> BatchResult:
        """`put_batch` as one record of a queue of batches. Source: sendBatchMessage of 5.3.3."""
        if not 0 < count <= BATCH_SIZE_MAX:
            return (_illegal(queue.key[0], len(batch.body)), [], _NO_PLACE)
        properties = batch.properties
        separator = b"" if properties.endswith(b"\x02") else b"\x02"
        tags = find_property(properties, TAGS_NAME)
        code = code_of_tags(str(tags, "utf-8", "replace")) if tags is not None else 0
        message = replace(
            batch,
            properties=b"%s%sINNER_NUM\x01%d\x02" % (properties, separator, count),
            sys_flag=batch.sys_flag | NEED_UNWRAP | INNER_BATCH,
        )
        refusal, physical_offset, first = self._put_unusual(queue, message, code)
        return (refusal, [physical_offset] if refusal is None else [], first)

    def _put_unusual(self, queue: ConsumeQueue, message: InnerMessage, tags_code: int) -> PutResult:
        """The slow path of a put, for every kind of message: IPv6 hosts, topics over 127 bytes,
        half and rolled back messages, queues of batches and queues with an extension."""
        properties, sys_flag = message.properties, message.sys_flag
        if queue.is_batch or sys_flag & INNER_BATCH:
            remark = batch_refusal(queue, properties, sys_flag)
            if remark:
                return (PutRefusal(PutMessageStatus.MESSAGE_ILLEGAL, remark), _NOWHERE, _NO_PLACE)
            if sys_flag & INNER_BATCH:
                properties = with_inner_base(properties, queue.next_offset)
                if len(properties) > PROPERTIES_SIZE_MAX:
                    return (_too_many_properties(len(properties)), _NOWHERE, _NO_PLACE)
        properties, crc_size = self._with_room_for_crc(properties)
        if len(properties) + crc_size > PROPERTIES_SIZE_MAX:
            return (_too_many_properties(len(properties) + crc_size), _NOWHERE, _NO_PLACE)
        hosts_size = len(message.born_host) + len(message.store_host) - 16
        size = queue.record_overhead + hosts_size + len(message.body) + len(properties) + crc_size
        if self._burst.append_offset + size + 8 > self._burst.file_end:
            refusal = self._writer.roll(size)
            if refusal is not None:
                return (refusal, _NOWHERE, _NO_PLACE)
        in_queue = not sys_flag & TRANSACTION_PREPARED_TYPE
        queue_offset = QueueOffset(queue.next_offset if in_queue else 0)
        if properties is not message.properties:
            message = replace(message, properties=properties)
        try:
            physical_offset = self._put_record(queue, message, tags_code)
        except LocalProtocolError as error:  # the same error as on the fast path
            raise struct.error(str(error)) from error
        return (None, physical_offset, queue_offset)

    def _put_record(
        self, queue: ConsumeQueue, message: InnerMessage, tags_code: int
    ) -> PhysicalOffset:
        """Append one record that is known to fit; returns its physical offset.

        Args:
          message: its properties without a checksum.
        """
        burst, properties, sys_flag = self._burst, message.properties, message.sys_flag
        in_queue = not sys_flag & TRANSACTION_PREPARED_TYPE
        physical_offset, now_ms = burst.append_offset, burst.store_time_ms
        has_crc = self._append_crc or b"\0" in properties
        record = encode_record(
            queue.key[0],
            queue.key[1],
            queue.next_offset if in_queue else 0,
            physical_offset,
            message.body,
            properties + _CRC_ROOM if has_crc else properties,
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host,
            store_timestamp_ms=now_ms,
            store_host=message.store_host,
            flag=message.flag,
            sys_flag=sys_flag,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )
        if has_crc:  # computed last: it covers the whole record
            protected = record[:-PROPERTY_CRC_SIZE]
            record = protected + crc_property((protected,))
        burst.pending.append(record)
        burst.append_offset = physical_offset + len(record)
        if in_queue:
            if queue.next_offset == queue.committed_offset:
                burst.touched.append(queue)
            if queue.is_plain:
                queue.append_units(_pack_unit(physical_offset, len(record), tags_code), 1)
            else:
                queue.append_put(physical_offset, len(record), tags_code, now_ms, properties)
        if sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK_TYPE:
            burst.index_items.append((queue.topic_hash, properties, physical_offset, now_ms))
        return PhysicalOffset(physical_offset)

    def _with_room_for_crc(self, properties: bytes) -> tuple[bytes, int]:
        """Properties without a checksum of the sender, and the size of the new checksum."""
        if _CRC_NAME in properties:
            pieces = properties.split(b"\x02")
            properties = b"\x02".join(piece for piece in pieces if not piece.startswith(_CRC_NAME))
        # With a NUL byte always: without a checksum recovery could not distinguish such a record
        # from one of which only the beginning reached the disk.
        if not self._append_crc and b"\0" not in properties:
            return properties, 0
        if properties and not properties.endswith(b"\x02"):
            properties += b"\x02"
        return properties, PROPERTY_CRC_SIZE


def _illegal(topic: str, size: int) -> PutRefusal:
    remark = f"the topic {topic!r} or the size of {size} bytes is not allowed"
    return PutRefusal(PutMessageStatus.MESSAGE_ILLEGAL, remark)


def _too_many_properties(size: int) -> PutRefusal:
    remark = f"{size} bytes of properties, at most {PROPERTIES_SIZE_MAX} are allowed"
    return PutRefusal(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, remark)


def usual_entries(body: bytes, added: bytes) -> list[BatchEntry]:
    """Each message of a batch.

    Args:
      body: see `iter_batch`.
      added: properties to append to each message's own.
    Returns: an empty list for an empty batch, and for one that needs the slow path: it is no batch,
      or one of its messages needs a checksum or has too many properties.
    """
    entries: list[BatchEntry] = []
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
            if TAGS_HEAD in own:
                tags = find_property(own, TAGS_NAME)
                code = code_of_tags(str(tags, "utf-8", "replace")) if tags is not None else 0
            own += b"\2" + added if own and added and own[-1] != 2 else added
            if len(own) > PROPERTIES_SIZE_MAX:
                return []
            entries.append((flag, body[body_at:body_end], own, code))
    except struct.error:
        return []
    return entries
