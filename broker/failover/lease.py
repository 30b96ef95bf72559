"""The lease of a master: the time for which it may confirm messages by itself.

A controller elects another master when it has heard no heartbeat for a whole time-out. So a master
may confirm for less than that after a heartbeat that was answered; see `LEASE_SHARE`.

An answered heartbeat says that the controller hears this broker, not that it is the master: a
master that stood still, and was deposed meanwhile, is heard again, too. So heartbeats keep a lease
that holds; one that has ended begins again when the controller names this broker as the master, and
was heard before it was asked.
"""

from __future__ import annotations

import math
from typing import Final

from ...common.clock import Clock

LEASE_SHARE: Final = 0.75
"""A master without an answer for this part of controllerHeartBeatTimeoutMills has no lease any
more; the rest is for clocks that run at different speeds, and for heartbeats on their way."""


class Lease:
    """See the module.

    Args:
      clock: its elapsed time counts, also while the machine sleeps or the process stands still.
      duration_s: after the moment at which an answered heartbeat was sent.
    """

    def __init__(self, clock: Clock, duration_s: float) -> None:
        self._clock = clock
        self._duration_s = duration_s
        self._heard_s = -math.inf
        self._until_s = -math.inf

    def heard(self, sent_s: float) -> None:
        """Take the answer to a heartbeat that was sent at a time of the clock's `elapsed_s`."""
        self._heard_s = max(self._heard_s, sent_s)
        if self.holds:
            self._extend()

    def named(self, asked_s: float) -> None:
        """Take an answer that names this broker as the master.

        Args:
          asked_s: when the question was sent.
        """
        if self._heard_s <= asked_s:
            self._extend()

    @property
    def holds(self) -> bool:
        """Whether the master may confirm now."""
        return self._clock.elapsed_s() < self._until_s

    def _extend(self) -> None:
        self._until_s = max(self._until_s, self._heard_s + self._duration_s)
