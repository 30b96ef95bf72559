"""Notifier: callbacks for one kind of event.

It is created before publishers and subscribers, so neither depends on the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from .supervision import FailureLog, notify_each

T = TypeVar("T")


class Notifier(Generic[T]):
    """Calls its subscribers in the order of subscription.

    An exception of a subscriber is logged, and the others are called.

    Args:
      failures: logs exceptions.
      what: names the event in the log, such as "notifying of new messages".
      meaning: the effect of a failure, for the log.
    """

    def __init__(self, failures: FailureLog, what: str, meaning: str) -> None:
        self._failures = failures
        self._what = what
        self._meaning = meaning
        self._subscribers: list[Callable[[T], object]] = []

    def subscribe(self, *subscribers: Callable[[T], object]) -> None:
        """Add subscribers."""
        self._subscribers += subscribers

    def notify(self, value: T) -> None:
        """Call all subscribers with a value."""
        notify_each(self._subscribers, value, self._failures, self._what, self._meaning)
