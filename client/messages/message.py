"""Messages, sent and received, and the results of sends: immutable values.

Java counterparts: Message, SendResult, MessageExt.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, Generic
from zlib import crc32

import msgspec

from ...common import message_properties as names
from ...common.message_properties import split_keys
from ...remoting.bodies import MessageQueue
from ...remoting.hosts import host_text
from ...remoting.message import MessageExt, message_text
from ..checks.message_check import check_message
from ..checks.misuse import Presentable, is_hidden, knows_elsewhere
from ..checks.other_names import RECEIVED, RESULT
from ..errors import MessageRefusedError
from .body_types import BodyT_co

__all__ = [
    "Message",
    "MessageQueue",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
]

NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})


class _TopicAndBody(msgspec.Struct, Generic[BodyT_co], frozen=True):
    topic: str
    body: BodyT_co


class Message(_TopicAndBody[BodyT_co], Generic[BodyT_co], frozen=True, kw_only=True):
    """A message to send.

    Attributes:
      topic: name of the topic, without namespace.
      body: content of the message. Bytes are sent as they are and a `str` as UTF-8; other types
        need the producer's `serializer`.
      tags: the tag by which consumers can filter; None: no tag.
      keys: one key or several by which the message can be queried; a key contains no spaces.
      properties: user properties, which consumers can read and filter by.
      delay_level: level of the broker's delay table, 1 to 18 (1 s to 2 h by default), after which
        consumers get the message; 0: no delay. A message has one delay at most.
      delay_s: delay in seconds (brokers of 5.x); None: no delay.
      deliver_at_ms: time of delivery, in milliseconds since 1970 (brokers of 5.x); None: no delay.
      sharding_key: messages with the same key go to the same queue, which keeps them in order;
        None: any queue.
      flag: an int32 for the program's use.
      wait_store_ok: if the broker uses SYNC_FLUSH, confirm the message only after the fsync.

    Raises: MessageRefusedError: a field has a wrong type or value.
    """

    tags: str | None = None
    keys: str | Sequence[str] = ()
    properties: Mapping[str, str] = NO_PROPERTIES
    delay_level: int = 0
    delay_s: float | None = None
    deliver_at_ms: int | None = None
    sharding_key: str | None = None
    flag: int = 0
    wait_store_ok: bool = True

    def __post_init__(self) -> None:
        # Most messages have topic and body only, for which this takes less than 0.1 us.
        if (
            self.tags
            or self.keys
            or self.properties
            or self.delay_level
            or self.flag
            or self.delay_s is not None
            or self.deliver_at_ms is not None
            or self.sharding_key is not None
            or self.wait_store_ok is not True
            or self.topic.__class__ is not str
        ):
            check_message(self)

    def __repr__(self) -> str:
        # An instance may be shown before __post_init__ has refused its fields.
        keys = self.keys if not isinstance(self.keys, str) else split_keys(self.keys)
        return message_text(self.topic, self.tags, keys, self.body)

    def __reduce__(self) -> tuple[Any, ...]:
        # A read-only view cannot be pickled: NO_PROPERTIES, and those that programs give.
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        fields["properties"] = dict(self.properties)
        return _unpickled, (type(self), fields)


def _unpickled(cls: type[Message], fields: dict[str, Any]) -> Message:
    return cls(**fields)


class SendStatus(IntEnum):
    """How safely a message is stored; the values are the response codes of the broker."""

    SEND_OK = 0
    """Stored as safely as the broker is configured to store it."""
    FLUSH_DISK_TIMEOUT = 10
    """Stored, but the fsync did not end in time."""
    SLAVE_NOT_AVAILABLE = 11
    """Stored on the master, but no slave is available to replicate it."""
    FLUSH_SLAVE_TIMEOUT = 12
    """Stored on the master, but the slaves did not confirm it in time."""


@knows_elsewhere(RESULT)
class SendResult(msgspec.Struct, frozen=True):
    """The result of a confirmed send.

    Attributes:
      status: SEND_OK, or how much less safely than configured the message is stored.
      message_id: the id that the client assigned; for a batch, all ids joined by commas.
      queue: the queue that has the message; by gRPC its id is -1, as servers do not say it.
      queue_offset: its offset in the queue; for a batch, that of the first message. -1: the broker
        did not report it.
      offset_message_id: the id that the broker assigned, which locates the message in its log; ""
        by gRPC.
      transaction_id: id of the transaction; otherwise the same as `message_id`, or None.
      recall_handle: for `Producer.recall` of a delayed message (brokers of 5.x), otherwise None.
      region_id: region of the broker, or None.
    """

    status: SendStatus
    message_id: str
    queue: MessageQueue
    queue_offset: int
    offset_message_id: str
    transaction_id: str | None = None
    recall_handle: str | None = None
    region_id: str | None = None

    def __dir__(self) -> Iterable[str]:
        return [name for name in super().__dir__() if not is_hidden(type(self), name)]


@knows_elsewhere(RECEIVED)
class ReceivedMessage(Presentable):
    """A message that was received from a broker. It is read-only.

    Args:
      ext: the decoded message, with its body decompressed.
      queue: the queue that it was pulled from.
      topic: its topic, without namespace; for a redelivery, the topic that it was first sent to.
    """

    __slots__ = ("_ext", "_queue", "_topic")

    def __init__(self, ext: MessageExt, queue: MessageQueue, topic: str) -> None:
        self._ext = ext
        self._queue = queue
        self._topic = topic

    def __repr__(self) -> str:
        place = f"{self._topic}/{self._queue.queue_id}@{self._ext.queue_offset}"
        return message_text(place, self.tags, self.keys, self.body)

    def copy_to(self, topic: str) -> Message[bytes]:
        """A message to send that forwards this one: `send(received.copy_to("archive"))`.

        It has the body, tag, keys, flag, sharding key and the program's properties, and no delay.

        Args:
          topic: where to, without namespace.

        Raises: MessageRefusedError: `topic` is no str, or a producer that is not trocket's sent
          what a Message cannot have, such as a tag with spaces around it.
        """
        return Message(
            topic,
            self.body,
            tags=self.tags,
            keys=self.keys,
            flag=self.flag,
            sharding_key=self.sharding_key,
            properties={name: value for name, value in self.user_properties.items() if value},
        )

    @property
    def topic(self) -> str:
        """The topic that it was sent to, without namespace; the same for redeliveries."""
        return self._topic

    @property
    def body(self) -> bytes:
        """The body, decompressed."""
        return self._ext.body

    @property
    def text(self) -> str:
        """The body, decoded from UTF-8.

        Raises: UnicodeDecodeError: the body is not UTF-8.
        """
        return self._ext.body.decode()

    @property
    def message_id(self) -> str:
        """The id that the producer assigned, which redeliveries keep; otherwise the broker's id."""
        return self._ext.unique_key or self._ext.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id that the broker assigned; each redelivery has another one."""
        return self._ext.offset_message_id

    @property
    def tags(self) -> str | None:
        """The tag; None if it has none."""
        return self._ext.tags

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys by which the message can be queried."""
        return tuple(split_keys(self._ext.keys))

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, including those of RocketMQ."""
        return MappingProxyType(self._ext.properties)

    @property
    def user_properties(self) -> dict[str, str]:
        """The properties that the sending program set."""
        return {k: v for k, v in self._ext.properties.items() if k not in names.SYSTEM_PROPERTIES}

    @property
    def queue(self) -> MessageQueue:
        """The queue that it was pulled from."""
        return self._queue

    @property
    def queue_id(self) -> int:
        """Number of the queue on its broker, from 0."""
        return self._queue.queue_id

    @property
    def queue_offset(self) -> int:
        """Offset in the queue, in messages."""
        return self._ext.queue_offset

    @property
    def physical_offset(self) -> int:
        """Offset in the broker's commit log, in bytes."""
        return self._ext.physical_offset

    @property
    def born_timestamp_ms(self) -> int:
        """Time of sending, in milliseconds since 1970, by the producer's clock."""
        return self._ext.born_timestamp_ms

    @property
    def store_timestamp_ms(self) -> int:
        """Time of storing, in milliseconds since 1970, by the broker's clock."""
        return self._ext.store_timestamp_ms

    @property
    def born_host(self) -> str:
        """Address of the producer, `ip:port`, as seen by the broker."""
        return host_text(self._ext.born_host)

    @property
    def store_host(self) -> str:
        """Address of the broker, `ip:port`."""
        return host_text(self._ext.store_host)

    @property
    def reconsume_times(self) -> int:
        """Number of times that consumers sent it back: 0 for the first delivery."""
        return self._ext.reconsume_times

    @property
    def delivery_attempt(self) -> int:
        """Number of this delivery: 1 for the first one."""
        return self.reconsume_times + 1

    @property
    def receipt(self) -> str | None:
        """The string by which the broker knows this delivery; None unless it was popped."""
        return None

    @property
    def first_pop_time_ms(self) -> int | None:
        """Time of its first pop, in milliseconds since 1970; None unless it was popped."""
        return None

    @property
    def invisible_until_ms(self) -> int | None:
        """Until when the broker gives it to no one else, in milliseconds since 1970, by the
        broker's clock; None unless it was popped."""
        return None

    @property
    def sharding_key(self) -> str | None:
        """The key by which the producer chose the queue; None if it has none."""
        return self._ext.find(b"__SHARDINGKEY")

    @property
    def delay_level(self) -> int:
        """The delay level that it was sent with; 0 if it has none."""
        return int(self._ext.find(b"DELAY") or 0)

    @property
    def transaction_id(self) -> str | None:
        """The id of its transaction; for other messages the producer's message id, or None."""
        return self._ext.find(b"__transactionId__") or self._ext.unique_key

    @property
    def flag(self) -> int:
        """The int32 that the sending program set."""
        return self._ext.flag

    @property
    def sys_flag(self) -> int:
        """RocketMQ's flag bits: compression, transaction state, kinds of addresses."""
        return self._ext.sys_flag

    @property
    def store_size(self) -> int:
        """Size of its record in the commit log, in bytes."""
        return self._ext.store_size


