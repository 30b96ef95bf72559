"""Popped: what one pop has collected from its queues, and the fields of its answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from ...common.message_properties import (
    PROPERTY_POP_CK,
    change_properties,
    find_property,
)
from ...remoting.message_codec import PROPERTIES_SIZE_MAX, decode_record, encode_message
from ...remoting.receipt import OrderCounts, Receipt, TopicForm
from .check_point import CheckPoint

_POP_CK: Final = PROPERTY_POP_CK.encode()
_SIZE_AND_OFFSET: Final = Struct(">i16xq")
"""The size of a record, and its queue offset. Source: `remoting/record_schema.py`."""


class Popped:
    """Collects the messages of one pop.

    Attributes:
      buffers: the records, for the answer.
      size: bytes in `buffers`.
      count: messages in `buffers`.
      rest: messages that remain in the queues, about.
      has_skipped: a queue had messages that are not wanted, and the next pop begins after them.
      starts, offsets: entries of startOffsetInfo and msgOffsetInfo.
      is_stored: a check point was appended to the turn, so the answer leaves when that is written.
      order_counts: of the queues of a pop in order.
      trouble: why a queue could not be popped; "": all could.
    """

    __slots__ = (
        "buffers",
        "count",
        "has_skipped",
        "is_stored",
        "offsets",
        "order_counts",
        "rest",
        "size",
        "starts",
        "trouble",
    )

    def __init__(self) -> None:
        self.buffers: list[bytes | memoryview] = []
        self.size = 0
        self.count = 0
        self.rest = 0
        self.starts: list[str] = []
        self.offsets: list[str] = []
        self.has_skipped = self.is_stored = False
        self.order_counts: list[OrderCounts] = []
        self.trouble = ""

    def add(
        self, check_point: CheckPoint, form: str, buffers: Sequence[bytes | memoryview], size: int
    ) -> None:
        """Add the messages of one queue.

        Args:
          form: a `TopicForm` value.
          buffers: their records, of `size` bytes.
        """
        start, diffs = check_point.start_offset, check_point.diffs
        queue = f"{form} {check_point.queue_id} "
        self.buffers += buffers
        self.size += size
        self.count += len(diffs)
        self.starts.append(f"{queue}{start}")
        offsets = (
            range(start, start + len(diffs)) if type(diffs) is range else check_point.offsets()
        )
        self.offsets.append(queue + ",".join(map(str, offsets)))


def diffs_of(
    buffers: Iterable[bytes | memoryview], start: int, count: int, next_offset: int, *, plain: bool
) -> Sequence[int]:
    """The queue offsets of records, counted from `start`.

    Args:
      buffers: whole records.
      count: messages in them.
      next_offset: after the units that were read.
      plain: each record has one message.
    """
    if plain and next_offset - start == count:
        # No message was filtered out, so none has to be decoded.
        return range(count)
    diffs: list[int] = []
    for buffer in buffers:
        at, end = 0, len(buffer)
        while at < end:
            size, offset = _SIZE_AND_OFFSET.unpack_from(buffer, at)
            diffs.append(offset - start)
            at += size
    return tuple(diffs)


def as_of_topic(
    buffers: Iterable[bytes | memoryview],
    topic: str,
    check_point: CheckPoint,
    revive_queue_id: int,
) -> list[bytes | memoryview]:
    """Records of a retry topic as those of the topic that was asked for, with their receipts.

    Args:
      buffers: whole records.
      topic: the topic that was asked for.
      check_point, revive_queue_id: of the pop.
    A record whose properties have no room for a receipt stays without, and the client builds it.

    Source: PopMessageProcessor.popMsgFromQueue.
    """
    ck = check_point
    form = TopicForm.of(ck.topic)
    changed: list[bytes | memoryview] = []
    for buffer in buffers:
        at, end = 0, len(buffer)
        while at < end:
            message = decode_record(buffer, at, check_crc=False)
            at += message.store_size
            properties = message.properties_bytes
            size = message.store_size - len(message.topic.encode()) + len(topic.encode())
            if find_property(properties, _POP_CK) is None:
                receipt = Receipt(
                    ck.start_offset, ck.pop_time, ck.invisible_time, revive_queue_id, form,
                    ck.broker_name or "", message.queue_id, message.queue_offset,
                ).to_text()  # fmt: skip
                properties = change_properties(properties, {PROPERTY_POP_CK: receipt})
                if len(properties) <= PROPERTIES_SIZE_MAX:
                    size += len(properties) - len(message.properties_bytes)
                    message.properties_bytes = properties
            message.topic = topic
            message.store_size = size
            changed.append(encode_message(message))
    return changed
