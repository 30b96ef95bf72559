"""Flow control of replication: bytes per second of one connection, and their limit.

Java counterpart: ha/FlowMonitor.java of 5.3.3, which counts in whole seconds, too.
"""

from __future__ import annotations

import trio


class FlowMeter:
    """Counts one connection's bytes in seconds of the loop's clock.

    Args:
      per_second_max: most bytes in a second; None: no limit (haFlowControlEnable,
        maxHaTransferByteInSecond).
    """

    def __init__(self, per_second_max: int | None = None) -> None:
        self._per_second_max = per_second_max
        self._second = 0
        self._count = 0
        self._count_before = 0

    def add(self, size: int) -> None:
        """Count bytes now."""
        self._update()
        self._count += size

    @property
    def per_second(self) -> int:
        """Bytes of the last whole second."""
        self._update()
        return self._count_before

    def room(self, wanted: int) -> int:
        """The number of bytes, at most `wanted`, that may be sent now."""
        if self._per_second_max is None:
            return wanted
        self._update()
        return min(wanted, max(self._per_second_max - self._count, 0))

    async def wait_for_room(self) -> None:
        """Wait until this second is over."""
        await trio.sleep_until(self._second + 1)

    def _update(self) -> None:
        second = int(trio.current_time())
        if second != self._second:
            self._count_before = self._count if second == self._second + 1 else 0
            self._second, self._count = second, 0
