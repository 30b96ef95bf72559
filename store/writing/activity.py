"""Signals for the services of a store: the log has grown, an operator asks for a cleaning."""

from __future__ import annotations

from collections.abc import Callable

import trio

from ..retention.cleaning_requests import CleaningRequests, Rounds


class Activity:
    """Signals commits, and the fsyncs of SYNC_FLUSH. Owned by the store's task.

    A commit pays two comparisons for it: the services that rest create the next event.

    Attributes:
      cleaning: an operator's requests to the retention service.
      checkpoints: the rounds of the checkpoint service.
      listeners: called within the commit or after the fsync, before its messages are visible; they
        must be quick and must not raise.
    """

    __slots__ = ("_event", "checkpoints", "cleaning", "listeners")

    def __init__(self) -> None:
        self._event = trio.Event()
        self.checkpoints = Rounds()
        self.cleaning = CleaningRequests()
        self.listeners: list[Callable[[], None]] = []

    def signal(self) -> None:
        """Wake the resting services."""
        if not self._event.is_set():
            self._event.set()
        if self.listeners:
            for listener in tuple(self.listeners):  # one of them may end its connection
                listener()

    async def wait(self) -> None:
        """Wait unless there was a commit since the last `wait_for_more`."""
        await self._event.wait()

    async def wait_for_more(self) -> None:
        """Wait for the next commit, or the next fsync under SYNC_FLUSH."""
        if self._event.is_set():
            self._event = trio.Event()
        await self._event.wait()
