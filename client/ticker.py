"""A pause between two turns of a background task, which can be cut short."""

from __future__ import annotations

import anyio
import anyio.lowlevel


class Ticker:
    """Wakes one task after its usual pause, or sooner.

    It can be made, and `tick_now` called, outside of an event loop. Many calls before a turn are
    one.
    """

    __slots__ = ("_event", "_is_due")

    def __init__(self) -> None:
        self._is_due = False
        self._event: anyio.Event | None = None

    def tick_now(self) -> None:
        """End the pause; if there is none now, the next one ends at once."""
        self._is_due = True
        if self._event is not None:
            self._event.set()

    async def wait(self, pause_s: float) -> None:
        """Pause for `pause_s`, or until `tick_now`."""
        if self._is_due:
            await anyio.lowlevel.checkpoint()
        else:
            self._event = anyio.Event()
            with anyio.move_on_after(pause_s):
                await self._event.wait()
            self._event = None
        self._is_due = False
