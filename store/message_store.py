"""The message store: what brokers put messages into and get them out of.

Java counterpart: store/DefaultMessageStore.java and the append half of CommitLog.java of 5.3.3. The
files are Apache's, to the byte (docs/formats/).

Use::

    store = MessageStore(MessageStoreConfig(store_path_root_dir="…"))
    store.load()                        # lock, recover
    await nursery.start(store.run)      # the services
    store.begin_burst()                 # once per burst of requests:
    store.put_message(…)                #   any number of puts
    for topic, queue_id in store.commit(): …    # one write; wake waiting pulls, then answer
    …                                   # cancel run() and let it end, then
    store.close()

Invariants: an answer given after `commit` returned is in the file (the process may die). Under
SYNC_FLUSH nothing is readable before it is on the device. Store timestamps never go back. A put
that was refused, and a commit that failed, leave nothing behind.

One task owns a store; nothing here is for other threads. No call blocks but for the disk: `commit`
is one pwrite, a new commit log file is made ahead in a worker thread.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from zlib import crc32

import trio

from ..remoting.errors import LocalProtocolError, RemoteProtocolError
from ..remoting.java_hash import tags_code as code_of_tags
from ..remoting.message_codec import (
    MAGIC_V1,
    PROPERTIES_LENGTH,
    PROPERTIES_SIZE_MAX,
    RECORD_HEAD,
    RECORD_PREFIX,
    RECORD_SIZE_MIN,
    encode_record,
    iter_batch,
)
from ..remoting.message_properties import find_property
from ..remoting.sys_flag import (
    TRANSACTION_MASK,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from .checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from .clock import Clock, SystemClock
from .commit_log import CommitLog, blank
from .config import FlushDiskType, MessageStoreConfig
from .consume_queue import ConsumeQueue
from .consume_queue_store import ConsumeQueueStore, offset_by_time
from .disk import Disk, OsDisk, total_memory_bytes
from .errors import StoreError, StoreIOError
from .flush import FlushService
from .format import UNIT, UNIT_SIZE
from .index_service import IndexService
from .loader import Loader
from .log_scanner import LogScanner
from .message_reader import GetMessageResult, MessageReader, QueryResult
from .services import run_services
from .status import BoundaryType, PutMessageStatus

logger = logging.getLogger(__name__)

PutResult = tuple[PutMessageStatus, int, int]
"""(status, physical_offset, queue_offset); both offsets -1 when nothing was stored."""

BatchResult = tuple[PutMessageStatus, list[int], int]
"""(status, physical_offset of each message, queue_offset of the first)."""

RECORD_ROOM = 64 * 1024
"""A record may be this much larger than the largest body. Source: MessageExtEncoder.java."""

_PUT_OK = PutMessageStatus.PUT_OK
_pack_head = RECORD_HEAD.pack
_pack_length = PROPERTIES_LENGTH.pack
_pack_unit = UNIT.pack
_NOT_V6 = -49  # ~(BORNHOST_V6 | STOREHOSTADDRESS_V6)


def _nobody(_: Collection[tuple[str, int]]) -> None:
    """Nobody waits for messages."""


def _no_listener() -> None:
    """Nobody wants to know."""


class MessageStore:
    """All messages of one broker.

    Args:
      config: sizes, paths, flush type.
      clock, disk: the seams; by default the machine's.
      memory_bytes: the machine's memory, for `accessMessageInMemoryMaxRatio`.

    Attributes:
      now_ms: the store timestamp of the puts to come; see `begin_burst`.
      read_only: a failed fsync or write made the store refuse every put until it is opened again.
      refusal: why the last put was refused or the last commit failed; for remarks and the log.
      on_visible: called under SYNC_FLUSH with the (topic, queue_id) that an fsync made visible
        (under ASYNC_FLUSH `commit` returns them).
      on_read_only: called once when the store turns read-only.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        self.config = config
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.disk: Disk = disk if disk is not None else OsDisk()
        self.now_ms = 0
        self.read_only = False
        self.refusal = ""
        self.on_visible: Callable[[Collection[tuple[str, int]]], None] = _nobody
        self.on_read_only: Callable[[], None] = _no_listener
        self.sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.checkpoint = Checkpoint()
        root = config.store_path_root_dir
        self.log = CommitLog(
            self.disk, config.commit_log_folder, config.mapped_file_size_commit_log
        )
        self.queue_store = ConsumeQueueStore(self.disk, root, file_size=config.queue_file_size)
        self.flusher = FlushService(
            self.log,
            self.clock,
            timeout_s=config.sync_flush_timeout / 1000,
            on_flushed=self._show_flushed,
            on_failed=self._turn_read_only,
        )
        self.index = IndexService(
            self.disk,
            self.clock,
            f"{root}/index",
            slot_count=config.max_hash_slot_num,
            index_count_max=config.max_index_num,
            read_log=self._read_log,
        )
        memory = memory_bytes if memory_bytes is not None else total_memory_bytes()
        self._queues = self.queue_store.queues
        self._reader = MessageReader(self.log, self._queues, self.index, config, memory)
        self._file_size = config.mapped_file_size_commit_log
        self._body_size_max = config.max_message_size
        self._record_size_max = min(config.max_message_size + RECORD_ROOM, self._file_size - 8)
        self._state = "new"
        # What was put since the last commit:
        self._append_offset = 0
        self._file_end = 0
        self._committed_offset = 0
        self._dispatched_offset = 0
        self._pending: list[bytes] = []
        self._pending_start = 0
        self._segments: list[tuple[int, list[bytes]]] = []
        self._touched: dict[tuple[str, int], ConsumeQueue] = {}
        self._index_items: list[tuple[int, bytes, int, int]] = []
        # Committed, waiting for fsync (SYNC_FLUSH): end, (queue, its end), index items.
        self._hidden: list[
            tuple[int, list[tuple[ConsumeQueue, int]], list[tuple[int, bytes, int, int]]]
        ] = []
        self._failed_create_ms = -1

    # ---- opening and closing -------------------------------------------------------------

    def load(self) -> None:
        """Lock the data folder, recover, and be ready for puts.

        Raises:
          StoreLockedError: another process has the folder open.
          CorruptRecordError: files that must not be cut or rebuilt are damaged.
          StoreIOError: the folder or a file could not be read or written.
        """
        root, disk = self.config.store_path_root_dir, self.disk
        disk.make_folder(root)
        disk.lock(f"{root}/lock")
        try:
            abort = f"{root}/abort"
            clean = not disk.exists(abort)
            self.checkpoint = read_checkpoint(disk, f"{root}/checkpoint")
            loader = Loader(self.config, self.log, self.queue_store, self.checkpoint, clean=clean)
            end, self.now_ms = loader.recover()
            self._start_at(end)
            self._load_index(clean=clean, end=end)
            if not (clean and self.checkpoint.dispatched_offset == end):
                self._sync_recovered(end)
            file = disk.open(abort, create=True)
            file.pwrite(str(os.getpid()).encode(), 0)
            file.close()
            disk.sync_folder(root)
        except StoreError:
            self.queue_store.close()
            self.log.close()
            disk.unlock(f"{root}/lock")
            raise
        self._state = "open"
        self.begin_burst()

    def _start_at(self, end: int) -> None:
        base = end - end % self._file_size
        self._append_offset = self._committed_offset = self._dispatched_offset = end
        self._pending_start = end
        self._file_end = base + self._file_size if base in self.log.files else end
        self.flusher.flushed_offset = self.flusher.committed_offset = end

    def _sync_recovered(self, end: int) -> None:
        """Have on the device, and in the checkpoint, what recovery has found and built."""
        for file in self.log.files.values():
            file.sync()
        self.queue_store.write()
        self.queue_store.sync(self.queue_store.take_unsynced())
        self.note_checkpoint(end, self.now_ms)

    def _load_index(self, *, clean: bool, end: int) -> None:
        if not self.config.message_index_enable:
            return
        whole = self.index.load(
            clean=clean, index_msg_timestamp_ms=self.checkpoint.index_msg_timestamp_ms
        )
        if end > self.log.min_offset and not (clean and whole):
            self.index.catch_up_from(max(self.index.end_physical_offset, self.log.min_offset))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the services until cancelled: fsync, queue files, checkpoint, index, files ahead."""
        await run_services(self, task_status=task_status)

    def close(self) -> None:
        """Commit and flush everything, remove the abort file, unlock. Again: nothing.

        The abort file stays when something could not be written: the next start then recovers.
        """
        if self._state != "open":
            return
        self._state = "closed"
        root = self.config.store_path_root_dir
        try:
            if self._pending:
                self.commit()
            self.flusher.flush()
            self.queue_store.write()
            if not self.read_only:
                self.index.close()
                self.queue_store.sync(self.queue_store.take_unsynced())
                self.note_checkpoint(self._dispatched_offset, self.now_ms)
                self.log.remove_from(self._end_of_used_files())
                self.disk.unlink(f"{root}/abort")
                self.disk.sync_folder(root)
        except StoreError:
            logger.exception("the store could not be closed cleanly; the next start recovers it")
        finally:
            self.queue_store.close()
            self._reader.close()
            self.log.close()
            self.disk.unlock(f"{root}/lock")

    def _end_of_used_files(self) -> int:
        return -(-self._committed_offset // self._file_size) * self._file_size

    # ---- putting -------------------------------------------------------------------------

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
        if self._state != "open" or self.read_only:
            self.refusal = self.refusal or "the store is not open"
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        if size > self._record_size_max and size > self._file_size - 8:
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

    # ---- reading -------------------------------------------------------------------------

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        count_max: int,
        size_max: int = 0x7FFFFFFF,
        tags_codes: frozenset[int] | None = None,
    ) -> GetMessageResult:
        """Messages from a queue offset on; see `MessageReader.get_message`."""
        return self._reader.get_message(
            topic, queue_id, queue_offset, count_max, size_max, tags_codes, self._committed_offset
        )

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset after the newest visible message; 0 when there is no such queue."""
        queue = self._queues.get((topic, queue_id))
        return queue.max_offset if queue is not None else 0

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The oldest queue offset whose message is still there; 0 when there is no such queue."""
        queue = self._queues.get((topic, queue_id))
        return queue.min_offset if queue is not None else 0

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: BoundaryType = BoundaryType.LOWER,
    ) -> int:
        """The queue offset that a store timestamp (ms) stands for; 0 when there is no such queue.

        LOWER: the first message stored at or after it (the next offset to come if none); UPPER: the
        last one stored at or before it (the oldest if none).

        Raises:
          StoreIOError: a file could not be read.
        """
        queue = self._queues.get((topic, queue_id))
        return offset_by_time(self.log, queue, timestamp_ms, boundary) if queue is not None else 0

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store timestamp (ms) of the queue's oldest message; -1 if it has none."""
        return self.store_time_at(topic, queue_id, self.min_offset(topic, queue_id))

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store timestamp (ms) of one message; -1 if there is none.

        Raises:
          StoreIOError: a file could not be read.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return -1
        return self.log.store_timestamp_ms(queue.unit_at(queue_offset)[0])

    def physical_offset_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Physical offset of one message; -1 if there is none.

        Raises:
          StoreIOError: a file could not be read.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return -1
        return queue.unit_at(queue_offset)[0]

    def message_at(self, physical_offset: int) -> memoryview | None:
        """The record at a physical offset, which may come from a peer; None when none starts there.

        Only what is visible is found.
        """
        if not self.min_physical_offset <= physical_offset < self._dispatched_offset:
            return None
        return self._reader.record_at(physical_offset, self._dispatched_offset)

    def query_by_key(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> QueryResult:
        """Messages with a key or unique key, oldest first; see `MessageReader.query_by_key`."""
        return self._reader.query_by_key(
            topic, key, count_max, begin_ms, end_ms, self._dispatched_offset
        )

    @property
    def max_physical_offset(self) -> int:
        """Where the commit log ends, bytes."""
        return self._committed_offset

    @property
    def min_physical_offset(self) -> int:
        """Where the oldest commit log file begins, bytes."""
        return self.log.min_offset

    @property
    def dispatched_offset(self) -> int:
        """Up to where the log is visible in the queues, bytes."""
        return self._dispatched_offset

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes that are in the log but not visible yet: waiting for their fsync."""
        return self._committed_offset - self._dispatched_offset

    def topics(self) -> dict[str, list[int]]:
        """Queue ids by topic, of all queues there are."""
        return self.queue_store.topics()

    def delete_topics(self, topics: Iterable[str]) -> int:
        """Remove the queues of these topics; their messages stay in the log until it is cleaned.

        Returns: how many of them had queues.

        Raises:
          StoreIOError: a file could not be removed.
        """
        if self._pending:
            self.commit()
        gone = set(topics)
        self._hidden = [
            (end, [entry for entry in ends if entry[0].key[0] not in gone], items)
            for end, ends, items in self._hidden
        ]
        return self.queue_store.delete_topics(gone)

    # ---- for the services ----------------------------------------------------------------

    @property
    def room_in_file(self) -> int:
        """Bytes left in the current commit log file."""
        return max(self._file_end - self._append_offset, 0)

    @property
    def next_file_base(self) -> int:
        """Physical offset at which the next commit log file will begin."""
        return self._file_end if self._file_end > 0 else 0

    def note_checkpoint(self, dispatched_offset: int, timestamp_ms: int) -> None:
        """Write the checkpoint; all before `dispatched_offset` was synced, log and queues.

        Args:
          timestamp_ms: no record before that offset has a later store timestamp.

        Raises:
          StoreIOError: it could not be written.
        """
        checkpoint = self.checkpoint
        checkpoint.physic_msg_timestamp_ms = checkpoint.logics_msg_timestamp_ms = timestamp_ms
        checkpoint.dispatched_offset = dispatched_offset
        checkpoint.index_msg_timestamp_ms = max(
            checkpoint.index_msg_timestamp_ms, self.index.finished_timestamp_ms
        )
        write_checkpoint(
            self.disk, f"{self.config.store_path_root_dir}/checkpoint", self.checkpoint
        )

    def _read_log(self, start: int) -> Iterator[tuple[str, int, bytes, int, int, int]]:
        """Visible records from an offset on, for the index (see `index_service.LogReader`)."""
        scanner = LogScanner(self.log, start, check_crc=False, stop=lambda: self._dispatched_offset)
        for record in scanner.records():
            yield (
                record.topic,
                record.sys_flag,
                record.properties_bytes,
                record.physical_offset,
                record.store_timestamp_ms,
                record.physical_offset + record.store_size,
            )


assert RECORD_PREFIX.size == 8
assert RECORD_HEAD.size + 3 == RECORD_SIZE_MIN
