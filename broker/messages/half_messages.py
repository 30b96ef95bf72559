"""Transaction messages: the half messages and op messages that the broker stores.

A half message waits in RMQ_SYS_TRANS_HALF_TOPIC until its producer commits or rolls back (37), of
itself or after a check (39). An op message in RMQ_SYS_TRANS_OP_HALF_TOPIC lists half messages that
have ended, by queue offset. A restart finds the open transactions from these two queues:

::

    half queue   0  1  2  3  4  5        offset of CID_RMQ_SYS_TRANS: 2, nothing before it is open
    op queue     "0,1,"  "3,"            2, 4, 5 are open

Before a check the half message is written again with a higher count, which ends the old copy; a
late answer that names the old copy applies to the new one.

Pure: `open_transactions.py` has the table of open ones, `transaction_service.py` the clock, the
store and the producers.

Java counterpart: broker/transaction/queue/TransactionalMessageServiceImpl.java,
TransactionalMessageBridge.java and TransactionalMessageUtil.java of 5.3.3, which read the op queue
again at each round.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias

from ...common.java_hash import tags_code
from ...common.message_properties import (
    MSG_REGION_HEAD,
    PRODUCER_GROUP_NAME,
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_WAIT_STORE_MSG_OK,
    REAL_TOPIC_NAME,
    TAGS_NAME,
    TRANSACTION_PREPARED_NAME,
    UNIQUE_KEY_HEAD,
    UNIQUE_KEY_NAME,
    WAIT_OFF,
    find_property,
)
from ...common.topic_names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from ...remoting.message import MessageExt
from ...remoting.message_codec import encode_record
from ...remoting.sys_flag import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    reset_transaction_value,
)
from .admission import STRIPPED_NAMES, real_place
from .inner_message import InnerMessage
from .message_priority import PRIORITY_HEAD

REMOVE_TAG: Final = "d"
"""Tag of op messages. Source: TransactionalMessageUtil.REMOVE_TAG."""

OP_PROPERTIES: Final = b"TAGS\1d\2WAIT\1false\2"
OP_TAGS_CODE: Final = tags_code(REMOVE_TAG)


def half_message(message: InnerMessage) -> InnerMessage:
    """The half message of a message in a transaction. Source: parseHalfMessageInner."""
    changed = {PROPERTY_REAL_TOPIC: message.topic, PROPERTY_REAL_QUEUE_ID: str(message.queue_id)}
    unique_key = find_property(message.properties, UNIQUE_KEY_NAME)
    if unique_key is not None:
        changed = {PROPERTY_TRANSACTION_ID: str(unique_key, "utf-8", "replace"), **changed}
    message.change_properties(changed)
    message.topic, message.queue_id = TRANS_HALF_TOPIC, 0
    message.sys_flag = reset_transaction_value(message.sys_flag, TRANSACTION_NOT_TYPE)
    return message


_UNUSUAL_TOKENS: Final = (
    *(name.encode() + b"\1" for name in STRIPPED_NAMES),
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS.encode() + b"\1",
    PROPERTY_TRANSACTION_ID.encode() + b"\1",
    PROPERTY_DELAY_TIME_LEVEL.encode() + b"\1",
    PRIORITY_HEAD,
    b"TIMER_DEL",
    # With these the record may get a checksum.
    b"#",
    b"\0",
)
"""No usual half message has these in its properties."""

UNIQUE_KEY_SIZE_MAX: Final = 255
"""Bytes of the unique key of a usual half message; all clients' have 32 to 56."""

TRAITS_CACHED_MAX: Final = 1024
TRAITS_CACHED_SIZE_MAX: Final = 1024
"""Properties of half messages, and bytes of each, whose traits are cached; up to 1.5 MB. The half
messages of a producer often differ in nothing but their unique key."""


HalfTraits: TypeAlias = tuple[str, int, bool]
"""Group, tags code, and whether the answer waits for disk and slaves, of a usual half message. A
plain tuple: each transaction takes it apart."""


def usual_half(properties: bytes) -> tuple[bytes, HalfTraits] | None:
    """Examine the properties of a message in a transaction.

    A usual one is stored as it came, its half message has the same properties and three at their
    end, and its final message is not delayed. Nearly all are usual.

    Args:
      properties: encoded, with those that the broker adds, and a separator at their end.
    Returns: its unique key and its traits; None: it is not usual.
    """
    at = properties.find(UNIQUE_KEY_HEAD)
    if at < 0:
        return None
    value_at = at + len(UNIQUE_KEY_HEAD)
    end = properties.find(b"\2", value_at)
    unique_key = properties[value_at:end]
    if not is_usual_key(unique_key):
        return None
    # Without the key all messages of a producer have the same properties: one look-up in a cache.
    traits = half_traits(properties[:value_at] + properties[end:])
    return None if traits is None else (unique_key, traits)


def is_usual_key(unique_key: bytes) -> bool:
    """Whether a unique key is that of a usual half message."""
    return len(unique_key) <= UNIQUE_KEY_SIZE_MAX and unique_key.isalnum()


def half_traits(properties: bytes) -> HalfTraits | None:
    """The traits of a half message; None: it is not usual.

    Args:
      properties: as of `usual_half`, but without the value of the first UNIQ_KEY.
    """
    if len(properties) > TRAITS_CACHED_SIZE_MAX:
        return _traits.__wrapped__(properties)
    return _traits(properties)


