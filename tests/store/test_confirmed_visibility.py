"""What consumers see in controller mode: the log up to the confirm offset, and no message more."""

from __future__ import annotations

import pytest
import trio

from trocket.common.clock import ManualClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.config import BrokerRole
from trocket.store.ha.copier import LogCopier
from trocket.store.message_store import MessageStore
from trocket.store.recovery.checkpoint import read_checkpoint
from trocket.store.services import checkpoint_now
from trocket.store.status import GetMessageStatus, PutMessageStatus
from trocket.store.writing.in_sync_acks import ConfirmedCopy, InSyncAcks

from .support import ROOT, bodies, put, small_config

OK = PutMessageStatus.PUT_OK
ME, OTHER = 1, 2
BOTH = frozenset({ME, OTHER})
LONE = frozenset({ME})


def master(disk, members, *, confirmed=None, **changes):
    """A loaded master of a set, and its acknowledgements."""
    config = small_config(broker_role=BrokerRole.SYNC_MASTER, **changes)
    acks = InSyncAcks(config, ManualClock(), ME, members)
    return opened(config, disk, acks, confirmed), acks


def opened(config, disk, in_sync, confirmed=None):
    store = MessageStore(
        config, clock=ManualClock(), disk=disk, memory_bytes=1 << 30, in_sync=in_sync
    )
    store.load(confirmed=confirmed)
    return store


def send(store, body, **more):
    """Put and commit; returns the physical end, and the outcomes of its answer."""
    refusal, physical, _ = put(store, body, **more)
    assert refusal is None, refusal
    store.on_visible(store.commit())
    outcomes = []
    store.when_replicated(physical, outcomes.append)
    return store.max_physical_offset, outcomes


def found_by_key(store, key):
    store.index.work()
    return len(store.query_by_key("T", key, 10, 0, 1 << 60).buffers)


@pytest.mark.parametrize("sync", [False, True])
def test_a_lone_master_shows_and_answers_at_once(sync):
    store, _ = master(MemoryDisk(), LONE, sync=sync)
    seen = []
    store.on_visible = seen.extend
    _, outcomes = send(store, b"first")
    if sync:
        assert (bodies(store), outcomes) == ([], [])
        store.flusher.flush()
    assert (bodies(store), outcomes, seen) == ([b"first"], [OK], [("T", 0)])


@pytest.mark.parametrize("sync", [False, True])
def test_messages_are_visible_when_they_are_confirmed(sync):
    store, acks = master(MemoryDisk(), BOTH, sync=sync)
    seen = []
    store.on_visible = seen.extend
    first, answer = send(store, b"first", properties=b"KEYS\1k\2")
    second, later = send(store, b"second")
    store.flusher.flush()
    assert (bodies(store), answer, seen) == ([], [], [])
    assert found_by_key(store, "k") == 0
    acks.report(OTHER, first)
    assert (bodies(store), answer, seen) == ([b"first"], [OK], [("T", 0)])
    assert found_by_key(store, "k") == 1
    assert (store.max_offset("T", 0), store.dispatched_offset) == (1, first)
    acks.report(OTHER, second)
    assert (bodies(store), later) == ([b"first", b"second"], [OK])


def test_under_sync_flush_a_slave_that_is_faster_shows_nothing():
    store, acks = master(MemoryDisk(), BOTH, sync=True)
    end, outcomes = send(store, b"first")
    acks.report(OTHER, end)
    assert (bodies(store), outcomes) == ([], [])
    store.flusher.flush()
    assert (bodies(store), outcomes) == ([b"first"], [OK])


