"""The readable queues of a topic's route, for clients and for brokers that assign them to clients.

Java counterpart: MQClientInstance.topicRouteData2TopicSubscribeInfo of RocketMQ 5.5.0, which
brokers use, too. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .bodies import PERM_READ, MessageQueue, TopicRouteData
from .errors import RemoteProtocolError

QUEUES_COUNT_MAX: Final = 65_536
"""Largest number of queues of a topic. RocketMQ sets no limit, but a route comes from a peer and
must not exhaust the memory. The topic of the official benchmark has 1,024."""


def readable_queues(topic: str, route: TopicRouteData) -> tuple[MessageQueue, ...]:
    """The queues that brokers let consumers read, sorted, without duplicates.

    Queues of a broker without a master count, because its slaves can be read. A static topic's are
    its physical queues.

    Args:
      topic: name of the topic, with namespace.
      route: the answer of the name server; it is not changed.

    Raises: RemoteProtocolError: there are more than `QUEUES_COUNT_MAX` queues.
    """
    readable = [
        (data.broker_name, data.read_queue_nums)
        for data in route.queue_datas
        if data.perm & PERM_READ
    ]
    return tuple(sorted(set(numbered_queues(topic, readable))))


def numbered_queues(topic: str, counts: Sequence[tuple[str, int]]) -> tuple[MessageQueue, ...]:
    """The queues of brokers, numbered from 0.

    Args:
      topic: their topic.
      counts: name of each broker, and the number of its queues.
    Raises: RemoteProtocolError: see `check_queue_count`.
    """
    check_queue_count(sum(max(count, 0) for _, count in counts))
    return tuple(
        MessageQueue(topic, name, queue_id) for name, count in counts for queue_id in range(count)
    )


def check_queue_count(count: int) -> None:
    """Raises: RemoteProtocolError: a topic has more than `QUEUES_COUNT_MAX` queues."""
    if count > QUEUES_COUNT_MAX:
        raise RemoteProtocolError(
            f"a route with {count} queues of one topic, at most {QUEUES_COUNT_MAX} are allowed"
        )
