"""Notifier: callbacks for one kind of event.

It is made before those who notify and those who are notified, so neither has to know the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ..common.supervision import FailureLog, notify_each

T = TypeVar("T")


class Notifier(Generic[T]):
    """Calls its subscribers in the order in which they subscribed.

    A subscriber that raises is logged, and the others are called.

    Args:
      failures: where that is logged.
      what: names the event in the log, such as "notifying of new messages".
      meaning: what a failure costs.
    """

    def __init__(self, failures: FailureLog, what: str, meaning: str) -> None:
        self._failures = failures
        self._what = what
        self._meaning = meaning
        self._subscribers: list[Callable[[T], object]] = []

    def subscribe(self, *subscribers: Callable[[T], object]) -> None:
        """Have these called from now on."""
        self._subscribers += subscribers

    def notify(self, value: T) -> None:
        """Call all subscribers with a value."""
        notify_each(self._subscribers, value, self._failures, self._what, self._meaning)
