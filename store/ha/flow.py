"""How many bytes go to a slave in a second, and that they are not too many.

Java counterpart: ha/FlowMonitor.java of 5.3.3, which counts in whole seconds, too.
"""

from __future__ import annotations

import trio


class FlowMeter:
    """Counts one connection's bytes in seconds of the loop's clock.

    Args:
      per_second_max: bytes that may pass in a second; None: any number
        (haFlowControlEnable, maxHaTransferByteInSecond).
    """

    def __init__(self, per_second_max: int | None = None) -> None:
        self._per_second_max = per_second_max
        self._second = 0
        self._count = 0
        self._count_before = 0

    def add(self, size: int) -> None:
        """Count bytes that pass now."""
        self._go_on()
        self._count += size

    @property
    def per_second(self) -> int:
        """Bytes that passed in the last whole second."""
        self._go_on()
        return self._count_before

    def room(self, wanted: int) -> int:
        """How many of so many bytes may pass now."""
        if self._per_second_max is None:
            return wanted
        self._go_on()
        return min(wanted, max(self._per_second_max - self._count, 0))

    async def wait_for_room(self) -> None:
        """Wait until this second is over."""
        await trio.sleep_until(self._second + 1)

    def _go_on(self) -> None:
        second = int(trio.current_time())
        if second != self._second:
            self._count_before = self._count if second == self._second + 1 else 0
            self._second, self._count = second, 0
