"""Waiting pops: who is woken, when, and what is left behind."""

from __future__ import annotations

import math

import pytest

from tests.broker.harness import FakeChannel
from trocket.broker.pop.waiting_requests import EARLY_MS, Polling, PollingKey, wait_ms_of
from trocket.broker.settings.config import BrokerConfig
from trocket.remoting.channel import Channel
from trocket.remoting.codec import RemotingCommand

from .waiting import POLL_MS, Waits


def test_a_message_wakes_the_oldest_of_all_queues_and_the_oldest_of_its_own() -> None:
    waits = Waits()
    first, second = waits.hold(), waits.hold()
    own, other = waits.hold(queue_id=3), waits.hold(queue_id=4)
    waits.answered = {first, second, own, other}
    waits.arrived(queue_id=3)
    assert waits.served == [first, own]
    waits.arrived(queue_id=3)
    assert waits.served == [first, own, second]
    assert waits.requests.count == 1


def test_a_message_wakes_the_youngest_notification() -> None:
    waits = Waits(youngest_first=True)
    old, young = waits.hold(), waits.hold()
    waits.answered = {old, young}
    waits.arrived()
    assert waits.served == [young]


def test_every_group_of_the_topic_is_woken_and_no_other_topic() -> None:
    waits = Waits()
    first, second = waits.hold(group="A"), waits.hold(group="B")
    other = waits.hold("U", "A")
    waits.arrived()
    assert sorted(waits.served) == [first, second]
    assert other not in waits.served


def test_the_one_that_may_wait_least_is_the_oldest() -> None:
    waits = Waits()
    late, early = waits.hold(wait_ms=20_000), waits.hold(wait_ms=5_000)
    waits.answered = {late, early}
    waits.arrived()
    assert waits.served == [early]


def test_one_that_found_nothing_keeps_its_place_and_its_time() -> None:
    waits = Waits()
    first, second = waits.hold(), waits.hold()
    waits.arrived()
    waits.arrived()
    assert waits.served == [first, first]
    waits.at(100 + POLL_MS / 1000)
    assert sorted(waits.over) == [first, second]
    assert waits.requests.count == 0


def test_the_answer_comes_fifty_ms_early_and_not_before() -> None:
    waits = Waits()
    waits.hold(wait_ms=1_000)
    waits.at(100.94)
    assert waits.served == []
    waits.at(100.971)
    assert waits.over == [0]


@pytest.mark.parametrize("wait_ms", [-(2**63), -1, 0, 1, EARLY_MS - 1])
def test_one_without_time_does_not_wait(wait_ms: int) -> None:
    waits = Waits()
    assert waits.poll(wait_ms=wait_ms) is Polling.TIMEOUT
    assert waits.requests.count == 0


def test_nobody_waits_for_more_than_half_an_hour() -> None:
    waits = Waits()
    waits.hold(wait_ms=2**63 - 1)
    waits.at(100 + 29 * 60)
    assert waits.over == []
    waits.at(100 + 30 * 60)
    assert waits.over == [0]


def test_the_next_slice_is_due_with_the_next_deadline() -> None:
    waits = Waits()
    assert waits.requests.run_slice() == math.inf
    waits.hold(wait_ms=2_050)
    assert 2.0 <= waits.requests.run_slice() <= 2.02


@pytest.mark.parametrize("retry_topic", ["%RETRY%G+T", "%RETRY%G_T"])
def test_a_message_of_a_retry_topic_wakes_its_group_whatever_the_filter(retry_topic: str) -> None:
    waits = Waits()
    mine, other = waits.hold(codes=[7]), waits.hold(group="H", codes=[7])
    waits.arrived(retry_topic)
    assert waits.served == [mine]
    assert other not in waits.served


def test_a_retried_message_wakes_one_of_another_queue_if_there_is_no_other() -> None:
    waits = Waits()
    waits.hold(queue_id=5)
    waits.arrived("%RETRY%G_T", 0)
    assert waits.served == [0]


def test_a_retry_topic_of_two_meanings_wakes_both_groups() -> None:
    waits = Waits()
    waits.hold("b_c", "a")
    waits.hold("c", "a_b")
    waits.arrived("%RETRY%a_b_c")
    assert sorted(waits.served) == [0, 1]


def test_the_retry_topic_of_pulls_wakes_nobody() -> None:
    waits = Waits()
    waits.hold()
    waits.arrived("%RETRY%G")
    assert waits.served == []


def test_only_messages_with_its_tags_wake_a_request() -> None:
    waits = Waits(BrokerConfig(pop_long_polling_force_notify_interval=1_000))
    waits.hold(codes=[7, 8])
    waits.arrived()  # what was stored before is not known
    waits.served.clear()
    waits.arrived(code=5)
    waits.arrived(code=6)
    assert waits.served == []
    waits.arrived(code=8)
    assert waits.served == [0]


def test_the_first_message_wakes_a_request_for_its_queue_only_with_its_tags() -> None:
    waits = Waits()
    waits.codes["T", 0] = [7]  # from before
    waits.hold(queue_id=0, codes=[7])
    waits.arrived(code=5)
    assert waits.served == []
    waits.arrived(code=7)
    assert waits.served == [0]


def test_each_so_manyth_message_wakes_in_spite_of_the_tags() -> None:
    waits = Waits(BrokerConfig(pop_long_polling_force_notify_interval=4))
    waits.hold(codes=[7])
    for _ in range(9):
        waits.arrived(code=5)
    assert len(waits.served) == 1 + 2  # the first; offsets 4 and 8


