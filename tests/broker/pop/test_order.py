"""Pops in order without a network: blocks, offsets, wakes, and the time."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from trocket.broker.pop.buffer import PopBuffer
from trocket.broker.pop.check_point import CheckPoint
from trocket.broker.pop.order import OrderedPops
from trocket.broker.pop.order_info import ATTEMPT_ID_LENGTH_MAX
from trocket.broker.pop.order_info_manager import KEPT_MS, ConsumerOrderInfoManager
from trocket.broker.settings.config import BrokerConfig
from trocket.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from trocket.broker.tables.subscription_group_manager import SubscriptionGroupManager
from trocket.broker.tables.topic_config_manager import TopicConfigManager
from trocket.common.clock import ManualClock
from trocket.common.java_integers import INT64_MAX
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.state_files import StateFiles
from trocket.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from trocket.remoting.errors import RequestRefused
from trocket.remoting.receipt import ORDER_REVIVE_QUEUE, encode_order_counts
from trocket.remoting.response_codes import ResponseCode

from ...kit import TrioClock

MINUTE = 60_000
FOLDER = "/store/config"
ENDS = {("T", 0): 10, ("T", 1): 10}


class Pops(OrderedPops):
    """Pops in order of T by G, with what was woken."""

    def __init__(self, disk=None, clock=None, *, queues_max=100, **config):
        self.woken = []
        self.clock = clock or ManualClock(1_000_000)
        self.files = StateFiles(disk or MemoryDisk(), FOLDER)
        self.settings = BrokerConfig(**config)
        self.offsets = ConsumerOffsetManager(clock=self.clock, save=self.files.save)
        self.topics = topics = TopicConfigManager(
            self.settings, clock=self.clock, save=self.files.save
        )
        groups = SubscriptionGroupManager(self.settings, clock=self.clock, save=self.files.save)
        topics.update([TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2)])
        groups.update([SubscriptionGroupConfig(group_name="G")])
        super().__init__(
            self.settings,
            self.files,
            ConsumerOrderInfoManager(save=self.files.save, queues_max=queues_max),
            buffer=PopBuffer(self.settings, self.offsets, flushed=lambda: 0),
            offsets=self.offsets,
            topics=topics,
            groups=groups,
            max_offset=lambda topic, queue_id: ENDS.get((topic, queue_id), 0),
            now_ms=self.clock.wall_ms,
            wake=lambda *queue: self.woken.append(queue),
        )

    @property
    def committed(self):
        return self.offsets.query_offset("G", "T", 0)

    def pop(self, *offsets, start=None, attempt=None, queue=0, invisible=MINUTE):
        start = offsets[0] if start is None else start
        diffs = [offset - start for offset in offsets]
        check_point = CheckPoint(
            "T", "G", queue, start, self.clock.wall_ms(), invisible, "b", diffs
        )
        return self.popped(check_point, attempt)

    def blocks(self, attempt=None, queue=0):
        return self.is_blocked("T", "G", queue, attempt, MINUTE)

    def acks(self, *offsets, at, queue=0):
        return self.ack("T", "G", queue, offsets, pop_time=at, remote_address="1.2.3.4:5")

    def change(self, offset, invisible, *, at):
        return self.change_invisible_time(
            "T", "G", 0, offset, pop_time=at, invisible_time=invisible
        )


def test_a_pop_commits_its_start_and_blocks_the_queue():
    pops = Pops()
    pops.pop(5, 6, start=3)
    assert pops.committed == 3
    assert pops.blocks()
    assert not pops.blocks(queue=1)


def test_acknowledgements_move_the_offset_to_the_first_message_without_one():
    pops = Pops()
    at = pops.clock.wall_ms()
    pops.pop(5, 6, 8)
    pops.acks(6, at=at)
    assert (pops.committed, pops.woken) == (5, [])
    pops.acks(5, at=at)
    assert (pops.committed, pops.woken) == (8, [])
    pops.acks(8, at=at)
    assert pops.committed == 9
    assert pops.woken == [("T", "G", -1), ("T", "G", 0)]
    assert not pops.blocks()


def test_the_last_message_of_a_queue_wakes_no_one():
    pops = Pops()
    pops.pop(9)
    pops.acks(9, at=pops.clock.wall_ms())
    assert pops.committed == 10
    assert pops.woken == []


def test_an_acknowledgement_of_another_message_is_refused_and_the_others_are_done():
    pops = Pops()
    at = pops.clock.wall_ms()
    pops.pop(5, 6)
    remark = "offset is illegal, key:T@G@0, old:6, commit:8, next:-1, /1.2.3.4:5"
    assert pops.acks(5, 8, 6, at=at) == remark
    assert pops.committed == 7


def test_late_repeated_and_foreign_acknowledgements_change_nothing():
    pops = Pops()
    at = pops.clock.wall_ms()
    pops.pop(5, 6)
    pops.acks(5, at=at)
    pops.acks(5, at=at)
    pops.acks(6, at=at - 1)
    pops.acks(6, at=at, queue=1)
    assert pops.committed == 6
    assert pops.offsets.query_offset("G", "T", 1) == -1


def test_the_late_acknowledgements_of_one_pop_are_one_log_line(caplog):
    caplog.set_level("INFO")
    pops = Pops()
    pops.pop(5, 6, 7)
    pops.acks(5, 6, 7, at=pops.clock.wall_ms() - 1)
    assert caplog.text.count("it changes nothing") == 1


def test_an_offset_that_a_client_committed_itself_does_not_go_back():
    pops = Pops()
    at = pops.clock.wall_ms()
    pops.pop(5, 6, 7)
    pops.offsets.commit_offset("G", "T", 0, 6)
    pops.acks(7, at=at)
    assert pops.committed == 6


def test_no_acknowledgement_overrides_an_offset_that_was_reset():
    pops = Pops()
    at = pops.clock.wall_ms()
    pops.pop(5)
    pops.offsets.assign_reset_offset("G", "T", 0, 2)
    pops.acks(5, at=at)
    assert pops.committed == 2


def test_a_reset_clears_the_block_and_old_receipts():
    pops = Pops()
    at = pops.clock.wall_ms()
    pops.pop(5, 6)
    pops.reset("T", "G", 0)
    assert not pops.blocks()
    pops.acks(6, at=at)
    assert pops.committed == 5


def test_a_changed_invisible_time_is_answered_from_the_time_of_the_pop():
    pops = Pops()
    at = pops.clock.wall_ms()
    pops.pop(5)
    pops.clock.advance(10_000)
    answer = pops.change(5, 30_000, at=at)
    assert (answer.pop_time, answer.invisible_time) == (at, 40_000)
    assert answer.revive_qid == ORDER_REVIVE_QUEUE
    pops.clock.advance(30_000)
    assert not pops.blocks()


def test_a_change_for_a_consumed_message_is_answered_with_zeros():
    pops = Pops()
    at = pops.clock.wall_ms()
    pops.pop(5)
    pops.acks(5, at=at)
    answer = pops.change(5, 30_000, at=at)
    assert (answer.pop_time, answer.invisible_time, answer.revive_qid) == (0, 0, 0)


@pytest.mark.parametrize("pop_time", [-(2**63), 0, 2**63 - 1])
def test_numbers_of_receipts_never_leave_javas_long(pop_time):
    pops = Pops()
    pops.pop(5)
    answer = pops.change(5, INT64_MAX, at=pop_time)
    assert 0 <= answer.invisible_time <= INT64_MAX
    assert pops.change(5, INT64_MAX, at=pops.clock.wall_ms()).invisible_time <= INT64_MAX
    assert f":{INT64_MAX}".encode() in pops.table.encode()


def test_a_change_to_now_wakes():
    pops = Pops()
    pops.pop(5)
    pops.change(5, 0, at=pops.clock.wall_ms())
    assert pops.woken == [("T", "G", -1), ("T", "G", 0)]


def test_a_long_attempt_id_is_refused():
    pops = Pops()
    pops.check("T", None)
    pops.check("T", "x" * ATTEMPT_ID_LENGTH_MAX)
    with pytest.raises(RequestRefused) as caught:
        pops.check("T", "x" * (1 << 20))
    assert caught.value.code == ResponseCode.INVALID_PARAMETER
    assert caught.value.remark == "the attemptId has 1048576 characters, the limit is 256"


def test_whole_batches_are_not_popped_in_order():
    pops = Pops()
    batches = TopicConfig(topic_name="B", attributes={"+queue.type": "BatchCQ"})
    pops.topics.update([batches])
    with pytest.raises(RequestRefused) as caught:
        pops.check("B", None)
    assert caught.value.remark == (
        "topic[B] cannot be popped in order, because its queue.type is BatchCQ"
    )


def test_a_full_table_blocks_what_it_does_not_know(caplog):
    pops = Pops(queues_max=1)
    pops.pop(5)
    assert pops.blocks("a", queue=1)
    assert "queue 1 of T@G is not popped in order" in caplog.text
    pops.acks(5, at=pops.clock.wall_ms())
    assert not pops.blocks("a", queue=1)


@pytest.mark.slow
def test_millions_of_changes_and_acknowledgements_leave_the_table_as_it_is():
    pops = Pops()
    at = pops.clock.wall_ms()
    pops.pop(5, 6)
    size = len(pops.table.encode())
    for offset in range(7, 20_000):
        pops.change(offset, offset, at=at)
    for invisible in range(MINUTE, MINUTE + 20_000):
        pops.change(5, invisible, at=at)
    assert len(pops.table.encode()) < size + 100
    assert pops.table.count == 1


def test_the_counts_of_an_answer_name_messages_and_queues():
    pops = Pops()
    assert encode_order_counts([pops.pop(5, 6)]) == "0 0 0"
    pops.clock.advance(MINUTE)
    counts = [pops.pop(5, 6, 7), pops.pop(4, queue=1)]
    assert encode_order_counts(counts) == "0 qo0%5 1;0 qo0%6 1;0 0 0;0 1 0"
    pops.clock.advance(MINUTE)
    assert encode_order_counts([pops.pop(6, 7)]) == "0 qo0%6 2;0 qo0%7 1;0 0 1"


@asynccontextmanager
async def running(**config):
    pops = Pops(clock=TrioClock(), **config)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pops.run)
        yield pops
        nursery.cancel_scope.cancel()


async def test_the_end_of_the_invisible_time_wakes(autojump_clock):
    async with running() as pops:
        pops.pop(5, 6)
        await trio.sleep(59.9)
        assert pops.woken == []
        await trio.sleep(0.2)
        assert pops.woken == [("T", "G", -1), ("T", "G", 0)]


async def test_a_longer_invisible_time_wakes_later_and_a_shorter_one_earlier(autojump_clock):
    async with running() as pops:
        at = pops.clock.wall_ms()
        pops.pop(5)
        pops.change(5, 2 * MINUTE, at=at)
        await trio.sleep(119.9)
        assert pops.woken == []
        pops.change(5, 50, at=at)
        await trio.sleep(0.06)
        assert len(pops.woken) == 2


async def test_nothing_wakes_when_the_messages_are_acknowledged_before(autojump_clock):
    async with running() as pops:
        pops.pop(8, 9)
        pops.acks(8, 9, at=pops.clock.wall_ms())
        await trio.sleep(100)
        assert pops.woken == []


async def test_the_wake_may_be_turned_off(autojump_clock):
    async with running(enable_notify_after_pop_order_lock_release=False) as pops:
        pops.pop(5)
        await trio.sleep(100)
        assert pops.woken == []


async def test_many_queues_are_woken_at_their_times(autojump_clock):
    async with running(queues_max=1_000) as pops:
        for queue in range(1_000):
            ENDS["T", queue] = 10
            pops.pop(5, queue=queue, invisible=1_000 + queue % 2)
        await trio.sleep(2)
        assert len(pops.woken) == 2_000


async def test_a_restart_keeps_blocks_and_their_ends(autojump_clock):
    disk = MemoryDisk()
    async with running(disk=disk) as pops:
        pops.pop(5, 6)
        pops.offsets.file.persist()
        pops.table.file.persist()
        at = pops.clock.wall_ms()
    async with running(disk=disk) as pops:
        pops.offsets.commit_offset("G", "T", 0, 5)
        pops.load()
        await trio.sleep(30)
        assert pops.blocks()
        pops.acks(5, at=at)
        assert pops.committed == 6
        await trio.sleep(31)
        assert not pops.blocks()
        assert pops.woken == [("T", "G", -1), ("T", "G", 0)]


def test_a_damaged_file_is_replaced_and_said(caplog):
    disk = MemoryDisk()
    Pops(disk).files.save("consumerOrderInfo.json", b"{")
    pops = Pops(disk)
    pops.load()
    assert "It is replaced: messages that were popped in order" in caplog.text
    assert pops.table.file.is_dirty


async def test_old_entries_are_cleaned():
    pops = Pops()
    pops.pop(5)
    await pops.clean()
    assert pops.table.count == 1
    pops.clock.advance(KEPT_MS + 1)
    await pops.clean()
    assert pops.table.count == 0
