"""Requests and answers of pop consumption: pops, acknowledgements and invisible times.

The broker pops messages for a client: it gives them to no one else for a time, and knows by their
receipts which delivery a client acknowledges.

Java counterpart: MQClientAPIImpl.processPopResponse, changeInvisibleTimeAsync, ackMessageAsync and
batchAckMessageAsync of RocketMQ 5.5.0. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ..common import message_properties as names
from .bodies import SubscriptionData
from .bodies.pop import BatchAck, BatchAckMessageRequestBody
from .codec import RemotingCommand
from .errors import RemoteProtocolError
from .headers.base import decode
from .headers.consumer import ConsumerSendMsgBackRequestHeader
from .headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from .message import MessageExt
from .message_codec import decode_messages
from .number_fields import INT32, parse_integer
from .receipt import QueueKey, Receipt, TopicForm, decode_offsets, decode_start_offsets
from .response_codes import ResponseCode

ANY_QUEUE: Final = -1
"""The queue id of a pop from all queues of a broker."""

POP_CODES: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.POLLING_FULL,
    ResponseCode.POLLING_TIMEOUT,
    ResponseCode.PULL_NOT_FOUND,
)
"""The response codes of a pop that are no errors."""

INVISIBLE_S_MIN: Final = 0.001
"""Shortest invisible time of a pop in seconds: requests have milliseconds."""
INVISIBLE_S_MAX: Final = 3 * 24 * 3600
"""Longest invisible time in seconds: brokers keep it as a timer message (timerMaxDelaySec)."""

BATCH_SPAN_MAX: Final = 1 << 15
"""Largest distance of an offset from the first one of its pop in a batch of acknowledgements: 4 KiB
of bits. A message farther away is acknowledged alone."""

BATCH_COUNT_MAX: Final = 1024
"""Messages in one batch of acknowledgements at most: some 100 KB, if each has an entry."""

DEAD_LETTER_LEVEL: Final = -1
"""The delay level of a message that is sent back to become a dead letter."""

_ORDER_COUNT_PREFIX: Final = "qo"


class Place(NamedTuple):
    """What a consumer pops from.

    Attributes:
      topic: with namespace; never a retry topic of pop.
      broker_name: the broker.
      queue_id: one queue, or ANY_QUEUE.
    """

    topic: str
    broker_name: str
    queue_id: int = ANY_QUEUE


class PopOrder(NamedTuple):
    """A pop in the order of each queue.

    Attributes:
      attempt_id: identifies the pop when it is sent again, because its answer was lost; None: it
        is never sent again.
    """

    attempt_id: str | None


class Popped(NamedTuple):
    """A popped message.

    Attributes:
      ext: its record.
      receipt: identifies this delivery.
      is_selected: whether the subscription selects it. The broker compares hash codes of tags, so
        it may give others, which are acknowledged without being consumed.
    """

    ext: MessageExt
    receipt: Receipt
    is_selected: bool


class PopAnswer(NamedTuple):
    """The answer to a pop.

    Attributes:
      messages: in the order of the answer.
      is_polling_full: the broker did not wait for a message, because too many clients wait.
    """

    messages: Sequence[Popped] = ()
    is_polling_full: bool = False


def pop_header(
    place: Place,
    group: str,
    subscription: SubscriptionData,
    *,
    count: int,
    invisible_ms: int,
    poll_ms: int,
    init_mode: int,
    order: PopOrder | None = None,
) -> PopMessageRequestHeader:
    """The fields of a pop.

    Args:
      place: what to pop from.
      group: name of the group, with namespace.
      subscription: which messages.
      count: number of messages at most, 1 to 32.
      invisible_ms: how long others do not get them, ms.
      poll_ms: how long the broker may wait for a message, ms; 0: it does not wait.
      init_mode: where a group that never consumed begins; 0: the first message, 1: the end.
      order: None: messages in any order.
    """
    return PopMessageRequestHeader(
        consumer_group=group,
        topic=place.topic,
        queue_id=place.queue_id,
        max_msg_nums=count,
        invisible_time=invisible_ms,
        poll_time=poll_ms,
        born_time=0,  # the broker's time: it refuses pops of clocks that are behind
        init_mode=init_mode,
        exp_type=subscription.expression_type,
        exp=subscription.sub_string,
        order=order is not None,
        attempt_id=None if order is None else order.attempt_id,
        broker_name=place.broker_name,
    )


def notification_header(
    place: Place,
    group: str,
    subscription: SubscriptionData,
    *,
    poll_ms: int,
    order: PopOrder | None = None,
) -> NotificationRequestHeader:
    """The fields of a request that waits until there is something to pop; arguments as a pop's."""
    return NotificationRequestHeader(
        consumer_group=group,
        topic=place.topic,
        queue_id=place.queue_id,
        poll_time=poll_ms,
        born_time=0,
        order=order is not None,
        attempt_id=None if order is None else order.attempt_id,
        exp_type=subscription.expression_type,
        exp=subscription.sub_string,
        broker_name=place.broker_name,
    )


