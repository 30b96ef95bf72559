"""A signal that the log has grown, for services that rest while nothing happens."""

from __future__ import annotations

import trio


class Activity:
    """Signals commits, and the fsyncs of SYNC_FLUSH. Owned by the store's task.

    A commit pays one comparison for it: the services that rest create the next event.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def signal(self) -> None:
        """Wake the resting services."""
        if not self._event.is_set():
            self._event.set()

    async def wait(self) -> None:
        """Wait unless there was a commit since the last `wait_for_more`."""
        await self._event.wait()

    async def wait_for_more(self) -> None:
        """Wait for the next commit, or the next fsync under SYNC_FLUSH."""
        if self._event.is_set():
            self._event = trio.Event()
        await self._event.wait()