def with_content(
    message: ReceivedMessage, *, body: bytes, properties: Mapping[str, str], sys_flag: int
) -> ReceivedMessage:
    """The same message with another content, as for those who may not see all of it.

    Args:
      body: with its CRC instead of the old one's, from which a few missing characters could be
        found.
      properties: all of them.
      sys_flag: with COMPRESSED if the body is compressed.

    Raises: IllegalPropertyError: a name or value would read back as something else.
    """
    ext = dataclasses.replace(
        message._ext,
        body=body,
        properties_bytes=names.properties_to_bytes(properties),
        sys_flag=sys_flag,
        body_crc=crc32(body) & 0x7FFFFFFF,
    )
    return ReceivedMessage(ext, message.queue, message.topic)


def for_log(message: ReceivedMessage) -> str:
    """A message as a log line names it: with its id."""
    return f"{message!r} with id {message.message_id}"


def keys_text(keys: str | Sequence[str]) -> str:
    """The KEYS property: the keys, separated by spaces."""
    return keys if isinstance(keys, str) else names.KEY_SEPARATOR.join(keys)


def is_bare(message: Message) -> bool:
    """Whether it has only topic, body and flag, so that its encoded properties can be prepared."""
    return not (
        message.properties
        or message.keys
        or message.tags
        or message.delay_level
        or message.sharding_key is not None
        or message.delay_s is not None
        or message.deliver_at_ms is not None
        or not message.wait_store_ok
    )


