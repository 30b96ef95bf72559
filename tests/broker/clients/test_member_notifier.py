"""Notifications of groups: small ones at once, large ones in slices and together."""

from __future__ import annotations

import trio
import trio.testing

from trocket.broker.clients.member_notifier import NOTIFY_INTERVAL_S, SMALL_GROUP, MemberNotifier
from trocket.remoting.codec import RemotingCommand


class Member:
    """A client's connection that counts its notifications."""

    def __init__(self) -> None:
        self.remote_address = "192.0.2.2:1"
        self.closed = False
        self.groups: list[str] = []

    def send_oneway(self, command: RemotingCommand) -> None:
        self.groups.append(command.ext_fields["consumerGroup"])

    async def call(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        raise NotImplementedError

    def close(self, reason: str = "") -> None:
        self.closed = True


async def test_a_small_group_is_notified_at_once_and_a_large_one_once_for_many_changes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    notifier = MemberNotifier(lambda: True)
    small = [Member() for _ in range(SMALL_GROUP)]
    large = [Member() for _ in range(5 * SMALL_GROUP + 1)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(notifier.run)
        notifier.notify("small", small)
        assert {len(member.groups) for member in small} == {1}
        for count in range(SMALL_GROUP + 1, len(large) + 1):
            notifier.notify("large", large[:count])
        assert not any(member.groups for member in large)
        await trio.sleep(NOTIFY_INTERVAL_S)
        await trio.testing.wait_all_tasks_blocked()
        assert [member.groups for member in large] == [["large"]] * len(large)
        notifier.notify("large", large[1:])
        await trio.sleep(2 * NOTIFY_INTERVAL_S)
        assert [len(member.groups) for member in large] == [1] + [2] * (len(large) - 1)
        nursery.cancel_scope.cancel()


async def test_a_large_group_that_shrinks_is_notified_at_once_and_not_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    notifier = MemberNotifier(lambda: True)
    members = [Member() for _ in range(SMALL_GROUP + 1)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(notifier.run)
        notifier.notify("g", members)
        notifier.notify("g", members[1:])
        await trio.sleep(2 * NOTIFY_INTERVAL_S)
        assert [len(member.groups) for member in members] == [0] + [1] * SMALL_GROUP
        nursery.cancel_scope.cancel()


async def test_nobody_is_notified_where_that_is_switched_off() -> None:
    member = Member()
    MemberNotifier(lambda: False).notify("g", [member])
    assert member.groups == []
