"""Headers of pop consumption: pop, acknowledgement, invisible time, notification.

A number that a pop, a peek, a notification or 200055 leaves out is 0: a field of Java's begins so,
and Apache's broker serves such requests.

Source: RocketMQ 5.5.0 remoting/protocol/header/PopMessageRequestHeader.java and its neighbours.
"""

from __future__ import annotations

from .base import Header, Int32, Int64, TopicRequestHeader
from .fields import (
    AskedQueueId,
    InitMode,
    InvisibleMs,
    MessageCount,
    PopTimeMs,
    PullOffset,
    QueueIdOrAny,
    TimeoutMs,
)


class PopMessageRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of POP_MESSAGE (200050).

    Attributes:
      topic: the topic, never a retry topic of pop: the broker reads those by itself.
      queue_id: one queue; -1: all queues of the topic.
      max_msg_nums: number of messages at most; the broker allows 32.
      invisible_time: how long the messages are not given to others, ms; the broker uses the
        nearest time that it can keep.
      poll_time: how long to wait for a message, ms.
      born_time: when the client sent this, ms since 1970; 0: now.
      init_mode: where a group that never consumed begins; 0: the first message; 1: the end.
      exp_type: "TAG" (also when None) or "SQL92".
      exp: expression; None or "*": all messages.
      order: true for messages in the order of each queue; None or false for them in parallel.
      attempt_id: identifies a pop in order that is sent again, because its answer was lost.
    """

    consumer_group: str
    topic: str
    queue_id: QueueIdOrAny = 0
    max_msg_nums: MessageCount = 0
    invisible_time: InvisibleMs = 0
    poll_time: TimeoutMs = 0
    born_time: PopTimeMs = 0
    init_mode: InitMode = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


class PopMessageResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to a pop; `receipt.py` has the forms of the three strings.

    Attributes:
      pop_time: when the messages were popped, ms since 1970.
      invisible_time: as asked, ms.
      revive_qid: queue of the revive topic; 999: popped in order.
      rest_num: messages that remain, about.
      start_offset_info: the offset of each queue at which this pop began.
      msg_offset_info: the offsets of the messages, by queue.
      order_count_info: in order: how often each message was consumed before.
    """

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of ACK_MESSAGE (200051).

    Attributes:
      topic: where the message is: the topic, or the group's retry topic.
      queue_id: queue of that topic.
      extra_info: the message's receipt.
      offset: the message's queue offset.
      lite_topic: name of a lite topic below the topic (5.5).
    """

    consumer_group: str
    topic: str
    queue_id: AskedQueueId
    extra_info: str
    offset: PullOffset
    lite_topic: str | None = None


class ChangeInvisibleTimeRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of CHANGE_MESSAGE_INVISIBLETIME (200053).

    Attributes:
      consumer_group, topic, queue_id, extra_info, offset, lite_topic: as of an acknowledgement.
      invisible_time: from now on, ms.
      suspend: true if the message's number of tries does not grow by this (5.4).
    """

    consumer_group: str
    topic: str
    queue_id: AskedQueueId
    extra_info: str
    offset: PullOffset
    invisible_time: InvisibleMs
    lite_topic: str | None = None
    suspend: bool | None = None


class ChangeInvisibleTimeResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to 200053: the parts of the message's new receipt.

    Attributes:
      pop_time: ms since 1970.
      invisible_time: ms after `pop_time`.
      revive_qid: queue of the revive topic.
    """

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class PeekMessageRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of PEEK_MESSAGE (200052): read messages as a pop would, without popping them.

    Attributes:
      queue_id: one queue; -1: all queues of the topic.
      max_msg_nums: number of messages at most.
    """

    topic: str
    queue_id: QueueIdOrAny = 0
    max_msg_nums: MessageCount = 0
    consumer_group: str


class NotificationRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of NOTIFICATION (200054): wait until there is something to pop.

    Attributes: as of a pop.
    """

    consumer_group: str
    topic: str
    queue_id: QueueIdOrAny = 0
    poll_time: TimeoutMs = 0
    born_time: PopTimeMs = 0
    order: bool | None = None
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to 200054.

    Attributes:
      has_msg: whether there is a message to pop.
      polling_full: whether the broker did not wait, because too many clients wait.
    """

    has_msg: bool
    polling_full: bool = False


class PollingInfoRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of POLLING_INFO (200055).

    Attributes:
      queue_id: one queue; -1: the pops of all queues.
    """

    consumer_group: str
    topic: str
    queue_id: QueueIdOrAny = 0


class PollingInfoResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to 200055: the number of waiting pops."""

    polling_num: Int32
