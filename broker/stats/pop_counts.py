"""PopCounts: the records and messages of pop consumption, counted for metrics.

Java counterpart: the counters in broker/metrics/PopMetricsManager.java of 5.5.0. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from ...common.histogram import Histogram
from ...store.status import PutMessageStatus

SCAN_BOUNDS_MS: Final = (1.0, 10.0, 100.0, 1_000.0, 2_000.0, 3_000.0)
"""Upper ends of the buckets of the times that storing check points took.
Source: PopMetricsManager.getMetricsView."""

ENTRIES_MAX: Final = 50_000
"""Combinations of topic, group and state that one counter has, as many as one metric has samples by
default; further ones are not counted. RocketMQ has no bound."""


KEY_SEPARATOR: Final = "@"
"""Between the parts of a key, such as topic@group."""


class RecordKind(StrEnum):
    """The kinds of records in the revive topic. Source: PopReviveMessageType."""

    CK = "CK"
    ACK = "ACK"


class RecordPut(NamedTuple):
    """A record that was stored, or not. `topic` is where the messages were popped from."""

    group: str
    topic: str
    kind: RecordKind
    status: PutMessageStatus


class RecordGot(NamedTuple):
    """A record that was read in a queue of the revive topic."""

    group: str
    topic: str
    queue_id: int
    kind: RecordKind


class RetryPut(NamedTuple):
    """A message that was stored in a retry topic, or not; `topic` as of its check point."""

    group: str
    topic: str
    status: PutMessageStatus


class PopCounts:
    """The counters of one broker.

    Attributes:
      puts, gets, retries: by what was counted; read-only.
      scans_ms: times that storing the check points of the buffer took, of each slice.
      pops, acks: check points and acknowledged messages since `BrokerStatsManager` took them last,
        by topic@group, of the topic that the messages are in.
    """

    def __init__(self) -> None:
        self.puts: Counter[RecordPut] = Counter()
        self.gets: Counter[RecordGot] = Counter()
        self.retries: Counter[RetryPut] = Counter()
        self.scans_ms = Histogram(SCAN_BOUNDS_MS)
        self.pops: dict[str, int] = {}
        self.acks: dict[str, int] = {}

    def put(self, group: str, topic: str, kind: RecordKind, status: PutMessageStatus) -> None:
        """Count a record of the revive topic that was stored, or not."""
        key = RecordPut(group, topic, kind, status)
        if key in self.puts or len(self.puts) < ENTRIES_MAX:
            self.puts[key] += 1

    def got(self, group: str, topic: str, kind: RecordKind, queue_id: int) -> None:
        """Count a record that was read in a queue of the revive topic."""
        key = RecordGot(group, topic, queue_id, kind)
        if key in self.gets or len(self.gets) < ENTRIES_MAX:
            self.gets[key] += 1

    def retried(self, group: str, topic: str, status: PutMessageStatus) -> None:
        """Count a message that was stored in a retry topic, or not."""
        key = RetryPut(group, topic, status)
        if key in self.retries or len(self.retries) < ENTRIES_MAX:
            self.retries[key] += 1

    def topic_deleted(self, topic: str) -> None:
        """Drop the counters of a topic."""
        self._drop_keys(lambda key: key.startswith(f"{topic}{KEY_SEPARATOR}"))
        for counts in (self.puts, self.gets, self.retries):
            for key in [key for key in counts if key.topic == topic]:
                del counts[key]

    def group_deleted(self, group: str) -> None:
        """Drop the counters of a group."""
        self._drop_keys(lambda key: key.endswith(f"{KEY_SEPARATOR}{group}"))
        for counts in (self.puts, self.gets, self.retries):
            for key in [key for key in counts if key.group == group]:
                del counts[key]

    def _drop_keys(self, is_dropped: Callable[[str], bool]) -> None:
        for counts in (self.pops, self.acks):
            for key in [key for key in counts if is_dropped(key)]:
                del counts[key]
