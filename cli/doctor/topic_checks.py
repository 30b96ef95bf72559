"""Checks of topics and consumer groups: functions from facts to findings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ...common.topic_names import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX, is_system_topic
from ...remoting.bodies import PERM_READ, PERM_WRITE, TopicConfig
from .facts import BrokerFacts, Facts, MemberFacts
from .findings import Finding, Severity, problem, some, warning

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
      severity, text, advice: of the finding; names are appended to the text.
    """

    is_there: Callable[[TopicConfig], bool]
    severity: Severity
    text: str
    advice: str


_TOPIC_FAULTS: Final = (
    _Fault(
        lambda topic: topic.write_queue_nums < 1,
        Severity.WARNING,
        "no queue can be written",
        "Give them queues (trocket topic create NAME --queues N), or delete them",
    ),
    _Fault(
        lambda topic: topic.read_queue_nums < topic.write_queue_nums,
        Severity.PROBLEM,
        "there are more write queues than read queues, so some messages are never consumed",
        "Raise the number of read queues to that of write queues: trocket topic create NAME "
        "--queues N",
    ),
    _Fault(
        lambda topic: not topic.perm & PERM_WRITE,
        Severity.WARNING,
        "sends are forbidden by the permission",
        "If that is not meant: trocket topic perm NAME RW",
    ),
    _Fault(
        lambda topic: not topic.perm & PERM_READ,
        Severity.WARNING,
        "consuming is forbidden by the permission",
        "If that is not meant: trocket topic perm NAME RW",
    ),
)


def _topics_of(cluster: str, masters: list[BrokerFacts]) -> Iterator[Finding]:
    """The findings about the topics of one cluster."""
    on: dict[str, set[str]] = {}
    for fault in _TOPIC_FAULTS:
        for master in masters:
            names = [
                name
                for name, topic in (master.topics or {}).items()
                if _is_users(name, master) and fault.is_there(topic)
            ]
            if names:
                text = f"topics on {master.label} of which {fault.text}: {some(names)}"
                yield Finding(fault.severity, text, fault.advice)
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
        yield warning(
            f"topics of the cluster {cluster} that {some(absent)} does not have: {some(names)}",
            "If their load should be shared, create them on the whole cluster (trocket topic "
            "create)",
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
            if not is_number or (there is not None and int(count) > there):
                yield problem(
                    f"the order of the topic {topic_name} names {part[:64]}, and there are "
                    f"{there if there is not None else 'no'} write queues",
                    "Correct it with trocket topic order-conf: producers send to these queues",
                )
            elif there is None and is_complete:
                yield problem(
                    f"the order of the topic {topic_name} names {part[:64]}, and this broker "
                    "does not have the topic or did not answer",
                    "Correct it with trocket topic order-conf, or start the broker",
                )


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
            each_text = "; ".join(f"{text}: {some(ids)}" for text, ids in sorted(wanted.items()))
            yield problem(
                f"members of the group {group.name} want different things of the topic {topic} "
                f"({each_text})",
                "Give all members of a group the same subscriptions, or several groups: brokers "
                "use the latest heartbeat's, so messages are skipped",
            )


def _wanted(member: MemberFacts, topic: str) -> str:
    for each in sorted(member.subscriptions or ()):
        if each.topic == topic:
            return f"{each.expression_type} {each.expression!r}"
    return "nothing"


def consumers(facts: Facts) -> Iterator[Finding]:
    for group in facts.groups:
        count = sum(group.lag.values())
        if not group.members and count > 0:
            waiting = [f"{topic} {lag:,}" for topic, lag in group.lag.items() if lag > 0]
            yield warning(
                f"the group {group.name} has no connected consumer, and {count:,} messages wait "
                f"({some(waiting)})",
                "Start its consumers, or delete the group if it is not used any more",
            )
        if group.error:
            yield Finding(Severity.SKIPPED, f"the group {group.name}: {group.error}", "Try again")
