"""Checks of the checkpoint page against the log and the clock.

Apache's five fields have no checksum, so a damaged page may hold any number. Two times decide where
recovery begins to read where the page is not ours, one which index files are believed, and all five
go into every later page. A field that cannot be right is put right here, with a warning.

Java counterpart: StoreCheckpoint.java of 5.3.3 takes over what it reads.
"""

from __future__ import annotations

import logging

from ..clock import LATEST_MS
from .checkpoint import Checkpoint

logger = logging.getLogger(__name__)

_TIMES = {
    "physicMsgTimestamp": "physic_msg_timestamp_ms",
    "logicsMsgTimestamp": "logics_msg_timestamp_ms",
    "indexMsgTimestamp": "index_msg_timestamp_ms",
}
_OFFSETS = {
    "masterFlushedOffset": "master_flushed_offset",
    "confirmPhyOffset": "confirm_physical_offset",
}
"""Attributes of `Checkpoint` by Apache's name of the field."""

NOT_KNOWN = -1
"""What Apache's broker writes for an offset that nobody has told it."""


def correct_checkpoint(checkpoint: Checkpoint, path: str, *, latest_ms: int, log_end: int) -> bool:
    """Put right, in place, the fields that cannot be true. A warning names each.

    Where a time is wrong 0 is used: recovery then reads the log from its beginning, and indexes
    again what only this time vouched for.

    Args:
      checkpoint: as it was read.
      path: of the page, for the warning.
      latest_ms: the later of the wall clock and the log's newest store timestamp.
      log_end: where the log's files end, bytes.

    Returns: whether something was put right; then the page is to be written again.
    """
    changes: list[tuple[str, str, int, str]] = []
    latest_ms = min(latest_ms, LATEST_MS)
    for field, name in _TIMES.items():
        if not 0 <= getattr(checkpoint, name) <= latest_ms:
            reason = f"neither a message of the log nor the clock is later than {latest_ms}"
            changes.append((field, name, 0, reason))
    for field, name in _OFFSETS.items():
        if not NOT_KNOWN <= getattr(checkpoint, name) <= log_end:
            changes.append((field, name, 0, f"the log's files end at {log_end}"))
    for field, name, used, reason in changes:
        logger.warning(
            "%s: its %s is %d, but %s: %d is used in its place, and the file is written again",
            path, field, getattr(checkpoint, name), reason, used,
        )  # fmt: skip
        setattr(checkpoint, name, used)
    return bool(changes)
