"""Acks: acknowledgements of popped messages, in memory or as records of the turn.

Java counterpart: AckMessageProcessor.appendAck, PopBufferMergeService.addAk and
ChangeInvisibleTimeProcessor.appendCheckPointThenAckOrigin of 5.5.0.
"""

from __future__ import annotations

from functools import partial

from ...common.java_integers import INT64_MAX
from ...remoting.receipt import Receipt
from ...store.status import PutRefusal
from .buffer import Buffered, OrderKey, PopBuffer, text_of_receipt
from .check_point import CheckPoint, CheckPointKey
from .record_puts import RecordPuts, WrittenTurn
from .records import Ack
from .revive_service import ReviveService


class Acks:
    """Takes acknowledgements.

    Args:
      buffer: has the check points in memory.
      puts: appends records.
      revive: knows the queues of the revive topic.
    """

    def __init__(
        self, buffer: PopBuffer, puts: RecordPuts, turn: WrittenTurn, revive: ReviveService
    ) -> None:
        self._revive = revive
        self._buffer = buffer
        self._puts = puts
        self._turn = turn

    def find(self, queue: OrderKey, receipt: Receipt) -> Buffered | None:
        """The check point in memory; None if it is stored, or there is none."""
        return self._buffer.entry_of(text_of_receipt(queue, receipt))

    def refusal(self, receipt: Receipt) -> str:
        """Why a receipt is not from this broker; "" if it may be."""
        queue_ids = self._revive.queue_ids
        if receipt.revive_queue_id not in queue_ids:
            return (
                f"the receipt names queue {receipt.revive_queue_id} of the revive topic, which has "
                f"{len(queue_ids)}"
            )
        numbers = (receipt.start_offset, receipt.pop_time, receipt.invisible_time)
        if min(numbers) < 0 or receipt.revive_time > INT64_MAX:
            return f"the receipt has numbers that are negative or too large: {numbers}"
        return ""

    def ack_in_memory(self, entry: Buffered, offsets: tuple[int, ...]) -> None:
        """Mark messages of a check point in memory; other offsets are ignored."""
        bits = 0
        for offset in offsets:
            index = entry.check_point.index_of(offset)
            if index >= 0:
                bits |= 1 << index
        self._buffer.ack(entry, bits)

    def ack_in_store(
        self, queue: OrderKey, receipt: Receipt, offsets: tuple[int, ...]
    ) -> PutRefusal | None:
        """Append the record of an acknowledgement; return why it is not stored, None: it is.

        Args:
          offsets: of the messages, 1 to 32.
        """
        key = _key(queue, receipt)
        refusal = self._put_ack(key, receipt, offsets)
        if refusal is None:
            self._buffer.acked_elsewhere(key, len(offsets))
        return refusal

    def renew(self, check_point: CheckPoint, receipt: Receipt) -> PutRefusal | None:
        """Append a new check point for one message, and acknowledge it of its old one.

        The old one is marked when the turn is written. Nothing is done for a message that is
        acknowledged already: this request came twice, or too late.

        Args:
          check_point: the new one.
          receipt: of the old one.
        Returns: why it is not stored; None: it is.
        """
        offset = check_point.start_offset
        queue = OrderKey(check_point.topic, check_point.group, check_point.queue_id)
        entry = self.find(queue, receipt)
        index = -1 if entry is None else entry.check_point.index_of(offset)
        if entry is not None and index >= 0 and entry.check_point.acked >> index & 1:
            return None
        refusal = self._puts.put_check_point(check_point, receipt.revive_queue_id)
        if refusal is not None:
            return refusal
        # The old check point is in the log, so its acknowledgement must be, too.
        if entry is None:
            return self._put_ack(_key(queue, receipt), receipt, (offset,))
        if index >= 0:
            self._turn.when_written(partial(self._renewed, entry, 1 << index))
        return None

    def _renewed(self, entry: Buffered, bit: int, is_stored: bool) -> None:
        if is_stored:
            self._buffer.ack(entry, bit, self._puts.log_end, is_renewed=True)

    def _put_ack(
        self, key: CheckPointKey, receipt: Receipt, offsets: tuple[int, ...]
    ) -> PutRefusal | None:
        return self._puts.put_ack(Ack(key, offsets), receipt.revive_time, receipt.revive_queue_id)


def _key(queue: OrderKey, receipt: Receipt) -> CheckPointKey:
    return CheckPointKey(*queue, receipt.start_offset, receipt.pop_time, receipt.broker_name)
