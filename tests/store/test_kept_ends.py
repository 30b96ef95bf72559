"""The kept ends of queues equal a fresh pass over all of them, whatever happened before."""

from __future__ import annotations

import contextlib
import errno
import json
from itertools import islice

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from trocket.common.clock import ManualClock
from trocket.common.steps import STEP_ITEMS, at_once
from trocket.disk.errors import StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message import Message
from trocket.remoting.message_codec import encode_batch
from trocket.store.checkpoint_writer import KeptEnds
from trocket.store.config import BrokerRole
from trocket.store.ha.copier import LogCopier
from trocket.store.message_store import MessageStore
from trocket.store.queues.batch_consume_queue import BatchUnit
from trocket.store.queues.consume_queue_store import ConsumeQueueStore
from trocket.store.queues.queue_ends import FILE_NAME, QueueEnds, read_queue_ends
from trocket.store.retention_service import Retention
from trocket.store.services import checkpoint_now
from trocket.store.writing.in_sync_acks import InSyncAcks

from .support import HOST, ROOT, open_store, put, send, small_config

QUEUES = [("T", 0), ("T", 1), ("Batches", 0), ("Other", 3)]
HOUR_MS = 3_600_000


def fresh(queue_store):
    """Ends and begins by a pass over all queues."""
    ends, begins = {}, {}
    for key, queue in queue_store.queues.items():
        end = max(queue.max_offset, queue.tail_offset)
        if end:
            ends[key], begins[key] = end, queue.min_offset
    return ends, begins


def kept(store):
    """Ends and begins as the next checkpoint would record them."""
    found = QueueEnds.from_bytes(store.checkpoints.queue_ends().to_bytes())
    assert found.dispatched_offset == store.dispatcher.recorded_offset
    return found.ends, found.begins


def assert_kept(store):
    assert kept(store) == fresh(store.queue_store)


class KeptEndsModel(RuleBasedStateMachine):
    sync = False

    @initialize()
    def start(self):
        self.disk, self.clock = MemoryDisk(), ManualClock()
        self.open()

    def open(self):
        self.store = open_store(
            self.disk, clock=self.clock, sync=self.sync, mapped_file_size_consume_queue=200,
            delete_when=";".join(map(str, range(24))), file_reserved_time=1,
        )  # fmt: skip
        self.store.queue_store.batch_topics.add("Batches")

    def teardown(self):
        self.disk.fault = None
        self.store.close()

    @rule(key=st.sampled_from(QUEUES), count=st.integers(1, 30), size=st.sampled_from([10, 9000]))
    def send(self, key, count, size):
        for _ in range(count):
            put(self.store, bytes(size), topic=key[0], queue_id=key[1])
        self.store.commit()

    @rule()
    def put_a_batch(self):
        body = encode_batch([Message("Batches", b"1"), Message("Batches", b"2")])
        self.store.put_batch(
            "Batches", 0, body, b"", born_timestamp_ms=1, born_host=HOST, store_host=HOST
        )

    @rule()
    def roll_back(self):
        put(self.store, topic="T")
        self.store.roll_back()

    @rule()
    def flush(self):
        self.store.flusher.flush()

    @rule(key=st.sampled_from(QUEUES))
    def delete(self, key):
        self.store.delete_topics([key[0]])
        if key[0] == "Batches":
            self.store.queue_store.batch_topics.add("Batches")

    @rule(key=st.sampled_from(QUEUES))
    def fail_to_delete(self, key):
        """Its queues may still be there, though the file has no ends of them."""
        self.disk.fault = lambda name, path: (
            OSError(errno.EIO, "") if name == "remove_folder" else None
        )
        with contextlib.suppress(StoreIOError):
            self.store.delete_topics([key[0]])
        self.disk.fault = None

    @rule(key=st.sampled_from(QUEUES), back=st.integers(1, 30))
    def cut_a_queue(self, key, back):
        queue = self.store.queue_store.queues.get(key)
        if queue is not None and self.store.writer.burst.is_empty:
            self.store.copies.cut_queue(queue, max(queue.next_offset - back, 0))

    @rule(key=st.sampled_from(QUEUES))
    def empty_a_queue(self, key):
        queue = self.store.queue_store.queues.get(key)
        if queue is not None and self.store.writer.burst.is_empty:
            self.store.copies.empty_queue(queue)

    @rule()
    def expire(self):
        self.clock.advance(2 * HOUR_MS)
        self.store.begin_burst()
        Retention(self.store).clean()

    @rule()
    def write_queues(self):
        for queue in self.store.queue_store.unwritten():
            queue.write()
        assert not self.store.queue_store.unwritten()

    @rule(steps=st.integers(1, 5))
    def visit_some(self, steps):
        for _ in islice(self.store.checkpoints.visit_changed(per_step=1), steps):
            pass

    @rule(count_min=st.integers(1, 40))
    def compare_unwritten(self, count_min):
        queue_store = self.store.queue_store
        assert {queue.key for queue in queue_store.unwritten(count_min)} == {
            key
            for key, queue in queue_store.queues.items()
            if queue.max_offset - queue.tail_offset >= count_min
        }

    @rule()
    def compare(self):
        assert_kept(self.store)

    @rule(fails=st.booleans())
    def checkpoint(self, fails):
        if fails:
            self.disk.fault = lambda name, path: (
                OSError(errno.ENOSPC, "") if name == "pwrite" and FILE_NAME in path else None
            )
        before = read_queue_ends(self.disk, ROOT)
        trio.run(checkpoint_now, self.store)
        self.disk.fault = None
        found = read_queue_ends(self.disk, ROOT)
        if fails:
            assert found == before
        elif found.dispatched_offset == self.store.dispatcher.recorded_offset:
            # Held and cut queues change without a record, and need no checkpoint by themselves.
            self.store.checkpoints.write(found.dispatched_offset, self.store.store_time_ms)
            found = read_queue_ends(self.disk, ROOT)
            assert (found.ends, found.begins) == fresh(self.store.queue_store)

    @precondition(lambda self: self.store.writer.burst.is_empty)
    @rule(is_killed=st.booleans())
    def reopen(self, is_killed):
        if not is_killed:
            self.store.close()
        self.disk.process_death()
        self.open()


