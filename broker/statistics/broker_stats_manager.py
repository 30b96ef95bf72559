"""BrokerStatsManager: counters by topic, group and cluster, sampled every ten seconds.

Stored messages are not counted one by one: `QueueGrowth` finds them. A pull that is answered costs
one addition. Times are of the last sample, so a rate is up to ten seconds old, as with RocketMQ.

Java counterpart: store/stats/BrokerStatsManager.java of 5.5.0. Pure.
Not done: the counters of single queues (QUEUE_PUT_NUMS and the like: 48 samples for each queue of a
broker are too much memory), of latencies (TOPIC_PUT_LATENCY, GROUP_GET_LATENCY) and of billing
(COMMERCIAL_*); those of acknowledgements belong to pop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from ...common.histogram import Histogram
from ...common.topic_names import is_system_topic
from ...remoting.steps import STEP_ITEMS, Steps, at_once
from ...store.clock import Clock
from .queue_growth import Queue, QueueGrowth
from .stats_item import MINUTE, StatsItem
from .totals import PutTimes, Totals, TotalsHistory

TURN_BOUNDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0)
"""Upper ends of the buckets of sends that one write stores."""

CREATION_BOUNDS_MS: Final = (10.0, 100.0, 1_000.0, 3_000.0, 5_000.0)
"""Upper ends of the buckets of creation times.
Source: BrokerMetricsManager.initMetricsView of 5.5.0."""

KEY_SEPARATOR: Final = "@"
"""Between the parts of a key, such as topic@group."""


_DAY_DIGITS: Final = 8  # of a local time's name


class StatsName(StrEnum):
    """The names of the counters. A comment has the form of the key."""

    TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"  # topic
    TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
    GROUP_GET_NUMS = "GROUP_GET_NUMS"  # topic@group
    GROUP_GET_SIZE = "GROUP_GET_SIZE"
    SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
    DLQ_PUT_NUMS = "DLQ_PUT_NUMS"
    BROKER_PUT_NUMS = "BROKER_PUT_NUMS"  # cluster
    BROKER_GET_NUMS = "BROKER_GET_NUMS"
    BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"
    BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC = "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"


class GetCount:
    """What pulls of one group from one topic got since the last sample.

    Attributes:
      answers, messages, size: of the answers with messages; bytes of their records.
    """

    __slots__ = ("answers", "messages", "size")

    def __init__(self) -> None:
        self.answers = self.messages = self.size = 0


class BrokerStatsManager:
    """The counters of a broker.

    Args:
      cluster: the name of its cluster, the key of the counters of the whole broker.
      queues: those of the store.
      counts_puts: false on a slave, whose messages come from its master.
      clock: its wall time is that of the samples.

    Attributes:
      totals: up to the last `collect`; pulls without messages are counted at once.
      history: of the totals.
      put_times: of writes to the log.
      turn_messages: the numbers of sends that one write stored.
      topic_creations_ms, group_creations_ms: times that administrators waited until a topic or a
        group was saved, milliseconds.
      started_ms: wall time of `start`.
    """

    def __init__(
        self,
        cluster: str,
        queues: Mapping[tuple[str, int], Queue],
        *,
        counts_puts: bool,
        clock: Clock,
    ) -> None:
        self.totals = Totals()
        self.history = TotalsHistory()
        self.put_times = PutTimes()
        self.turn_messages = Histogram(TURN_BOUNDS)
        self.topic_creations_ms = Histogram(CREATION_BOUNDS_MS)
        self.group_creations_ms = Histogram(CREATION_BOUNDS_MS)
        self.started_ms = clock.wall_ms()
        self._cluster = cluster
        self._growth = QueueGrowth(queues)
        self._counts_puts = counts_puts
        self._clock = clock
        self._items: dict[StatsName, dict[str, StatsItem]] = {name: {} for name in StatsName}
        self._gets: dict[str, GetCount] = {}
        self._samples = 0

    def start(self) -> None:
        """Begin to count; call it once the store is loaded."""
        self._growth.start()
        self.started_ms = self._clock.wall_ms()
        self._sample_totals(self.started_ms)

    def measure_sizes(self, bounds: Sequence[float]) -> None:
        """Put the sizes of messages into buckets from now on; see `sizes`.

        Args:
          bounds: upper ends of the buckets, bytes.
        """
        self._growth.size_bounds = bounds

    @property
    def sizes(self) -> Mapping[str, Histogram]:
        """The sizes of stored messages by topic, up to the last `collect`; see `measure_sizes`."""
        return self._growth.sizes

    # ---- counting ------------------------------------------------------------------------

    def count_get(self, key: str, messages: int, size: int) -> None:
        """Count the answer to a pull.

        Args:
          key: topic@group.
          messages: in the answer, > 0.
          size: bytes of their records.
        """
        count = self._gets.get(key)
        if count is None:
            count = self._gets[key] = GetCount()
        count.answers += 1
        count.messages += messages
        count.size += size

    def note_commit(self, elapsed_s: float, count: int) -> None:
        """Count a write to the log.

        Args:
          elapsed_s: the time that it took.
          count: the number of sends that it stored.
        """
        self.put_times.note(elapsed_s)
        self.turn_messages.add(count)

    def count_misses(self, count: int) -> None:
        """Count pulls that found nothing."""
        self.totals.gets_missed += count

    def add(self, name: StatsName, key: str, value: int = 1, times: int = 1) -> None:
        """Count events that are rare enough to be counted one by one."""
        items = self._items[name]
        item = items.get(key)
        if item is None:
            item = items[key] = StatsItem()
        item.add(value, times)

    # ---- sampling ------------------------------------------------------------------------

    def collect(self) -> Steps[None]:
        """Steps that bring the counters up to date.

        Raises: StoreError: the sizes of stored messages cannot be read.
        """
        self._collect_gets()
        if not self._counts_puts:
            return
        for topic, (count, size) in (yield from self._growth.look()).items():
            self.add(StatsName.TOPIC_PUT_NUMS, topic, count, count)
            self.add(StatsName.TOPIC_PUT_SIZE, topic, size, count)
            self.add(StatsName.BROKER_PUT_NUMS, self._cluster, count, count)
            if not is_system_topic(topic):
                name = StatsName.BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC
                self.add(name, self._cluster, count, count)
            self.totals.put_messages += count
            self.totals.put_size += size

    def _collect_gets(self) -> None:
        gets, self._gets = self._gets, {}
        for key, count in gets.items():
            self.add(StatsName.GROUP_GET_NUMS, key, count.messages, count.answers)
            self.add(StatsName.GROUP_GET_SIZE, key, count.size, count.answers)
            self.add(StatsName.BROKER_GET_NUMS, self._cluster, count.messages, count.answers)
            if not is_system_topic(key.partition(KEY_SEPARATOR)[0]):
                name = StatsName.BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC
                self.add(name, self._cluster, count.messages, count.answers)
            self.totals.gets_found += count.answers
            self.totals.got_messages += count.messages

    def sample(self) -> Steps[None]:
        """Steps that take a sample of each counter; call it every SAMPLE_INTERVAL_MS.

        Raises: StoreError: as `collect`; no sample is taken.
        """
        yield from self.collect()
        now_ms = self._clock.wall_ms()
        self._sample_totals(now_ms)
        number, self._samples = self._samples, self._samples + 1
        left = STEP_ITEMS
        for items in self._items.values():
            for item in list(items.values()):
                item.sample(now_ms, number)
                left -= 1
                if not left:
                    left = STEP_ITEMS
                    yield

    def _sample_totals(self, now_ms: int) -> None:
        self.history.sample(self.totals, now_ms, self._clock.local_time_name(now_ms)[:_DAY_DIGITS])
        self.put_times.sample()

    # ---- looking -------------------------------------------------------------------------

    def item(self, name: str, key: str) -> StatsItem | None:
        """A counter by its name and key; None: nothing was counted, or no counter has the name.

        Raises: StoreError: as `collect`.
        """
        if name not in StatsName.__members__:
            return None
        items = self._items[StatsName(name)]
        if key not in items:  # its first event may be younger than the last sample
            at_once(self.collect())
        return items.get(key)

    def items(self, name: StatsName) -> Mapping[str, StatsItem]:
        """All counters of a name by their keys; read-only."""
        return self._items[name]

    def tps_topic_put_nums(self, topic: str) -> float:
        """Messages stored per second in a topic during the last minute."""
        return self._tps(StatsName.TOPIC_PUT_NUMS, topic)

    def tps_group_get_nums(self, group: str, topic: str) -> float:
        """Messages that a group pulled per second from a topic during the last minute."""
        return self._tps(StatsName.GROUP_GET_NUMS, f"{topic}{KEY_SEPARATOR}{group}")

    def _tps(self, name: StatsName, key: str) -> float:
        item = self._items[name].get(key)
        return 0.0 if item is None else item.growth(MINUTE).tps

    # ---- forgetting ----------------------------------------------------------------------

    def topic_deleted(self, topic: str) -> None:
        """Drop the counters of a deleted topic. Source: BrokerStatsManager.onTopicDeleted."""
        self._items[StatsName.TOPIC_PUT_NUMS].pop(topic, None)
        self._items[StatsName.TOPIC_PUT_SIZE].pop(topic, None)
        self._growth.sizes.pop(topic, None)
        self._drop(lambda key: key.startswith(f"{topic}{KEY_SEPARATOR}"))

    def group_deleted(self, group: str) -> None:
        """Drop the counters of a deleted group. Source: BrokerStatsManager.onGroupDeleted."""
        self._drop(lambda key: key.endswith(f"{KEY_SEPARATOR}{group}"))

    def _drop(self, is_dropped: Callable[[str], bool]) -> None:
        for name in (
            StatsName.GROUP_GET_NUMS,
            StatsName.GROUP_GET_SIZE,
            StatsName.SNDBCK_PUT_NUMS,
            StatsName.DLQ_PUT_NUMS,
        ):
            items = self._items[name]
            for key in [key for key in items if is_dropped(key)]:
                del items[key]
        for key in [key for key in self._gets if is_dropped(key)]:
            del self._gets[key]
