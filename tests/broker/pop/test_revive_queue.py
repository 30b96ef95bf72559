"""What a revive queue decides, record by record."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trocket.broker.pop.revive_queue import (
    EARLY_ACKS_MAX,
    GRACE_MS,
    POINTS_MAX,
    RE_PUT_DELAYS_S,
    ReviveQueue,
    WaitingPoint,
    put_again,
    retry_message,
)
from trocket.common.message_properties import properties_from_bytes, properties_to_bytes
from trocket.remoting.bodies import AckBody, BatchAckBody, CheckPointBody
from trocket.remoting.errors import RemoteProtocolError
from trocket.remoting.message import MessageExt

POP_MS = 1_700_000_000_000
INVISIBLE_MS = 60_000
REVIVE_MS = POP_MS + INVISIBLE_MS
DUE_MS = REVIVE_MS + GRACE_MS
HOST = bytes([10, 0, 0, 1, 0, 0, 42, 159])


def record(body: bytes, properties: dict[str, str], reconsume_times: int = 0) -> MessageExt:
    return MessageExt(
        "T", 0, 0, 0, body, properties_to_bytes(properties), 7, 0, POP_MS - 5, HOST, 0, HOST,
        reconsume_times, 0, 0, 0, 0,
    )  # fmt: skip


def point(start: int = 10, diffs: tuple[int, ...] = (0, 1, 2), **more: object) -> MessageExt:
    body = CheckPointBody(
        start_offset=start, pop_time=POP_MS, invisible_time=INVISIBLE_MS, num=len(diffs),
        queue_id=3, topic="T", group="G", queue_offset_diff=list(diffs), broker_name="b",
    )  # fmt: skip
    for name, value in more.items():
        setattr(body, name, value)
    return record(body.to_body(), {"TAGS": "ck"})


def ack(offset: int, start: int = 10, *, name: str | None = "b", **more: str) -> MessageExt:
    body = AckBody(
        ack_offset=offset, start_offset=start, group="G", topic="T", queue_id=3, pop_time=POP_MS,
        broker_name=name,
    )  # fmt: skip
    return record(body.to_body(), {"TAGS": "ack", "TIMER_DELIVER_MS": str(REVIVE_MS), **more})


def batch_ack(offsets: list[int], start: int = 10) -> MessageExt:
    """As the merge buffer of RocketMQ's broker writes it: without its name."""
    body = BatchAckBody(
        ack_offset=-1, start_offset=start, group="G", topic="T", queue_id=3, pop_time=POP_MS,
        ack_offsets=offsets,
    )  # fmt: skip
    return record(body.to_body(), {"TAGS": "bAck", "TIMER_DELIVER_MS": str(REVIVE_MS)})


class Queue(ReviveQueue):
    """A queue that is read to its end after each record."""

    def read(self, *records: MessageExt) -> None:
        for each in records:
            self.take(each, self.next_offset)

    def at(self, now_ms: int, timers_ms: float | None = None) -> WaitingPoint | None:
        """What can be decided at a moment; the timer service is in time unless it is said."""
        timers = now_ms if timers_ms is None else timers_ms
        self.note(timers_ms=timers, now_ms=now_ms, end=self.next_offset)
        found = self.take_due()
        if found is not None:
            self.put_back(found)
        return found


def queue(next_offset: int = 0) -> Queue:
    return Queue(next_offset, "b")


def decided(found: WaitingPoint | None) -> list[int]:
    assert found is not None
    return found.check_point.unacked_offsets()


def test_what_has_no_ack_is_revived_a_second_after_its_time() -> None:
    revive = queue()
    revive.read(point(diffs=(0, 1, 5)), ack(11))
    assert revive.at(DUE_MS - 1) is None
    assert revive.next_due_ms() == DUE_MS
    assert decided(revive.at(DUE_MS)) == [10, 15]


def test_a_check_point_of_an_old_version_counts_its_messages() -> None:
    revive = queue()
    revive.read(point(diffs=(), num=3), ack(12))
    assert decided(revive.at(DUE_MS)) == [10, 11]


