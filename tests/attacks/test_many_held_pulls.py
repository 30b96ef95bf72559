"""The defect: 100,000 held pulls by a tag that is never sent took 1 s of the loop for each send.

What is tested is counted work: how many pulls are tried in one go, in which order, and which are
not tried at all.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import trio
import trio.testing

from tests.broker.harness import FakeChannel, held_pull
from trocket.broker.settings.config import BrokerConfig
from trocket.broker.waiting.pull_request_hold import (
    CHANNEL_QUEUE_PULLS_MAX,
    QUEUE_PULLS_MAX,
    TRIES_PER_TURN,
    HeldPull,
    PullRequestHoldService,
)

TAG_A, TAG_B = 65, 66
CHANNEL_PULLS_SHARE = BrokerConfig().held_pulls_per_connection_max
GROUP_PULLS_SHARE = BrokerConfig().held_pulls_per_group_max


def pull(
    channel: FakeChannel,
    queue_id: int = 0,
    *,
    codes: Iterable[int] | None = (TAG_A,),
    group: str = "CG",
    deadline_s: float = 15.0,
) -> HeldPull:
    return held_pull(channel, queue_id, group=group, tags_codes=codes, deadline_s=deadline_s)


class Broker:
    """A queue of tags codes, and a service that answers pulls which one of them is for."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.codes: list[int] = []
        self.tried: list[HeldPull] = []
        self.service = PullRequestHoldService(
            self._resume,
            config=config,
            tags_codes_since=lambda key, offset: (set(self.codes[offset:]), len(self.codes)),
            elapsed_s=lambda: 0.0,
        )

    def _resume(self, held: HeldPull, over: bool) -> bool:
        self.tried.append(held)
        new, wanted = self.codes[held.pull.queue_offset :], held.pull.selector
        if over or any(not isinstance(wanted, frozenset) or code in wanted for code in new):
            return True
        held.move_to(len(self.codes))
        return False

    def hold(self, count: int, **options: object) -> list[HeldPull]:
        """Hold pulls, of each connection as many as it may."""
        held: list[HeldPull] = []
        while len(held) < count:
            channel = FakeChannel()
            for _ in range(min(CHANNEL_QUEUE_PULLS_MAX, count - len(held))):
                held.append(pull(channel, **options))  # type: ignore[arg-type]
                assert self.service.hold(held[-1])
        return held

    def send(self, code: int) -> None:
        self.codes.append(code)
        self.service.notify_messages([("T", 0)])


def test_pulls_by_a_tag_that_does_not_come_are_not_tried() -> None:
    broker = Broker()
    hostile = broker.hold(10_000, codes=(TAG_B,))
    honest = broker.hold(1, codes=(TAG_A, 7))
    for _ in range(10):
        broker.send(0)
    assert broker.tried == []
    broker.send(TAG_A)
    assert broker.tried == honest
    assert broker.service.count == len(hostile)


def test_a_pull_moves_past_what_it_was_not_tried_for() -> None:
    broker = Broker()
    (held,) = broker.hold(1)
    broker.send(TAG_B)
    broker.send(TAG_B)
    broker.send(TAG_A)
    assert broker.tried == [held]
    assert held.pull.queue_offset == 2
    (over,) = broker.hold(1, deadline_s=5.0)
    broker.service.check(5.0)
    assert broker.tried == [held, over]


async def test_a_turn_tries_a_part_and_the_service_the_rest(autojump_clock: object) -> None:
    broker = Broker()
    count = 10 * TRIES_PER_TURN
    broker.hold(count)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.service.run)
        await trio.testing.wait_all_tasks_blocked()
        broker.send(TAG_A)
        assert len(broker.tried) == TRIES_PER_TURN
        rounds = 0
        while broker.service.count:
            before = len(broker.tried)
            await trio.lowlevel.checkpoint()
            # The tasks of one round of trio run in any order, so two goes may lie in between.
            assert len(broker.tried) - before <= 2 * TRIES_PER_TURN
            rounds += 1
            assert rounds <= count, "the service does not go on"
        assert rounds >= 5
        assert len(broker.tried) == count
        nursery.cancel_scope.cancel()


async def test_pulls_that_are_over_together_are_answered_in_parts(autojump_clock: object) -> None:
    broker = Broker()
    count = 10 * TRIES_PER_TURN
    broker.hold(count, deadline_s=5.5)
    broker.service.check(5.4)
    assert not broker.tried
    broker.service.check(5.5)
    assert len(broker.tried) == TRIES_PER_TURN
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.service.run)
        await trio.testing.wait_all_tasks_blocked()
        assert broker.service.count == 0
        assert len(broker.tried) == count
        nursery.cancel_scope.cancel()


