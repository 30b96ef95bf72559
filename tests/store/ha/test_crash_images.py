"""A slave's store at every moment of a copy, as a crash leaves it: a prefix of its master's log.

The disk and its crash images are those of tests/world: after each operation, what a kill
leaves, and what power cuts may leave of what was not synced. `HA_SEEDS=40` plays more of them.
"""

from __future__ import annotations

import os
from random import Random

import pytest
import trio

from tests.store.queue_differences import differences
from tests.world.file_system import KINDS, POWER_KINDS, FileSystem, Image
from tests.world.recording_disk import RecordingDisk
from tests.world.store.hole import is_hole_unavoidable
from tests.world.store.session import sim_config
from trocket.common.clock import ManualClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.config import BrokerRole
from trocket.store.ha.copier import LogCopier
from trocket.store.message_store import MessageStore
from trocket.store.services import checkpoint_now

from ..support import ROOT, send

SEEDS = range(int(os.environ.get("HA_SEEDS", "1")))


def master_log():
    """The bytes of a log of six files: three queues, one topic that was deleted and made again."""
    store = MessageStore(sim_config(sync=False), clock=ManualClock(), disk=MemoryDisk())
    store.load()
    random = Random(1)
    for number in range(45):
        if number == 30:
            store.delete_topics(["Again"])
        topic = "Again" if number % 5 == 0 else "T"
        body = random.randbytes(random.randrange(700))
        properties = b"KEYS\x01k%d\x02TAGS\x01A\x02" % number
        send(store, body, topic=topic, queue_id=number % 3, properties=properties, tags_code=65)
    data = b"".join(bytes(store.log.view(base)) for base in store.log.files)
    return data[: store.max_physical_offset]


LOG = master_log()


def new_slave(disk, sync):
    config = sim_config(sync=sync, broker_role=BrokerRole.SLAVE)
    store = MessageStore(config, clock=ManualClock(), disk=disk, memory_bytes=1 << 30)
    store.load()
    return store


class Promise:
    """The acknowledged offset and the start of the log after a number of operations."""

    def __init__(self, store, begin):
        self.committed, self.flushed = store.max_physical_offset, store.flusher.flushed_offset
        self.begin = begin if self.committed else 0


def record(sync, begin, seed):
    """A copy on a disk that remembers; returns its journal and the promises by moment."""
    disk, random = RecordingDisk(FileSystem(Image({}, {ROOT}))), Random(seed)
    store = new_slave(disk, sync)
    copier = LogCopier(store, is_ours=True)
    if begin:
        copier.begin_at(begin)
    promises = [(0, Promise(store, begin))]
    at = begin
    while at < len(LOG):
        size = random.randrange(1, 2500)
        copier.take(LOG[at : at + size])
        at += size
        promises.append((len(disk.journal), Promise(store, begin)))
        if random.random() < 0.3:
            store.flusher.flush()
        if random.random() < 0.2:
            trio.run(checkpoint_now, store)
        promises.append((len(disk.journal), Promise(store, begin)))
    store.close()
    return disk.journal, promises


def check(image, kind, promise, sync, begin):
    """Open a store on an image; it holds what was promised, and goes on to the end."""
    disk = RecordingDisk.of_image(image)
    store = new_slave(disk, sync)
    if store.read_only:
        assert kind in POWER_KINDS
        assert is_hole_unavoidable(store.config, disk.system.everything())
        return False
    end = store.max_physical_offset
    promised = promise.committed
    if kind in POWER_KINDS:
        promised = promise.flushed if sync else 0
    assert end >= promised
    copier = LogCopier(store, is_ours=True)
    if end == 0 and begin:
        copier.begin_at(begin)
    else:
        assert bytes(log_of(store)) == LOG[begin:end]
    # Of a topic that was deleted, the queues may be gone before the first message of its next life.
    found = differences(store.log, store.queue_store, store.config)
    assert [each for each in found if each.key[0] != "Again"] == []
    copier.take(LOG[copier.received_offset :])
    store.flusher.flush()
    assert bytes(log_of(store)) == LOG[begin:]
    assert list(differences(store.log, store.queue_store, store.config)) == []
    return True


def log_of(store):
    data = b"".join(bytes(store.log.view(base)) for base in store.log.files)
    return data[: store.max_physical_offset - store.log.min_offset]


@pytest.mark.slow
@pytest.mark.parametrize("begin", [0, 8192])
@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_crash_leaves_a_prefix_of_the_masters_log(sync, begin, seed):
    journal, promises = record(sync, begin, seed)
    system, opened, promise = FileSystem(Image({}, {ROOT})), 0, promises[0][1]
    for moment in range(len(journal) + 1):
        while promises and promises[0][0] <= moment:
            promise = promises.pop(0)[1]
        next_op = journal[moment] if moment < len(journal) else ("",)
        for kind in KINDS:
            image = system.crash_image(kind, Random(f"{seed}:{moment}:{kind}"), next_op)
            if image is not None:
                opened += check(image, kind, promise, sync, begin)
        if moment < len(journal):
            system.apply(journal[moment])
    assert opened > 100
