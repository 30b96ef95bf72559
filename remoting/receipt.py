"""Receipts of popped messages, and the offsets in the answer to a pop.

A receipt identifies one delivery of one message. Clients send it with acknowledgements and changes
of the invisible time. RocketMQ calls it extraInfo, POP_CK and, with the proxy's ninth field,
receipt handle.

Pure. Java counterpart: remoting/protocol/header/ExtraInfoUtil.java of 5.5.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from ..common.topic_names import RETRY_TOPIC_PREFIX, pop_retry_topics
from .errors import RemoteProtocolError
from .number_fields import INT32, INT64, Range, parse_integer

ORDER_REVIVE_QUEUE: Final = 999
"""The revive queue of receipts of messages that were popped in order. Source: KeyBuilder.java."""

POP_COUNT_MAX: Final = 32
"""Messages of one pop at most. Source: PopMessageProcessor of 5.5.0; a check point's bit map has 32
bits."""

_FIELDS_MIN: Final = 8
_ENTRIES_MAX: Final = 1024
"""Entries of one string: an answer has one for each queue, or for each message."""


class TopicForm(StrEnum):
    """Where a popped message was: in the topic, or in the group's retry topic of either form."""

    NORMAL = "0"
    RETRY_V1 = "1"
    RETRY_V2 = "2"

    @classmethod
    def of(cls, topic: str) -> TopicForm:
        """The form of the topic that a message is in."""
        if not topic.startswith(RETRY_TOPIC_PREFIX):
            return cls.NORMAL
        return cls.RETRY_V2 if "+" in topic else cls.RETRY_V1

    def real_topic(self, topic: str, group: str) -> str:
        """The topic that a message is in.

        Args:
          topic: the topic that was popped.
        """
        if self is TopicForm.NORMAL:
            return topic
        v2, v1 = pop_retry_topics(topic, group)
        return v1 if self is TopicForm.RETRY_V1 else v2


class Receipt(NamedTuple):
    """The parts of a receipt.

    Attributes:
      start_offset: of the pop's check point.
      pop_time: ms since 1970.
      invisible_time: ms after `pop_time`.
      revive_queue_id: queue of the revive topic; ORDER_REVIVE_QUEUE: popped in order.
      form: the topic that the message is in.
      broker_name: the broker that it was popped from.
      offset: the message's queue offset.
    """

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    form: TopicForm
    broker_name: str
    queue_id: int
    offset: int

    @property
    def in_order(self) -> bool:
        """Whether the message was popped in order."""
        return self.revive_queue_id == ORDER_REVIVE_QUEUE

    @property
    def revive_time(self) -> int:
        """When the message becomes visible again, ms since 1970."""
        return self.pop_time + self.invisible_time

    def to_text(self) -> str:
        """The receipt as the wire has it."""
        return (
            f"{self.start_offset} {self.pop_time} {self.invisible_time} {self.revive_queue_id} "
            f"{self.form.value} {self.broker_name} {self.queue_id} {self.offset}"
        )

    @classmethod
    def from_text(cls, text: str) -> Receipt:
        """Read a receipt; a proxy's ninth field is ignored.

        Raises: RemoteProtocolError: it has fewer than eight fields, or one is not a number or not a
          form.
        """
        fields = text.split(" ")
        if len(fields) < _FIELDS_MIN:
            raise RemoteProtocolError(
                f"a receipt of {len(fields)} fields, it must have {_FIELDS_MIN}: {text[:100]!r}"
            )
        try:
            form = TopicForm(fields[4])
        except ValueError as error:
            raise RemoteProtocolError(
                f"a receipt for a topic of the form {fields[4][:20]!r}, not 0, 1 or 2"
            ) from error
        return cls(
            _number(fields[0], INT64),
            _number(fields[1], INT64),
            _number(fields[2], INT64),
            _number(fields[3], INT32),
            form,
            fields[5],
            _number(fields[6], INT32),
            _number(fields[7], INT64),
        )


class QueueKey(NamedTuple):
    """A queue in the answer to a pop.

    Attributes:
      form: the topic that the queue belongs to.
    """

    form: TopicForm
    queue_id: int


def encode_start_offsets(starts: Iterable[tuple[QueueKey, int]]) -> str:
    """startOffsetInfo: `form queue offset`, separated by semicolons."""
    return ";".join(f"{key.form.value} {key.queue_id} {offset}" for key, offset in starts)


def decode_start_offsets(text: str) -> dict[QueueKey, int]:
    """The offset of each queue at which a pop began.

    Raises: RemoteProtocolError: malformed, or a queue occurs twice.
    """
    return {key: _number(value, INT64) for key, value in _entries(text, "startOffsetInfo")}


def encode_offsets(offsets: Iterable[tuple[QueueKey, Sequence[int]]]) -> str:
    """msgOffsetInfo: `form queue offset,offset,...`, separated by semicolons."""
    return ";".join(
        f"{key.form.value} {key.queue_id} {','.join(map(str, each))}" for key, each in offsets
    )


def decode_offsets(text: str) -> dict[QueueKey, list[int]]:
    """The offsets of the messages by queue, in the order of the messages.

    Raises: RemoteProtocolError: malformed, or a queue occurs twice.
    """
    return {
        key: [_number(each, INT64) for each in value.split(",")]
        for key, value in _entries(text, "msgOffsetInfo")
    }


class OrderCounts(NamedTuple):
    """How often the messages of one queue were popped in order before.

    Attributes:
      times: by queue offset; those that are not there: 0.
      least: of the message that was popped least, which older clients read alone.
    """

    key: QueueKey
    times: Mapping[int, int]
    least: int


def encode_order_counts(counts: Iterable[OrderCounts]) -> str:
    """orderCountInfo: `form qo<queue>%<offset> times` for each message that was popped before, and
    `form queue times` for each queue, separated by semicolons."""
    return ";".join(
        entry
        for (form, queue_id), times, least in counts
        for entry in (
            *(f"{form.value} qo{queue_id}%{offset} {each}" for offset, each in times.items()),
            f"{form.value} {queue_id} {least}",
        )
    )


def _entries(text: str, name: str) -> Iterator[tuple[QueueKey, str]]:
    seen: set[QueueKey] = set()
    entries = text.split(";") if text else []
    if len(entries) > _ENTRIES_MAX:
        raise RemoteProtocolError(
            f"a {name} of {len(entries)} entries, the limit is {_ENTRIES_MAX}"
        )
    for entry in entries:
        fields = entry.split(" ")
        if len(fields) != 3:
            raise RemoteProtocolError(f"an entry of {name} without three fields: {entry[:100]!r}")
        try:
            form = TopicForm(fields[0])
        except ValueError as error:
            raise RemoteProtocolError(
                f"an unknown topic form in {name}: {entry[:100]!r}"
            ) from error
        key = QueueKey(form, _number(fields[1], INT32))
        if key in seen:
            raise RemoteProtocolError(f"a queue occurs twice in {name}: {entry[:100]!r}")
        seen.add(key)
        yield key, fields[2]


def _number(text: str, declared: Range) -> int:
    number = parse_integer(text)
    if number is None or not declared.has(number):
        raise RemoteProtocolError(f"not an integer of {declared.bits} bits: {text[:40]!r}")
    return number
