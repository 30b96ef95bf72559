"""Headers of the name server's requests and answers."""

from __future__ import annotations

from .base import Header, Int32, TopicRequestHeader
from .fields import BrokerId, ControllerInt, ControllerLong, Crc32, HeartbeatBrokerId, TimeoutMs


class BrokerIdentity(Header, frozen=True, kw_only=True):
    """Base of the headers with a broker's identity.

    Attributes:
      broker_name: name that a master shares with its slaves.
      broker_addr: "host:port" that clients connect to.
      broker_id: 0 is the master, 1 and above are slaves.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: BrokerId


class RegisterBrokerRequestHeader(BrokerIdentity, frozen=True, kw_only=True):
    """Request of REGISTER_BROKER (103).

    Attributes:
      ha_server_addr: "host:port" that slaves replicate from.
      heartbeat_timeout_millis: how long the registration lasts without a heartbeat, ms (5.x).
      enable_acting_master: a slave may act as master (5.x).
      compressed: the body is deflated; 5.5.0 says false even when it is.
      body_crc32: CRC32 of the body as sent, without the sign bit; 0: unchecked.
      zone_name: zone of the broker (5.x); wire `zoneName`. Java's header class does not have it.
    """

    ha_server_addr: str
    heartbeat_timeout_millis: TimeoutMs | None = None
    enable_acting_master: bool | None = None
    compressed: bool | None = None
    body_crc32: Crc32 | None = None
    zone_name: str | None = None


class RegisterBrokerResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to 103: for slaves, the addresses of their master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequestHeader(BrokerIdentity, frozen=True, kw_only=True):
    """Request of UNREGISTER_BROKER (104)."""


class QueryDataVersionRequestHeader(BrokerIdentity, frozen=True, kw_only=True):
    """Request of QUERY_DATA_VERSION (322); the body is the broker's DataVersion."""


class QueryDataVersionResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to 322: whether the broker must register again."""

    changed: bool


class BrokerHeartbeatRequestHeader(Header, frozen=True, kw_only=True):
    """BROKER_HEARTBEAT (904), oneway or not.

    Attributes:
      cluster_name, broker_addr, broker_name, broker_id: as in BrokerIdentity; the id is optional.
      epoch, max_offset, confirm_offset, election_priority: for controllers only.
      heartbeat_timeout_mills: time until it expires, ms; spelt as in RocketMQ.
    """

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: HeartbeatBrokerId | None = None
    epoch: ControllerInt | None = None
    max_offset: ControllerLong | None = None
    confirm_offset: ControllerLong | None = None
    heartbeat_timeout_mills: TimeoutMs | None = None
    election_priority: ControllerInt | None = None


class GetRouteInfoRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of GET_ROUTEINFO_BY_TOPIC (105).

    Attributes:
      accept_standard_json_only: the client cannot read unquoted map keys.
    """

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterTopicRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of REGISTER_TOPIC_IN_NAMESRV (217)."""

    topic: str


class DeleteTopicFromNamesrvRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of DELETE_TOPIC_IN_NAMESRV (216).

    Attributes:
      cluster_name: only in this cluster; None or "": in all.
    """

    topic: str
    cluster_name: str | None = None


class GetTopicsByClusterRequestHeader(Header, frozen=True, kw_only=True):
    """Request of GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str


class PutKVConfigRequestHeader(Header, frozen=True, kw_only=True):
    """Request of PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header, frozen=True, kw_only=True):
    """Request of GET_KV_CONFIG (101)."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to 101; None: no such key."""

    value: str | None = None


class DeleteKVConfigRequestHeader(Header, frozen=True, kw_only=True):
    """Request of DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(Header, frozen=True, kw_only=True):
    """Request of GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str


class WipeWritePermOfBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """Request of WIPE_WRITE_PERM_OF_BROKER (205)."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to 205: number of topics changed."""

    wipe_topic_count: Int32


class AddWritePermOfBrokerRequestHeader(Header, frozen=True, kw_only=True):
    """Request of ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to 327: number of topics changed."""

    add_topic_count: Int32


class GetBrokerMemberGroupRequestHeader(Header, frozen=True, kw_only=True):
    """Request of GET_BROKER_MEMBER_GROUP (901)."""

    cluster_name: str
    broker_name: str


class NotifyMinBrokerIdChangeRequestHeader(Header, frozen=True, kw_only=True):
    """NOTIFY_MIN_BROKER_ID_CHANGE (905), from the name server to the brokers of one name, oneway.

    Attributes:
      min_broker_id: the smallest id of a live broker.
      broker_name: the name the brokers share.
      min_broker_addr: "host:port" of that broker.
      offline_broker_addr: "host:port" of the removed broker, or None.
      ha_broker_addr: "host:port" to replicate from, or None.
    """

    min_broker_id: BrokerId | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