def test_a_check_point_with_all_acks_is_done_at_once() -> None:
    revive = queue()
    revive.read(point(), batch_ack([10, 12]), ack(11, name=None))
    assert len(revive) == 0
    assert revive.committed == 2
    assert revive.at(DUE_MS) is None


def test_the_offset_before_the_oldest_undecided_one_is_committed() -> None:
    revive = queue(next_offset=7)
    assert revive.committed == 6
    revive.read(point(10), point(20), point(30))
    assert revive.committed == 6
    revive.read(batch_ack([20, 21, 22], 20))
    assert revive.committed == 6
    first = revive.at(DUE_MS)
    assert first is not None
    revive.finish(first)
    assert revive.committed == 8
    last = revive.at(DUE_MS)
    assert decided(last) == [30, 31, 32]
    assert last is not None
    revive.finish(last)
    assert revive.committed == 10


def test_nothing_is_decided_before_the_timer_service_delivered_the_acks() -> None:
    revive = queue()
    revive.read(point())
    late_ms = DUE_MS + 30_000
    assert revive.at(late_ms, timers_ms=REVIVE_MS - 1) is None
    revive.read(batch_ack([10, 11]))
    assert decided(revive.at(late_ms, timers_ms=REVIVE_MS)) == [12]


def test_nothing_is_decided_before_the_queue_is_read_to_its_end() -> None:
    revive = queue()
    revive.read(point())
    revive.note(timers_ms=DUE_MS, now_ms=DUE_MS, end=3)
    assert revive.take_due() is None
    revive.read(ack(10))
    revive.note(timers_ms=DUE_MS + 5000, now_ms=DUE_MS + 5000, end=300)
    assert revive.take_due() is None
    revive.read(ack(11))
    revive.note(timers_ms=DUE_MS + 5000, now_ms=DUE_MS + 5000, end=300)  # 3 is reached
    assert decided(revive.take_due()) == [12]


def test_timers_that_all_are_delivered_say_nothing_of_the_future() -> None:
    """An ack may still be stored as a timer message until the revive time."""
    revive = queue()
    revive.read(point())
    assert revive.at(REVIVE_MS - 1, timers_ms=float("inf")) is None
    revive.read(ack(10), ack(11))
    assert decided(revive.at(DUE_MS)) == [12]


def test_a_late_ack_counts_though_its_check_point_comes_later() -> None:
    """The timer service is behind after a restart; acks that are late do not wait for it."""
    revive = queue()
    revive.read(ack(10), ack(11))
    revive.at(DUE_MS, timers_ms=REVIVE_MS - 5000)
    assert revive.committed == -1
    revive.read(point())
    assert decided(revive.at(DUE_MS, timers_ms=REVIVE_MS)) == [12]
    assert revive.committed == 1


def test_acks_without_a_check_point_are_dropped_when_it_cannot_come() -> None:
    revive = queue()
    revive.read(ack(10), ack(11))
    revive.at(DUE_MS, timers_ms=REVIVE_MS - 1001)
    assert revive.committed == -1
    revive.at(DUE_MS, timers_ms=REVIVE_MS - 1000)
    assert revive.committed == 1
    revive.read(ack(12))
    assert revive.committed == 2


def test_a_check_point_that_comes_twice_keeps_its_acks() -> None:
    revive = queue()
    revive.read(point(), ack(10), point(), ack(11))
    assert decided(revive.at(DUE_MS)) == [12]
    assert revive.committed == -1


def test_a_broken_record_is_named_and_skipped() -> None:
    revive = queue()
    with pytest.raises(RemoteProtocolError):
        revive.read(record(b"{", {"TAGS": "ck"}))
    with pytest.raises(RemoteProtocolError):
        revive.read(point(invisible_time=(1 << 63) - 1))
    revive.read(record(b"", {}), record(b"x", {"TAGS": "other"}))
    assert revive.next_offset == 4
    assert revive.committed == 3


