"""Callbacks that wait for an fsynced or replicated offset, in log order: a deque, not tasks.

Hundreds of sends wait for one fsync, or for one acknowledgement of a slave; both cover the log in
order, so the callbacks to call are always at the left.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from ...common.supervision import FailureLog

logger = logging.getLogger(__name__)

Outcome = TypeVar("Outcome")


class OffsetWaiters(Generic[Outcome]):
    """Callbacks by physical offset, in the order in which they were added.

    A callback that is added after a higher offset waits for that offset, too. Owned by the store's
    task. A callback that raises is logged, and the others are called.

    Args:
      timeout_s: the longest wait of each.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._waiters: deque[tuple[int, float, Callable[[Outcome], None]]] = deque()
        self._failures = FailureLog(logger)

    def __bool__(self) -> bool:
        return bool(self._waiters)

    @property
    def deadline_s(self) -> float:
        """The time at which the first callback expires; there must be one."""
        return self._waiters[0][1]

    def add(
        self, physical_offset: int, callback: Callable[[Outcome], None], *, now_s: float
    ) -> None:
        """Let a callback wait until a record is covered.

        Args:
          physical_offset: where the record begins.
          now_s: from the same clock as that of `expire`.
        """
        self._waiters.append((physical_offset, now_s + self._timeout_s, callback))

    def release(self, safe_offset: int, outcome: Outcome) -> None:
        """Call the callbacks of all records that begin before a covered offset."""
        waiters = self._waiters
        while waiters and waiters[0][0] < safe_offset:
            self._call_first(outcome)

    def expire(self, now_s: float, outcome: Outcome) -> None:
        """Call the callbacks whose timeout has passed."""
        waiters = self._waiters
        while waiters and waiters[0][1] <= now_s:
            self._call_first(outcome)

    def fail(self, outcome: Outcome) -> None:
        """Call all callbacks."""
        while self._waiters:
            self._call_first(outcome)

    def _call_first(self, outcome: Outcome) -> None:
        callback = self._waiters.popleft()[2]
        try:
            callback(outcome)
        except Exception as error:  # noqa: BLE001 - our bug: the others are answered
            meaning = "Its requests may stay without an answer, and are sent again"
            self._failures.note("answering sends that waited for the log", meaning, error)
