"""The messages that one consumer received, with times."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable


class Consumption:
    """Numbers as they come. For several threads.

    Attributes:
      first_s: monotonic seconds of the first, 0 for none yet.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: Counter[int] = Counter()
        self._watched_from = self._watched_count = 0
        self._started_s = self._last_s = time.monotonic()
        self.first_s = 0.0

    def add(self, *numbers: int) -> None:
        """These came."""
        with self._lock:
            self._last_s = time.monotonic()
            self.first_s = self.first_s or self._last_s
            self._numbers.update(numbers)
            self._watched_count += sum(number >= self._watched_from for number in numbers)

    def watch(self, first: int) -> None:
        """Count anew in `watched_count`, from this number upwards."""
        with self._lock:
            self._watched_from, self._watched_count = first, 0

    @property
    def watched_count(self) -> int:
        """How many came, see `watch`."""
        return self._watched_count

    @property
    def distinct_count(self) -> int:
        """How many came, each counted once."""
        return len(self._numbers)

    def distinct(self) -> set[int]:
        """Those that came."""
        with self._lock:
            return set(self._numbers)

    def missing(self, wanted: Iterable[int]) -> list[int]:
        """Those of them that did not come, in their order."""
        return sorted(set(wanted) - self.distinct())

    def figures(self) -> str:
        """For people: how many, how soon, how fast."""
        with self._lock:
            total, distinct = self._numbers.total(), len(self._numbers)
        if not total:
            return "nothing came"
        lasted_s = max(self._last_s - self.first_s, 0.001)
        return (
            f"{distinct} messages, {total - distinct} repeats, first after"
            f" {self.first_s - self._started_s:.1f} s, then {total / lasted_s:.0f}/s"
        )
