"""Queues of a topic, computed from its route: those to write to and those to read from.

Java counterpart: MQClientInstance.topicRouteData2TopicPublishInfo and
topicRouteData2TopicSubscribeInfo, TopicPublishInfo, ClientMetadata of RocketMQ 5.3.3. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ...remoting.bodies import (
    GLOBAL_SCOPE,
    PERM_WRITE,
    BrokerData,
    MessageQueue,
    QueueData,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from ...remoting.errors import RemoteProtocolError
from ...remoting.route_queues import check_queue_count, numbered_queues, readable_queues

MASTER_ID: Final = 0
"""Broker id of a master. Source: MixAll.MASTER_ID."""

MOCK_BROKER_PREFIX: Final = "__syslo__"
"""Prefix of the broker name of a static topic's queues; the scope of the topic follows."""

NO_BROKER: Final = "__syslo__none__"
"""Broker name of a static topic's queue that is not on any broker."""


@dataclass(frozen=True, slots=True)
class TopicPublishInfo:
    """The writable queues of a topic.

    Attributes:
      topic: name of the topic, with namespace.
      queues: the queues in a fixed order: by name of the broker, then by number; may be empty.
      is_ordered: the queues are those of the name server's ordered configuration, which does not
        change while a broker is down.
    """

    topic: str
    queues: tuple[MessageQueue, ...]
    is_ordered: bool = False


def publish_info(topic: str, route: TopicRouteData) -> TopicPublishInfo:
    """The writable queues of a topic.

    An ordered topic has the queues of its configuration, whichever brokers are running. Other
    topics have the queues of brokers with a master that permit writing.

    Args:
      topic: name of the topic, with namespace.
      route: the answer of the name server; it is not changed.

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
    return TopicPublishInfo(topic, numbered_queues(topic, writable))


def subscribe_queues(topic: str, route: TopicRouteData) -> tuple[MessageQueue, ...]:
    """The readable queues of a topic, sorted, without duplicates.

    Args:
      topic: name of the topic, with namespace.
      route: the answer of the name server; it is not changed.

    Raises: RemoteProtocolError: a mapping is malformed, or there are more than `QUEUES_COUNT_MAX`
      queues.
    """
    if route.topic_queue_mapping_by_broker:
        return tuple(sorted(static_topic_endpoints(topic, route)))
    return readable_queues(topic, route)


def broker_addresses(route: TopicRouteData) -> dict[str, dict[int, str]]:
    """The addresses of the brokers: name to broker id (0 is the master) to `host:port`."""
    return {data.broker_name: dict(data.broker_addrs) for data in route.broker_datas}


def static_topic_endpoints(topic: str, route: TopicRouteData) -> dict[MessageQueue, str]:
    """The queues of a static topic, and the name of the broker that has each of them.

    The broker name of such a queue is artificial (`MOCK_BROKER_PREFIX` and the scope of the topic),
    so that it does not change when the queue moves. Requests are sent to the broker of this table,
    with the queue id and the artificial name.

    Returns: queue to broker name, `NO_BROKER` if none has it; empty if the topic is not static.
    Raises: RemoteProtocolError: a mapping is malformed, or there are too many queues.
    Source: ClientMetadata.topicRouteData2EndpointsForStaticTopic.
    """
    scopes: dict[str, list[TopicQueueMappingInfo]] = {}
    for tree in (route.topic_queue_mapping_by_broker or {}).values():
        if isinstance(tree, dict) and tree.get("scope", GLOBAL_SCOPE) is None:
            continue  # as Java's client
        info = _mapping_info(tree)
        scopes.setdefault(info.scope, []).append(info)
    endpoints: dict[MessageQueue, str] = {}
    for scope, infos in scopes.items():
        broker_name = MOCK_BROKER_PREFIX + (scope[2:] if scope == GLOBAL_SCOPE else scope)
        # If two brokers claim a queue, the one with the later epoch has it.
        owners: dict[int, TopicQueueMappingInfo] = {}
        for info in infos:
            for queue_id in info.curr_id_map:
                if queue_id not in owners or owners[queue_id].epoch <= info.epoch:
                    owners[queue_id] = info
        count = max(info.total_queues for info in infos)
        check_queue_count(len(endpoints) + count)
        for queue_id in range(count):
            owner = owners.get(queue_id)
            queue = MessageQueue(topic, broker_name, queue_id)
            endpoints[queue] = NO_BROKER if owner is None else owner.bname
    return endpoints


def _mapping_info(tree: Any) -> TopicQueueMappingInfo:
    try:
        return TopicQueueMappingInfo.from_tree(tree)
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"a route's topicQueueMappingByBroker: {error}") from error


def _ordered_queues(topic: str, conf: str) -> tuple[MessageQueue, ...]:
    """The queues of "broker:count;broker:count"."""
    counts = []
    for item in conf.rstrip(";").split(";"):
        name, _, rest = item.partition(":")
        count = rest.partition(":")[0]
        if not name or not count.isdecimal() or not count.isascii() or len(count) > 9:
            raise RemoteProtocolError(
                f"the ordered configuration of topic {topic} has {item[:80]!r} in place of"
                " brokerName:queues"
            )
        counts.append((name, int(count)))
    return numbered_queues(topic, counts)


def _by_name(data: QueueData) -> str:
    return data.broker_name


def _has_master(data: BrokerData | None) -> bool:
    return data is not None and MASTER_ID in data.broker_addrs