def test_each_connection_has_its_turn() -> None:
    broker = Broker()
    hostile = [pull(channel, codes=None) for channel in [FakeChannel()] for _ in range(100)]
    honest = pull(FakeChannel(), codes=None)
    for held in (*hostile, honest):
        assert broker.service.hold(held)
    broker.send(TAG_A)
    assert broker.tried[:2] == [hostile[0], honest]


def test_one_go_ends_after_its_time() -> None:
    times = iter(range(1000))
    tried: list[HeldPull] = []

    def resume(pull: HeldPull, over: bool) -> bool:
        tried.append(pull)
        return True

    service = PullRequestHoldService(resume, elapsed_s=lambda: float(next(times)))
    for _ in range(5):
        assert service.hold(pull(FakeChannel()))
    service.notify_messages([("T", 0)])
    assert len(tried) == 1


def test_one_connection_cannot_take_the_places_of_all_others() -> None:
    service = Broker(BrokerConfig(held_pulls_max=4 * CHANNEL_PULLS_SHARE)).service
    hostile = FakeChannel()

    def hold(channel: FakeChannel, **options: object) -> int:
        """How many of one connection are held, of queues enough."""
        held = 0
        for queue_id in range(10_000):
            if not service.hold(pull(channel, queue_id, **options)):  # type: ignore[arg-type]
                break
            held += 1
        return held

    assert hold(hostile) == 2 * CHANNEL_PULLS_SHARE  # as long as half of the places are free
    assert hold(FakeChannel()) == CHANNEL_PULLS_SHARE
    assert service.hold(pull(FakeChannel()))


@pytest.mark.slow
def test_one_queue_and_one_group_have_their_shares() -> None:
    config = BrokerConfig()
    broker = Broker(config)
    hostile = FakeChannel()
    held = [broker.service.hold(pull(hostile)) for _ in range(CHANNEL_QUEUE_PULLS_MAX + 1)]
    assert held.count(True) == CHANNEL_QUEUE_PULLS_MAX
    broker.hold(QUEUE_PULLS_MAX - CHANNEL_QUEUE_PULLS_MAX)
    assert not broker.service.hold(pull(FakeChannel()))
    assert broker.service.hold(pull(FakeChannel(), queue_id=1))
    config.held_pulls_max = QUEUE_PULLS_MAX * 2
    broker.service.settings_changed()
    assert broker.service.count > GROUP_PULLS_SHARE
    assert not broker.service.hold(pull(FakeChannel(), queue_id=1))
    assert broker.service.hold(pull(FakeChannel(), queue_id=1, group="another"))


def test_what_is_answered_leaves_nothing_behind() -> None:
    broker = Broker()
    for _ in range(3):
        broker.hold(50)
        broker.hold(50, codes=None)
        broker.send(TAG_A)
        broker.service.check(0.0)
        assert broker.service.count == 0
    channel = FakeChannel()
    assert broker.service.hold(pull(channel))
    channel.closed = True
    broker.service.check(0.0)
    assert broker.service.count == 0
    # All places are free again.
    broker.hold(QUEUE_PULLS_MAX)


def test_the_shares_are_kept_again_after_few_pulls_were_held() -> None:
    """They are counted only while many pulls are held."""
    broker = Broker(BrokerConfig(held_pulls_max=4 * CHANNEL_PULLS_SHARE))
    first, second = FakeChannel(), FakeChannel()
    for _ in range(2):
        first.closed = second.closed = False
        for channel, count in ((first, 2 * CHANNEL_PULLS_SHARE), (second, CHANNEL_PULLS_SHARE)):
            held = [broker.service.hold(pull(channel, queue)) for queue in range(count + 1)]
            assert held.count(True) == count
            assert not held[-1]
        first.closed = second.closed = True
        while broker.service.count:
            broker.service.check(0.0)


def test_the_share_of_a_queue_is_kept_again_after_few_pulls_were_held() -> None:
    broker = Broker()
    channel = FakeChannel()
    for _ in range(2):
        broker.hold(CHANNEL_QUEUE_PULLS_MAX)
        held = [broker.service.hold(pull(channel)) for _ in range(CHANNEL_QUEUE_PULLS_MAX + 1)]
        assert held.count(True) == CHANNEL_QUEUE_PULLS_MAX
        assert broker.service.hold(pull(FakeChannel()))
        broker.send(TAG_A)
        while broker.service.count:
            broker.service.check(0.0)
            broker.send(TAG_A)
