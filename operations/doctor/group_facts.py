"""Collecting what is known of groups: of all by one request, of the members of some by more.

GET_BROKER_CONSUME_STATS (317) has the progress of all groups of a broker. Which of them have
members it tells only if the broker is trocket's; RocketMQ's brokers are asked for the members of
one group at a time, so that only some of many groups can be asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio

from ...client.admin.steps import in_steps
from ...client.errors import ClientError, ServerError, reading_answer
from ...common.texts import one_line
from ...common.topic_names import RETRY_TOPIC_PREFIX, is_own_group
from ...remoting.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    SubscriptionData,
)
from ...remoting.headers import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
)
from ...remoting.mq_version import version_name
from ...remoting.request_codes import RequestCode
from ..asking import Round
from ..members import AT_ONCE, connected, subscriptions
from .choosing import GroupAt, chosen, group_at
from .facts import GroupFacts, Limits, MemberFacts, Subscription

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class _Group:
    """What is known so far of one group, of all brokers.

    Attributes:
      members: by client id.
      at: the address of a broker that each is connected to.
      asked: ids of those that were asked for their subscriptions.
      counts: how many are connected to each broker, by its name.
    """

    members: dict[str, MemberFacts] = field(default_factory=dict)
    at: dict[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    lag: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    unknown_on: set[str] = field(default_factory=set)
    left_out_on: set[str] = field(default_factory=set)
    error: str = ""
    members_left_out: int = 0


class GroupCollector:
    """Collects the facts of groups, from one broker after another or from several at once.

    Args:
      asked: the round of all requests.
      limits: how much is asked for.
      turn: see `chosen`.
      progress: is given how many groups were asked for, and how many are to be.
    """

    def __init__(
        self, asked: Round, limits: Limits, turn: int, progress: Callable[[int, int], None]
    ) -> None:
        self._round = asked
        self._limits = limits
        self._turn = turn
        self._progress = progress
        self._groups: dict[str, _Group] = {}
        self._members_left = limits.members
        self._done = self._total = 0

    def facts(self) -> tuple[GroupFacts, ...]:
        """All that was found, sorted by name."""
        return tuple(_facts(name, self._groups[name]) for name in sorted(self._groups))

    async def ask(
        self, broker: str, address: str, names: Iterable[str], *, is_only_broker: bool
    ) -> dict[str, str]:
        """Ask one broker for its groups.

        Args:
          broker: its name.
          names: of its groups.
          is_only_broker: no other one is known.

        Returns: requests that had no answer, and why.
        """
        users = sorted(name for name in names if not is_own_group(name))
        if not users:
            return {}
        gaps: dict[str, str] = {}
        at: dict[str, GroupAt] | None = None
        try:
            at = await self._all(address, users)
        except ServerError:
            at = None  # it has the progress of single groups
        except ClientError as error:
            gaps[RequestCode.GET_BROKER_CONSUME_STATS.name] = one_line(error)
        known = at or {name: GroupAt(name) for name in users}
        wanted = chosen(
            known.values(), self._limits.groups, turn=self._turn, is_only_broker=is_only_broker
        )
        for name in users:
            self._note(broker, known[name], is_wanted=name in wanted)
        gap = await self._connected(broker, address, wanted, with_lag=at is None)
        if gap:
            gaps[RequestCode.GET_CONSUMER_CONNECTION_LIST.name] = gap
        await self._subscribed(wanted)
        return gaps

    async def _all(self, address: str, names: Iterable[str]) -> dict[str, GroupAt]:
        header = GetConsumeStatsInBrokerHeader(with_members=True)
        code = RequestCode.GET_BROKER_CONSUME_STATS
        answer = await self._round.request(address, code, header)
        with reading_answer(address):
            body = await in_steps(ConsumeStatsList.from_body_in_steps(answer.body))
        tables: dict[str, list[ConsumeStats]] = {}
        for part in body.consume_stats_list:
            for name, each in part.items():
                tables.setdefault(name, []).extend(each)
        counts = body.members
        return {
            name: group_at(
                name, tables.get(name, ()), None if counts is None else counts.get(name, 0)
            )
            for name in names
        }

    def _note(self, broker: str, at: GroupAt, *, is_wanted: bool) -> None:
        group = self._groups.setdefault(at.name, _Group())
        for topic, lag in at.lag.items():
            group.lag[topic] = group.lag.get(topic, 0) + lag
        if at.count is not None:
            group.counts[broker] = at.count
        elif not is_wanted:
            group.unknown_on.add(broker)
        if not is_wanted and at.count != 0:
            group.left_out_on.add(broker)

    # Members

    async def _connected(
        self, broker: str, address: str, names: Iterable[str], *, with_lag: bool
    ) -> str:
        """Ask for the members of groups; return why there was no answer, or ""."""
        listed = list(names)
        self._total += len(listed)
        limiter = anyio.CapacityLimiter(AT_ONCE)
        gaps: list[str] = []

        async def ask(name: str) -> None:
            group = self._groups[name]
            async with limiter:
                try:
                    await self._members_of(broker, address, name, group, with_lag=with_lag)
                except ServerError as error:
                    group.error = one_line(error)
                except ClientError as error:
                    group.unknown_on.add(broker)
                    gaps.append(one_line(error))
            self._done += 1
            self._progress(self._done, self._total)

        async with anyio.create_task_group() as tasks:
            for name in listed:
                tasks.start_soon(ask, name)
        return gaps[0] if gaps else ""

    async def _members_of(
        self, broker: str, address: str, name: str, group: _Group, *, with_lag: bool
    ) -> None:
        body = await connected(self._round, address, name)
        connections = body.connection_set if body else []
        group.counts[broker] = len(connections)
        for each in connections:
            # A member is connected to all brokers, and counts once.
            group.at.setdefault(each.client_id, address)
            facts = MemberFacts(each.client_id, each.language, version_name(each.version))
            group.members.setdefault(each.client_id, facts)
        if with_lag and not connections:
            stats = GetConsumeStatsRequestHeader(consumer_group=name)
            answer = await self._round.request(address, RequestCode.GET_CONSUME_STATS, stats)
            with reading_answer(address):
                table = ConsumeStats.from_body(answer.body)
            for topic, lag in group_at(name, [table], 0).lag.items():
                group.lag[topic] = group.lag.get(topic, 0) + lag

    # Subscriptions

    async def _subscribed(self, names: Iterable[str]) -> None:
        """Ask members of groups that have several what they want; each once, by any broker."""
        limiter = anyio.CapacityLimiter(AT_ONCE)

        async def ask(name: str, group: _Group, client_id: str) -> None:
            async with limiter:
                listed = await subscriptions(self._round, group.at[client_id], name, client_id)
            if listed is not None:
                group.members[client_id] = replace(
                    group.members[client_id], subscriptions=_wanted(listed)
                )

        async with anyio.create_task_group() as tasks:
            for name in names:
                group = self._groups[name]
                for client_id in self._taken(group):
                    tasks.start_soon(ask, name, group, client_id)

    def _taken(self, group: _Group) -> list[str]:
        """The members of a group that are to be asked now."""
        if len(group.members) < 2:
            return []
        new = [each for each in sorted(group.members) if each not in group.asked]
        room = min(self._limits.members_of_group - len(group.asked), self._members_left)
        taken = new[: max(room, 0)]
        group.asked.update(taken)
        self._members_left -= len(taken)
        group.members_left_out = len(group.members) - len(group.asked)
        return taken


def _wanted(listed: Iterable[SubscriptionData]) -> frozenset[Subscription]:
    return frozenset(
        Subscription(each.topic, each.sub_string, each.expression_type)
        for each in listed
        if not each.topic.startswith(RETRY_TOPIC_PREFIX)
    )


def _facts(name: str, group: _Group) -> GroupFacts:
    # Of one member, as each of two brokers counts it, nothing needs to be asked.
    is_alone = not group.unknown_on and sum(group.counts.values()) < 2
    return GroupFacts(
        name,
        tuple(group.members[each] for each in sorted(group.members)),
        group.lag,
        group.error,
        count=max([len(group.members), *group.counts.values()]),
        unknown_on=frozenset(group.unknown_on),
        is_left_out=bool(group.left_out_on) and not is_alone,
        members_left_out=group.members_left_out,
    )
