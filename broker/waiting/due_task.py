"""DueTask: a task that runs work when it is due, and sleeps until more is due."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final

import trio

from ...common.supervision import PAUSE_S_MAX, FailureLog
from ...disk.errors import StoreError

logger = logging.getLogger(__name__)

WAIT_S: Final = 1.0
WAIT_RATIO: Final = 0.01
"""The clock may be set forward, or the machine may have slept: the time is checked again after a
hundredth of the remaining wait, or after a second, so nothing is late by more than that."""

RETRY_S: Final = 0.1
"""The pause before a retry. Source: ScheduleMessageService, DELAY_FOR_A_WHILE."""


DELIVERY_LAG_MS: Final = 60_000
"""A message that was due this long before the log's newest one counts as delivered, if there is no
other evidence. A busy broker delivers late, but not by a minute."""


class DueTask:
    """Calls `work` whenever something is due.

    Args:
      work: does one slice of the due work, about a millisecond; returns the seconds until the next:
        0 or less for now, infinity for not before `wake`. Its errors are logged, and it is called
        again: after a StoreError when `retry_s` is over, after any other error at growing
        intervals.
      failing: begins the log line of an error, such as "delayed messages are delivered later".
      retry_s: the pause before a retry.
    """

    def __init__(
        self, work: Callable[[], float], *, failing: str, retry_s: float = RETRY_S
    ) -> None:
        self._work = work
        self._retry_s = retry_s
        self._failing = failing
        self._changed = trio.Event()
        self._is_running = self._is_waiting = False
        self._failures = FailureLog(logger)

    @property
    def is_busy(self) -> bool:
        """Whether `work` is to be called again now; False before `run`, and after a failure until
        the pause is over."""
        return self._is_running and (not self._is_waiting or self._changed.is_set())

    def wake(self) -> None:
        """Call `work` now: something may be due earlier than it returned."""
        self._changed.set()

    async def run(self) -> None:
        """Work until cancelled."""
        logged, pause_s = "", self._retry_s
        self._is_running = True
        while True:
            try:
                left_s = self._work()
                logged, pause_s = "", self._retry_s
            except StoreError as error:
                if str(error) != logged:
                    logger.error("%(what)s: %(error)s", {"what": self._failing, "error": error})
                logged = str(error)
                left_s = self._retry_s
            except Exception as error:  # noqa: BLE001 - our bug: it is tried again
                # Longer after each failure, so that a bug does not fill the log.
                left_s, pause_s = pause_s, min(2 * pause_s, PAUSE_S_MAX)
                meaning = f"Nothing is lost: {self._failing}"
                self._failures.note("a task for due work", meaning, error)
            if left_s <= 0:
                # Other tasks get their turn between two slices.
                await trio.lowlevel.checkpoint()
                continue
            self._is_waiting = True
            with trio.move_on_after(_pause_s(left_s)):
                await self._changed.wait()
            self._is_waiting = False
            self._changed = trio.Event()


def _pause_s(left_s: float) -> float:
    return left_s if left_s == math.inf else min(left_s, max(WAIT_S, left_s * WAIT_RATIO))
