"""BrokerStatsManager: counters by topic, group and cluster, sampled every ten seconds.

Stored messages are not counted one by one: `QueueGrowth` finds them. A pull that is answered costs
one addition. Times are of the last sample, so a rate is up to ten seconds old, as with RocketMQ.

A latency of a put (TOPIC_PUT_LATENCY) is the mean time of the writes since the last sample, for all
queues that grew: one write stores the messages of many. A latency of a get (GROUP_GET_LATENCY) is
measured where a pull is read by Python; pulls that the C extension answers take microseconds.

Java counterpart: store/stats/BrokerStatsManager.java of 5.5.0. Pure.
Not done: billing (COMMERCIAL_*). Of reads from the disk
(GROUP_GET_FROM_DISK_NUMS) RocketMQ has names but counts none, and what it keeps of how far reads
fall behind (GROUP_GET_FALL_SIZE) is for its log: a request finds none of them there either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final

from ...common.clock import Clock
from ...common.histogram import Histogram
from ...common.steps import STEP_ITEMS, Steps
from ...common.topic_names import is_system_topic, normal_topic
from .pop_counts import KEY_SEPARATOR as KEY_SEPARATOR
from .pop_counts import PopCounts
from .queue_growth import Queue, QueueGrowth
from .stats_item import MINUTE, StatsItem
from .totals import PutTimes, Totals, TotalsHistory

TURN_BOUNDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0)
"""Upper ends of the buckets of sends that one write stores."""

CREATION_BOUNDS_MS: Final = (10.0, 100.0, 1_000.0, 3_000.0, 5_000.0)
"""Upper ends of the buckets of creation times.
Source: BrokerMetricsManager.initMetricsView of 5.5.0."""

_DAY_DIGITS: Final = 8  # of a local time's name


class StatsName(StrEnum):
    """The names of the counters. A comment has the form of the key."""

    TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"  # topic
    TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
    GROUP_GET_NUMS = "GROUP_GET_NUMS"  # topic@group
    GROUP_GET_SIZE = "GROUP_GET_SIZE"
    GROUP_CK_NUMS = "GROUP_CK_NUMS"
    GROUP_ACK_NUMS = "GROUP_ACK_NUMS"
    SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
    DLQ_PUT_NUMS = "DLQ_PUT_NUMS"
    QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"  # topic@queue
    QUEUE_PUT_SIZE = "QUEUE_PUT_SIZE"
    TOPIC_PUT_LATENCY = "TOPIC_PUT_LATENCY"  # queue@topic, value in milliseconds
    GROUP_GET_LATENCY = "GROUP_GET_LATENCY"  # queue@topic@group; topic@group without details
    BROKER_PUT_NUMS = "BROKER_PUT_NUMS"  # cluster
    BROKER_GET_NUMS = "BROKER_GET_NUMS"
    BROKER_CK_NUMS = "BROKER_CK_NUMS"
    BROKER_ACK_NUMS = "BROKER_ACK_NUMS"
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
      has_details: whether single queues have counters (enableDetailStat).
      clock: its wall time is that of the samples.

    Attributes:
      totals: up to the last `collect`; pulls without messages are counted at once.
      history: of the totals.
      put_times: of writes to the log.
      turn_messages: the numbers of sends that one write stored.
      pop: what pop consumption counts for metrics.
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
        has_details: bool = True,
    ) -> None:
        self.totals = Totals()
        self.history = TotalsHistory()
        self.put_times = PutTimes()
        self.pop = PopCounts()
        self.turn_messages = Histogram(TURN_BOUNDS)
        self.topic_creations_ms = Histogram(CREATION_BOUNDS_MS)
        self.group_creations_ms = Histogram(CREATION_BOUNDS_MS)
        self.started_ms = clock.wall_ms()
        self._cluster = cluster
        self._growth = QueueGrowth(queues)
        self._counts_puts = counts_puts
        self._has_details = has_details
        self._write_s = 0.0  # since the last sample: times of writes, each times its messages
        self._written = 0
        self._write_ms = 0.0  # their mean, as the last collection took it
        self._looks = 0  # collections under way
        self._get_times: dict[tuple[str, int], list[float]] = {}  # (seconds, number) of each
        self._clock = clock
        self._items: dict[StatsName, dict[str, StatsItem]] = {name: {} for name in StatsName}
        self._gets: dict[str, GetCount] = {}
        self._samples = 0

    def start(self) -> None:
        """Begin to count; call it once the store is loaded."""
        self._growth.start()
        self.started_ms = self._clock.wall_ms()
        self._sample_totals(self._passed_ms())

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
        self._write_s += elapsed_s * count
        self._written += count

    def note_get(self, key: str, queue_id: int, elapsed_s: float) -> None:
        """Record how long it took to answer a pull with messages.

        Args:
          key: topic@group.
          elapsed_s: from the read to the answer.
        """
        times = self._get_times.get((key, queue_id))
        if times is None:
            times = self._get_times[key, queue_id] = [0.0, 0]
        times[0] += elapsed_s
        times[1] += 1

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
        yield from self._collect_gets()
        yield from self._collect_pops()
        if not self._counts_puts:
            return
        # Another collection under way has taken the times, and may leave messages to this one.
        if self._written or not self._looks:
            self._write_ms = self._write_s * 1000 / self._written if self._written else 0.0
            self._write_s, self._written = 0.0, 0
        self._looks += 1
        try:
            yield from self._growth.look(partial(self._count_puts, self._write_ms))
        finally:
            self._looks -= 1

    def _count_puts(
        self, write_ms: float, topic: str, queue_id: int, count: int, size: int
    ) -> None:
        """Count the new messages of a queue, each of which took `write_ms` on average to write."""
        at = KEY_SEPARATOR
        latency_ms = round(write_ms * count)
        self.add(StatsName.TOPIC_PUT_LATENCY, f"{queue_id}{at}{topic}", latency_ms, count)
        if self._has_details:
            self.add(StatsName.QUEUE_PUT_NUMS, f"{topic}{at}{queue_id}", count, count)
            self.add(StatsName.QUEUE_PUT_SIZE, f"{topic}{at}{queue_id}", size, count)
        self.add(StatsName.TOPIC_PUT_NUMS, topic, count, count)
        self.add(StatsName.TOPIC_PUT_SIZE, topic, size, count)
        self.add(StatsName.BROKER_PUT_NUMS, self._cluster, count, count)
        if not is_system_topic(topic):
            name = StatsName.BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC
            self.add(name, self._cluster, count, count)
        self.totals.put_messages += count
        self.totals.put_size += size

    def _collect_gets(self) -> Steps[None]:
        # Both tables begin anew before the first step, after which others may count on.
        get_times, self._get_times = self._get_times, {}
        gets, self._gets = self._gets, {}
        for number, ((key, queue_id), (elapsed_s, answers)) in enumerate(get_times.items(), 1):
            if number % STEP_ITEMS == 0:
                yield
            name = f"{queue_id}{KEY_SEPARATOR}{key}" if self._has_details else key
            self.add(StatsName.GROUP_GET_LATENCY, name, round(elapsed_s * 1000), int(answers))
        for number, (key, count) in enumerate(gets.items(), 1):
            if number % STEP_ITEMS == 0:
                yield
            self.add(StatsName.GROUP_GET_NUMS, key, count.messages, count.answers)
            self.add(StatsName.GROUP_GET_SIZE, key, count.size, count.answers)
            self.add(StatsName.BROKER_GET_NUMS, self._cluster, count.messages, count.answers)
            if not is_system_topic(key.partition(KEY_SEPARATOR)[0]):
                name = StatsName.BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC
                self.add(name, self._cluster, count.messages, count.answers)
            self.totals.gets_found += count.answers
            self.totals.got_messages += count.messages

    def _collect_pops(self) -> Steps[None]:
        """Take what pops counted; check points of retry topics count for the topic."""
        pops, self.pop.pops = self.pop.pops, {}
        acks, self.pop.acks = self.pop.acks, {}
        for number, (key, count) in enumerate(pops.items(), 1):
            if number % STEP_ITEMS == 0:
                yield
            topic, _, group = key.partition(KEY_SEPARATOR)
            name = f"{normal_topic(topic, group)}{KEY_SEPARATOR}{group}"
            self.add(StatsName.GROUP_CK_NUMS, name, count, count)
            self.add(StatsName.BROKER_CK_NUMS, self._cluster, count, count)
        for number, (key, count) in enumerate(acks.items(), 1):
            if number % STEP_ITEMS == 0:
                yield
            self.add(StatsName.GROUP_ACK_NUMS, key, count, count)
            self.add(StatsName.BROKER_ACK_NUMS, self._cluster, count, count)

    def sample(self) -> Steps[None]:
        """Steps that take a sample of each counter; call it every SAMPLE_INTERVAL_MS.

        Raises: StoreError: as `collect`; no sample is taken.
        """
        yield from self.collect()
        passed_ms = self._passed_ms()
        self._sample_totals(passed_ms)
        number, self._samples = self._samples, self._samples + 1
        left = STEP_ITEMS
        for items in self._items.values():
            for item in list(items.values()):
                item.sample(passed_ms, number)
                left -= 1
                if not left:
                    left = STEP_ITEMS
                    yield

    def _passed_ms(self) -> int:
        return int(self._clock.elapsed_s() * 1000)

    def _sample_totals(self, passed_ms: int) -> None:
        day = self._clock.local_time_name(self._clock.wall_ms())[:_DAY_DIGITS]
        self.history.sample(self.totals, passed_ms, day)
        self.put_times.sample()

    # ---- looking -------------------------------------------------------------------------

    def item(self, name: str, key: str) -> Steps[StatsItem | None]:
        """Steps that find a counter by its name and key.

        Returns: steps that return None if nothing was counted, or no counter has the name.
        Raises: StoreError: as `collect`.
        """
        if name not in StatsName.__members__:
            return None
        items = self._items[StatsName(name)]
        if key not in items:  # its first event may be younger than the last sample
            yield from self.collect()
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
        self.pop.topic_deleted(topic)
        head, end = f"{topic}{KEY_SEPARATOR}", f"{KEY_SEPARATOR}{topic}"
        self._drop(lambda key: key.startswith(head))
        _drop_from(self._items[StatsName.TOPIC_PUT_LATENCY], lambda key: key.endswith(end))
        skipped = 1 if self._has_details else 0  # the queue
        _drop_from(
            self._items[StatsName.GROUP_GET_LATENCY],
            lambda key: key.split(KEY_SEPARATOR)[skipped] == topic,
        )

    def group_deleted(self, group: str) -> None:
        """Drop the counters of a deleted group. Source: BrokerStatsManager.onGroupDeleted."""
        self.pop.group_deleted(group)
        end = f"{KEY_SEPARATOR}{group}"
        self._drop(lambda key: key.endswith(end))
        _drop_from(self._items[StatsName.GROUP_GET_LATENCY], lambda key: key.endswith(end))

    def _drop(self, is_dropped: Callable[[str], bool]) -> None:
        for name in (
            StatsName.GROUP_GET_NUMS,
            StatsName.GROUP_GET_SIZE,
            StatsName.GROUP_CK_NUMS,
            StatsName.GROUP_ACK_NUMS,
            StatsName.SNDBCK_PUT_NUMS,
            StatsName.DLQ_PUT_NUMS,
            StatsName.QUEUE_PUT_NUMS,
            StatsName.QUEUE_PUT_SIZE,
        ):
            _drop_from(self._items[name], is_dropped)
        _drop_from(self._gets, is_dropped)
        for place in [place for place in self._get_times if is_dropped(place[0])]:
            del self._get_times[place]


def _drop_from(table: dict[str, Any], is_dropped: Callable[[str], bool]) -> None:
    for key in [key for key in table if is_dropped(key)]:
        del table[key]
