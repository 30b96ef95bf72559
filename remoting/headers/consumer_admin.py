"""Headers for the administration of consumer groups."""

from __future__ import annotations

from .base import RpcRequestHeader
from .consumer import ResetOffsetRequestHeader
from .fields import PullOffset, QueueIdOrAny


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
      consumer_group: the group.
      client_id: the client.
      msg_id: the broker's id of the message.
      broker_name: the broker that has it.
      topic: its topic, or None.
    Source: RocketMQ 5.3.3 ConsumeMessageDirectlyResultRequestHeader.
    """

    consumer_group: str
    client_id: str
    msg_id: str
    broker_name: str
    topic: str | None = None
