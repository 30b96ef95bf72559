"""CleaningRequests: an operator's wish that retention runs now.

Java counterpart: executeDeleteFilesManually of DefaultMessageStore.java of 5.5.0.
"""

from __future__ import annotations

from typing import Final

import trio

PASSES_BY_HAND: Final = 20
"""Passes after a request that delete expired log files at any hour, because one pass deletes only
`deleteFileBatchMax` files. Source: CleanCommitLogService.MAX_MANUAL_DELETE_FILE_TIMES."""


class CleaningRequests:
    """Wakes the retention service."""

    def __init__(self) -> None:
        self._passes = 0
        self._wanted = trio.Event()

    def begin_pass(self) -> None:
        """Have the next retention pass begin now."""
        self._wanted.set()

    def delete_log_files(self) -> None:
        """Have the next passes delete expired log files, whatever the hour is."""
        self._passes = PASSES_BY_HAND
        self.begin_pass()

    def take_pass(self) -> bool:
        """Whether the pass that begins is one that an operator wants; counts it."""
        if not self._passes:
            return False
        self._passes -= 1
        return True

    async def wait(self, interval_s: float) -> None:
        """Wait for a request, but not longer than an interval."""
        with trio.move_on_after(interval_s):
            await self._wanted.wait()
        self._wanted = trio.Event()
