"""What a background task waits for between two turns of its work."""

from __future__ import annotations

import anyio
import anyio.lowlevel


class Alarm:
    """Wakes one task after its usual pause, or sooner if somebody rings.

    It can be made and rung outside of an event loop. Many rings before a turn are one.
    """

    __slots__ = ("_event", "_is_rung")

    def __init__(self) -> None:
        self._is_rung = False
        self._event: anyio.Event | None = None

    def ring(self) -> None:
        """End the pause; if there is none now, the next one ends at once."""
        self._is_rung = True
        if self._event is not None:
            self._event.set()

    async def wait(self, pause_s: float) -> None:
        """Pause for so many seconds, or until it is rung."""
        if self._is_rung:
            await anyio.lowlevel.checkpoint()
        else:
            self._event = anyio.Event()
            with anyio.move_on_after(pause_s):
                await self._event.wait()
            self._event = None
        self._is_rung = False
