"""From a topic's route to the queues that a producer writes to and a consumer reads from.

Java counterpart: MQClientInstance.topicRouteData2TopicPublishInfo and
topicRouteData2TopicSubscribeInfo, TopicPublishInfo, ClientMetadata of RocketMQ 5.3.3. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ...remoting.bodies import (
    PERM_READ,
    PERM_WRITE,
    BrokerData,
    MessageQueue,
    QueueData,
    TopicRouteData,
)
from ...remoting.errors import RemoteProtocolError

MASTER_ID: Final = 0
"""Broker id of a master. Source: MixAll.MASTER_ID."""

QUEUES_COUNT_MAX: Final = 65_536
"""Queues that one topic may have in all. RocketMQ sets no limit; a route is bytes from a peer, and
must not make us fill the memory with queues. The official benchmark's topic has 1,024."""

MOCK_BROKER_PREFIX: Final = "__syslo__"
"""A static topic's queues carry this, and the topic's scope, in place of a broker's name."""

NO_BROKER: Final = "__syslo__none__"
"""Broker name of a static topic's queue that is on no broker now."""

_GLOBAL_SCOPE: Final = "__global__"


@dataclass(frozen=True, slots=True)
class TopicPublishInfo:
    """Where a producer may send messages of a topic.

    Attributes:
      topic: the topic.
      queues: in a fixed order: brokers by name, each with its queues 0, 1, 2…; may be empty.
      is_ordered: the queues are those of the name server's ordered configuration, which stay the
        same while a broker is away.
    """

    topic: str
    queues: tuple[MessageQueue, ...]
    is_ordered: bool = False


def publish_info(topic: str, route: TopicRouteData) -> TopicPublishInfo:
    """The queues that can be written.

    An ordered topic has the queues of its configuration, whichever brokers are up. Else a queue
    counts when its broker has a master and the topic may be written there.

    Args:
      topic: with its namespace.
      route: the name server's answer; left as it is.
    Raises: RemoteProtocolError: the ordered configuration or a mapping is malformed, or there are
      more than `QUEUES_COUNT_MAX` queues.
    """
    conf = route.order_topic_conf
    if conf:
        return TopicPublishInfo(topic, _ordered_queues(topic, conf), is_ordered=True)
    if conf is None and route.topic_queue_mapping_by_broker:
        endpoints = static_topic_endpoints(topic, route)
        queues = sorted(endpoints, key=lambda queue: queue.queue_id)
        return TopicPublishInfo(topic, tuple(queues))
    # Java takes the first of two entries of one name.
    brokers = {data.broker_name: data for data in reversed(route.broker_datas)}
    writable = [
        (data.broker_name, data.write_queue_nums)
        for data in sorted(route.queue_datas, key=_by_name)
        if data.perm & PERM_WRITE and _has_master(brokers.get(data.broker_name))
    ]
    return TopicPublishInfo(topic, _numbered(topic, writable))


def subscribe_queues(topic: str, route: TopicRouteData) -> tuple[MessageQueue, ...]:
    """The queues that can be read, each once, sorted as rebalancing wants them.

    A broker without a master counts: its slaves can be read.

    Args and Raises: as `publish_info`.
    """
    if route.topic_queue_mapping_by_broker:
        return tuple(sorted(static_topic_endpoints(topic, route)))
    readable = [
        (data.broker_name, data.read_queue_nums)
        for data in route.queue_datas
        if data.perm & PERM_READ
    ]
    return tuple(sorted(set(_numbered(topic, readable))))


def broker_addresses(route: TopicRouteData) -> dict[str, dict[int, str]]:
    """Broker name to broker id (0: the master) to "host:port"; a new dict."""
    return {data.broker_name: dict(data.broker_addrs) for data in route.broker_datas}


class _TopicQueueMappingInfo(msgspec.Struct, rename="camel", gc=False):
    """What a broker has of a static topic.

    Source: RocketMQ 5.3.3 TopicQueueMappingInfo.
    """

    scope: str | None = _GLOBAL_SCOPE
    total_queues: int = 0
    broker_name: str = msgspec.field(default="", name="bname")
    epoch: int = 0
    curr_id_map: dict[int, int] = msgspec.field(default_factory=dict)


def static_topic_endpoints(topic: str, route: TopicRouteData) -> dict[MessageQueue, str]:
    """The queues of a static topic, and the name of the broker that each is on now.

    Such a queue has a made-up broker name (`MOCK_BROKER_PREFIX` and the topic's scope), so that it
    stays the same when it moves; requests go to the broker of this table, with the queue id and the
    made-up name as they are.

    Returns: queue to broker name, `NO_BROKER` where none has it; empty: no static topic.
    Raises: RemoteProtocolError: as `publish_info`.
    Source: ClientMetadata.topicRouteData2EndpointsForStaticTopic.
    """
    scopes: dict[str, list[_TopicQueueMappingInfo]] = {}
    for tree in (route.topic_queue_mapping_by_broker or {}).values():
        info = _mapping_info(tree)
        if info.scope is not None:
            scopes.setdefault(info.scope, []).append(info)
    endpoints: dict[MessageQueue, str] = {}
    for scope, infos in scopes.items():
        broker_name = MOCK_BROKER_PREFIX + (scope[2:] if scope == _GLOBAL_SCOPE else scope)
        # Of two brokers that claim one queue, the one that learned it last has it.
        owners: dict[int, _TopicQueueMappingInfo] = {}
        for info in infos:
            for queue_id in info.curr_id_map:
                if queue_id not in owners or owners[queue_id].epoch <= info.epoch:
                    owners[queue_id] = info
        count = max(info.total_queues for info in infos)
        _check_count(len(endpoints) + count)
        for queue_id in range(count):
            owner = owners.get(queue_id)
            queue = MessageQueue(topic, broker_name, queue_id)
            endpoints[queue] = NO_BROKER if owner is None else owner.broker_name
    return endpoints


def _mapping_info(tree: Any) -> _TopicQueueMappingInfo:
    try:
        return msgspec.convert(tree, _TopicQueueMappingInfo, strict=False)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"a route's topicQueueMappingByBroker: {error}") from error


def _ordered_queues(topic: str, conf: str) -> tuple[MessageQueue, ...]:
    """The queues of "broker:count;broker:count"."""
    counts = []
    for item in conf.rstrip(";").split(";"):
        name, _, rest = item.partition(":")
        count = rest.partition(":")[0]
        if not name or not count.isdecimal() or not count.isascii() or len(count) > 9:
            raise RemoteProtocolError(
                f"the ordered configuration of topic {topic} has {item[:80]!r}, which is not"
                " brokerName:queues"
            )
        counts.append((name, int(count)))
    return _numbered(topic, counts)


def _numbered(topic: str, counts: list[tuple[str, int]]) -> tuple[MessageQueue, ...]:
    _check_count(sum(max(count, 0) for _, count in counts))
    return tuple(
        MessageQueue(topic, name, queue_id) for name, count in counts for queue_id in range(count)
    )


def _check_count(count: int) -> None:
    if count > QUEUES_COUNT_MAX:
        raise RemoteProtocolError(
            f"a route with {count} queues of one topic, at most {QUEUES_COUNT_MAX} are allowed"
        )


def _by_name(data: QueueData) -> str:
    return data.broker_name


def _has_master(data: BrokerData | None) -> bool:
    return data is not None and MASTER_ID in data.broker_addrs
