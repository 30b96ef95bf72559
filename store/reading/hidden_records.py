"""Records of the log that consumers do not see yet, for the broker's own tables."""

from __future__ import annotations

from ..offsets import PhysicalOffset
from ..queues.consume_queue import ConsumeQueue
from .message_reader import MessageReader


def stored_record(
    reader: MessageReader, queue: ConsumeQueue, queue_offset: int, log_end: int
) -> memoryview | None:
    """The record of a queue's message, visible or not.

    Args:
      log_end: the end of the commit log, bytes.

    Returns: None: the message has none.

    Raises:
      StoreIOError: a file could not be read.
      CorruptRecordError: the message is damaged.
    """
    if not queue.min_offset <= queue_offset < queue.committed_offset:
        return None
    physical_offset, _, _ = reader.unit_at(queue, queue_offset, log_end)
    return reader.record_at(PhysicalOffset(physical_offset), log_end)
