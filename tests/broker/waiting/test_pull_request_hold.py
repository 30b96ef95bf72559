"""The held pulls, without a broker."""

from __future__ import annotations

import trio
import trio.testing

from trocket.broker.settings.config import BrokerConfig
from trocket.broker.waiting.pull_request_hold import (
    CHECK_INTERVAL_S,
    TRIES_PER_TURN,
    HeldPull,
    PullRequestHoldService,
)
from trocket.remoting.channel import Channel
from trocket.remoting.turn import Turn

from ..harness import FakeChannel, held_pull


class Resumed:
    """Answers the pulls that are in `answered`, and all whose time is over."""

    def __init__(self) -> None:
        self.answers: set[HeldPull] = set()
        self.seen: list[tuple[HeldPull, bool]] = []

    def __call__(self, pull: HeldPull, over: bool) -> bool:
        self.seen.append((pull, over))
        return over or pull in self.answers


def test_only_the_pulls_of_the_queues_with_messages_are_tried() -> None:
    resumed = Resumed()
    service = PullRequestHoldService(resumed, elapsed_s=lambda: 0.0)
    first, second, other = held_pull(), held_pull(), held_pull(queue_id=1)
    for held in (first, second, other):
        assert service.hold(held)
    resumed.answers = {second}
    service.notify_messages([("T", 0), ("T", 7)])
    assert resumed.seen == [(first, False), (second, False)]
    assert service.count == 2
    service.notify_messages([("T", 0), ("T", 1)])
    assert [held for held, _ in resumed.seen[2:]] == [first, other]


def test_a_pull_whose_time_is_over_is_answered_and_the_others_stay() -> None:
    resumed = Resumed()
    service = PullRequestHoldService(resumed, elapsed_s=lambda: 0.0)
    early, late = held_pull(deadline_s=5), held_pull(deadline_s=9)
    service.hold(early)
    service.hold(late)
    service.check(4.9)
    assert resumed.seen == []
    service.check(5)
    assert (early, True) in resumed.seen
    assert service.count == 1
    service.check(9)
    assert service.count == 0


def test_the_pulls_of_a_closed_connection_go_without_an_answer() -> None:
    resumed = Resumed()
    service = PullRequestHoldService(resumed, elapsed_s=lambda: 0.0)
    channel = FakeChannel()
    service.hold(held_pull(channel=channel))
    channel.closed = True
    service.check(0)
    assert resumed.seen == []
    assert service.count == 0


def test_one_pull_too_many_is_not_kept() -> None:
    config = BrokerConfig(held_pulls_max=1)
    service = PullRequestHoldService(Resumed(), config=config, elapsed_s=lambda: 0.0)
    assert service.hold(held_pull())
    assert not service.hold(held_pull())
    assert service.count == 1


def test_a_turn_tries_a_bounded_number_of_pulls_alone_in_their_queues() -> None:
    resumed = Resumed()
    service = PullRequestHoldService(resumed, elapsed_s=lambda: 0.0)
    tags = held_pull(queue_id=0, tags_codes=[1])
    pulls = [held_pull(queue_id=number) for number in range(1, 2 * TRIES_PER_TURN + 10)]
    for held in (tags, *pulls):
        assert service.hold(held)
    resumed.answers = {tags, *pulls}
    queues = [("T", number) for number in range(len(pulls) + 1)]
    service.notify_messages(queues)
    assert [held for held, _ in resumed.seen] == pulls[:TRIES_PER_TURN]
    # While others wait, a lone pull waits behind them.
    late = held_pull(queue_id=len(queues))
    resumed.answers.add(late)
    service.hold(late)
    service.notify_messages([("T", len(queues))])
    assert [held for held, _ in resumed.seen[TRIES_PER_TURN:]] == [
        tags, *pulls[TRIES_PER_TURN : 2 * TRIES_PER_TURN - 1]
    ]  # fmt: skip
    service.check(0)
    assert service.count == 0
    assert resumed.seen[-1] == (late, False)
    assert len(resumed.seen) == len(pulls) + 2


class Sends:
    """A connection's transport that counts its sends."""

    remote_address = local_address = "127.0.0.1:9"

    def __init__(self) -> None:
        self.sent: list[list[bytes | memoryview]] = []

    def send_nowait(self, buffers: list[bytes | memoryview]) -> list[bytes | memoryview]:
        self.sent.append(buffers)
        return []

    async def send_all(self, buffers: list[bytes | memoryview]) -> None:
        raise AssertionError("there is no backlog")

    def abort(self) -> None:
        pass


async def test_pulls_of_a_connection_that_time_out_together_are_answered_in_one_send(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turn = Turn()
    transports = [Sends() for _ in range(3)]
    channels = [Channel(transport, turn) for transport in transports]

    def resume(held: HeldPull, over: bool) -> bool:
        held.pull.channel.write(b"answer")
        return True

    service = PullRequestHoldService(resume, elapsed_s=lambda: 0.0)
    for queue_id in range(10):
        for channel in channels:
            service.hold(held_pull(channel=channel, queue_id=queue_id, deadline_s=15))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.run, turn)
        await trio.sleep(15 + CHECK_INTERVAL_S)
        assert service.count == 0
        assert [transport.sent for transport in transports] == [[[b"answer"] * 10]] * 3
        nursery.cancel_scope.cancel()


async def test_pulls_that_the_extension_holds_for_a_short_time_are_answered_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    resumed = Resumed()
    service = PullRequestHoldService(resumed, elapsed_s=lambda: 0.0)
    channel = FakeChannel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        await trio.sleep(0.5)
        service.hold(held_pull(channel=channel, deadline_s=trio.current_time() + 60))
        (queue,) = service.queues.values()
        short = held_pull(channel=channel, deadline_s=trio.current_time() + 2)
        queue.add(short)
        service.count_held(channel, 1, short.deadline_s)
        await trio.sleep(3.5)
        assert resumed.seen == [(short, True)]
        nursery.cancel_scope.cancel()
