"""CleaningRequests: an operator's wish that retention runs now; and the rounds of any service.

Java counterpart: executeDeleteFilesManually of DefaultMessageStore.java of 5.5.0.
"""

from __future__ import annotations

from typing import Final

import trio

PASSES_BY_HAND: Final = 20
"""Passes after a request that delete expired log files at any hour, because one pass deletes only
`deleteFileBatchMax` files. Source: CleanCommitLogService.MAX_MANUAL_DELETE_FILE_TIMES."""


class Rounds:
    """Wakes one service, and waits for it. Used from one trio run.

    The service calls `wait` after each round, others call `begin` or `complete`.
    """

    def __init__(self) -> None:
        self._wanted = trio.Event()
        self._is_over = trio.Event()
        self._is_waiting = False

    async def wait(self, interval_s: float) -> None:
        """End a round, and wait until the next one is to begin: after the interval, or now."""
        self._is_over.set()
        self._is_over = trio.Event()
        self._is_waiting = True
        with trio.move_on_after(interval_s):
            await self._wanted.wait()
        self._is_waiting = False
        self._wanted = trio.Event()

    def begin(self) -> None:
        """Have the next round begin now."""
        self._wanted.set()

    async def complete(self) -> None:
        """Have a whole round begin now, and wait until it is over; the service must run."""
        if not self._is_waiting:
            await self._is_over.wait()
        self.begin()
        await self._is_over.wait()


class CleaningRequests:
    """Wakes the retention service.

    Attributes:
      is_hurried: files are deleted without pauses between them.
    """

    def __init__(self) -> None:
        self.is_hurried = False
        self._passes = 0
        self._rounds = Rounds()

    def begin_pass(self) -> None:
        """Have the next retention pass begin now."""
        self._rounds.begin()

    def delete_log_files(self) -> None:
        """Have the next passes delete expired log files, whatever the hour is."""
        self._passes = PASSES_BY_HAND
        self.begin_pass()

    async def finish_pass(self) -> None:
        """Have a pass delete expired log files now and without pauses, whatever the hour is; wait
        until it has ended."""
        self._passes += 1
        self.is_hurried = True
        try:
            await self._rounds.complete()
        finally:
            self.is_hurried = False

    def take_pass(self) -> bool:
        """Whether the pass that begins is one that an operator wants; counts it."""
        if not self._passes:
            return False
        self._passes -= 1
        return True

    async def wait(self, interval_s: float) -> None:
        """Wait for a request, but not longer than an interval."""
        await self._rounds.wait(interval_s)
