"""Sends that wait for the acknowledgements of other brokers, with a time limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import trio

from ...common.clock import Clock
from ..status import PutMessageStatus
from .waiters import OffsetWaiters

Replicated: TypeAlias = Callable[[PutMessageStatus], None]
"""Called once, with PUT_OK or the status of a send that is stored and not replicated."""


class AckWaiters:
    """Callbacks of sends by physical offset. Owned by the store's task.

    Args:
      timeout_s: the longest wait of each (slaveTimeout).
      clock: for timeouts.
    """

    def __init__(self, timeout_s: float, clock: Clock) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._waiters: OffsetWaiters[PutMessageStatus] = OffsetWaiters(timeout_s)
        self._waited_for = trio.Event()

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def add(self, physical_offset: int, callback: Replicated) -> None:
        """Let a send wait.

        Args:
          physical_offset: where its record begins.
        """
        self._waiters.add(physical_offset, callback, now_s=self._clock.monotonic_s())
        self._waited_for.set()

    def release(self, safe_offset: int) -> None:
        """Answer PUT_OK to the sends of all records that begin before an offset."""
        self._waiters.release(safe_offset, PutMessageStatus.PUT_OK)

    def fail(self, status: PutMessageStatus) -> None:
        """Answer all waiting sends with a failure."""
        self._waiters.fail(status)

    def drop(self) -> None:
        """Forget all waiting sends; they get no answer."""
        self._waiters = OffsetWaiters(self._timeout_s)

    async def expire(self) -> None:
        """Answer sends whose timeout has passed, until cancelled; then all of them."""
        try:
            while True:
                await self._waited_for.wait()
                while self._waiters:
                    rest_s = self._waiters.deadline_s - self._clock.monotonic_s()
                    await trio.sleep(max(rest_s, 0))
                    now_s = self._clock.monotonic_s()
                    self._waiters.expire(now_s, PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
                self._waited_for = trio.Event()
        finally:
            self._waiters.fail(PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
