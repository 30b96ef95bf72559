"""PopBuffer: what waits in memory, when it is stored, and the order of commits."""

from __future__ import annotations

import math

from trocket.broker.pop.buffer import Buffered, PopBuffer, PopOrder
from trocket.broker.pop.check_point import CheckPoint
from trocket.broker.settings.pop_config import PopConfig
from trocket.broker.tables.consumer_offset_manager import ConsumerOffsetManager

NOW = 1_700_000_000_000


class FixedClock:
    def wall_ms(self) -> int:
        return NOW


class Pops:
    """A buffer, with the offsets that it commits."""

    def __init__(self, **options: object) -> None:
        self.offsets = ConsumerOffsetManager(clock=FixedClock(), save=lambda name, text: None)
        self.flushed = 0
        self.wakes = 0
        self.buffer = PopBuffer(
            PopConfig(**options), self.offsets, flushed=lambda: self.flushed, wake=self._wake
        )

    def _wake(self) -> None:
        self.wakes += 1

    @property
    def committed(self) -> int:
        return self.offsets.query_offset("G", "T", 0)

    def order(self) -> PopOrder:
        order = self.buffer.order("T", "G", 0)
        order.used_ms = NOW
        return order

    def point(self, start: int, count: int = 2, **more: int) -> CheckPoint:
        times = {"pop_time": NOW, "invisible_time": 60_000} | more
        return CheckPoint(
            topic="T", group="G", queue_id=0, start_offset=start, broker_name="b",
            diffs=range(count), **times,
        )  # fmt: skip

    def add(self, start: int, count: int = 2, **more: int) -> Buffered:
        entry = self.buffer.add(self.order(), self.point(start, count, **more), start + count, 1)
        assert entry is not None
        return entry


def test_an_offset_is_committed_when_all_before_it_are_acknowledged() -> None:
    pops = Pops()
    first, second = pops.add(0), pops.add(2)
    pops.buffer.ack(second, 0b11)
    assert pops.committed == -1
    pops.buffer.ack(first, 0b01)
    pops.buffer.ack(first, 0b01)  # twice
    assert pops.committed == -1
    pops.buffer.ack(first, 0b10)
    assert (pops.committed, len(pops.buffer), pops.buffer.waiting_commits) == (4, 0, 0)


def test_the_next_pop_begins_after_the_last_one() -> None:
    pops = Pops()
    assert pops.buffer.next_offset("T", "G", 0) == -1
    pops.add(0)
    pops.add(2)
    assert pops.buffer.next_offset("T", "G", 0) == 4


def test_messages_that_a_filter_skips_are_passed_in_order() -> None:
    pops = Pops()
    pops.buffer.skip(pops.order(), 5)
    assert pops.committed == 5
    entry = pops.add(5)
    pops.buffer.skip(pops.order(), 20)
    assert (pops.committed, pops.buffer.next_offset("T", "G", 0)) == (5, 20)
    pops.buffer.ack(entry, 0b11)
    assert pops.committed == 20


def test_an_offset_does_not_pass_a_check_point_whose_record_is_not_on_the_device() -> None:
    pops = Pops()
    first, second = pops.add(0), pops.add(2)
    pops.buffer.was_written(first, 1_000)
    pops.buffer.ack(second, 0b11)
    assert (pops.committed, pops.buffer.waits_for_sync) == (-1, True)
    pops.flushed = 999
    pops.buffer.synced()
    assert (pops.committed, pops.buffer.waits_for_sync) == (-1, True)
    pops.flushed = 1_000
    pops.buffer.synced()
    assert (pops.committed, pops.buffer.waits_for_sync) == (4, False)


def test_nor_a_message_whose_new_check_point_is_not() -> None:
    pops = Pops()
    entry = pops.add(0)
    pops.buffer.ack(entry, 0b01, log_end=500)
    pops.buffer.ack(entry, 0b10)
    assert pops.committed == -1
    pops.flushed = 500
    pops.buffer.synced()
    assert pops.committed == 2


def test_a_wait_for_the_device_wakes_the_service_once() -> None:
    pops = Pops()
    pops.buffer.was_written(pops.add(0), 1_000)
    wakes = pops.wakes
    pops.buffer.synced()
    pops.buffer.synced()
    assert pops.wakes == wakes


def test_check_points_are_due_by_their_age_and_by_their_revive_time() -> None:
    pops = Pops()
    old, soon = pops.add(0), pops.add(2, invisible_time=5_000)
    assert pops.buffer.left_ms(NOW) == 2_000
    assert pops.buffer.take_due(NOW + 1_999, 10) == []
    assert pops.buffer.take_due(NOW + 2_000, 10) == [soon]
    assert pops.buffer.left_ms(NOW) == 10_000
    assert pops.buffer.take_due(NOW + 10_000, 10) == [old]
    assert pops.buffer.left_ms(NOW) == math.inf