def read_pop(
    answer: RemotingCommand,
    place: Place,
    subscription: SubscriptionData,
    *,
    in_order: bool = False,
    inflate: bool = True,
) -> PopAnswer:
    """Read the answer to a pop, whose response code is one of POP_CODES.

    Args:
      answer: the answer.
      place: what was popped from.
      subscription: the one of the request.
      in_order: whether it was a pop in order.
      inflate: decompress bodies.

    Raises:
      RemoteProtocolError: a string or a record is malformed, a message has no receipt, or two
        messages have the same one.
      RequestRefused: a field is missing or out of range.
      MissingPackageError: a body is compressed in a way that needs a package.
    """
    if answer.code != ResponseCode.SUCCESS:
        return PopAnswer(is_polling_full=answer.code == ResponseCode.POLLING_FULL)
    header = decode(PopMessageResponseHeader, answer.ext_fields)
    records = decode_messages(answer.body, inflate=inflate)
    receipts = _Receipts(header, place, records)
    counts = _order_counts(header.order_count_info or "") if in_order else {}
    found = []
    for ext in records:
        receipt = receipts.of(ext)
        queue = QueueKey(receipt.form, receipt.queue_id)
        count = counts.get((queue, receipt.offset), counts.get((queue, None), 0))
        if count > 0:
            ext.reconsume_times = count
        is_selected = not subscription.tags_set or subscription.selects(ext.tags)
        found.append(Popped(ext, receipt, is_selected))
    return PopAnswer(found)


class _Receipts:
    """Makes the receipts of one answer's messages.

    A record of a retry topic has its receipt in a property and the topic that was asked for, or it
    has none and the retry topic's name. Records of the topic itself have none.
    """

    def __init__(
        self, header: PopMessageResponseHeader, place: Place, records: Sequence[MessageExt]
    ) -> None:
        self._header = header
        self._place = place
        self._given: set[tuple[QueueKey, int]] = set()
        self._starts: Mapping[QueueKey, int]
        self._offsets: Mapping[QueueKey, Sequence[int]] | None = None
        if header.start_offset_info is None:
            # Brokers without it count from the first message of each queue in the answer.
            starts: dict[QueueKey, int] = {}
            for ext in records:
                key = QueueKey(TopicForm.of(ext.topic), ext.queue_id)
                starts.setdefault(key, ext.queue_offset)
            self._starts = starts
        else:
            self._starts = decode_start_offsets(header.start_offset_info)
            self._offsets = decode_offsets(header.msg_offset_info or "")

    def of(self, ext: MessageExt) -> Receipt:
        """The receipt of a message. Raises: RemoteProtocolError: it has none, or it is not new."""
        receipt = self._in_properties(ext) or self._made(ext)
        key = (QueueKey(receipt.form, receipt.queue_id), receipt.offset)
        if key in self._given:
            raise RemoteProtocolError(
                f"the answer to a pop has the offset {receipt.offset} of queue"
                f" {receipt.queue_id} of {ext.topic} twice"
            )
        self._given.add(key)
        return receipt

    def _in_properties(self, ext: MessageExt) -> Receipt | None:
        text = ext.find(names.PROPERTY_POP_CK.encode())
        if text is None:
            return None
        receipt = Receipt.from_text(text)
        # A message that was sent again with all of its properties has the receipt of an old pop.
        is_of_this_pop = (receipt.pop_time, receipt.queue_id, receipt.offset) == (
            self._header.pop_time,
            ext.queue_id,
            ext.queue_offset,
        )
        return receipt if is_of_this_pop else None

    def _made(self, ext: MessageExt) -> Receipt:
        form = TopicForm.of(ext.topic)
        forms = [form] if form is not TopicForm.NORMAL else list(TopicForm)
        for each in forms:
            key = QueueKey(each, ext.queue_id)
            if self._has(key, ext.queue_offset):
                return Receipt(
                    self._starts[key],
                    self._header.pop_time,
                    self._header.invisible_time,
                    self._header.revive_qid,
                    each,
                    self._place.broker_name,
                    ext.queue_id,
                    ext.queue_offset,
                )
        raise RemoteProtocolError(
            f"the answer to a pop has a message of {ext.topic}, queue {ext.queue_id}, offset"
            f" {ext.queue_offset}, and no receipt for it"
        )

    def _has(self, key: QueueKey, offset: int) -> bool:
        if key not in self._starts or (key, offset) in self._given:
            return False
        return self._offsets is None or offset in self._offsets.get(key, ())


