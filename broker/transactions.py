"""Transaction messages: which are open, and what becomes of them.

A half message waits in RMQ_SYS_TRANS_HALF_TOPIC until its producer says commit or rollback (37), or
answers a check (39). An op message in RMQ_SYS_TRANS_OP_HALF_TOPIC names the half messages that are
through, by queue offset. The files alone say what is open, so a restart takes up where it was:

::

    half queue   0  1  2  3  4  5        offset of CID_RMQ_SYS_TRANS: 2, nothing before it is open
    op queue     "0,1,"  "3,"            2, 4, 5 are open

Before a check the half message is written again with its count one higher, and the old one is
through; a producer that answers late still means the new one.

Pure: `transaction_service.py` has the clock, the store and the producers.

Java counterpart: broker/transaction/queue/TransactionalMessageServiceImpl.java,
TransactionalMessageBridge.java and TransactionalMessageUtil.java of 5.3.3, which read the op queue
again at each round.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
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

OPEN_COUNT_MAX: Final = 1_000_000
"""Open transactions, some 200 MB of them at the very worst; RocketMQ has no bound. Beyond it half
messages are refused as by a busy broker."""


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
        half.born_timestamp_ms,
        half.born_host,
        half.store_timestamp_ms,
        half.store_host,
        half.flag,
        half.sys_flag,
        half.reconsume_times,
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


@dataclass(slots=True)
class OpenTransaction:
    """One half message that waits.

    Attributes:
      due_ms: when its producer is to be asked.
      op_mark: end of the op queue when it was stored: nothing before that speaks of it.
      before: offsets of the copies before it, oldest first.
    """

    due_ms: int
    op_mark: int
    before: tuple[int, ...] = ()


class OpenTransactions:
    """The half messages that wait for their end, by queue offset.

    Args:
      count_max: see OPEN_COUNT_MAX.
    """

    def __init__(self, count_max: int = OPEN_COUNT_MAX) -> None:
        self._count_max = count_max
        self._open: OrderedDict[int, OpenTransaction] = OrderedDict()
        self._newer: dict[int, int] = {}
        # Most are due in the order in which they came; the heap is for the others.
        self._in_order: deque[tuple[int, int]] = deque()
        self._others: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_full(self) -> bool:
        """Whether no more can be open."""
        return len(self._open) >= self._count_max

    def open(self, offset: int, due_ms: int, op_mark: int, before: tuple[int, ...] = ()) -> None:
        """Take note of a half message.

        Args:
          offset: in the half queue, higher than all before it.
          others: see `OpenTransaction`.
        """
        self._open[offset] = OpenTransaction(due_ms, op_mark, before)
        for each in before:
            self._newer[each] = offset
        self._plan(due_ms, offset)

    def _plan(self, due_ms: int, offset: int) -> None:
        in_order = self._in_order
        while in_order and in_order[0][1] not in self._open:
            in_order.popleft()
        if not in_order or due_ms >= in_order[-1][0]:
            in_order.append((due_ms, offset))
        else:
            heappush(self._others, (due_ms, offset))

    def current(self, offset: int) -> int | None:
        """The newest copy of a half message; None: it is through."""
        offset = self._newer.get(offset, offset)
        return offset if offset in self._open else None

    def end(self, offset: int) -> None:
        """A half message is through."""
        ended = self._open.pop(offset, None)
        if ended is not None:
            for each in ended.before:
                self._newer.pop(each, None)

    def renew(self, old: int, new: int, due_ms: int, op_mark: int) -> None:
        """A half message was written again, at offset `new`."""
        before = self._open[old].before
        self.end(old)
        self.open(new, due_ms, op_mark, (*before, old))

    def put_off(self, offset: int, due_ms: int) -> None:
        """Ask for a half message later."""
        self._open[offset].due_ms = due_ms
        self._plan(due_ms, offset)

    def next_due_ms(self) -> int | None:
        """When the next one is to be asked for; None: none is open."""
        first = self._first()
        return None if first is None else first[0][0]

    def take_due(self, now_ms: int) -> int | None:
        """One that is due now; it is planned again by `renew`, `put_off`, or `end` ends it."""
        first = self._first()
        if first is None or first[0][0] > now_ms:
            return None
        (_, offset), queue = first
        if queue is self._in_order:
            self._in_order.popleft()
        else:
            heappop(self._others)
        return offset

    def _first(
        self,
    ) -> tuple[tuple[int, int], deque[tuple[int, int]] | list[tuple[int, int]]] | None:
        found = None
        for queue in (self._in_order, self._others):
            while queue and not self._is_planned(*queue[0]):
                if queue is self._in_order:
                    self._in_order.popleft()
                else:
                    heappop(self._others)
            if queue and (found is None or queue[0] < found[0]):
                found = (queue[0], queue)
        return found

    def _is_planned(self, due_ms: int, offset: int) -> bool:
        known = self._open.get(offset)
        return known is not None and known.due_ms == due_ms

    def through(self, half_end: int, op_end: int) -> tuple[int, int]:
        """The offsets in both queues before which nothing is of interest any more.

        Args:
          half_end, op_end: the queues' ends.
        """
        if not self._open:
            return half_end, op_end
        lowest = next(iter(self._open))
        return lowest, min(self._open[lowest].op_mark, op_end)
