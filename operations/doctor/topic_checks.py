"""Checks of topics and consumer groups: functions from facts to findings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ...common.topic_names import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX, is_system_topic
from ...remoting.bodies import PERM_READ, PERM_WRITE, TopicConfig
from .facts import BrokerFacts, Facts, MemberFacts
from .findings import About, Finding, Pair, Pairs, Value, only, problem, skipped, some, warning
from .kinds import Kind, Word

# Topics


def topics(facts: Facts) -> Iterator[Finding]:
    by_cluster: dict[str, list[BrokerFacts]] = {}
    for master in facts.masters:
        if master.topics is not None:
            by_cluster.setdefault(master.cluster, []).append(master)
    for cluster in sorted(by_cluster):
        yield from _topics_of(cluster, by_cluster[cluster])
    yield from _orders(facts)


class _Fault(NamedTuple):
    """Something that a topic's settings can have.

    Attributes:
      is_there: whether they have it.
      make: `problem` or `warning`.
      kind: of what is found.
    """

    is_there: Callable[[TopicConfig], bool]
    make: Callable[..., Finding]
    kind: Kind


_TOPIC_FAULTS: Final = (
    _Fault(lambda topic: topic.write_queue_nums < 1, warning, Kind.TOPIC_WITHOUT_QUEUE),
    _Fault(
        lambda topic: topic.read_queue_nums < topic.write_queue_nums,
        problem,
        Kind.TOPIC_QUEUES_UNREAD,
    ),
    _Fault(lambda topic: not topic.perm & PERM_WRITE, warning, Kind.TOPIC_SENDS_FORBIDDEN),
    _Fault(lambda topic: not topic.perm & PERM_READ, warning, Kind.TOPIC_CONSUMING_FORBIDDEN),
)


def _topics_of(cluster: str, masters: list[BrokerFacts]) -> Iterator[Finding]:
    """The findings about the topics of one cluster."""
    on: dict[str, set[str]] = {}
    for fault in _TOPIC_FAULTS:
        for master in masters:
            faulty = some(
                name
                for name, topic in (master.topics or {}).items()
                if _is_users(name, master) and fault.is_there(topic)
            )
            if faulty.shown:
                about = About(topic=only(faulty))
                yield fault.make(fault.kind, about, broker=master.label, topics=faulty)
    for master in masters:
        for name in master.topics or ():
            if _is_users(name, master):
                on.setdefault(name, set()).add(master.key.name)
    everywhere = {master.key.name for master in masters}
    partly: dict[frozenset[str], list[str]] = {}
    for name, brokers in on.items():
        if brokers != everywhere:
            partly.setdefault(frozenset(everywhere - brokers), []).append(name)
    for absent, names in sorted(partly.items(), key=lambda item: sorted(item[0])):
        shown = some(names)
        yield warning(
            Kind.TOPIC_NOT_EVERYWHERE,
            About(topic=only(shown)),
            cluster=cluster,
            brokers=some(absent),
            topics=shown,
        )


def _is_users(topic: str, broker: BrokerFacts) -> bool:
    """Whether a topic is a user's own, and not one that brokers make for themselves."""
    return not (
        is_system_topic(topic, (broker.key.name, broker.cluster))
        or topic.upper().startswith("RMQ_SYS_")
        or topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX))
        or topic.endswith("_REPLY_TOPIC")
    )


def _orders(facts: Facts) -> Iterator[Finding]:
    """The name servers' order of topics, which producers follow, against the queues there are."""
    queues: dict[str, dict[str, int]] = {}
    for master in facts.masters:
        for name, topic in (master.topics or {}).items():
            queues.setdefault(name, {})[master.key.name] = topic.write_queue_nums
    is_complete = all(master.topics is not None for master in facts.masters)
    for topic_name, order in sorted(facts.ordered.items()):
        for part in filter(None, order.split(";")):
            broker, _, count = part.partition(":")
            there = queues.get(topic_name, {}).get(broker)
            is_number = count.isascii() and count.isdecimal() and len(count) < 10
            named: dict[str, Value] = {"topic": topic_name, "part": part[:64]}
            about = About(topic=topic_name)
            if not is_number or (there is not None and int(count) > there):
                yield problem(Kind.ORDER_NAMES_QUEUES, about, **named, count=there or 0)
            elif there is None and is_complete:
                yield problem(Kind.ORDER_NAMES_BROKER, about, **named)


# Groups


def subscriptions(facts: Facts) -> Iterator[Finding]:
    for group in facts.groups:
        known = [each for each in group.members if each.subscriptions is not None]
        by_topic: dict[str, dict[str, list[str]]] = {}
        for member in known:
            for topic in {each.topic for other in known for each in other.subscriptions or ()}:
                text = _wanted(member, topic)
                by_topic.setdefault(topic, {}).setdefault(text, []).append(member.client_id)
        for topic, wanted in sorted(by_topic.items()):
            if len(wanted) < 2:
                continue
            yield problem(
                Kind.SUBSCRIPTIONS_DIFFER,
                About(topic=topic, group=group.name),
                group=group.name,
                topic=topic,
                wants=Pairs(
                    tuple(
                        Pair(text or Word.NOTHING, some(ids))
                        for text, ids in sorted(wanted.items())
                    )
                ),
            )
    yield from _left_out(facts)


def _left_out(facts: Facts) -> Iterator[Finding]:
    """What was not asked for, as there is too much of it."""
    names = [group.name for group in facts.groups if group.is_left_out]
    if names:
        yield skipped(
            Kind.GROUPS_LEFT_OUT,
            count=len(names),
            total=len(facts.groups),
            groups=some(names),
            limit=facts.limits.groups,
        )
    for group in facts.groups:
        if group.members_left_out:
            yield skipped(
                Kind.MEMBERS_LEFT_OUT,
                About(group=group.name),
                count=group.members_left_out,
                total=len(group.members),
                group=group.name,
                limit=facts.limits.members_of_group,
                limit_of_all=facts.limits.members,
            )


def _wanted(member: MemberFacts, topic: str) -> str:
    """What a member wants of a topic; "": nothing."""
    for each in sorted(member.subscriptions or ()):
        if each.topic == topic:
            return f"{each.expression_type} {each.expression!r}"
    return ""


def consumers(facts: Facts) -> Iterator[Finding]:
    unknown = []
    refusals: dict[str, list[str]] = {}
    for group in facts.groups:
        count = sum(group.lag.values())
        if group.is_without_members and count > 0:
            waiting = [f"{topic} {lag:,}" for topic, lag in group.lag.items() if lag > 0]
            yield warning(
                Kind.NO_CONSUMER,
                About(group=group.name),
                group=group.name,
                count=count,
                waiting=some(waiting),
            )
        elif group.is_left_out and count > 0 and not (group.members or group.count):
            unknown.append(group.name)
        if group.error:
            refusals.setdefault(group.error, []).append(group.name)
    if unknown:
        yield skipped(Kind.CONSUMERS_UNKNOWN, count=len(unknown), groups=some(unknown))
    for error, names in sorted(refusals.items()):
        yield skipped(Kind.GROUP_REFUSED, groups=some(names), error=error)
