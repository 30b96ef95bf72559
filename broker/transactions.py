"""Transaction messages: how they wait, and what becomes of them.

A half message waits in RMQ_SYS_TRANS_HALF_TOPIC until its producer says commit or rollback (37), or
answers a check (39). An op message in RMQ_SYS_TRANS_OP_HALF_TOPIC names the half messages that are
through, by queue offset. The files alone say what is open, so a restart takes up where it was:

::

    half queue   0  1  2  3  4  5        offset of CID_RMQ_SYS_TRANS: 2, nothing before it is open
    op queue     "0,1,"  "3,"            2, 4, 5 are open

Before a check the half message is written again with its count one higher, and the old one is
through; a producer that answers late still means the new one.

Pure: `open_transactions.py` has which are open, `transaction_service.py` the clock, the store and
the producers.

Java counterpart: broker/transaction/queue/TransactionalMessageServiceImpl.java,
TransactionalMessageBridge.java and TransactionalMessageUtil.java of 5.3.3, which read the op queue
again at each round.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..common.message_properties import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_ID,
    find_property,
)
from ..common.topic_names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from ..remoting.message import MessageExt
from ..remoting.message_codec import encode_record
from ..remoting.sys_flag import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    reset_transaction_value,
)
from .admission import real_place
from .inner_message import InnerMessage

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Whose offsets on both topics say how far the transactions are through."""

REMOVE_TAG: Final = "d"
"""Tag of op messages. Source: TransactionalMessageUtil.REMOVE_TAG."""


def half_message(message: InnerMessage) -> InnerMessage:
    """A message as it waits for its transaction's end. Source: parseHalfMessageInner."""
    changed = {"REAL_TOPIC": message.topic, "REAL_QID": str(message.queue_id)}
    unique_key = find_property(message.properties, b"UNIQ_KEY")
    if unique_key is not None:
        changed = {PROPERTY_TRANSACTION_ID: str(unique_key, "utf-8", "replace"), **changed}
    message.change_properties(changed)
    message.topic, message.queue_id = TRANS_HALF_TOPIC, 0
    message.sys_flag = reset_transaction_value(message.sys_flag, TRANSACTION_NOT_TYPE)
    return message


def final_message(half: MessageExt) -> InnerMessage:
    """What a committed half message becomes.

    Raises: ValueError: the half message does not say where it belongs.
    Source: EndTransactionProcessor.endMessageTransaction, as 5.5.0 writes it.
    """
    message = InnerMessage.of(half)
    message.topic, message.queue_id = real_place(half)
    message.change_properties({}, "REAL_TOPIC", "REAL_QID")
    message.sys_flag = reset_transaction_value(half.sys_flag, TRANSACTION_COMMIT_TYPE)
    message.prepared_transaction_offset = half.physical_offset
    return message


def renewed_half(half: MessageExt, check_times: int) -> InnerMessage:
    """A half message as it is written again before a check. Source: renewHalfMessageInner."""
    message = InnerMessage.of(half)
    message.topic, message.queue_id = TRANS_HALF_TOPIC, 0
    message.change_properties({PROPERTY_TRANSACTION_CHECK_TIMES: str(check_times), "WAIT": "false"})
    return message


def question(half: MessageExt, physical_offset: int, queue_offset: int) -> bytes:
    """The message as its producer is asked about it: with the topic and queue it was sent to.

    Args:
      half: the copy before the one that was just written.
      physical_offset, queue_offset: of that one.
    """
    real_queue_id = half.properties.get("REAL_QID", "")
    return encode_record(
        half.properties.get("REAL_TOPIC", ""),
        int(real_queue_id) if real_queue_id.isdigit() and len(real_queue_id) < 10 else 0,
        queue_offset,
        physical_offset,
        half.body,
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
    """A half message that is asked for no more; an administrator can resume it (323)."""
    message = InnerMessage.of(half)
    message.topic, message.queue_id = TRANS_CHECK_MAX_TIME_TOPIC, 0
    return message


def op_message(offsets: Iterable[int], store_host: bytes, now_ms: int) -> InnerMessage:
    """The op message for half messages that are through; one body may name many, as in 5.5.0."""
    body = "".join(f"{offset}," for offset in offsets).encode("ascii")
    return InnerMessage(
        TRANS_OP_HALF_TOPIC, 0, body, b"TAGS\1d\2WAIT\1false\2", now_ms, store_host, store_host
    )


def is_op_message(op: MessageExt) -> bool:
    """Whether a record of the op topic is a broker's own: it was born where it was stored.

    A message that a client made keeps the client's address, however it came into the topic.
    Source: TransactionalMessageBridge.makeOpMessageInner of 4.9.7 and 5.3.3.
    """
    return op.born_host == op.store_host and op.find(b"REAL_TOPIC") is None


def ended_offsets(op: MessageExt) -> list[int]:
    """The half messages that an op message says are through, of any version's."""
    if op.tags != REMOVE_TAG:
        return []
    words = op.body.decode("ascii", "replace").split(",")
    return [int(word) for word in words if word.isdigit() and len(word) < 19]


def check_times(half: MessageExt) -> int:
    """How often the producer was asked."""
    text = half.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES, "")
    return int(text) if text.isdigit() and len(text) < 10 else 0


def immunity_ms(properties: bytes, timeout_ms: int) -> int:
    """How long after it was stored a half message is not checked.

    Args:
      timeout_ms: transactionTimeOut, where the message says nothing of its own.
    """
    own = find_property(properties, PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS.encode("ascii"))
    if own is None or not own.isdigit() or len(own) > 9:
        return timeout_ms
    return int(own) * 1000