class SyncKeptEndsModel(KeptEndsModel):
    """Messages are visible after the fsync."""

    sync = True


@pytest.mark.slow
class TestKeptEndsAsyncFlush(KeptEndsModel.TestCase):
    settings = settings(max_examples=20, stateful_step_count=30, deadline=None)


@pytest.mark.slow
class TestKeptEndsSyncFlush(SyncKeptEndsModel.TestCase):
    settings = settings(max_examples=20, stateful_step_count=30, deadline=None)


def test_hidden_messages_are_within_the_ends_and_are_kept_so_when_they_show():
    disk, clock = MemoryDisk(), ManualClock()
    config = small_config(broker_role=BrokerRole.SYNC_MASTER)

    def opened(members):
        acks = InSyncAcks(config, clock, 1, members)
        store = MessageStore(config, clock=clock, disk=disk, memory_bytes=1 << 30, in_sync=acks)
        store.load(confirmed=0)
        return store, acks

    store, _ = opened(frozenset({1}))
    ends = []
    for _ in range(30):
        store.on_visible(store.commit() if send(store) < 0 else ())
        ends.append(store.max_physical_offset)
    store.close()
    store, acks = opened(frozenset({1, 2}))
    assert store.max_offset("T", 0) == 0
    assert_kept(store)
    for end in ends[9::10]:
        acks.report(2, end)
        send(store)  # held
        assert_kept(store)
    assert store.max_offset("T", 0) == 30
    acks.report(2, store.max_physical_offset)
    assert_kept(store)
    assert kept(store)[0] == {("T", 0): 33}


@pytest.mark.parametrize("sync", [False, True])
def test_the_ends_of_a_slave_follow_queues_that_begin_midway_and_again(sync):
    source = open_store()
    for _ in range(3):
        send(source)
    middle = source.max_physical_offset
    source.delete_topics(["T"])
    for _ in range(2):
        send(source)
    log = bytes(source.log.view(0)[: source.max_physical_offset])
    slave = open_store(broker_role=BrokerRole.SLAVE, sync=sync)
    copier = LogCopier(slave, is_ours=True)
    copier.take(log[:middle])
    slave.flusher.flush()
    assert_kept(slave)
    copier.take(log[middle:])
    assert_kept(slave)
    slave.flusher.flush()
    assert_kept(slave)
    assert kept(slave)[0] == {("T", 0): 2}


