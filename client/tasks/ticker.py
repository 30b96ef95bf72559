"""A sleep between two runs of a background task, which can be cut short."""

from __future__ import annotations

import anyio
import anyio.lowlevel


class Ticker:
    """Wakes one task after a pause, or as soon as `tick_now` is called.

    It can be created, and `tick_now` called, outside of an event loop. Several calls of `tick_now`
    before the task waits again have the effect of one.
    """

    __slots__ = ("_event", "_is_due")

    def __init__(self) -> None:
        self._is_due = False
        self._event: anyio.Event | None = None

    def tick_now(self) -> None:
        """End the pause. If the task is not waiting, its next pause ends at once."""
        self._is_due = True
        if self._event is not None:
            self._event.set()

    async def wait(self, pause_s: float) -> None:
        """Sleep for `pause_s` seconds, or until `tick_now` is called."""
        if self._is_due:
            await anyio.lowlevel.checkpoint()
        else:
            self._event = anyio.Event()
            with anyio.move_on_after(pause_s):
                await self._event.wait()
            self._event = None
        self._is_due = False