def test_acks_of_other_offsets_change_nothing() -> None:
    revive = queue()
    revive.read(point(), ack(9), ack(13), ack(10_000_000_000))
    assert decided(revive.at(DUE_MS)) == [10, 11, 12]


@pytest.mark.slow
def test_too_many_check_points_are_decided_by_the_order_of_the_queue() -> None:
    """Nothing but the queue's own order says that their acks are read: late ones may be lost."""
    revive = queue()
    for number in range(POINTS_MAX + 1):
        revive.read(point(number * 3))
    revive.note(timers_ms=0, now_ms=0, end=1 << 60)
    assert revive.take_due() is None
    revive.read(ack(0, 0, TIMER_OUT_MS=str(DUE_MS - 1)))
    assert revive.take_due() is None
    revive.read(ack(0, 0, TIMER_OUT_MS=str(DUE_MS)))
    assert decided(revive.take_due()) == [1, 2]


@pytest.mark.slow
def test_acks_that_wait_for_check_points_are_bounded() -> None:
    revive = queue()
    for number in range(EARLY_ACKS_MAX + 10):
        revive.read(ack(number * 3, number * 3))
    first, last = point(0), point((EARLY_ACKS_MAX + 5) * 3)
    revive.read(first, last)
    assert decided(revive.at(DUE_MS))[:2] == [1, 2]
    assert len(revive) == 2


@pytest.mark.slow
def test_a_check_point_takes_less_than_a_kilobyte(traced: Callable[[], int]) -> None:
    records = [point(number, (0,)) for number in range(5_000)]
    revive = queue()
    before = traced()
    revive.read(*records)
    assert (traced() - before) / len(records) < 1000


def waiting(**more: object) -> WaitingPoint:
    revive = queue()
    revive.read(point(**more))
    found = revive.at(DUE_MS)
    assert found is not None
    return found


def test_a_retried_message_keeps_its_content_and_counts_its_tries() -> None:
    original = record(b"body", {"TAGS": "a", "KEYS": "k", "UNIQ_KEY": "u"})
    again = retry_message(original, waiting().check_point, "%RETRY%G_T", 0, HOST)
    assert (again.topic, again.queue_id, again.body) == ("%RETRY%G_T", 0, b"body")
    assert (again.born_timestamp_ms, again.flag) == (POP_MS - 5, 7)
    assert again.reconsume_times == 1
    assert properties_from_bytes(again.properties) == {
        "TAGS": "a", "KEYS": "k", "UNIQ_KEY": "u", "ORIGIN_GROUP": "G",
        "1ST_POP_TIME": str(POP_MS),
    }  # fmt: skip


def test_the_first_time_of_a_pop_is_kept() -> None:
    original = record(b"", {"1ST_POP_TIME": "5", "ORIGIN_GROUP": "G"}, reconsume_times=2)
    again = retry_message(original, waiting().check_point, "%RETRY%G_T", 0, HOST)
    assert again.reconsume_times == 3
    assert properties_from_bytes(again.properties)["1ST_POP_TIME"] == "5"


def test_a_suspended_message_does_not_count_the_try() -> None:
    again = retry_message(
        record(b"", {}, 4), waiting(suspend=True).check_point, "%RETRY%G_T", 0, HOST
    )
    assert again.reconsume_times == 4


def test_what_could_not_be_read_is_put_again_with_growing_delays() -> None:
    now_ms = DUE_MS + 500
    again = put_again(waiting().check_point, 11, now_ms)
    assert list(again.offsets()) == [11]
    assert (again.topic, again.group, again.queue_id, again.broker_name) == ("T", "G", 3, "b")
    assert (again.pop_time, again.re_put_times, again.acked) == (POP_MS, 1, 0)
    assert again.revive_time == now_ms + RE_PUT_DELAYS_S[0] * 1000
    for times, delay_s in (("3", 60), ("16", 7200), ("17", 7200), ("x", 7200)):
        later = put_again(waiting(re_put_times=times).check_point, 11, now_ms)
        assert later.revive_time == now_ms + delay_s * 1000
        assert later.to_body().re_put_times == ("127" if times == "x" else str(int(times) + 1))
