"""`Restarts`: the end and the new start of the servers behind a control port, at its command.

The port calls `restart` and `crash`. Who runs the servers has a loop: it runs them in a scope that
it gives to `begin`, calls `serving` when they serve, and `ended` at their end, which says whether
they are to be started again.
"""

from __future__ import annotations

from typing import Final

import trio

from ..disks import EmbeddedDisk
from ..driving import Driver
from .requests import ControlError

RESTART_LIMIT_S: Final = 45.0
"""Seconds until servers that were ended serve again: they take a tenth of a second, on a busy
machine a few. Less than the test kits wait for an answer of the control port (60)."""


class Restarts:
    """See the first lines of the module; `restart` and `crash` must be called one at a time.

    Attributes:
      is_wanted: whether servers that end now are to be started again.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._life = trio.CancelScope()
        self.is_wanted = False
        self._disk: EmbeddedDisk | None = None
        self._serves = trio.Event()

    # ---- for the port --------------------------------------------------------------------

    async def restart(self) -> None:
        """End both servers cleanly, and wait until they serve again.

        Raises: ControlError: 500: they do not within RESTART_LIMIT_S.
        """
        await self._end_and_wait(None)

    async def crash(self, power_loss: bool | None) -> None:
        """Have both find the disk of a crash at this moment when they serve again.

        Args:
          power_loss: whether data that was not synced is lost; None: if the disk supports that.

        Raises: as `restart`; EmbeddedBrokerError: the disk does not support a power failure.
        """
        await self._end_and_wait(self._driver.disk.after_crash(power_loss=power_loss))

    async def _end_and_wait(self, disk: EmbeddedDisk | None) -> None:
        driver = self._driver
        slow_ms = driver.disk_state.slow_ms
        self._disk, self.is_wanted, self._serves = disk, True, trio.Event()
        driver.hurry()
        self._life.cancel()
        with trio.move_on_after(RESTART_LIMIT_S):
            await self._serves.wait()
            driver.set_disk(None, None, slow_ms)
            return
        raise ControlError(500, f"the broker did not serve again within {RESTART_LIMIT_S:g} s")

    # ---- for the loop of the servers -----------------------------------------------------

    def begin(self, life: trio.CancelScope) -> None:
        """They are started; the scope's end ends them."""
        self._life, self.is_wanted = life, False

    def serving(self) -> None:
        """They serve."""
        self._serves.set()

    def ended(self) -> bool:
        """They have ended; returns whether the port wants them again."""
        self._driver.broker_ended()
        if self._disk is not None:
            self._driver.disk, self._disk = self._disk, None
        return self.is_wanted
