"""What the store's tests share: a small store in memory, and one way to put and read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio

from trocket.common.clock import Clock, ManualClock, WallTimeMs
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import Disk
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.record_schema import RECORD_HEAD
from trocket.store.config import FlushDiskType, MessageStoreConfig
from trocket.store.index.index_service import IndexedRecord
from trocket.store.message_store import MessageStore
from trocket.store.offsets import QueueOffset
from trocket.store.reading.visible_log import VisibleLog
from trocket.store.status import PutResult
from trocket.store.writing.in_sync_acks import ConfirmedCopy, InSyncAcks

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
HOST_V6 = bytes(15) + b"\x01\x00\x00\x2a\x9f"
ROOT = "/data"


class TrioClock:
    """The store's clock on trio's virtual time."""

    def wall_ms(self) -> WallTimeMs:
        return WallTimeMs(1_700_000_000_000 + int(trio.current_time() * 1000))

    def monotonic_s(self) -> float:
        return trio.current_time()

    def elapsed_s(self) -> float:
        return trio.current_time()

    def local_time_name(self, wall_ms: int) -> str:
        return f"{wall_ms:017d}"


def small_config(*, root: str = ROOT, sync: bool = False, **changes: object) -> MessageStoreConfig:
    """64 KiB log files, 20 units per queue file, 50 entries per index file."""
    config = MessageStoreConfig(
        store_path_root_dir=root,
        mapped_file_size_commit_log=64 * 1024,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=20,
        max_index_num=50,
        flush_disk_type=FlushDiskType.SYNC_FLUSH if sync else FlushDiskType.ASYNC_FLUSH,
    )
    for name, value in changes.items():
        setattr(config, name, value)
    return config


def open_store(
    disk: Disk | None = None,
    *,
    clock: Clock | None = None,
    sync: bool = False,
    in_sync: InSyncAcks | ConfirmedCopy | None = None,
    **changes: Any,
) -> MessageStore:
    """A loaded store on a disk in memory."""
    store = MessageStore(
        small_config(sync=sync, **changes),
        clock=clock or ManualClock(),
        disk=disk or MemoryDisk(),
        memory_bytes=1 << 30,
        in_sync=in_sync,
    )
    store.load()
    return store


def put(
    store: MessageStore, body: bytes = b"body", *, topic: str = "T", queue_id: int = 0,
    properties: bytes = b"", tags_code: int = 0, **more: Any,
) -> PutResult:  # fmt: skip
    """One put with the usual rest."""
    arguments: dict[str, Any] = {
        "born_timestamp_ms": 1,
        "born_host": HOST,
        "store_host": HOST,
        **more,
    }
    return store.put_message(topic, queue_id, body, properties, tags_code=tags_code, **arguments)


def send(store: MessageStore, body: bytes = b"body", **more: Any) -> QueueOffset:
    """One put and its commit; returns its queue offset."""
    refusal, _, queue_offset = put(store, body, **more)
    assert refusal is None, refusal
    store.commit()
    return queue_offset


def visible_records(store: MessageStore) -> Iterable[IndexedRecord]:
    """The records that an index of the store would be made of."""
    return VisibleLog(store.log, lambda: store.dispatched_offset).records(0)


def bodies(store: MessageStore, topic: str = "T", queue_id: int = 0, **limits: Any) -> list[bytes]:
    """Bodies of all messages of a queue, read as a consumer would."""
    found = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        result = store.get_message(topic, queue_id, offset, 32, **limits)
        for buffer in result.buffers:
            found += [message.body for message in decode_messages(buffer, check_crc=True)]
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
    return found


def physical_offset_of(store: MessageStore, queue_offset: int) -> int:
    """Physical offset of the record that has a message of queue 0 of T."""
    record = store.get_message("T", 0, queue_offset, 1).buffers[0]
    return int(RECORD_HEAD.unpack_from(record)[6])
