"""Records of pop consumption: check points and acknowledgements as messages of the revive topic.

They are timer messages: they wait in rmq_sys_wheel_timer until about the revive time, and the
revive service reads them from the revive topic then. Apache's broker reads and writes them, too.

Pure. Source: RocketMQ 5.5.0 broker/processor/PopMessageProcessor.java (buildCkMsg, gen...UniqueId),
AckMessageProcessor.java, PopBufferMergeService.java, PopReviveService.java.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...common.message_properties import (
    PROPERTY_POP_NEXT_OFFSET,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQUE_KEY,
    properties_to_bytes,
)
from ...remoting.bodies import AckBody, BatchAckBody, CheckPointBody
from ...remoting.bodies.pop import ACK_TAG, BATCH_ACK_TAG, CHECK_POINT_TAG
from ...remoting.errors import RemoteProtocolError
from ...remoting.message import MessageExt
from ...store.writing.inner_message import InnerMessage
from .check_point import CheckPoint, CheckPointKey

ACKS_MAX: Final = 1024
"""Offsets of one record at most. Ours have 32; Apache's broker stores what a client sent."""

CHECK_POINT_EARLIER_MS: Final = 1000
"""A check point's record is due that long before its revive time, so that it is read before those
of acknowledgements. Source: PopAckConstants.ackTimeInterval."""


class Ack(NamedTuple):
    """Acknowledged messages of one check point.

    Attributes:
      offsets: the queue offsets of the messages, at least one.
    """

    key: CheckPointKey
    offsets: tuple[int, ...]


class RecordPlace(NamedTuple):
    """What all records of one broker share.

    Attributes:
      topic: the revive topic.
      host: of the broker, as `host_bytes` packs it.
    """

    topic: str
    host: bytes


def check_point_record(
    check_point: CheckPoint,
    revive_queue_id: int,
    place: RecordPlace,
    now_ms: int,
    next_offset: int = -1,
) -> InnerMessage:
    """The message that a check point is stored as.

    Args:
      revive_queue_id: queue of the revive topic.
      now_ms: ms since 1970.
      next_offset: where the next pop of the queue begins, if all before it is in records; -1: it
        is not said.
    """
    ck = check_point
    key = (
        f"{ck.topic}@{ck.queue_id}@{ck.start_offset}@{ck.group}@{ck.pop_time}@{ck.broker_name}"
        f"@{CHECK_POINT_TAG}"
    )
    due_ms = ck.revive_time - CHECK_POINT_EARLIER_MS
    body = ck.to_body().to_body()
    record = _record(body, CHECK_POINT_TAG, key, due_ms, revive_queue_id, place, now_ms)
    if next_offset >= 0:
        record.change_properties({PROPERTY_POP_NEXT_OFFSET: str(next_offset)})
    return record


def ack_record(
    ack: Ack, revive_time: int, revive_queue_id: int, place: RecordPlace, now_ms: int
) -> InnerMessage:
    """The message that an acknowledgement is stored as: of one message, or of several.

    A record for several has the broker's name, which that of Apache's buffer lacks: without it
    Apache's revive service does not find the check point.

    Args:
      revive_time: of the check point, ms since 1970.
      revive_queue_id, now_ms: as of `check_point_record`.
    """
    key, offsets = ack
    body: AckBody
    if len(offsets) == 1:
        (offset,) = offsets
        tag = ACK_TAG
        body = AckBody(
            ack_offset=offset,
            start_offset=key.start_offset,
            group=key.group,
            topic=key.topic,
            queue_id=key.queue_id,
            pop_time=key.pop_time,
            broker_name=key.broker_name,
        )
        unique_key = (
            f"{key.topic}@{key.queue_id}@{offset}@{key.group}@{key.pop_time}@{key.broker_name}"
            f"@{tag}"
        )
    else:
        tag = BATCH_ACK_TAG
        body = BatchAckBody(
            ack_offset=-1,
            start_offset=key.start_offset,
            group=key.group,
            topic=key.topic,
            queue_id=key.queue_id,
            pop_time=key.pop_time,
            broker_name=key.broker_name,
            ack_offsets=list(offsets),
        )
        unique_key = f"{key.topic}@{key.queue_id}@{list(offsets)}@{key.group}@{key.pop_time}@{tag}"
    return _record(body.to_body(), tag, unique_key, revive_time, revive_queue_id, place, now_ms)


def _record(
    body: bytes,
    tag: str,
    unique_key: str,
    due_ms: int,
    revive_queue_id: int,
    place: RecordPlace,
    now_ms: int,
) -> InnerMessage:
    properties = {
        PROPERTY_TAGS: tag,
        PROPERTY_TIMER_DELIVER_MS: str(due_ms),
        PROPERTY_UNIQUE_KEY: unique_key,
    }
    return InnerMessage(
        place.topic,
        revive_queue_id,
        body,
        properties_to_bytes(properties),
        now_ms,
        place.host,
        place.host,
    )


def read_record(message: MessageExt) -> CheckPoint | Ack | None:
    """The content of a message of the revive topic; None: it has another tag.

    Raises: RemoteProtocolError: the body is not that of such a record.
    """
    tag = message.properties.get(PROPERTY_TAGS)
    if tag == CHECK_POINT_TAG:
        return CheckPoint.from_body(CheckPointBody.from_body(message.body))
    if tag == ACK_TAG:
        ack = AckBody.from_body(message.body)
        return Ack(_key(ack), _offsets([ack.ack_offset]))
    if tag == BATCH_ACK_TAG:
        batch = BatchAckBody.from_body(message.body)
        return Ack(_key(batch), _offsets(batch.ack_offsets))
    return None


def _key(ack: AckBody) -> CheckPointKey:
    return CheckPointKey(
        ack.topic, ack.group, ack.queue_id, ack.start_offset, ack.pop_time, ack.broker_name
    )


def _offsets(offsets: list[int]) -> tuple[int, ...]:
    if not 0 < len(offsets) <= ACKS_MAX or min(offsets) < 0:
        raise RemoteProtocolError(
            f"an acknowledgement of {len(offsets)} messages, it must have 1 to {ACKS_MAX} "
            "offsets of 0 or more"
        )
    return tuple(offsets)
