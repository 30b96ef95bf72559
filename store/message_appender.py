"""The appending half of a store: what is put, committed, shown, rolled back.

Java counterpart: the append half of store/CommitLog.java and MessageExtEncoder.java of 5.3.3. This
is the broker's hottest code: a put costs two `struct.pack` calls and some list appends; the system
call, and everything that can fail, is in `commit`, once per burst.

Invariants: offsets are handed out by `put_message` in the order of the log; nothing is visible
before `commit` (under SYNC_FLUSH: before the fsync) has returned; a failed commit leaves the log,
the queues' next offsets and the files as they were at the commit before.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Collection
from zlib import crc32

from ..remoting.errors import LocalProtocolError, RemoteProtocolError
from ..remoting.java_hash import tags_code as code_of_tags
from ..remoting.message_codec import (
    MAGIC_V1,
    PROPERTIES_LENGTH,
    PROPERTIES_SIZE_MAX,
    RECORD_HEAD,
    encode_record,
    iter_batch,
)
from ..remoting.message_properties import find_property
from ..remoting.sys_flag import (
    TRANSACTION_MASK,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from .clock import Clock
from .commit_log import CommitLog, blank
from .config import FlushDiskType, MessageStoreConfig
from .consume_queue import ConsumeQueue
from .consume_queue_store import ConsumeQueueStore
from .errors import StoreIOError
from .flush import FlushService
from .format import UNIT, UNIT_SIZE
from .index_service import IndexService
from .status import PutMessageStatus

logger = logging.getLogger(__name__)

PutResult = tuple[PutMessageStatus, int, int]
"""(status, physical_offset, queue_offset); both offsets -1 when nothing was stored."""

BatchResult = tuple[PutMessageStatus, list[int], int]
"""(status, physical_offset of each message, queue_offset of the first)."""

IndexItems = list[tuple[int, bytes, int, int]]

_PUT_OK = PutMessageStatus.PUT_OK
_pack_head = RECORD_HEAD.pack
_pack_length = PROPERTIES_LENGTH.pack
_pack_unit = UNIT.pack
_NOT_V6 = -49  # ~(BORNHOST_V6 | STOREHOSTADDRESS_V6)


def _nobody(_: Collection[tuple[str, int]]) -> None:
    """Nobody waits for messages."""


def _no_listener() -> None:
    """Nobody wants to know."""


class MessageAppender:
    """Appends to a log that is loaded; `MessageStore` is the public face.

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
        self.config = config
        self.clock = clock
        self.log = log
        self.queue_store = queue_store
        self.index = index
        self.now_ms = 0
        self.read_only = False
        self.refusal = ""
        self.on_visible: Callable[[Collection[tuple[str, int]]], None] = _nobody
        self.on_read_only: Callable[[], None] = _no_listener
        self.sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.flusher = FlushService(
            log,
            clock,
            timeout_s=config.sync_flush_timeout / 1000,
            on_flushed=self._show_flushed,
            on_failed=self._turn_read_only,
        )
        self._queues = queue_store.queues
        self._file_size = config.mapped_file_size_commit_log
        self._body_size_max = config.max_message_size
        self._is_open = False
        # What was put since the last commit:
        self._append_offset = 0
        self._file_end = 0
        self._committed_offset = 0
        self._dispatched_offset = 0
        self._pending: list[bytes] = []
        self._pending_start = 0
        self._segments: list[tuple[int, list[bytes]]] = []
        self._touched: dict[tuple[str, int], ConsumeQueue] = {}
        self._index_items: IndexItems = []
        # Committed, waiting for fsync (SYNC_FLUSH): end, (queue, its end), index items.
        self._hidden: list[tuple[int, list[tuple[ConsumeQueue, int]], IndexItems]] = []
        self._failed_create_ms = -1

    def _start_at(self, end: int) -> None:
        base = end - end % self._file_size
        self._append_offset = self._committed_offset = self._dispatched_offset = end
        self._pending_start = end
        self._file_end = base + self._file_size if base in self.log.files else end
        self.flusher.flushed_offset = self.flusher.committed_offset = end

    def begin_burst(self, now_ms: int | None = None) -> None:
        """Set the store timestamp of the puts that follow; it never goes back.

        Args:
          now_ms: wall clock, ms since 1970; None: read the clock.
        """
        if now_ms is None:
            now_ms = self.clock.wall_ms()
        if now_ms > self.now_ms:
            self.now_ms = now_ms

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
          topic: the queue's; the broker has checked that it exists.
          queue_id: 0 … 2^31 - 1.
          body: as it is to be stored (compressed when `sys_flag` says so).
          properties: encoded.
          born_timestamp_ms: the sender's clock, ms since 1970.
          born_host, store_host: what `host_bytes` gives, 8 or 20 bytes.
          tags_code: `java_hash.tags_code` of TAGS (for SCHEDULE_TOPIC_XXXX the delivery time, ms).
          flag, sys_flag, reconsume_times: int32; the IPv6 bits of sys_flag are set here.
          prepared_transaction_offset: physical offset of the half message.

        Returns: (PUT_OK, physical_offset, queue_offset), or a refusal that stored nothing:
          MESSAGE_ILLEGAL (topic or sizes), PROPERTIES_SIZE_EXCEEDED, CREATE_MAPPED_FILE_FAILED (no
          room for another file), SERVICE_NOT_AVAILABLE (read-only or not open), with -1, -1.

        Raises:
          struct.error: a number is beyond its field; nothing was stored.
        """
        key = (topic, queue_id)
        queue = self._queues.get(key) or self.queue_store.create(topic, queue_id)
        body_size = len(body)
        properties_size = len(properties)
        if queue is None or body_size > self._body_size_max:
            return self._illegal(topic, body_size)
        if properties_size > PROPERTIES_SIZE_MAX:
            return self._too_many_properties(properties_size)
        if sys_flag & 4 or queue.magic != MAGIC_V1 or len(born_host) + len(store_host) != 16:
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
        self._touched[key] = queue
        self._index_items.append((queue.topic_hash, properties, physical_offset, now_ms))
        return (_PUT_OK, physical_offset, queue_offset)

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
          properties: encoded; they follow each message's own, as in Apache.
          flag: not used: each message has its own.
          others: as `put_message`.

        Returns: (PUT_OK, physical offsets, queue_offset of the first), or a refusal with no offsets
          and -1, as `put_message`; MESSAGE_ILLEGAL also for a body that is no batch, an empty one,
          and one that no file could hold.
        """
        queue = self._queues.get((topic, queue_id)) or self.queue_store.create(topic, queue_id)
        if queue is None or len(body) > self._body_size_max:
            return (self._illegal(topic, len(body))[0], [], -1)
        try:
            entries = list(iter_batch(body))
        except RemoteProtocolError as error:
            self.refusal = f"the batch cannot be read: {error}"
            return (PutMessageStatus.MESSAGE_ILLEGAL, [], -1)
        messages, total = [], 0
        hosts_size = len(born_host) + len(store_host) - 16
        for _, message_body, own in entries:
            if own and properties and own[-1] != 2:
                own += b"\x02"
            own += properties
            if len(own) > PROPERTIES_SIZE_MAX:
                return (self._too_many_properties(len(own))[0], [], -1)
            messages.append(own)
            total += queue.record_overhead + hosts_size + len(message_body) + len(own)
        if not entries or total > self._file_size - 8:
            return (self._illegal(topic, total)[0], [], -1)
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

    def commit(self) -> Collection[tuple[str, int]]:
        """Write everything put since the last commit: one pwrite per commit log file.

        Returns: the (topic, queue_id) with new visible messages; none under SYNC_FLUSH, where
          `on_visible` is called after the fsync.

        Raises:
          StoreIOError: it could not be written. None of the puts since the last commit is stored:
            answer them with SERVICE_NOT_AVAILABLE; `refusal` says why. Later puts may succeed.
        """
        pending = self._pending
        if not pending:
            return ()
        end = self._append_offset
        try:
            for start, pieces in self._segments:
                self.log.write(start, b"".join(pieces))
            self.log.write(self._pending_start, b"".join(pending))
        except StoreIOError as error:
            self._roll_back(error)
            raise
        if self._segments:
            self._segments = []
        self._pending = []
        self._pending_start = self._committed_offset = self.flusher.committed_offset = end
        touched = self._touched
        items = self._index_items
        self._touched = {}
        self._index_items = []
        if self.sync_flush:
            ends = []
            for queue in touched.values():
                queue.committed_offset = queue.next_offset
                ends.append((queue, queue.next_offset))
            self._hidden.append((end, ends, items))
            self.flusher.want()
            return ()
        for queue in touched.values():
            queue.max_offset = queue.committed_offset = queue.next_offset
        self._dispatched_offset = end
        if self.config.message_index_enable:
            self.index.add(items)
        return touched.keys()

    def when_flushed(self, physical_offset: int, callback: Callable[[bool], None]) -> None:
        """Call back once a committed record is on the device, or will not be.

        Args:
          physical_offset: what the put returned.
          callback: called with True after the fsync, with False when fsync failed or took longer
            than syncFlushTimeout; maybe at once. Called in the store's task; must not raise.
        """
        self.flusher.when_flushed(physical_offset, callback)

    def flush(self) -> None:
        """fsync the log now, in this thread (tests, tools; `run` does it otherwise)."""
        self.flusher.flush()

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
        """`put_message` for IPv6 hosts, topics over 127 bytes and half or rolled back messages."""
        hosts_size = len(born_host) + len(store_host) - 16
        size = queue.record_overhead + hosts_size + len(body) + len(properties)
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
        record = encode_record(
            queue.key[0],
            queue.key[1],
            queue.next_offset if in_queue else 0,
            physical_offset,
            body,
            properties,
            born_timestamp_ms,
            born_host,
            now_ms,
            store_host,
            flag,
            sys_flag,
            reconsume_times,
            prepared_transaction_offset,
        )
        self._pending.append(record)
        self._append_offset = physical_offset + len(record)
        if in_queue:
            queue.tail += _pack_unit(physical_offset, len(record), tags_code)
            queue.next_offset += 1
            self._touched[queue.key] = queue
        if sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK_TYPE:
            self._index_items.append((queue.topic_hash, properties, physical_offset, now_ms))
        return physical_offset

    def _illegal(self, topic: str, size: int) -> PutResult:
        self.refusal = f"topic {topic!r} or a size of {size} bytes is not allowed"
        return (PutMessageStatus.MESSAGE_ILLEGAL, -1, -1)

    def _too_many_properties(self, size: int) -> PutResult:
        self.refusal = f"{size} bytes of properties, at most {PROPERTIES_SIZE_MAX} are allowed"
        return (PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, -1, -1)

    def _roll(self, size: int) -> PutMessageStatus:
        """Go to the next file, when a record of `size` bytes does not fit into this one."""
        if not self._is_open or self.read_only:
            self.refusal = self.refusal or "the store is not open"
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        if size > self._file_size - 8:
            self.refusal = f"a record of {size} bytes does not fit into a commit log file"
            return PutMessageStatus.MESSAGE_ILLEGAL
        base = -(-self._append_offset // self._file_size) * self._file_size
        if base not in self.log.files:
            if self._failed_create_ms == self.now_ms:
                return PutMessageStatus.CREATE_MAPPED_FILE_FAILED
            try:
                if self.log.prepared_base != base:
                    self.log.create(base)
                self.log.adopt(base)
            except StoreIOError as error:
                self._failed_create_ms = self.now_ms
                self.refusal = str(error)
                logger.error("no new commit log file: %s", error)
                return PutMessageStatus.CREATE_MAPPED_FILE_FAILED
        if self._append_offset < base:
            self._pending.append(blank(base - self._append_offset))
            self._segments.append((self._pending_start, self._pending))
            self._pending = []
        self._append_offset = self._pending_start = base
        self._file_end = base + self._file_size
        return _PUT_OK

    def _roll_back(self, error: StoreIOError) -> None:
        """Undo everything put since the last commit: in memory, and in the files as zeros."""
        self.refusal = str(error)
        start = self._committed_offset
        try:
            self.log.zero(start, min(self._append_offset, self.log.end_of_files))
        except StoreIOError as second:
            self._turn_read_only(second)
        for queue in self._touched.values():
            count = queue.next_offset - queue.committed_offset
            del queue.tail[len(queue.tail) - count * UNIT_SIZE :]
            queue.next_offset = queue.committed_offset
        self._touched = {}
        self._pending = []
        self._segments = []
        self._index_items = []
        self._append_offset = self._pending_start = start
        if not self.read_only:
            base = start - start % self._file_size
            self._file_end = base + self._file_size if base in self.log.files else start

    def _show_flushed(self, flushed_offset: int) -> None:
        """Make visible what an fsync has covered."""
        hidden = self._hidden
        if not hidden:
            return
        visible: dict[tuple[str, int], None] = {}
        while hidden and hidden[0][0] <= flushed_offset:
            self._dispatched_offset, ends, items = hidden.pop(0)
            for queue, queue_end in ends:
                queue.max_offset = queue_end
                visible[queue.key] = None
            if self.config.message_index_enable:
                self.index.add(items)
        if visible:
            self.on_visible(visible.keys())

    def _turn_read_only(self, error: StoreIOError) -> None:
        self.read_only = True
        self.refusal = f"the store is read-only until restart: {error}"
        self._file_end = -1
        logger.critical("%s", self.refusal)
        self.on_read_only()

    @property
    def max_physical_offset(self) -> int:
        """Where the commit log ends, bytes."""
        return self._committed_offset

    @property
    def room_in_file(self) -> int:
        """Bytes left in the current commit log file."""
        return max(self._file_end - self._append_offset, 0)

    @property
    def next_file_base(self) -> int:
        """Physical offset at which the next commit log file will begin."""
        return self._file_end if self._file_end > 0 else 0

    def _used_files_end(self) -> int:
        return -(-self._committed_offset // self._file_size) * self._file_size
