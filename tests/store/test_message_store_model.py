"""Any order of puts, commits, flushes, crashes and reopenings, against lists."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message import Message
from trocket.remoting.message_codec import encode_batch

from .support import HOST, HOST_V6, bodies, open_store, put

QUEUES = [("T", 0), ("T", 1), ("Other" * 30, 0)]


class StoreModel(RuleBasedStateMachine):
    """`committed[queue]`: what must be readable; `synced[queue]`: how much of it survives a power
    cut at least."""

    sync = False

    def __init__(self):
        super().__init__()
        self.disk = MemoryDisk(journalled=True)
        self.store = None
        self.committed = {key: [] for key in QUEUES}
        self.pending = []
        self.synced = dict.fromkeys(QUEUES, 0)
        self.number = 0

    @initialize()
    def start(self):
        self.store = open_store(self.disk, sync=self.sync)

    def teardown(self):
        if self.store is not None:
            self.store.close()

    @rule(key=st.sampled_from(QUEUES), size=st.integers(0, 9000), v6=st.booleans())
    def put(self, key, size, v6):
        self.number += 1
        body = b"%d:" % self.number + bytes(size)
        topic, queue_id = key
        refusal, _, offset = put(
            self.store,
            body,
            topic=topic,
            queue_id=queue_id,
            born_host=HOST_V6 if v6 else HOST,
            properties=b"UNIQ_KEY\x01K%d\x02" % self.number,
        )
        assert refusal is None
        ahead = sum(1 for other, _ in self.pending if other == key)
        assert offset == len(self.committed[key]) + ahead
        self.pending.append((key, body))

    @rule(key=st.sampled_from(QUEUES), count=st.integers(1, 5))
    def put_batch(self, key, count):
        messages = []
        for _ in range(count):
            self.number += 1
            messages.append(Message(key[0], b"%d:" % self.number))
        topic, queue_id = key
        refusal, offsets, first = self.store.put_batch(
            topic,
            queue_id,
            encode_batch(messages),
            b"WAIT\x01true",
            born_timestamp_ms=1,
            born_host=HOST,
            store_host=HOST,
        )
        assert refusal is None
        assert len(offsets) == count
        ahead = sum(1 for other, _ in self.pending if other == key)
        assert first == len(self.committed[key]) + ahead
        self.pending += [(key, message.body) for message in messages]

    @rule(size=st.integers(1, 500))
    def half_message(self, size):
        """A half message is in the log and in no queue."""
        assert put(self.store, bytes(size), sys_flag=4)[2] == 0

    @rule()
    def commit(self):
        visible = set(self.store.commit())
        if not self.sync:
            assert visible == {key for key, _ in self.pending}
        for key, body in self.pending:
            self.committed[key].append(body)
        self.pending = []
        if self.sync:
            self.flush()

    @rule()
    def flush(self):
        self.store.flusher.flush()
        self.synced = {key: len(found) for key, found in self.committed.items()}

    @rule()
    def write_queues(self):
        self.store.queue_store.write()

    @rule()
    def checkpoint(self):
        self.flush()
        self.store.queue_store.write()
        self.store.queue_store.sync(self.store.queue_store.take_unsynced())
        self.store.checkpoints.write(self.store.dispatched_offset, self.store.store_time_ms)

    @rule()
    def build_index(self):
        while self.store.index.is_behind:
            self.store.index.work(1.0)

    @rule()
    def advance(self):
        self.store.clock.advance(1000)
        self.store.begin_burst()

    @rule()
    def reopen(self):
        self.commit()
        self.store.close()
        self.store = open_store(self.disk, clock=self.store.clock, sync=self.sync)

    @rule()
    def kill(self):
        """kill -9: everything committed stays, what was only put is gone."""
        self.pending = []
        self.disk.process_death()
        self.store = open_store(self.disk, clock=self.store.clock, sync=self.sync)

    @rule(data=st.data())
    def power_cut(self, data):
        """Everything synced stays; of the rest each queue keeps a first part."""
        self.pending = []
        kept = data.draw(st.integers(0, len(self.disk.journal)))
        self.disk.power_loss(kept)
        self.store = open_store(self.disk, clock=self.store.clock, sync=self.sync)
        for key, expected in self.committed.items():
            left = self.store.max_offset(*key)
            assert left >= self.synced[key]
            assert bodies(self.store, *key) == expected[:left]
            self.committed[key] = expected[:left]
            self.synced[key] = min(self.synced[key], left)

    @invariant()
    def every_queue_is_its_list(self):
        if self.store is not None:
            for key, expected in self.committed.items():
                assert self.store.max_offset(*key) == len(expected)
                assert self.store.min_offset(*key) == 0

    @precondition(lambda self: self.store is not None)
    @rule()
    def read_all(self):
        for key, expected in self.committed.items():
            assert bodies(self.store, *key) == expected

    @precondition(lambda self: self.store is not None and self.number > 0)
    @rule(data=st.data())
    def query(self, data):
        """Once the index has caught up, every message is found by its unique key."""
        self.build_index()
        key = data.draw(st.sampled_from(QUEUES))
        wanted = [body for body in self.committed[key] if len(body.split(b":")[1])]
        if wanted:
            body = data.draw(st.sampled_from(wanted))
            number = body.split(b":")[0].decode()
            found = self.store.query_by_key(key[0], f"K{number}", 32, 0, 1 << 60).buffers
            assert any(body in bytes(buffer) for buffer in found)


class SyncStoreModel(StoreModel):
    """The same under SYNC_FLUSH."""

    sync = True


@pytest.mark.slow
class TestAsyncFlush(StoreModel.TestCase):
    settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.slow
class TestSyncFlush(SyncStoreModel.TestCase):
    settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
