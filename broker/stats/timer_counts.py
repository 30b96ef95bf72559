"""TimerCounts: the timer messages of each topic that came, that wait and that were delivered.

Java counterpart: store/metrics/DefaultStoreMetricsManager.java of 5.5.0 (timerEnqueueTotal,
timerDequeueTotal, timingMessages, timerMessageSetLatency). Pure.
"""

from __future__ import annotations

from typing import Final

from ...common.histogram import Histogram

_HOUR_S: Final = 3_600
_DAY_S: Final = 24 * _HOUR_S

DELAY_BOUNDS_S: Final = (60.0, 600.0, *map(float, (_HOUR_S, 12 * _HOUR_S, _DAY_S, 3 * _DAY_S)))
"""Upper ends of the buckets of delays. Source: DefaultStoreMetricsManager.getMetricsView."""


class TimerCounts:
    """Counts by topic since the start, at which all waiting messages come again.

    Attributes:
      came, left: messages that began to wait, and that wait no more: delivered, recalled, or not
        deliverable.
      delivered: a part of those that left.
      delays_s: for how long the messages that came were to wait.
    """

    __slots__ = ("came", "delays_s", "delivered", "left")

    def __init__(self) -> None:
        self.came: dict[str, int] = {}
        self.left: dict[str, int] = {}
        self.delivered: dict[str, int] = {}
        self.delays_s = Histogram(DELAY_BOUNDS_S)

    def come(self, topic: str, delay_s: float) -> None:
        """Count a message that begins to wait."""
        self.came[topic] = self.came.get(topic, 0) + 1
        self.delays_s.add(max(delay_s, 0.0))

    def leave(self, topic: str, *, is_delivered: bool) -> None:
        """Count a message that waits no more."""
        self.left[topic] = self.left.get(topic, 0) + 1
        if is_delivered:
            self.delivered[topic] = self.delivered.get(topic, 0) + 1

    def waiting(self) -> dict[str, int]:
        """The number of waiting messages by topic."""
        return {topic: max(came - self.left.get(topic, 0), 0) for topic, came in self.came.items()}

    def topic_deleted(self, topic: str) -> None:
        """Drop the numbers of a deleted topic."""
        for table in (self.came, self.left, self.delivered):
            table.pop(topic, None)
