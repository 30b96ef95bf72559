"""The buffer between a push consumer in the loop and the threads that take its messages."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from ..client.errors import ClosedError
from .loop_thread import longest_wait_s

T = TypeVar("T")

FETCH_MAX: Final = 256
"""Largest number of messages fetched from the loop at once: those of some pulls, because each fetch
has two threads wait for each other."""


class MessageBuffer(Generic[T]):
    """A queue from the loop's thread to others, refilled when a thread finds it empty.

    Args:
      fetch: asks the loop for items; each call ends in one call of `put` or `close`.
      is_wanted: whether an item may still be handed out.

    Attributes:
      is_closed: no more items are handed out.
    """

    def __init__(self, fetch: Callable[[], None], is_wanted: Callable[[T], bool]) -> None:
        self._fetch = fetch
        self._is_wanted = is_wanted
        # Reentrant: a signal handler may call `close` in a thread that holds it.
        self._condition = threading.Condition(threading.RLock())
        self._items: deque[T] = deque()
        self._is_fetching = False
        self._waiting = 0
        self._on_close: Callable[[], None] | None = None
        self.is_closed: bool = False

    def on_close(self, callback: Callable[[], None]) -> None:
        """Set the function that `close` calls."""
        self._on_close = callback

    def take(
        self, timeout_s: float | None = None, should_stop: Callable[[], bool] | None = None
    ) -> T | None:
        """Take the next item.

        Args:
          timeout_s: seconds to wait for it, >= 0; None: no limit.
          should_stop: checked at the beginning and after each `wake`.

        Returns: the item; None: none came in time, or `should_stop` returned True.
        Raises: ClosedError: the buffer is closed.
        """
        due_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._condition:
            while True:
                if should_stop is not None and should_stop():
                    return None
                while self._items:
                    item = self._items.popleft()
                    if self._is_wanted(item):
                        return item
                if self.is_closed:
                    raise ClosedError("the consumer was stopped")
                self._fetch_once()
                left_s = longest_wait_s()
                if due_s is not None:
                    left_s = min(left_s, due_s - time.monotonic())
                if left_s <= 0:
                    return None
                self._waiting += 1
                try:
                    self._condition.wait(left_s)
                except BaseException:
                    # Ctrl-C may have consumed a notification: pass it on to another thread.
                    self._condition.notify()
                    raise
                finally:
                    self._waiting -= 1

    def put(self, items: Sequence[T]) -> None:
        """Add items that were fetched."""
        with self._condition:
            self._is_fetching = False
            if self.is_closed:
                return
            self._items.extend(items)
            self._condition.notify(len(items))
            if self._waiting > len(self._items):
                # Some threads get none. The others may be busy for long, so they do not refill it.
                self._fetch_once()

    def _fetch_once(self) -> None:
        if not self._is_fetching:
            self._is_fetching = True
            self._fetch()

    def remove(self, is_removed: Callable[[T], bool]) -> list[T]:
        """Remove items and return them, in order."""
        with self._condition:
            removed = [item for item in self._items if is_removed(item)]
            self._items = deque([item for item in self._items if not is_removed(item)])
        return removed

    def close(self) -> None:
        """Drop the items; `take` raises ClosedError from now on."""
        with self._condition:
            self.is_closed = True
            self._items.clear()
            self._condition.notify_all()
        if self._on_close is not None:
            self._on_close()

    def wake(self) -> None:
        """Wake the waiting threads, which check `should_stop`."""
        with self._condition:
            self._condition.notify_all()
