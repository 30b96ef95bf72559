"""Messages that a program sends and receives, and the results of sends: frozen values.

Java counterparts: Message, SendResult, MessageExt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final

import msgspec

from ..common import message_properties as names
from ..remoting.bodies import MessageQueue
from ..remoting.hosts import host_text
from ..remoting.message import MessageExt
from .errors import MessageRefusedError

__all__ = [
    "Message",
    "MessageQueue",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
]

NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})

SYSTEM_PROPERTIES: Final = frozenset(
    value
    for name, value in vars(names).items()
    if name.startswith("PROPERTY_") and isinstance(value, str)
)
"""Names that a program's own properties may not have: RocketMQ gives them a meaning.

Source: RocketMQ 5.3.3 MessageConst.STRING_HASH_SET, Message.putUserProperty.
"""


class _TopicAndBody(msgspec.Struct, frozen=True):
    topic: str
    body: Any


class Message(_TopicAndBody, frozen=True, kw_only=True):
    """A message to be sent.

    Attributes:
      topic: where to.
      body: bytes; a `str` is sent as UTF-8, anything else needs the producer's `serializer`.
      tags: the message's tag, for filters; None: none.
      keys: what it can be found by later, without blanks in each.
      properties: the program's own names and values, for filters and for itself.
      delay_level: 1 to 18 (1 s to 2 h by default): when it becomes visible; 0: at once.
      delay_s: seconds until it becomes visible (5.x brokers); None: at once.
      deliver_at_ms: ms since 1970 when it becomes visible (5.x brokers); None: at once.
      sharding_key: messages of one key go to one queue, and so stay in order.
      flag: the program's own int32.
      wait_store_ok: under SYNC_FLUSH, confirm only after the fsync.
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


class SendStatus(IntEnum):
    """How safe a stored message is; the numbers are those of the broker's answers."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(msgspec.Struct, frozen=True):
    """A confirmed send.

    Attributes:
      status: SEND_OK, or stored but not yet as safe as the broker is configured to make it.
      message_id: the id that the client gave it; a batch: all, joined by commas.
      queue: where it is.
      queue_offset: its place there, in messages; a batch: of the first. -1: the broker did not say.
      offset_message_id: the id that the broker gave it.
      transaction_id: of a transaction's message, else as `message_id` or None.
      recall_handle: takes a delayed message back (5.x brokers), else None.
      region_id: the broker's region, or None.
    """

    status: SendStatus
    message_id: str
    queue: MessageQueue
    queue_offset: int
    offset_message_id: str
    transaction_id: str | None = None
    recall_handle: str | None = None
    region_id: str | None = None


class ReceivedMessage:
    """A message as a broker delivered it. Its attributes cannot be set.

    Args:
      ext: decoded, its body inflated.
      queue: where it was pulled from.
      topic: its topic without namespace; of a retry the one it was first sent to.
    """

    __slots__ = ("_ext", "_queue", "_topic")

    def __init__(self, ext: MessageExt, queue: MessageQueue, topic: str) -> None:
        self._ext = ext
        self._queue = queue
        self._topic = topic

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.message_id} {self._topic} "
            f"{self._queue.broker_name}/{self._queue.queue_id}@{self._ext.queue_offset} "
            f"{len(self._ext.body)} bytes>"
        )

    @property
    def topic(self) -> str:
        """The topic that it was sent to; of a retry the first one."""
        return self._topic

    @property
    def body(self) -> bytes:
        """The body, inflated."""
        return self._ext.body

    @property
    def text(self) -> str:
        """The body as UTF-8.

        Raises: UnicodeDecodeError: it is none.
        """
        return self._ext.body.decode()

    @property
    def message_id(self) -> str:
        """The id that its producer gave it, the same in every retry; else the broker's."""
        return self._ext.unique_key or self._ext.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id that the broker gave this copy of it."""
        return self._ext.offset_message_id

    @property
    def tags(self) -> str | None:
        """Its tag."""
        return self._ext.tags

    @property
    def keys(self) -> tuple[str, ...]:
        """What it can be found by."""
        return tuple((self._ext.keys or "").split())

    @property
    def properties(self) -> Mapping[str, str]:
        """All its properties, RocketMQ's among them."""
        return MappingProxyType(self._ext.properties)

    @property
    def user_properties(self) -> dict[str, str]:
        """The properties that its producer's program gave it."""
        return {k: v for k, v in self._ext.properties.items() if k not in SYSTEM_PROPERTIES}

    @property
    def queue(self) -> MessageQueue:
        """The queue that it was pulled from."""
        return self._queue

    @property
    def queue_id(self) -> int:
        """Number of that queue within its topic and broker."""
        return self._queue.queue_id

    @property
    def queue_offset(self) -> int:
        """Its place in the queue, in messages."""
        return self._ext.queue_offset

    @property
    def physical_offset(self) -> int:
        """Its place in the broker's commit log, in bytes."""
        return self._ext.physical_offset

    @property
    def born_timestamp_ms(self) -> int:
        """When its producer made it, ms since 1970 by the producer's clock."""
        return self._ext.born_timestamp_ms

    @property
    def store_timestamp_ms(self) -> int:
        """When the broker stored it, ms since 1970 by the broker's clock."""
        return self._ext.store_timestamp_ms

    @property
    def born_host(self) -> str:
        """`ip:port` of its producer, as the broker saw it."""
        return host_text(self._ext.born_host)

    @property
    def store_host(self) -> str:
        """`ip:port` of the broker."""
        return host_text(self._ext.store_host)

    @property
    def reconsume_times(self) -> int:
        """How often it came back from consumers: 0 the first time."""
        return self._ext.reconsume_times

    @property
    def sharding_key(self) -> str | None:
        """What its producer chose the queue by."""
        return self._ext.find(b"__SHARDINGKEY")

    @property
    def delay_level(self) -> int:
        """The delay level that it was sent with; 0: none."""
        return int(self._ext.find(b"DELAY") or 0)

    @property
    def transaction_id(self) -> str | None:
        """Id of the transaction that it belongs to."""
        return self._ext.find(b"__transactionId__") or self._ext.unique_key

    @property
    def flag(self) -> int:
        """Its producer's own int32."""
        return self._ext.flag

    @property
    def sys_flag(self) -> int:
        """RocketMQ's bits: compression, transaction, address kinds."""
        return self._ext.sys_flag

    @property
    def store_size(self) -> int:
        """Bytes of its record in the store."""
        return self._ext.store_size


def keys_text(keys: str | Sequence[str]) -> str:
    """The KEYS property: the keys with blanks between them."""
    return keys if isinstance(keys, str) else names.KEY_SEPARATOR.join(keys)


def is_bare(message: Message) -> bool:
    """Whether it has topic, body and flag only, so that its properties are those of any other."""
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


def wire_properties(message: Message, more: Mapping[str, str]) -> dict[str, str]:
    """The properties of a message as they travel.

    Args:
      more: RocketMQ's own, such as the unique key; they stand last.

    Raises: MessageRefusedError: a name is RocketMQ's, or a value is empty.
    """
    properties: dict[str, str] = {}
    if message.properties:
        for name, value in message.properties.items():
            if name in SYSTEM_PROPERTIES:
                raise MessageRefusedError(
                    f"the property {name!r} has a meaning for RocketMQ itself; use another name"
                )
            if not value:
                raise MessageRefusedError(f"the property {name!r} is empty; leave it out instead")
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