def test_what_is_acknowledged_is_never_due() -> None:
    pops = Pops()
    for start in range(0, 10, 2):
        pops.buffer.ack(pops.add(start), 0b11)
    assert pops.buffer.take_due(NOW + 60_000, 100) == []
    assert pops.buffer.left_ms(NOW) == math.inf


def test_one_that_could_not_be_stored_is_due_again() -> None:
    pops = Pops()
    entry = pops.add(0)
    assert pops.buffer.take_due(NOW + 10_000, 10) == [entry]
    pops.buffer.was_not_written(entry, NOW + 10_000)
    assert pops.buffer.take_due(NOW + 11_000, 10) == [entry]


def test_a_stored_pop_whose_turn_fails_waits_in_memory() -> None:
    pops = Pops()
    entry = pops.buffer.add_stored(pops.order(), pops.point(0), 2, 1)
    later = pops.add(2)
    pops.buffer.was_not_written(entry, NOW)
    pops.buffer.ack(later, 0b11)
    assert pops.committed == -1
    assert pops.buffer.take_due(NOW + 1_000, 10) == [entry]
    pops.buffer.was_written(entry, 0)
    assert pops.committed == 4


def test_a_pop_that_is_nearly_due_does_not_wait() -> None:
    pops = Pops()
    assert pops.buffer.may_wait(pops.order(), pops.point(0, invisible_time=3_001), NOW)
    assert not pops.buffer.may_wait(pops.order(), pops.point(0, invisible_time=3_000), NOW)
    assert not pops.buffer.may_wait(pops.order(), pops.point(0, invisible_time=0), NOW)


def test_the_buffer_is_bounded() -> None:
    pops = Pops(pop_ck_max_buffer_size=1)
    pops.add(0)
    assert not pops.buffer.may_wait(pops.order(), pops.point(2), NOW)


def test_a_full_queue_has_its_oldest_check_points_stored() -> None:
    pops = Pops(pop_ck_offset_max_queue_size=2)
    first, second = pops.add(0), pops.add(2)
    assert not pops.buffer.may_wait(pops.order(), pops.point(4), NOW)
    assert pops.buffer.take_due(NOW, 100) == [first]
    for _ in range(100):
        assert not pops.buffer.may_wait(pops.order(), pops.point(4), NOW)
    assert pops.buffer.take_due(NOW, 100) == [second]


def test_a_reset_begins_anew_and_earlier_pops_commit_nothing() -> None:
    pops = Pops()
    first = pops.add(100)
    second = pops.add(102)
    pops.buffer.restart(pops.order())
    pops.offsets.commit_offset("G", "T", 0, 7)
    assert pops.buffer.next_offset("T", "G", 0) == -1
    pops.buffer.ack(first, 0b11)
    assert pops.committed == 7
    # Their messages are revived all the same.
    assert pops.buffer.take_due(NOW + 10_000, 10) == [second]


def test_nothing_is_committed_while_a_reset_waits_for_its_pop() -> None:
    pops = Pops()
    entry = pops.add(100)
    pops.offsets.assign_reset_offset("G", "T", 0, 7)
    pops.buffer.ack(entry, 0b11)
    assert pops.committed == 7


def test_an_offset_never_goes_back_by_itself() -> None:
    pops = Pops()
    entry = pops.add(0)
    pops.offsets.commit_offset("G", "T", 0, 50)
    pops.buffer.ack(entry, 0b11)
    assert pops.committed == 50


def test_a_deleted_topic_or_group_leaves_nothing() -> None:
    for forget in (
        lambda buffer: buffer.forget_topic("T"),
        lambda buffer: buffer.forget_group("G"),
    ):
        pops = Pops()
        entry = pops.add(0)
        forget(pops.buffer)
        assert (len(pops.buffer), pops.buffer.find("T", "G", 0)) == (0, None)
        assert pops.buffer.take_due(NOW + 60_000, 10) == []
        assert pops.buffer.entry_of(entry.text) is None


def test_the_same_pop_twice_is_not_merged() -> None:
    pops = Pops()
    pops.add(0)
    assert pops.buffer.add(pops.order(), pops.point(0), 2, 1) is None


def test_messages_in_flight_are_counted() -> None:
    pops = Pops()
    entry = pops.add(0, 3)
    pops.buffer.ack(entry, 0b001)
    pops.buffer.ack(entry, 0b001)
    assert pops.order().in_flight == 2
    pops.buffer.acked_elsewhere(entry.check_point.key, 5)
    assert pops.order().in_flight == 0


def test_queues_without_pops_are_forgotten() -> None:
    pops = Pops()
    entry = pops.add(0)
    list(pops.buffer.drop_idle(NOW + 301_000))
    assert pops.buffer.find("T", "G", 0) is not None
    pops.buffer.ack(entry, 0b11)
    list(pops.buffer.drop_idle(NOW + 301_000))
    assert pops.buffer.find("T", "G", 0) is None
