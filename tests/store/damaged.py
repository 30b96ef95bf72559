"""Stores as crashes and damage leave them, and what must hold of them."""

from __future__ import annotations

from tests.store.queue_differences import differences
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.status import PutMessageStatus

from .support import ROOT, open_store, put, send

LOG = f"{ROOT}/commitlog/{0:020d}"
QUEUE = f"{ROOT}/consumequeue/T/0"


def crashed(count=5, *, sync=False):
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


def closed(count=30, *, body=b"", queues=2, **changes):
    """A disk with `count` messages in some queues of topic T, closed cleanly."""
    disk = MemoryDisk()
    store = open_store(disk, **changes)
    for number in range(count):
        send(store, b"%d" % number + body, queue_id=number % queues)
    store.close()
    return disk


def snapshot(disk):
    return {path: bytes(data) for path, data in disk.contents.items() if path != f"{ROOT}/lock"}


def assert_whole(store):
    """The queues are the projection of the log."""
    assert list(differences(store.log, store.queue_store, store.config)) == []


def assert_read_only(disk, offset, **changes):
    """Opening refuses sends, names the offset, and changes nothing; returns the store."""
    before = snapshot(disk)
    store = open_store(disk, **changes)
    assert store.read_only
    assert f"at offset {offset}" in store.trouble
    assert "trocket store repair" in store.trouble
    assert put(store)[0].status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    store.queue_store.write()
    assert snapshot(disk) == before
    return store


def close_unchanged(disk, store):
    before = snapshot(disk)
    store.close()
    assert snapshot(disk) == before
    assert ROOT + "/lock" not in disk._locks
