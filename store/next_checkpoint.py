"""Computation of the next checkpoint from the previous one. Pure.

Java counterpart: store/StoreCheckpoint.java, whose times DefaultMessageStore sets, of 5.3.3.
"""

from __future__ import annotations

from dataclasses import replace

from .index.index_service import IndexState
from .recovery.checkpoint import Checkpoint


def next_checkpoint(
    before: Checkpoint, dispatched_offset: int, timestamp_ms: int, index: IndexState | None
) -> Checkpoint:
    """The checkpoint when log and queues are on the device up to an offset.

    Args:
      before: the previous checkpoint.
      dispatched_offset: that offset, bytes.
      timestamp_ms: no record before that offset has a later store timestamp.
      index: the result of `IndexService.state`; None: as in the previous checkpoint.
    """
    checkpoint = replace(
        before, physic_msg_timestamp_ms=timestamp_ms, dispatched_offset=dispatched_offset
    )
    redo_from_ms = timestamp_ms
    if index is not None:
        checkpoint.index = index.progress
        checkpoint.index_msg_timestamp_ms = max(
            checkpoint.index_msg_timestamp_ms, index.finished_timestamp_ms
        )
        # After a kill Apache's broker deletes the index file that was being filled: it must read
        # the log from far enough back to index all of that again.
        redo_from_ms = index.unfinished_since_ms(dispatched_offset, timestamp_ms)
    # 5.5.0 begins with the last log file whose first message was not stored after the logics
    # time (older ones: 3 s before it). A file may begin later in the very millisecond of the first
    # record to index again, but not in the millisecond before: hence - 1.
    checkpoint.logics_msg_timestamp_ms = max(0, min(timestamp_ms, redo_from_ms) - 1)
    return checkpoint