@lru_cache(maxsize=TRAITS_CACHED_MAX)
def _traits(properties: bytes) -> HalfTraits | None:
    if any(token in properties for token in _UNUSUAL_TOKENS):
        return None
    for token in (UNIQUE_KEY_HEAD, b"TRAN_MSG\1", MSG_REGION_HEAD):
        at = properties.find(token)
        # At the start of a property, and once: bytes within a value would be found, too.
        if at < 0 or (at and properties[at - 1] != 2) or properties.count(token) != 1:
            return None
    group = find_property(properties, PRODUCER_GROUP_NAME)
    if group is None or find_property(properties, TRANSACTION_PREPARED_NAME) != b"true":
        return None
    tags = find_property(properties, TAGS_NAME)
    code = 0 if tags is None else tags_code(str(tags, "utf-8", "replace"))
    return str(group, "utf-8", "replace"), code, WAIT_OFF not in properties


def final_message(half: MessageExt) -> InnerMessage:
    """The message of a committed half message.

    Raises: ValueError: the half message does not name its topic and queue.
    Source: EndTransactionProcessor.endMessageTransaction, as 5.5.0 writes it.
    """
    message = InnerMessage.of(half)
    message.topic, message.queue_id = real_place(half)
    message.change_properties({}, PROPERTY_REAL_TOPIC, PROPERTY_REAL_QUEUE_ID)
    message.sys_flag = reset_transaction_value(half.sys_flag, TRANSACTION_COMMIT_TYPE)
    message.prepared_transaction_offset = half.physical_offset
    return message


def renewed_half(half: MessageExt, check_times: int) -> InnerMessage:
    """The copy of a half message that is written before a check. Source: renewHalfMessageInner."""
    message = InnerMessage.of(half)
    message.topic, message.queue_id = TRANS_HALF_TOPIC, 0
    message.change_properties(
        {PROPERTY_TRANSACTION_CHECK_TIMES: str(check_times), PROPERTY_WAIT_STORE_MSG_OK: "false"}
    )
    return message


def question(half: MessageExt, physical_offset: int, queue_offset: int) -> bytes:
    """The body of a check: the message with the topic and queue it was sent to.

    Args:
      half: the copy before the one that was just written.
      physical_offset, queue_offset: of the new copy.
    """
    real_queue_id = half.properties.get(PROPERTY_REAL_QUEUE_ID, "")
    return encode_record(
        half.properties.get(PROPERTY_REAL_TOPIC, ""),
        int(real_queue_id) if real_queue_id.isdigit() and len(real_queue_id) < 10 else 0,
        queue_offset,
        physical_offset,
        half.body,
        # Producers read from the question how often they were asked.
        renewed_half(half, check_times(half) + 1).properties,
        born_timestamp_ms=half.born_timestamp_ms,
        born_host=half.born_host,
        store_timestamp_ms=half.store_timestamp_ms,
        store_host=half.store_host,
        flag=half.flag,
        sys_flag=half.sys_flag,
        reconsume_times=half.reconsume_times,
    )


def parked_half(half: MessageExt) -> InnerMessage:
    """The parked copy of a half message that is no longer checked, until it is resumed (323)."""
    message = InnerMessage.of(half)
    message.topic, message.queue_id = TRANS_CHECK_MAX_TIME_TOPIC, 0
    return message


def op_message(offsets: Iterable[int], store_host: bytes, now_ms: int) -> InnerMessage:
    """The op message for ended half messages; one body may name many, as in 5.5.0."""
    return InnerMessage(
        TRANS_OP_HALF_TOPIC, 0, op_body(offsets), OP_PROPERTIES, now_ms, store_host, store_host
    )


def op_body(offsets: Iterable[int]) -> bytes:
    """The body of an op message: the queue offsets of the half messages that have ended."""
    return "".join([f"{offset}," for offset in offsets]).encode("ascii")


def is_op_message(op: MessageExt) -> bool:
    """Whether a broker wrote a record of the op topic: its born host is then its store host.

    A client's message keeps the client's address, however it got into the topic.
    Source: TransactionalMessageBridge.makeOpMessageInner of 4.9.7 and 5.3.3.
    """
    return op.born_host == op.store_host and op.find(REAL_TOPIC_NAME) is None


def ended_offsets(op: MessageExt) -> list[int]:
    """The offsets of the half messages that an op message of any version ends."""
    if op.tags != REMOVE_TAG:
        return []
    words = op.body.decode("ascii", "replace").split(",")
    return [int(word) for word in words if word.isdigit() and len(word) < 19]


def check_times(half: MessageExt) -> int:
    """The number of checks so far."""
    text = half.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES, "")
    return int(text) if text.isdigit() and len(text) < 10 else 0


def immunity_ms(properties: bytes, timeout_ms: int) -> int:
    """The time from the storing of a half message during which it is not checked.

    Args:
      properties: encoded.
      timeout_ms: transactionTimeOut, the default if the message has no immunity time.
    """
    own = find_property(properties, PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS.encode("ascii"))
    if own is None or not own.isdigit() or len(own) > 9:
        return timeout_ms
    return int(own) * 1000
