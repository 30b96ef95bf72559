"""Headers for the administration and the statistics of consumer groups."""

from __future__ import annotations

from .base import Header, RpcRequestHeader, TopicRequestHeader
from .consumer import ResetOffsetRequestHeader
from .fields import AskedQueueId, MessageCount, PullOffset, QueueIdOrAny


class ResetQueueOffsetRequestHeader(ResetOffsetRequestHeader, frozen=True, kw_only=True):
    """Request of INVOKE_BROKER_TO_RESET_OFFSET (222) about one queue.

    Only a broker that resets offsets itself (5.x, `useServerSideResetOffset`) reads these two
    fields; any other resets all queues by the timestamp.

    Attributes:
      queue_id: the queue; -1: all.
      offset: the next message to consume, in messages; None: by the timestamp.
    Source: RocketMQ 5.3.3 ResetOffsetRequestHeader.
    """

    queue_id: QueueIdOrAny = -1
    offset: PullOffset | None = None


class QueryTopicsByConsumerRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Request of QUERY_TOPICS_BY_CONSUMER (343): the topics for which a group has offsets."""

    group: str


class ConsumeMessageDirectlyRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Request of CONSUME_MESSAGE_DIRECTLY (309), forwarded to a client of the group.

    Attributes:
      msg_id: the broker's id of the message.
      topic: its topic, or None.
    Source: RocketMQ 5.3.3 ConsumeMessageDirectlyResultRequestHeader.
    """

    consumer_group: str
    client_id: str
    msg_id: str
    broker_name: str
    topic: str | None = None


class GetTopicStatsInfoRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of GET_TOPIC_STATS_INFO (202)."""

    topic: str


class GetConsumeStatsRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of GET_CONSUME_STATS (208).

    Attributes:
      topic: only this topic; None or blank: all for which the group has offsets.
      topic_list: topics with a semicolon after each, whether the group subscribes to them or not
        (5.x); None or blank: as `topic` says.
      with_pops: not of RocketMQ, whose brokers ignore it: the answer has the check points of pops
        that are in the broker's memory only.
    Source: RocketMQ 5.5.0 GetConsumeStatsRequestHeader.
    """

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None
    with_pops: bool | None = None


class GetConsumeStatsInBrokerHeader(Header, frozen=True, kw_only=True):
    """Request of GET_BROKER_CONSUME_STATS (317).

    Attributes:
      is_order: only topics with ordered messages; Java's field begins as false.
      with_members: not of RocketMQ, whose brokers ignore it: the answer has the number of connected
        members of each group.
    """

    is_order: bool = False
    with_members: bool | None = None


class QueryConsumeTimeSpanRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str


class QuerySubscriptionByConsumerRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of QUERY_SUBSCRIPTION_BY_CONSUMER (345).

    Attributes:
      topic: None: no topic, so no subscription is found.
    """

    group: str
    topic: str | None = None


class QueryCorrectionOffsetHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of QUERY_CORRECTION_OFFSET (308).

    Attributes:
      filter_groups: groups to leave out, with commas between; None: none.
      compare_group: the group whose offsets are compared with the others'.
    """

    filter_groups: str | None = None
    compare_group: str
    topic: str


class CloneGroupOffsetRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Request of CLONE_GROUP_OFFSET (314).

    Attributes:
      topic: None or blank: all topics of the source.
      offline: also topics to which the source does not subscribe now.
    """

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None


class QueryConsumeQueueRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of QUERY_CONSUME_QUEUE (321).

    Attributes:
      index: the first queue offset.
      count: units, at most. Java's numbers begin as 0, so Apache's broker serves what leaves them
        out.
      consumer_group: also look for the subscription of this group; None: do not.
    """

    topic: str
    queue_id: AskedQueueId = 0
    index: PullOffset = 0
    count: MessageCount = 0
    consumer_group: str | None = None


class ViewBrokerStatsDataRequestHeader(Header, frozen=True, kw_only=True):
    """Request of VIEW_BROKER_STATS_DATA (315).

    Attributes:
      stats_name: such as TOPIC_PUT_NUMS.
      stats_key: such as a topic's name.
    """

    stats_name: str
    stats_key: str


class UpdateGroupForbiddenRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of UPDATE_AND_GET_GROUP_FORBIDDEN (353).

    Attributes:
      group, topic: the group that may, or may not, read the topic.
      readable: whether it may from now on; None: only ask.
    Source: RocketMQ 5.5.0 UpdateGroupForbiddenRequestHeader.
    """

    group: str
    topic: str
    readable: bool | None = None


class GetConsumerStatusRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), and of
    GET_CONSUMER_STATUS_FROM_CLIENT (221), from the broker to the group's clients.

    Attributes:
      topic, group: the offsets of the group in this topic.
      client_addr: id of one client; None or blank: all. Only in 223.
    Source: RocketMQ 5.5.0 GetConsumerStatusRequestHeader.
    """

    topic: str
    group: str
    client_addr: str | None = None


class ExportRocksDBConfigToJsonRequestHeader(Header, frozen=True, kw_only=True):
    """Request of EXPORT_ROCKSDB_CONFIG_TO_JSON (355).

    Attributes:
      config_type: the tables: `topics`, `subscriptionGroups`, `consumerOffsets`, with semicolons
        between.
    Source: RocketMQ 5.5.0 ExportRocksDBConfigToJsonRequestHeader.
    """

    config_type: str