def is_delayed(message: Message) -> bool:
    """Whether it becomes visible later than it is stored, by a level or by time."""
    return bool(
        message.delay_level or message.delay_s is not None or message.deliver_at_ms is not None
    )


def wire_properties(message: Message, more: Mapping[str, str]) -> dict[str, str]:
    """All properties of a message, as they are sent.

    Args:
      message: the message.
      more: further properties of RocketMQ, such as the unique key; they come last.

    Raises: MessageRefusedError: a user property has a reserved name or an empty value.
    """
    properties: dict[str, str] = {}
    if message.properties:
        for name, value in message.properties.items():
            if name in names.SYSTEM_PROPERTIES:
                raise MessageRefusedError(
                    f"the property {name!r} is reserved for RocketMQ: use another name"
                )
            if not value:
                raise MessageRefusedError(f"the property {name!r} is empty: leave it out")
            properties[name] = value
    if message.keys:
        properties[names.PROPERTY_KEYS] = keys_text(message.keys)
    if message.tags:
        properties[names.PROPERTY_TAGS] = message.tags
    if message.sharding_key is not None:
        properties[names.PROPERTY_SHARDING_KEY] = message.sharding_key
    if message.delay_level:
        properties[names.PROPERTY_DELAY_TIME_LEVEL] = str(message.delay_level)
    if message.delay_s is not None:
        properties[names.PROPERTY_TIMER_DELAY_MS] = str(round(message.delay_s * 1000))
    if message.deliver_at_ms is not None:
        properties[names.PROPERTY_TIMER_DELIVER_MS] = str(message.deliver_at_ms)
    properties[names.PROPERTY_WAIT_STORE_MSG_OK] = "true" if message.wait_store_ok else "false"
    properties.update(more)
    return properties
