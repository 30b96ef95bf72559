"""Routes of topics, and lists of brokers."""

from __future__ import annotations

from typing import Any

import msgspec

from .. import fastjson
from .base import Body, Int64
from .fields import QueueCount, RouteFlag, RoutePerm


class QueueData(Body):
    """A topic's queues on the brokers of one name; fields as in TopicConfig."""

    broker_name: str = ""
    read_queue_nums: QueueCount = 0
    write_queue_nums: QueueCount = 0
    perm: RoutePerm = 0
    topic_sys_flag: RouteFlag = 0


class BrokerData(Body):
    """The brokers of one name.

    Attributes:
      cluster: name of the cluster.
      broker_name: the name they share.
      broker_addrs: broker id (0: the master) to "host:port".
      enable_acting_master: a slave may act as master (5.x).
      zone_name: their zone (5.x).
    """

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[Int64, str] = msgspec.field(default_factory=dict)
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicRouteData(Body):
    """Answer to GET_ROUTEINFO_BY_TOPIC (105).

    Clients of 4.9.4 and later, and those that request standard JSON, need quoted integer keys;
    older Java clients accept both.

    Attributes:
      order_topic_conf: "brokerName:queues;..." of an ordered topic, or None.
      queue_datas: one for each broker name.
      broker_datas: one for each broker name.
      filter_server_table: "host:port" of a broker to those of its filter servers.
      topic_queue_mapping_by_broker: broker name to a static topic's mapping there (5.x), unparsed.
    """

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = msgspec.field(default_factory=list)
    broker_datas: list[BrokerData] = msgspec.field(default_factory=list)
    filter_server_table: dict[str, list[str]] = msgspec.field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Refuse an unparsed mapping that is nested too deep to be written again."""
        fastjson.check_depth(self.topic_queue_mapping_by_broker)


class ClusterInfo(Body):
    """Answer to GET_BROKER_CLUSTER_INFO (106).

    Attributes:
      broker_addr_table: broker name to its brokers.
      cluster_addr_table: cluster name to the names of its brokers, each once.
    """

    broker_addr_table: dict[str, BrokerData] = msgspec.field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = msgspec.field(default_factory=dict)

    def to_body(self, *, quote_int_keys: bool = False) -> bytes:
        """Write the body; integer keys are not quoted, as in every version of RocketMQ."""
        return super().to_body(quote_int_keys=quote_int_keys)


class BrokerMemberGroup(Body):
    """The brokers of one name; fields as in BrokerData."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[Int64, str] = msgspec.field(default_factory=dict)


class GetBrokerMemberGroupResponseBody(Body):
    """Answer to GET_BROKER_MEMBER_GROUP (901); None: no such brokers."""

    broker_member_group: BrokerMemberGroup | None = None

    def to_body(self, *, quote_int_keys: bool = False) -> bytes:
        """Write the body; integer keys are not quoted, as in RocketMQ."""
        return super().to_body(quote_int_keys=quote_int_keys)
