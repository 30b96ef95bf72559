"""Callbacks that wait for an offset of the log to be safe: one deque, no task for each.

Sends wait by the hundred for one fsync, or for one report of a slave; both come in the log's order,
so what has come true is always at the left.
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

    One that was added after a higher offset waits for that one, too. Owned by the store's task. A
    callback that raises is logged, and the others are called.

    Args:
      timeout_s: how long each may wait.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._waiters: deque[tuple[int, float, Callable[[Outcome], None]]] = deque()
        self._failures = FailureLog(logger)

    def __bool__(self) -> bool:
        """Whether a callback waits."""
        return bool(self._waiters)

    @property
    def deadline_s(self) -> float:
        """When the first of them has waited long enough; there is one."""
        return self._waiters[0][1]

    def add(
        self, physical_offset: int, callback: Callable[[Outcome], None], *, now_s: float
    ) -> None:
        """Let a callback wait until a record is safe.

        Args:
          physical_offset: where it begins.
          now_s: by the clock that `expire` gets, too.
        """
        self._waiters.append((physical_offset, now_s + self._timeout_s, callback))

    def release(self, safe_offset: int, outcome: Outcome) -> None:
        """Call back those whose records begin before an offset up to which all is safe."""
        waiters = self._waiters
        while waiters and waiters[0][0] < safe_offset:
            self._call_first(outcome)

    def expire(self, now_s: float, outcome: Outcome) -> None:
        """Call back those whose time is up."""
        waiters = self._waiters
        while waiters and waiters[0][1] <= now_s:
            self._call_first(outcome)

    def fail(self, outcome: Outcome) -> None:
        """Call back all."""
        while self._waiters:
            self._call_first(outcome)

    def _call_first(self, outcome: Outcome) -> None:
        callback = self._waiters.popleft()[2]
        try:
            callback(outcome)
        except Exception as error:  # noqa: BLE001 - our bug: the others are answered
            meaning = "Its requests may stay without an answer, and are sent again"
            self._failures.note("answering what waited for the log", meaning, error)
