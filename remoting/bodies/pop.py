"""Bodies of pop consumption: records of check points and acks, batches, assignments, modes.

`CheckPointBody`, `AckBody` and `BatchAckBody` are the bodies of messages in the revive topic, which
Apache's broker reads and writes, too; member by member in its short names.

Source: RocketMQ 5.5.0 store/pop/PopCheckPoint.java, AckMsg.java, BatchAckMsg.java,
remoting/protocol/body/BatchAck.java, QueryAssignmentRequestBody.java,
SetMessageRequestModeRequestBody.java, MessageRequestModeSerializeWrapper.java.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from ..receipt import POP_COUNT_MAX
from .base import Body, Int32, Int64
from .fields import PopShare
from .heartbeat import MessageModel
from .queues import MessageQueue

BATCH_ACKS_MAX: Final = 1024
"""Check points of one BATCH_ACK_MESSAGE: a proxy sends those of 32 messages, or a few more."""

CHECK_POINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
"""The tags of the messages whose bodies are CheckPointBody, AckBody and BatchAckBody. Source:
PopAckConstants."""


class CheckPointBody(Body):
    """The record of a pop: the messages that are invisible until they are acknowledged.

    Attributes:
      start_offset: offset in the queue that the others are counted from.
      pop_time: ms since 1970.
      invisible_time: ms after `pop_time`.
      bit_map: bit i: message i is acknowledged; 0 in stored records.
      num: number of messages, 1 to 32.
      queue_id: of `topic`.
      topic: where the messages are: the topic, or the group's retry topic.
      revive_offset: offset in the revive queue; 0 in stored records.
      queue_offset_diff: the messages' offsets, counted from `start_offset`; empty: consecutive.
      broker_name: of the broker that popped.
      re_put_times: how often this was stored again, because a message could not be revived.
      suspend: whether the messages' number of tries stays as it is.
    """

    start_offset: Int64 = msgspec.field(default=0, name="so")
    pop_time: Int64 = msgspec.field(default=0, name="pt")
    invisible_time: Int64 = msgspec.field(default=0, name="it")
    bit_map: Int32 = msgspec.field(default=0, name="bm")
    num: Int32 = msgspec.field(default=0, name="n")
    queue_id: Int32 = msgspec.field(default=0, name="q")
    topic: str = msgspec.field(default="", name="t")
    group: str = msgspec.field(default="", name="c")
    revive_offset: Int64 = msgspec.field(default=0, name="ro")
    queue_offset_diff: list[Int32] = msgspec.field(default_factory=list, name="d")
    broker_name: str | None = msgspec.field(default=None, name="bn")
    re_put_times: str | None = msgspec.field(default=None, name="rp")
    suspend: bool = msgspec.field(default=False, name="sp")

    @property
    def offsets(self) -> list[int]:
        """The queue offsets of its messages, POP_COUNT_MAX at most."""
        diffs = self.queue_offset_diff or range(min(self.num, POP_COUNT_MAX))
        return [self.start_offset + diff for diff in diffs[:POP_COUNT_MAX]]


class BufferedCheckPointBody(CheckPointBody):
    """A check point that is in a broker's memory only; not of RocketMQ.

    Attributes:
      bit_map: as in memory; bit i is set if message i is acknowledged.
      revive_queue_id: queue of the revive topic that its records would go to.
    """

    revive_queue_id: Int32 = msgspec.field(default=0, name="rq")


class AckBody(Body):
    """The record of one acknowledged message.

    Attributes:
      ack_offset: the message's queue offset.
      start_offset, group, topic, queue_id, pop_time, broker_name: as of its check point.
    """

    ack_offset: Int64 = msgspec.field(default=0, name="ao")
    start_offset: Int64 = msgspec.field(default=0, name="so")
    group: str = msgspec.field(default="", name="c")
    topic: str = msgspec.field(default="", name="t")
    queue_id: Int32 = msgspec.field(default=0, name="q")
    pop_time: Int64 = msgspec.field(default=0, name="pt")
    broker_name: str | None = msgspec.field(default=None, name="bn")


class BatchAckBody(AckBody):
    """The record of several acknowledged messages of one check point.

    Attributes:
      ack_offset: -1.
      ack_offsets: the messages' queue offsets.
    """

    ack_offsets: list[Int64] = msgspec.field(default_factory=list, name="aol")


class BatchAck(Body):
    """Acknowledged messages of one pop and one queue, in a BATCH_ACK_MESSAGE.

    Attributes:
      topic: the topic that was popped, never a retry topic.
      retry: the topic that the messages were in: "0" that topic, "1" and "2" the group's retry
        topic of the first and of the second form.
      start_offset, queue_id, revive_queue_id, pop_time, invisible_time: as in the receipts.
      bit_set: base64 of bytes in little endian; bit i: `start_offset` + i is acknowledged.
      long_*: the same members by the long names, which Apache's broker reads, too; see
        `BatchAckMessageRequestBody`.
    """

    group: str = msgspec.field(default="", name="c")
    topic: str = msgspec.field(default="", name="t")
    retry: str = msgspec.field(default="", name="r")
    start_offset: Int64 = msgspec.field(default=0, name="so")
    queue_id: Int32 = msgspec.field(default=0, name="q")
    revive_queue_id: Int32 = msgspec.field(default=0, name="rq")
    pop_time: Int64 = msgspec.field(default=0, name="pt")
    invisible_time: Int64 = msgspec.field(default=0, name="it")
    bit_set: str = msgspec.field(default="", name="b")
    long_group: str | None = msgspec.field(default=None, name="consumerGroup")
    long_topic: str | None = msgspec.field(default=None, name="topic")
    long_retry: str | None = msgspec.field(default=None, name="retry")
    long_start_offset: Int64 | None = msgspec.field(default=None, name="startOffset")
    long_queue_id: Int32 | None = msgspec.field(default=None, name="queueId")
    long_revive_queue_id: Int32 | None = msgspec.field(default=None, name="reviveQueueId")
    long_pop_time: Int64 | None = msgspec.field(default=None, name="popTime")
    long_invisible_time: Int64 | None = msgspec.field(default=None, name="invisibleTime")
    long_bit_set: str | None = msgspec.field(default=None, name="bitSet")

    def use_short_names(self) -> None:
        """Move what came by the long names to the short ones."""
        for long_name, name in _LONG_NAMES:
            value = getattr(self, long_name)
            if value is not None:
                setattr(self, name, value)
                setattr(self, long_name, None)


_LONG_NAMES: Final = tuple(
    (name, name.removeprefix("long_"))
    for name in BatchAck.__struct_fields__
    if name.startswith("long_")
)


class BatchAckMessageRequestBody(Body):
    """Body of BATCH_ACK_MESSAGE (200151).

    Attributes:
      acks: all members have their short names once a body is read, unless there are more than
        BATCH_ACKS_MAX: such a body is refused, and must not cost more than its parsing.
    """

    broker_name: str | None = None
    acks: list[BatchAck] | None = None

    def __post_init__(self) -> None:
        for ack in (self.acks or [])[:BATCH_ACKS_MAX]:
            ack.use_short_names()


class MessageRequestMode(StrEnum):
    """How the consumers of a group get the messages of a topic."""

    PULL = "PULL"
    POP = "POP"


class QueryAssignmentRequestBody(Body):
    """Body of QUERY_ASSIGNMENT (400).

    Attributes:
      topic, consumer_group: what the client consumes.
      strategy_name: "AVG" or "AVG_BY_CIRCLE".
      message_model: CLUSTERING or BROADCASTING.
    """

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str | None = None
    message_model: MessageModel = MessageModel.CLUSTERING


class MessageQueueAssignment(Body):
    """A queue for a client.

    Attributes:
      message_queue: its queue id is -1 where the client pops from all queues of the broker.
      mode: how to consume it.
      attachments: nothing uses them.
    """

    message_queue: MessageQueue = MessageQueue("", "", -1)
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: dict[str, str] | None = None


class QueryAssignmentResponseBody(Body):
    """Answer to 400; None: the client keeps what it has."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class SetMessageRequestModeRequestBody(Body):
    """Body of SET_MESSAGE_REQUEST_MODE (401), and an entry of messageRequestMode.json.

    Attributes:
      topic, consumer_group: what the mode is for.
      mode: how the group's consumers get the topic's messages.
      pop_share_queue_num: with POP: how many other clients may pop from a client's queues; 0 or
        less: all clients pop from all queues.
    """

    topic: str = ""
    consumer_group: str = ""
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: PopShare = 0


class MessageRequestModeSerializeWrapper(Body):
    """Content of messageRequestMode.json, and answer to GET_ALL_MESSAGE_REQUEST_MODE (402).

    Attributes:
      message_request_mode_map: by topic, then by group.
    """

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = (
        msgspec.field(default_factory=dict)
    )