def test_a_queue_whose_offset_was_reset_wakes_in_spite_of_the_tags() -> None:
    waits = Waits()
    waits.hold(codes=[7])
    waits.arrived()
    waits.served.clear()
    waits.requests.arrived([("T", 0)])
    waits.run()
    assert waits.served == [0]


def test_more_messages_wake_one_of_the_same_key_only() -> None:
    waits = Waits()
    any_queue, own = waits.hold(), waits.hold(queue_id=3)
    assert waits.requests.wake(PollingKey("T", "G", 3))
    waits.run()
    assert waits.served == [own]
    assert waits.requests.wake(PollingKey("T", "G", -1))
    waits.run()
    assert waits.served == [own, any_queue]
    assert not waits.requests.wake(PollingKey("T", "H", -1))


def test_a_queue_that_may_be_popped_again_wakes_one_of_all_queues_or_one_of_its_own() -> None:
    waits = Waits()
    any_queue, own = waits.hold(), waits.hold(queue_id=3)
    waits.answered = {any_queue, own}
    for _ in range(3):
        waits.requests.wake_queue("T", "G", 3)
        waits.run()
    assert waits.served == [any_queue, own]


def test_one_that_goes_on_in_its_queue_is_served_until_it_is_at_the_end() -> None:
    waits = Waits()
    waits.hold()
    left = [3]

    def serve_a_part(request: RemotingCommand, channel: Channel) -> None:
        waits.serve_or_hold(request, channel)
        if left[0]:
            left[0] -= 1
            assert waits.requests.wake(PollingKey("T", "G", -1))

    waits.serve = serve_a_part
    waits.arrived()
    assert waits.served == [0] * 4
    assert waits.requests.count == 1


def test_the_requests_of_a_closed_connection_go_without_an_answer() -> None:
    waits = Waits()
    channel = FakeChannel()
    for queue_id in range(3_000):
        waits.hold(queue_id=queue_id % 10, channel=channel)
    other = waits.hold(queue_id=1)
    channel.closed = True
    waits.requests.channel_closed(channel)  # type: ignore[arg-type]
    waits.run()
    assert waits.served == []
    assert waits.requests.count == 1
    assert channel.memory.held_requests.used == 0
    waits.arrived(queue_id=1)
    assert waits.served == [other]


def test_a_wake_that_met_a_closed_connection_goes_to_the_next_request() -> None:
    waits = Waits()
    channel = FakeChannel()
    waits.hold(channel=channel)
    second = waits.hold()
    waits.requests.wake(PollingKey("T", "G", -1))
    channel.closed = True
    waits.run()
    assert waits.served == [second]

    channel = FakeChannel()
    first = waits.hold(channel=channel, wait_ms=1_000)
    waits.requests.wake(PollingKey("T", "G", -1))
    channel.closed = True
    waits.requests.channel_closed(channel)  # type: ignore[arg-type]
    waits.run()
    assert waits.served == [second, second]
    assert first not in waits.served


def test_what_is_answered_leaves_nothing_behind() -> None:
    waits = Waits()
    channel = FakeChannel()
    for queue_id in (-1, 0, 3):
        waits.answered.add(waits.hold(queue_id=queue_id, channel=channel, codes=[queue_id + 9]))
    waits.arrived("%RETRY%G_T", 3)
    for queue_id in (0, 3):
        waits.arrived(queue_id=queue_id)
    assert waits.requests.count == 0
    assert channel.memory.held_requests.used == 0
    assert waits.requests.polling_num(PollingKey("T", "G", 3)) == 0
    # Nothing is known of the topics any more, so a message is nothing to do.
    waits.requests.arrived([("T", 0), ("%RETRY%G_T", 0), ("%RETRY%G+T", 0)])
    waits.now_s += 20
    waits.run()
    assert waits.requests.run_slice() == math.inf


def test_a_failing_processor_costs_its_connection_only() -> None:
    waits = Waits()
    channel = FakeChannel()
    waits.hold(channel=channel)
    waits.hold(group="H")

    def fail(request: RemotingCommand, channel: Channel) -> None:
        if request.opaque == 0:
            raise ZeroDivisionError
        waits.served.append(request.opaque)

    waits.serve = fail
    waits.arrived()
    assert channel.closed
    assert waits.served == [1]
    assert waits.requests.count == 0


def test_a_waiting_request_keeps_no_body() -> None:
    waits = Waits()
    request = RemotingCommand(200050, {}, b"x" * 1_000_000)
    channel = FakeChannel()
    polling = waits.requests.hold(
        request,
        channel,
        PollingKey("T", "G", -1),
        wait_ms=1_000,  # type: ignore[arg-type]
    )
    assert polling is Polling.WAITS
    assert request.body == b""
    assert 0 < channel.memory.held_requests.used < 10_000


@pytest.mark.parametrize(
    ("born_ms", "poll_ms", "now_ms", "wait_ms"),
    [
        (1_000, 500, 1_100, 400),
        (1_000, 500, 1_600, -100),
        (0, 500, 1_000, 500),
        (9_000_000, 500, 1_000, 500),  # a clock that is ahead
        (1_000, 0, 1_000, 0),
        (-(2**63), 2**63 - 1, 0, 2**63 - 1),
    ],
)
def test_a_request_waits_from_its_birth_but_not_longer_than_asked(
    born_ms: int, poll_ms: int, now_ms: int, wait_ms: int
) -> None:
    assert wait_ms_of(born_ms, poll_ms, now_ms) == wait_ms
