"""What the store's tests share: a small store in memory, and one way to put and read."""

from __future__ import annotations

from trocket.common.clock import ManualClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import Disk
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.record_schema import RECORD_HEAD
from trocket.store.config import FlushDiskType, MessageStoreConfig
from trocket.store.message_store import MessageStore
from trocket.store.reading.visible_log import VisibleLog

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
HOST_V6 = bytes(15) + b"\x01\x00\x00\x2a\x9f"
ROOT = "/data"


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
    disk: Disk | None = None, *, clock: ManualClock | None = None, sync: bool = False, **changes
) -> MessageStore:
    """A loaded store on a disk in memory."""
    store = MessageStore(
        small_config(sync=sync, **changes),
        clock=clock or ManualClock(),
        disk=disk or MemoryDisk(),
        memory_bytes=1 << 30,
    )
    store.load()
    return store


def put(store, body=b"body", *, topic="T", queue_id=0, properties=b"", tags_code=0, **more):
    """One put with the usual rest."""
    arguments = {"born_timestamp_ms": 1, "born_host": HOST, "store_host": HOST, **more}
    return store.put_message(topic, queue_id, body, properties, tags_code=tags_code, **arguments)


def send(store, body=b"body", **more):
    """One put and its commit; returns its queue offset."""
    refusal, _, queue_offset = put(store, body, **more)
    assert refusal is None, refusal
    store.commit()
    return queue_offset


def visible_records(store):
    """The records that an index of the store would be made of."""
    return VisibleLog(store.log, lambda: store.dispatched_offset).records(0)


def bodies(store, topic="T", queue_id=0, **limits):
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


def physical_offset_of(store, queue_offset):
    """Physical offset of the record that has a message of queue 0 of T."""
    record = store.get_message("T", 0, queue_offset, 1).buffers[0]
    return RECORD_HEAD.unpack_from(record)[6]