def test_a_part_of_a_commit_that_shows_is_in_the_ends():
    config = small_config(broker_role=BrokerRole.SYNC_MASTER)
    acks = InSyncAcks(config, ManualClock(), 1, frozenset({1, 2}))
    store = open_store(in_sync=acks, broker_role=BrokerRole.SYNC_MASTER)
    put(store)
    end_of_first = store.writer.burst.append_offset
    put(store, queue_id=1)
    store.commit()
    assert_kept(store)
    acks.report(2, end_of_first)
    assert_kept(store)
    assert kept(store)[0] == {("T", 0): 1}


@pytest.mark.parametrize("topic", ["T", "Batches"])
async def test_queues_that_retention_shortened_begin_where_the_log_does(topic):
    clock = ManualClock()
    store = open_store(
        clock=clock, file_reserved_time=1, delete_when=";".join(map(str, range(24))),
        mapped_file_size_consume_queue=200,
    )  # fmt: skip
    store.queue_store.batch_topics.add("Batches")
    for number in range(30):
        send(store, bytes(9000), topic=topic, queue_id=number % 2)
        if number % 6 == 5:
            clock.advance(2 * HOUR_MS)
            store.begin_burst()
    await checkpoint_now(store)
    assert set(kept(store)[1].values()) == {0}
    Retention(store).clean()
    assert_kept(store)
    assert min(kept(store)[1].values()) > 0


BATCH_UNIT = BatchUnit(0, 1, 0, 0, 5, 2).to_bytes()


@pytest.mark.parametrize(
    ("topic", "change"),
    [
        ("T", lambda queue: queue.append_recovered(3, bytes(20))),
        ("T", lambda queue: queue.extend_recovered(3, bytes(60))),
        ("T", lambda queue: queue.cut_at(2)),
        ("T", lambda queue: queue.remove()),
        ("T", lambda queue: queue.begin_at(77)),
        ("Batches", lambda queue: queue.append_recovered(5, BATCH_UNIT)),
        ("Batches", lambda queue: queue.cut_at(2)),
        ("Batches", lambda queue: queue.remove()),
        ("Batches", lambda queue: queue.write()),  # the unit after it may have a later offset
        ("Batches", lambda queue: queue.roll_back()),
        ("Batches", lambda queue: queue.correct_min_offset(1)),
    ],
)
def test_what_changes_a_queue_notes_it(topic, change):
    queue_store = ConsumeQueueStore(MemoryDisk(), ROOT, file_size=400, batch_file_size=46 * 5)
    queue_store.batch_topics.add("Batches")
    queue = queue_store.create(topic, 0)
    for number in range(3):
        unit = BatchUnit(number, 1, 0, 0, number, 1).to_bytes() if queue.is_batch else bytes(20)
        queue.append_recovered(number, unit)
    queue_store.changed.clear()
    change(queue)
    assert list(queue_store.changed) == [queue]


def test_a_queue_that_could_not_be_removed_is_in_the_next_checkpoint():
    disk = MemoryDisk()
    store = open_store(disk)
    send(store)
    send(store, queue_id=1)
    trio.run(checkpoint_now, store)
    disk.fault = lambda name, path: OSError(errno.EIO, "") if name == "remove_folder" else None
    with pytest.raises(StoreIOError):
        store.copies.empty_queue(store.queue_store.queues["T", 0])
    disk.fault = None
    assert read_queue_ends(disk, ROOT).ends == {("T", 1): 1}
    assert kept(store)[0] == {("T", 0): 1, ("T", 1): 1}


def test_what_is_deleted_before_the_ends_are_encoded_is_not_in_them():
    store = open_store()
    send(store, topic="Deleted")
    send(store)
    send(store, queue_id=1)
    head = store.checkpoints.take_ends()
    store.delete_topics(["Deleted"])
    store.copies.empty_queue(store.queue_store.queues["T", 0])
    ends = at_once(store.checkpoints.encoded(head))
    assert QueueEnds.from_bytes(ends.to_bytes()).ends == {("T", 1): 1}


def test_a_log_that_is_cut_as_it_is_opened_has_other_ends():
    disk = MemoryDisk()
    store = open_store(disk)
    send(store)
    cut_at = store.max_physical_offset
    send(store)
    send(store, topic="Gone")
    disk.process_death()
    store = MessageStore(small_config(), clock=ManualClock(), disk=disk, memory_bytes=1 << 30)
    store.load(cut_at=cut_at)
    assert_kept(store)
    assert kept(store)[0] == {("T", 0): 1}