def _order_counts(text: str) -> dict[tuple[QueueKey, int | None], int]:
    """orderCountInfo: how often messages were consumed before, by queue and offset.

    An entry is `form qo<queue>%<offset> count` for a message, or `form queue count` for all those
    of a queue, whose offset here is None.

    Raises: RemoteProtocolError: malformed.
    """
    counts: dict[tuple[QueueKey, int | None], int] = {}
    for entry in text.split(";") if text else ():
        fields = entry.split(" ")
        if len(fields) != 3 or fields[0] not in list(TopicForm):
            raise RemoteProtocolError(f"an entry of orderCountInfo: {entry[:100]!r}")
        form = TopicForm(fields[0])
        queue_text, _, offset_text = fields[1].removeprefix(_ORDER_COUNT_PREFIX).partition("%")
        queue_id, count = parse_integer(queue_text), parse_integer(fields[2])
        offset = parse_integer(offset_text) if offset_text else None
        if queue_id is None or count is None or (offset is None and offset_text):
            raise RemoteProtocolError(f"an entry of orderCountInfo: {entry[:100]!r}")
        counts[QueueKey(form, queue_id), offset] = count if INT32.has(count) else 0
    return counts


def ack_header(receipt: Receipt, topic: str, group: str) -> AckMessageRequestHeader:
    """The fields of an acknowledgement.

    Args:
      topic: the topic that was popped, with namespace.
      group: name of the group, with namespace.
    """
    return AckMessageRequestHeader(
        consumer_group=group,
        topic=receipt.form.real_topic(topic, group),
        queue_id=receipt.queue_id,
        extra_info=receipt.to_text(),
        offset=receipt.offset,
        broker_name=receipt.broker_name,
    )


def change_header(
    receipt: Receipt, topic: str, group: str, invisible_ms: int, *, suspend: bool = False
) -> ChangeInvisibleTimeRequestHeader:
    """The fields of a change of the invisible time.

    Args:
      receipt, topic, group: see `ack_header`.
      invisible_ms: from now on, ms.
      suspend: the message's number of tries does not grow by this (brokers from 5.4 on).
    """
    return ChangeInvisibleTimeRequestHeader(
        consumer_group=group,
        topic=receipt.form.real_topic(topic, group),
        queue_id=receipt.queue_id,
        extra_info=receipt.to_text(),
        offset=receipt.offset,
        invisible_time=invisible_ms,
        suspend=suspend or None,
        broker_name=receipt.broker_name,
    )


def dead_letter_header(
    receipt: Receipt,
    topic: str,
    group: str,
    *,
    physical_offset: int,
    message_id: str,
    max_reconsume_times: int = 0,
) -> ConsumerSendMsgBackRequestHeader:
    """The fields of a request to copy a popped message to the group's dead-letter queue.

    Args:
      receipt, topic, group: see `ack_header`.
      physical_offset: of the message in the commit log.
      message_id: of the message, for the copy.
      max_reconsume_times: how often the group delivers a message again.
    """
    return ConsumerSendMsgBackRequestHeader(
        offset=physical_offset,
        group=group,
        delay_level=DEAD_LETTER_LEVEL,
        origin_msg_id=message_id,
        origin_topic=receipt.form.real_topic(topic, group),
        max_reconsume_times=max_reconsume_times,
        broker_name=receipt.broker_name,
    )


def read_change(answer: RemotingCommand, receipt: Receipt) -> Receipt:
    """The receipt that replaces one whose invisible time was changed.

    Raises: RequestRefused: a field is missing or malformed.
    """
    header = decode(ChangeInvisibleTimeResponseHeader, answer.ext_fields)
    return receipt._replace(
        start_offset=receipt.offset,
        pop_time=header.pop_time,
        invisible_time=header.invisible_time,
        revive_queue_id=header.revive_qid,
    )


class Settled(NamedTuple):
    """A message to acknowledge.

    Attributes:
      topic: the topic that was popped, with namespace.
    """

    topic: str
    receipt: Receipt


def is_near(receipt: Receipt) -> bool:
    """Whether an acknowledgement can share a batch with others of its pop."""
    return 0 <= receipt.offset - receipt.start_offset < BATCH_SPAN_MAX


def split_batch(settled: Iterable[Settled]) -> tuple[list[Settled], list[Settled]]:
    """Messages that can share a batch of acknowledgements, and those that are too far apart."""
    near: list[Settled] = []
    far: list[Settled] = []
    for each in settled:
        (near if is_near(each.receipt) else far).append(each)
    return near, far


def batch_ack_body(broker_name: str, group: str, settled: Iterable[Settled]) -> bytes:
    """The body of a batch of acknowledgements.

    Args:
      broker_name: the broker that all messages were popped from.
      group: name of the group, with namespace.
      settled: the first part of `split_batch`.
    """
    bits: dict[tuple[str, Receipt], int] = {}
    for topic, receipt in settled:
        key = (topic, receipt._replace(offset=0))
        bits[key] = bits.get(key, 0) | 1 << (receipt.offset - receipt.start_offset)
    acks = [
        BatchAck(
            group=group,
            topic=topic,
            retry=pop.form.value,
            start_offset=pop.start_offset,
            queue_id=pop.queue_id,
            revive_queue_id=pop.revive_queue_id,
            pop_time=pop.pop_time,
            invisible_time=pop.invisible_time,
            bit_set=base64.b64encode(_little_endian(each)).decode(),
        )
        for (topic, pop), each in bits.items()
    ]
    return BatchAckMessageRequestBody(broker_name=broker_name, acks=acks).to_body()


def _little_endian(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")