def test_a_slave_shows_what_the_master_has_confirmed():
    config = small_config(broker_role=BrokerRole.SLAVE)
    source, _ = master(MemoryDisk(), LONE)
    ends = [send(source, b"%d" % number)[0] for number in range(3)]
    slave = opened(config, MemoryDisk(), ConfirmedCopy())
    copier = LogCopier(slave, is_ours=True)
    copier.take(bytes(source.log.view(0)[: ends[-1]]))
    assert bodies(slave) == []
    slave.durability.confirmed(ends[0])
    assert (bodies(slave), slave.durability.confirm_offset) == ([b"0"], ends[0])
    slave.durability.confirmed(ends[-1] + 1000)
    assert (bodies(slave), slave.durability.confirm_offset) == ([b"0", b"1", b"2"], ends[-1])


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("is_batch", [False, True])
def test_a_reopened_store_hides_what_was_not_confirmed(is_killed, is_batch):
    disk = MemoryDisk()
    store, acks = master(disk, LONE)
    if is_batch:
        store.queue_store.batch_topics.add("T")
    ends = [send(store, b"%d" % number)[0] for number in range(30)]
    acks.accept(BOTH, 1)
    ends += [send(store, b"%d" % number)[0] for number in range(30, 60)]
    if is_killed:
        trio.run(checkpoint_now, store)
        disk.process_death()
    else:
        store.close()
    page = read_checkpoint(disk, f"{ROOT}/checkpoint")
    assert page.confirm_physical_offset == ends[29]
    again, acks = master(disk, BOTH)
    assert len(bodies(again)) == 30
    assert again.max_offset("T", 0) == 30
    # F11: the next queue offset follows all of the log.
    assert put(again, b"60")[2] == 60
    again.commit()
    acks.report(OTHER, ends[40])
    assert len(bodies(again)) == 41
    acks.report(OTHER, ends[-1] - 1)
    assert len(bodies(again)) == 59
    acks.report(OTHER, again.max_physical_offset)
    assert bodies(again) == [b"%d" % number for number in range(61)]
    again.close()
    last, _ = master(disk, LONE)
    assert len(bodies(last)) == 61


def test_a_clean_close_with_hidden_messages_leaves_queues_that_need_no_rebuilding(caplog):
    disk = MemoryDisk()
    store, _ = master(disk, LONE)
    for number in range(10):
        send(store, b"%d" % number)
    store.close()
    for confirmed in (3, 5):
        end = record_end(disk, confirmed)
        hidden, acks = master(disk, BOTH, confirmed=end)
        assert len(bodies(hidden)) == confirmed
        assert acks.confirm_offset == end
        send(hidden, b"more")
        hidden.close()
    whole, _ = master(disk, LONE)
    assert len(bodies(whole)) == 12
    assert caplog.text == ""


def record_end(disk, count):
    """The physical end of the first `count` messages of queue 0."""
    store, _ = master(disk, LONE)
    queue = store.queue_store.queues["T", 0]
    physical, size, _ = queue.unit_at(count - 1)
    store.close()
    return physical + size


@pytest.mark.parametrize("visible", [0, 3])
def test_a_consumer_between_the_visible_and_the_real_end_waits(visible):
    disk = MemoryDisk()
    store, _ = master(disk, LONE)
    ends = [0] + [send(store, b"%d" % number)[0] for number in range(10)]
    store.close()
    again, _ = master(disk, BOTH, confirmed=ends[visible])
    for offset in range(max(visible, 1), 11):
        result = again.get_message("T", 0, offset, 32)
        assert result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE
        assert (result.next_begin_offset, result.max_offset) == (offset, visible)
    assert again.get_message("T", 0, 11, 32).status in {
        GetMessageStatus.OFFSET_OVERFLOW_BADLY,
        GetMessageStatus.NO_MESSAGE_IN_QUEUE,
    }


def test_an_unknown_confirm_offset_hides_all_until_one_is_known():
    disk = MemoryDisk()
    plain = opened(small_config(), disk, None)
    end = send(plain, b"old")[0]
    plain.close()
    assert read_checkpoint(disk, f"{ROOT}/checkpoint").confirm_physical_offset == 0
    slave = opened(small_config(broker_role=BrokerRole.SLAVE), disk, ConfirmedCopy())
    assert bodies(slave) == []
    slave.durability.confirmed(end)
    assert bodies(slave) == [b"old"]
    slave.close()
    lone, _ = master(disk, LONE)
    assert bodies(lone) == [b"old"]


def test_a_deleted_topic_with_hidden_messages_does_not_come_back():
    disk = MemoryDisk()
    store, _ = master(disk, LONE)
    end = send(store, b"1")[0]
    store.close()
    again, acks = master(disk, BOTH, confirmed=0)
    again.delete_topics(["T"])
    acks.report(OTHER, end)
    assert again.max_offset("T", 0) == 0


def test_outside_of_controller_mode_nothing_is_refused_or_confirmed():
    store = opened(small_config(), MemoryDisk(), None)
    end, outcomes = send(store, b"1")
    assert (outcomes, store.durability.send_refusal()) == ([OK], None)
    assert store.durability.confirm_offset == end
    store.durability.confirmed(0)
