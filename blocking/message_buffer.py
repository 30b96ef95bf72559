"""The buffer between a push consumer in the loop and the threads that ask for its messages."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from ..client.errors import ClosedError
from .loop_thread import WAIT_S

T = TypeVar("T")

FETCH_MAX: Final = 32
"""Messages that are brought from the loop at once."""


class MessageBuffer(Generic[T]):
    """A queue from the loop's thread to others, filled when a thread asks and it is empty.

    Args:
      fetch: has the loop bring something soon; ends in `put` or `end`.
      is_good: whether a thing may still be given out.

    Attributes:
      is_over: nothing is given out any more.
    """

    def __init__(self, fetch: Callable[[], None], is_good: Callable[[T], bool]) -> None:
        self._fetch = fetch
        self._is_good = is_good
        # A signal handler may call `end` in a thread that holds it: it is reentrant.
        self._condition = threading.Condition(threading.RLock())
        self._things: deque[T] = deque()
        self._is_fetching = False
        self._waiting = 0
        self._on_end: Callable[[], None] | None = None
        self.is_over: bool = False

    def on_end(self, call: Callable[[], None]) -> None:
        """Call this when nothing is given out any more."""
        self._on_end = call

    def take(
        self, timeout_s: float | None = None, is_enough: Callable[[], bool] | None = None
    ) -> T | None:
        """The next thing; None: there was none in time, or it is enough.

        Args:
          timeout_s: seconds; None: without end.
          is_enough: asked again after `wake`.

        Raises: ClosedError: after `end`.
        """
        due_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._condition:
            while True:
                if is_enough is not None and is_enough():
                    return None
                while self._things:
                    thing = self._things.popleft()
                    if self._is_good(thing):
                        return thing
                if self.is_over:
                    raise ClosedError("the consumer was stopped")
                self._fetch_once()
                left_s = WAIT_S if due_s is None else min(due_s - time.monotonic(), WAIT_S)
                if left_s <= 0:
                    return None
                self._waiting += 1
                try:
                    self._condition.wait(left_s)
                except BaseException:
                    # Ctrl-C: what woke this thread is for another one.
                    self._condition.notify()
                    raise
                finally:
                    self._waiting -= 1

    def put(self, things: Sequence[T]) -> None:
        """What was fetched."""
        with self._condition:
            self._is_fetching = False
            if self.is_over:
                return
            self._things.extend(things)
            self._condition.notify(len(things))
            if self._waiting > len(self._things):
                # Those who get one now may not come back for long.
                self._fetch_once()

    def _fetch_once(self) -> None:
        if not self._is_fetching:
            self._is_fetching = True
            self._fetch()

    def end(self) -> None:
        """Give nothing out any more."""
        with self._condition:
            self.is_over = True
            self._things.clear()
            self._condition.notify_all()
        if self._on_end is not None:
            self._on_end()

    def wake(self) -> None:
        """Have those who wait ask `is_enough`."""
        with self._condition:
            self._condition.notify_all()
