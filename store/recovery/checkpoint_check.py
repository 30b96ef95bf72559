"""Validation of the checkpoint page against the log and the clock.

Apache's five fields have no checksum, so a damaged page may hold any number. Where the page is
Apache's, two times decide where recovery begins to read; a third decides which index files are
trusted; all five are copied to every later page. An impossible field is corrected here, with a
warning.

Java counterpart: StoreCheckpoint.java of 5.3.3 uses every value unchecked.
"""

from __future__ import annotations

import logging

from ...common.clock import LATEST_MS
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
"""Apache's value for an unknown offset."""


def correct_checkpoint(checkpoint: Checkpoint, path: str, *, latest_ms: int, log_end: int) -> bool:
    """Correct impossible fields in place, with a warning for each.

    A wrong time becomes 0: recovery then reads the log from its beginning, and indexes everything
    again that only this time covered.

    Args:
      checkpoint: as it was read.
      path: of the page, for the warning.
      latest_ms: the later of the wall clock and the log's newest store timestamp.
      log_end: the end of the log's files, bytes.

    Returns: whether a field was corrected; then the page has to be written again.
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
            "%(path)s: its %(field)s is %(value)d, but %(reason)s: %(used)d is used in its "
            "place, and the file is written again",
            {
                "path": path,
                "field": field,
                "value": getattr(checkpoint, name),
                "reason": reason,
                "used": used,
            },
        )
        setattr(checkpoint, name, used)
    return bool(changes)
