"""Routes: a topic on its brokers, from the answer of a name server. Pure.

Java counterpart: proxy/service/route/MessageQueueSelector.java of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..grpc_server.service import OnBroker
from ..remoting.bodies import PERM_WRITE, TopicConfig, TopicRouteData
from ..remoting.errors import RemoteProtocolError
from ..remoting.number_fields import parse_integer
from ..remoting.route_queues import check_queue_count

MASTER_ID: Final = 0


def addresses_of(route: TopicRouteData) -> dict[str, Mapping[int, str]]:
    """The addresses of a route's brokers, by name and id."""
    return {
        data.broker_name: dict(data.broker_addrs)
        for data in route.broker_datas
        if data.broker_addrs
    }


def on_brokers(
    topic: str, route: TopicRouteData, attributes: Mapping[str, str]
) -> tuple[OnBroker, ...]:
    """A topic on its brokers, sorted by their names; those without an address are left out.

    Without a master a broker's queues are not written. An ordered topic has the queues of the name
    server's configuration to write to.

    Raises: RemoteProtocolError: that configuration is malformed, or there are too many queues.
    """
    addresses = addresses_of(route)
    ordered = _ordered(route.order_topic_conf or "")
    found: dict[str, OnBroker] = {}
    for data in sorted(route.queue_datas, key=lambda data: data.broker_name):
        name = data.broker_name
        if name not in addresses:
            continue
        has_master = MASTER_ID in addresses[name]
        writes = data.write_queue_nums if ordered is None else ordered.get(name, 0)
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=max(data.read_queue_nums, 0),
            write_queue_nums=max(writes, 0),
            perm=data.perm if has_master else data.perm & ~PERM_WRITE,
            attributes=dict(attributes),
        )
        found.setdefault(name, OnBroker(name, config))
    check_queue_count(sum(max(c.read_queue_nums, c.write_queue_nums) for _, c in found.values()))
    return tuple(found.values())


def _ordered(text: str) -> dict[str, int] | None:
    """The queues of `broker:count;broker:count`; None: there is no configuration."""
    if not text.strip():
        return None
    counts: dict[str, int] = {}
    for entry in text.split(";"):
        name, _, number = entry.partition(":")
        count = parse_integer(number)
        if count is None or count < 0:
            raise RemoteProtocolError(f"an entry of an ordered topic: {entry[:100]!r}")
        counts[name] = count
    return counts
