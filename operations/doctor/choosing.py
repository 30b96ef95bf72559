"""The choice of groups whose members a broker is asked for, where there are too many. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...remoting.bodies import ConsumeStats


@dataclass(frozen=True, slots=True)
class GroupAt:
    """A group on one broker, by what the broker tells of all groups at once.

    Attributes:
      name: its full name.
      lag: messages that wait there, by topic.
      rate: messages that it pulled there per second, during the last minute.
      count: members that are connected to the broker; None: it does not tell, as RocketMQ's.
    """

    name: str
    lag: Mapping[str, int] = field(default_factory=dict)
    rate: float = 0.0
    count: int | None = None


def group_at(name: str, tables: Iterable[ConsumeStats], count: int | None) -> GroupAt:
    """A group by its part of the answer to GET_BROKER_CONSUME_STATS.

    Args:
      tables: the progress in each of its topics.
      count: of its members there.
    """
    lag: dict[str, int] = {}
    rate = 0.0
    for table in tables:
        rate += table.consume_tps
        for queue, offsets in table.offset_table.items():
            waiting = max(offsets.broker_offset - max(offsets.consumer_offset, 0), 0)
            lag[queue.topic] = lag.get(queue.topic, 0) + waiting
    return GroupAt(name, lag, rate, count)


def chosen(
    groups: Iterable[GroupAt], count: int, *, turn: int = 0, is_only_broker: bool = False
) -> list[str]:
    """The groups to ask for, the most important ones first.

    Members can disagree only where there are several, and it matters most where messages wait or
    are pulled. A group whose number of members is known to be 0 is not asked for.

    Args:
      count: how many, at most.
      turn: of equally important groups, those before this place are passed over; it may be larger
        than their number.
      is_only_broker: there is no other one to which further members may be connected.
    """
    ranks: dict[int, list[str]] = {}
    for group in sorted(groups, key=lambda group: group.name):
        if group.count == 0 or (group.count == 1 and is_only_broker):
            continue
        ranks.setdefault(_rank(group), []).append(group.name)
    found: list[str] = []
    for rank in sorted(ranks):
        names = ranks[rank]
        begin = turn % len(names) if len(names) + len(found) > count else 0
        found += names[begin:] + names[:begin]
    return found[:count]


def _rank(group: GroupAt) -> int:
    if group.count is not None:
        return 0 if group.count > 1 else 2
    if any(group.lag.values()):
        return 0
    return 1 if group.rate > 0 else 2
