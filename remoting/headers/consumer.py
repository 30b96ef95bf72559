"""Headers of requests about offsets, clients and queue locks."""

from __future__ import annotations

import msgspec

from .base import Header, Int64, RpcRequestHeader, TopicRequestHeader
from .fields import (
    AskedQueueId,
    CommittedOffset,
    DelayLevel,
    PhysicalOffset,
    ReconsumeTimesMax,
    SearchedTimeMs,
)


class QueueRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Base of the requests about one queue.

    Attributes:
      queue_id: queue of the topic, >= 0.
    """

    topic: str
    queue_id: AskedQueueId


class QueryConsumerOffsetRequestHeader(QueueRequestHeader, frozen=True, kw_only=True):
    """Request of QUERY_CONSUMER_OFFSET (14).

    Attributes:
      set_zero_if_not_found: None or true: a group that never consumed starts at 0 if the queue's
        first message still exists and is in memory; false: it gets "not found".
    """

    consumer_group: str
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffsetRequestHeader(QueueRequestHeader, frozen=True, kw_only=True):
    """Request of UPDATE_CONSUMER_OFFSET (15).

    Attributes:
      commit_offset: the next message to consume, in messages; a broker stores none that is
        negative or past the end of the queue.
    """

    queue_id: AskedQueueId
    consumer_group: str
    commit_offset: CommittedOffset


class GetMaxOffsetRequestHeader(QueueRequestHeader, frozen=True, kw_only=True):
    """Request of GET_MAX_OFFSET (30).

    Attributes:
      committed: None or true: of messages that can be consumed; false: of all written ones.
    """

    committed: bool | None = None


class GetMinOffsetRequestHeader(QueueRequestHeader, frozen=True, kw_only=True):
    """Request of GET_MIN_OFFSET (31)."""


class SearchOffsetRequestHeader(QueueRequestHeader, frozen=True, kw_only=True):
    """Request of SEARCH_OFFSET_BY_TIMESTAMP (29).

    Attributes:
      timestamp: store time, ms since 1970.
      boundary_type: "LOWER" (also when None or unknown) or "UPPER", in any letter case: the first
        or the last of several messages with that time.
      lite_topic: name of a lite topic (5.5).
    """

    timestamp: SearchedTimeMs
    boundary_type: str | None = None
    lite_topic: str | None = None


class GetEarliestMsgStoretimeRequestHeader(QueueRequestHeader, frozen=True, kw_only=True):
    """Request of GET_EARLIEST_MSG_STORETIME (32)."""


class OffsetResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to 14, 29, 30 and 31: one queue offset, in messages."""

    offset: Int64


QueryConsumerOffsetResponseHeader = OffsetResponseHeader
SearchOffsetResponseHeader = OffsetResponseHeader
GetMaxOffsetResponseHeader = OffsetResponseHeader
GetMinOffsetResponseHeader = OffsetResponseHeader


class GetEarliestMsgStoretimeResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to 32: store time of the first message, ms since 1970; -1 if there is none."""

    timestamp: Int64


class LockBatchMqRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Request of LOCK_BATCH_MQ (41); its data is in the body."""


class UnlockBatchMqRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Request of UNLOCK_BATCH_MQ (42); its data is in the body."""


class HeartbeatRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Request of HEART_BEAT (34); its data is in the body."""


class HeartbeatResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to a heartbeat, from 5.x on.

    Attributes:
      is_support_heart_beat_v2: the broker accepts heartbeats without subscriptions.
      is_sub_change: the broker did not know these subscriptions yet.
    """

    is_support_heart_beat_v2: bool | None = msgspec.field(
        default=None, name="IS_SUPPORT_HEART_BEAT_V2"
    )
    is_sub_change: bool | None = msgspec.field(default=None, name="IS_SUB_CHANGE")


class UnregisterClientRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Request of UNREGISTER_CLIENT (35).

    Attributes:
      client_id: id of the client; wire `clientID`.
      producer_group: producer that leaves, or None.
      consumer_group: consumer that leaves, or None.
    """

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerGroupRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Base of the requests with a consumer group only."""

    consumer_group: str


class GetConsumerListByGroupRequestHeader(ConsumerGroupRequestHeader, frozen=True, kw_only=True):
    """Request of GET_CONSUMER_LIST_BY_GROUP (38)."""


class NotifyConsumerIdsChangedRequestHeader(ConsumerGroupRequestHeader, frozen=True, kw_only=True):
    """NOTIFY_CONSUMER_IDS_CHANGED (40), from the broker to its clients, oneway."""


class ConsumerSendMsgBackRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Request of CONSUMER_SEND_MSG_BACK (36).

    Attributes:
      offset: physical offset of the message.
      group: the consumer group that could not consume it.
      delay_level: delay of the retry; 0: the broker decides, negative: none, a dead letter.
      origin_msg_id: id of the original message.
      origin_topic: topic of the original message.
      unit_mode: the consumer belongs to a unit.
      max_reconsume_times: retries at most; None: the group's setting.
    Source: RocketMQ 5.3.3 ConsumerSendMsgBackRequestHeader.
    """

    offset: PhysicalOffset
    group: str
    delay_level: DelayLevel
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: ReconsumeTimesMax | None = None


class GetConsumerConnectionListRequestHeader(ConsumerGroupRequestHeader, frozen=True, kw_only=True):
    """Request of GET_CONSUMER_CONNECTION_LIST (203)."""


class GetProducerConnectionListRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Request of GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


class QueryTopicConsumeByWhoRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    topic: str


class GetConsumerRunningInfoRequestHeader(ConsumerGroupRequestHeader, frozen=True, kw_only=True):
    """Request of GET_CONSUMER_RUNNING_INFO (307), forwarded to a client of the group.

    Attributes:
      jstack_enable: include the stacks of its threads.
    """

    client_id: str
    jstack_enable: bool = False


class ResetOffsetRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of INVOKE_BROKER_TO_RESET_OFFSET (222), and of RESET_CONSUMER_CLIENT_OFFSET (220),
    from the broker to the group's clients.

    Attributes:
      timestamp: store time of the first message to consume, ms since 1970; -1: the end.
      is_force: also forward; otherwise only back.
    Source: RocketMQ 5.3.3 ResetOffsetRequestHeader.
    """

    group: str
    topic: str
    timestamp: SearchedTimeMs
    is_force: bool = False