def test_a_queue_that_begins_again_while_a_checkpoint_is_written_is_not_in_it():
    disk = MemoryDisk()
    store = open_store(disk)
    send(store)
    send(store, queue_id=1)
    end, ends = store.max_physical_offset, store.checkpoints.queue_ends()
    store.copies.empty_queue(store.queue_store.queues["T", 0])
    store.checkpoints.write(end, store.store_time_ms, None, ends)
    assert read_queue_ends(disk, ROOT).ends == {("T", 1): 1}


def test_changes_outlive_a_file_that_could_not_be_written():
    disk = MemoryDisk()
    store = open_store(disk)
    send(store)
    disk.fault = lambda name, path: OSError(errno.ENOSPC, "") if FILE_NAME in path else None
    trio.run(checkpoint_now, store)
    disk.fault = None
    assert read_queue_ends(disk, ROOT).ends == {}
    send(store, queue_id=1)
    trio.run(checkpoint_now, store)
    assert read_queue_ends(disk, ROOT).ends == {("T", 0): 1, ("T", 1): 1}


def test_records_of_another_program_noted_while_a_checkpoint_is_written_stay_noted():
    disk = MemoryDisk()
    store = open_store(disk, broker_role=BrokerRole.SLAVE)
    ends = store.checkpoints.queue_ends()
    store.checkpoints.note_foreign_records()
    store.checkpoints.write(0, 0, None, ends)
    assert read_queue_ends(disk, ROOT).own_from == store.checkpoints.own_from > 1 << 60


def queues_of(counts):
    """Queues by topic, each with one message more than its id, and their kept ends."""
    queue_store = ConsumeQueueStore(MemoryDisk(), ROOT, file_size=400)
    for topic, count in counts.items():
        for queue_id in range(count):
            queue_store.create(topic, queue_id).extend_recovered(0, bytes(20) * (queue_id + 1))
    return queue_store, KeptEnds(queue_store)


def texts(steps):
    return {topic: json.loads(b"{%s}" % text)[topic] for topic, text in at_once(steps).items()}


def test_no_step_visits_or_encodes_many_queues():
    counts = {"Large": 3 * STEP_ITEMS, 'T\u4e2d"': 2} | {f"T{number}": 2 for number in range(600)}
    queue_store, ends = queues_of(counts)
    assert len(list(ends.visit(per_step=100))) == len(queue_store.queues) // 100
    ends.take()
    steps = ends.texts()
    assert len(list(steps)) >= len(queue_store.queues) // (2 * STEP_ITEMS)
    found = texts(ends.texts())
    assert found == {
        topic: {str(each): [0, each + 1] for each in range(count)}
        for topic, count in counts.items()
    }


def test_only_the_text_of_topics_that_changed_is_made_again():
    queue_store, ends = queues_of({"A": 3, "B": 3})
    ends.take()
    before = at_once(ends.texts())
    queue_store.queues["B", 1].extend_recovered(2, bytes(20))
    queue_store.queues["A", 1].note_change()  # and is as before
    ends.take()
    after = at_once(ends.texts())
    assert after["A"] is before["A"]
    assert before["B"] == b'"B":{"0":[0,1],"1":[0,2],"2":[0,3]}'
    assert after["B"] == b'"B":{"0":[0,1],"1":[0,3],"2":[0,3]}'


def test_what_is_forgotten_while_a_topic_is_encoded_is_not_in_its_text():
    _, ends = queues_of({"T": 2 * STEP_ITEMS, "U": 2, "V": 1})
    ends.take()
    steps = ends.texts()
    next(steps)
    ends.forget_queue(("T", 0))
    ends.forget_topics({"U"})
    found = texts(steps)
    assert set(found) == {"T", "V"}
    assert set(found["T"]) == {str(each) for each in range(1, 2 * STEP_ITEMS)}
    # They were not removed after all.
    ends.take()
    assert set(texts(ends.texts())) == {"T", "U", "V"}


def test_an_encoding_that_was_broken_off_is_begun_again():
    _, ends = queues_of({"T": 2 * STEP_ITEMS})
    ends.take()
    steps = ends.texts()
    next(steps)
    steps.close()
    assert len(texts(ends.texts())["T"]) == 2 * STEP_ITEMS
