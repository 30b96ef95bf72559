"""TransactionEnds: how many transactions were committed and rolled back, and after what time.

Java counterpart: broker/metrics/BrokerMetricsManager.java of 5.5.0 (commitMessagesTotal,
rollBackMessagesTotal, transactionFinishLatency). Pure.
"""

from __future__ import annotations

from typing import Final

from ...common.histogram import Histogram

_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600

FINISH_BOUNDS_MS: Final = tuple(
    1000.0 * bound for bound in (5, _MINUTE_S, 10 * _MINUTE_S, _HOUR_S, 12 * _HOUR_S, 24 * _HOUR_S)
)
"""Upper ends of the buckets of finish latencies. Source: BrokerMetricsManager.initMetricsView."""


class TransactionEnds:
    """Counts by topic. The ends of a turn whose commit fails are counted as well.

    Attributes:
      rolled_back: numbers by topic.
      latencies_ms: from the half message's send to its commit, by topic.
    """

    __slots__ = ("latencies_ms", "rolled_back")

    def __init__(self) -> None:
        self.rolled_back: dict[str, int] = {}
        self.latencies_ms: dict[str, Histogram] = {}

    @property
    def committed(self) -> dict[str, int]:
        """Numbers by topic."""
        return {topic: latencies.count for topic, latencies in self.latencies_ms.items()}

    def commit(self, topic: str, latency_ms: int) -> None:
        """Count a commit."""
        histogram = self.latencies_ms.get(topic)
        if histogram is None:
            histogram = self.latencies_ms[topic] = Histogram(FINISH_BOUNDS_MS)
        histogram.add(max(latency_ms, 0))

    def roll_back(self, topic: str) -> None:
        """Count a rollback."""
        self.rolled_back[topic] = self.rolled_back.get(topic, 0) + 1

    def topic_deleted(self, topic: str) -> None:
        """Drop the numbers of a deleted topic."""
        self.rolled_back.pop(topic, None)
        self.latencies_ms.pop(topic, None)
