"""Stores as crashes and damage leave them, and what must hold of them."""

from __future__ import annotations

from typing import Any

from trocket.disk.memory_disk import MemoryDisk
from trocket.store.message_store import MessageStore
from trocket.store.status import PutMessageStatus

from .queue_differences import differences
from .support import ROOT, open_store, put, send

LOG = f"{ROOT}/commitlog/{0:020d}"
QUEUE = f"{ROOT}/consumequeue/T/0"


def crashed(count: int = 5, *, sync: bool = False) -> tuple[MemoryDisk, list[int], int]:
    """A disk with `count` messages of one queue, as kill -9 leaves it; and their offsets."""
    disk = MemoryDisk()
    store = open_store(disk, sync=sync)
    offsets = []
    for number in range(count):
        offsets.append(store.max_physical_offset)
        send(store, b"message %d" % number)
        store.flusher.flush()
    disk.process_death()
    return disk, offsets, store.max_physical_offset


def closed(count: int = 30, *, body: bytes = b"", queues: int = 2, **changes: Any) -> MemoryDisk:
    """A disk with `count` messages in some queues of topic T, closed cleanly."""
    disk = MemoryDisk()
    store = open_store(disk, **changes)
    for number in range(count):
        send(store, b"%d" % number + body, queue_id=number % queues)
    store.close()
    return disk


def snapshot(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: bytes(data) for path, data in disk.contents.items() if path != f"{ROOT}/lock"}


def assert_whole(store: MessageStore) -> None:
    """The queues are the projection of the log."""
    assert list(differences(store.log, store.queue_store, store.config)) == []


def assert_read_only(disk: MemoryDisk, offset: int, **changes: Any) -> MessageStore:
    """Opening refuses sends, names the offset, and changes nothing; returns the store."""
    before = snapshot(disk)
    store = open_store(disk, **changes)
    assert store.read_only
    assert f"at offset {offset}" in store.trouble
    assert "trocket store repair" in store.trouble
    refusal, _, _ = put(store)
    assert refusal is not None
    assert refusal.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    store.queue_store.write()
    assert snapshot(disk) == before
    return store


def close_unchanged(disk: MemoryDisk, store: MessageStore) -> None:
    before = snapshot(disk)
    store.close()
    assert snapshot(disk) == before
    assert ROOT + "/lock" not in disk._locks
