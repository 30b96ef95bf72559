"""The state of a consume queue that the store shares with the C extension.

C's `QueueState` has the same attributes and the same constructor, and is used where the extension
is: so C appends a unit without a look-up by name, and nothing that Python renames is missing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import extension

__all__ = ["PureQueueState", "QueueState"]


class PureQueueState:
    """The part of a consume queue that a put and a get of new messages need.

    Args:
      topic_field: the record's length-prefixed topic bytes.
      topic_hash: uint32.
      magic: of the queue's records; 0: a put must not append its unit to `tail` itself.
      unit_size: bytes of a unit.

    Attributes:
      tail: the units in memory.
      min_offset, tail_offset, max_offset, committed_offset, next_offset: see
        store/queues/consume_queue.py.
      cold_end: units before this queue offset are from before the start; their records are
        verified before they are served.
    """

    __slots__ = (
        "cold_end",
        "committed_offset",
        "magic",
        "max_offset",
        "min_offset",
        "next_offset",
        "tail",
        "tail_offset",
        "topic_field",
        "topic_hash",
        "unit_size",
    )

    def __init__(self, topic_field: bytes, topic_hash: int, magic: int, unit_size: int, /) -> None:
        self.topic_field = topic_field
        self.topic_hash = topic_hash
        self.magic = magic
        self.unit_size = unit_size
        self.tail = bytearray()
        self.min_offset = 0
        self.tail_offset = 0
        self.max_offset = 0
        self.committed_offset = 0
        self.next_offset = 0
        self.cold_end = 0

    def append_units(self, units: bytes, count: int, /) -> bool:
        """Append units of messages, not visible yet.

        Args:
          count: queue offsets that they take.

        Returns: whether these are the first since the last commit.
        """
        offset = self.next_offset
        self.tail += units
        self.next_offset = offset + count
        return offset == self.committed_offset


if TYPE_CHECKING or extension is None:
    QueueState = PureQueueState
else:
    QueueState = extension.QueueState
