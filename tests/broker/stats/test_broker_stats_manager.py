"""Counters of topics and groups, and their growth over a minute, an hour and a day."""

from __future__ import annotations

import struct

import pytest

from trocket.broker.stats.broker_stats_manager import BrokerStatsManager, StatsName
from trocket.broker.stats.queue_growth import QUEUES_PER_STEP, UNITS_PER_STEP
from trocket.broker.stats.stats_item import DAY, HOUR, MINUTE, SAMPLE_INTERVAL_MS
from trocket.broker.stats.totals import PutTimes
from trocket.common.clock import ManualClock
from trocket.common.steps import at_once
from trocket.disk.errors import StoreError

PUTS, PUT_SIZE = StatsName.TOPIC_PUT_NUMS, StatsName.TOPIC_PUT_SIZE
GETS, GET_SIZE = StatsName.GROUP_GET_NUMS, StatsName.GROUP_GET_SIZE


class Queue:
    """A consume queue in memory, with files of five units."""

    def __init__(self) -> None:
        self.units: list[bytes] = []
        self.min_offset = 0

    @property
    def max_offset(self) -> int:
        return len(self.units)

    def put(self, *sizes: int) -> None:
        self.units += [struct.pack(">qiq", 0, size, -1) for size in sizes]

    def read(self, queue_offset: int, count_max: int) -> bytes:
        end = min(queue_offset + count_max, (queue_offset // 5 + 1) * 5)
        return b"".join(self.units[queue_offset:end])


class LongQueue(Queue):
    """So many messages that their sizes are added up in several steps."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 3 * UNITS_PER_STEP

    @property
    def max_offset(self) -> int:
        return self.count

    def read(self, queue_offset: int, count_max: int) -> bytes:
        return struct.pack(">qiq", 0, 100, -1) * count_max


class FailingQueue(Queue):
    """A queue whose file cannot be read."""

    is_broken = True

    def read(self, queue_offset: int, count_max: int) -> bytes:
        if self.is_broken:
            raise StoreError("a bad sector")
        return super().read(queue_offset, count_max)


class Broker:
    """A manager with its queues and its clock."""

    def __init__(self, *, counts_puts: bool = True, has_details: bool = True) -> None:
        self.clock = ManualClock()
        self.queues: dict[tuple[str, int], Queue] = {("T", 0): Queue()}
        self.queues["T", 0].put(1, 1, 1)  # from before the start
        self.stats = BrokerStatsManager(
            "C",
            self.queues,
            counts_puts=counts_puts,
            clock=self.clock,
            has_details=has_details,
        )
        self.stats.start()

    def pass_time(self, samples: int = 1) -> None:
        for _ in range(samples):
            self.clock.now_ms += SAMPLE_INTERVAL_MS
            at_once(self.stats.sample())

    def growth(self, name: StatsName, key: str, period: int = MINUTE) -> tuple[float, ...]:
        item = at_once(self.stats.item(name, key))
        assert item is not None
        return tuple(item.growth(period))


def test_the_look_for_an_unknown_counter_pauses() -> None:
    broker = Broker()
    broker.queues.update({("T", number): Queue() for number in range(2 * QUEUES_PER_STEP)})
    assert len(list(broker.stats.item(PUTS, "Unknown"))) == 2


def test_stored_messages_are_found_in_the_queues_with_their_sizes() -> None:
    broker = Broker()
    assert at_once(broker.stats.item(PUTS, "T")) is None
    broker.queues["T", 0].put(*range(100, 112))  # over the ends of files
    broker.queues["T", 1] = Queue()
    broker.queues["T", 1].put(1_000_000)
    broker.pass_time()
    size = sum(range(100, 112)) + 1_000_000
    assert broker.growth(PUTS, "T") == (13, 1.3, 1.0)
    assert broker.growth(PUT_SIZE, "T") == (size, size / 10, size / 13)
    assert broker.growth(StatsName.BROKER_PUT_NUMS, "C")[0] == 13
    assert broker.stats.tps_topic_put_nums("T") == 1.3
    assert (broker.stats.totals.put_messages, broker.stats.totals.put_size) == (13, size)


def test_two_collections_at_a_time_count_each_message_once() -> None:
    broker = Broker()
    broker.queues["T", 1] = queue = LongQueue()
    first = broker.stats.collect()
    next(first)  # within the first queue
    queue.count += 1
    at_once(broker.stats.collect())  # a reader of metrics, while a sample is taken
    at_once(first)
    assert broker.stats.items(PUTS)["T"].value == queue.count


def test_the_second_of_two_collections_knows_the_time_of_writes() -> None:
    broker = Broker()
    broker.queues["T", 1] = LongQueue()
    broker.queues["T", 2] = last = Queue()
    last.put(100)
    broker.stats.note_commit(0.005, 1)
    first = broker.stats.collect()
    next(first)
    at_once(broker.stats.collect())
    at_once(first)
    assert broker.stats.items(StatsName.TOPIC_PUT_LATENCY)["2@T"].value == 5


def test_a_queue_that_cannot_be_read_is_counted_later_and_the_others_once() -> None:
    broker = Broker()
    broker.queues["T", 1] = failing = FailingQueue()
    for queue in broker.queues.values():
        queue.put(100)
    with pytest.raises(StoreError):
        at_once(broker.stats.collect())
    failing.is_broken = False
    at_once(broker.stats.collect())
    assert broker.stats.items(PUTS)["T"].value == 2


def test_many_queues_are_looked_at_in_steps() -> None:
    broker = Broker()
    broker.queues.update({("T", number): Queue() for number in range(2 * QUEUES_PER_STEP)})
    assert sum(1 for _ in broker.stats.collect()) == 2


def test_a_counter_is_there_before_the_first_sample() -> None:
    broker = Broker()
    broker.queues["T", 0].put(10)
    assert broker.growth(PUTS, "T") == (0, 0.0, 0.0)
    broker.pass_time()
    assert broker.growth(PUTS, "T")[0] == 1


@pytest.mark.slow
def test_a_minute_forgets_what_is_older_and_an_hour_does_not() -> None:
    broker = Broker()
    broker.queues["T", 0].put(*[10] * 60)
    broker.pass_time(7)
    assert broker.growth(PUTS, "T") == (0, 0.0, 0.0)
    assert broker.growth(PUTS, "T", HOUR) == (60, 60 / 600, 1.0)
    assert broker.growth(PUTS, "T", DAY) == (60, 60 / 3600, 1.0)
    broker.pass_time(360)
    assert broker.growth(PUTS, "T", HOUR)[0] == 0
    assert broker.growth(PUTS, "T", DAY)[0] == 60
    broker.pass_time(24 * 360)
    assert broker.growth(PUTS, "T", DAY)[0] == 0


def test_the_answers_to_pulls_are_counted_by_topic_and_group() -> None:
    broker = Broker()
    broker.stats.count_get("T@G", 32, 3_200)
    broker.stats.count_get("T@G", 8, 800)
    broker.stats.count_get("rmq_sys_x@G", 1, 5)
    broker.stats.count_misses(3)
    broker.pass_time()
    assert broker.growth(GETS, "T@G") == (40, 4.0, 20.0)
    assert broker.growth(GET_SIZE, "T@G")[0] == 4_000
    assert broker.growth(StatsName.BROKER_GET_NUMS, "C")[0] == 41
    assert broker.growth(StatsName.BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC, "C")[0] == 40
    assert broker.stats.tps_group_get_nums("G", "T") == 4.0
    totals = broker.stats.totals
    assert (totals.gets_found, totals.gets_missed, totals.got_messages) == (3, 3, 41)


def test_a_slave_does_not_count_the_messages_of_its_master() -> None:
    broker = Broker(counts_puts=False)
    broker.queues["T", 0].put(10)
    broker.pass_time()
    assert at_once(broker.stats.item(PUTS, "T")) is None


def test_a_queue_that_was_made_again_counts_from_its_beginning() -> None:
    broker = Broker()
    broker.queues["T", 0] = Queue()
    broker.queues["T", 0].put(7, 7)
    broker.pass_time()
    assert broker.growth(PUTS, "T")[0] == 2


def test_expired_messages_are_not_counted() -> None:
    broker = Broker()
    queue = broker.queues["T", 0]
    queue.put(*[10] * 10)
    queue.min_offset = 11
    broker.pass_time()
    assert broker.growth(PUTS, "T")[0] == 2


@pytest.mark.parametrize(("gone", "left"), [("topic", "U@G"), ("group", "T@H")])
def test_a_deleted_topic_or_group_takes_its_counters_with_it(gone: str, left: str) -> None:
    broker = Broker()
    for key in ("T@G", left):
        broker.stats.count_get(key, 1, 1)
    broker.queues["T", 0].put(10)
    broker.pass_time()
    broker.stats.count_get("T@G", 1, 1)
    if gone == "topic":
        broker.stats.topic_deleted("T")
        assert at_once(broker.stats.item(PUTS, "T")) is None
    else:
        broker.stats.group_deleted("G")
    assert at_once(broker.stats.item(GETS, "T@G")) is None
    assert broker.growth(GETS, left)[0] == 1


def test_unknown_names_are_no_counters() -> None:
    assert at_once(Broker().stats.item("name", "T")) is None


def test_rates_are_of_ten_seconds_a_minute_and_ten_minutes() -> None:
    broker = Broker()
    history = broker.stats.history
    assert history.rates("put_messages") == (0.0, 0.0, 0.0)
    broker.queues["T", 0].put(*[10] * 60)
    broker.pass_time()
    assert history.rates("put_messages") == (6.0, 6.0, 6.0)
    broker.pass_time(5)
    assert history.rates("put_messages") == (0.0, 1.0, 1.0)
    broker.pass_time(54)
    assert history.rates("put_messages") == (0.0, 0.0, 0.1)


def test_totals_of_the_last_midnights() -> None:
    broker = Broker()
    broker.queues["T", 0].put(10)
    broker.clock.now_ms += 86_400_000
    broker.pass_time()
    broker.queues["T", 0].put(10, 10)
    broker.clock.now_ms += 86_400_000
    broker.pass_time()
    history = broker.stats.history
    assert (history.yesterday.put_messages, history.today.put_messages) == (1, 3)


def test_times_of_writes_are_counted_in_ranges_of_the_last_minute() -> None:
    times = PutTimes()
    for elapsed_s in (0.0001, 0.0002, 0.004, 0.7, 11.0):
        times.note(elapsed_s)
    assert times.text().startswith("[<=0ms]:2 [0~10ms]:1 [10~50ms]:0 ")
    assert times.text().endswith("[500ms~1s]:1 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 "
                                 "[5~10s]:0 [10s~]:1 ")  # fmt: skip
    assert times.longest_ms == 11_000
    assert 10_000 < times.percentile_ms(0.99) <= 11_000
    assert times.percentile_ms(0.2) == 0.0
    for _ in range(6):
        times.sample()
    times.note(0.02)
    assert "[10~50ms]:0" in times.text()
    assert "[<=0ms]:2" in times.text()
    for _ in range(6):
        times.sample()
    assert "[<=0ms]:0" in times.text()
    assert "[10~50ms]:1" in times.text()


def test_the_messages_of_single_queues_and_the_time_of_their_writes() -> None:
    broker = Broker()
    broker.queues["T", 0].put(100, 200)
    broker.queues["T", 1] = Queue()
    broker.queues["T", 1].put(*[10] * 8)
    broker.stats.note_commit(0.004, 1)  # one message waited 4 ms, nine waited 24 ms
    broker.stats.note_commit(0.024, 9)
    broker.pass_time()
    assert broker.growth(StatsName.QUEUE_PUT_NUMS, "T@0")[0] == 2
    assert broker.growth(StatsName.QUEUE_PUT_SIZE, "T@0") == (300, 30.0, 150.0)
    assert broker.growth(StatsName.QUEUE_PUT_NUMS, "T@1")[0] == 8
    assert broker.growth(StatsName.TOPIC_PUT_LATENCY, "1@T") == (176, 17.6, 22.0)
    assert broker.growth(PUTS, "T")[0] == 10
    # The writes of one sample are not those of the next.
    broker.queues["T", 0].put(1)
    broker.pass_time()
    assert broker.growth(StatsName.TOPIC_PUT_LATENCY, "0@T")[0] == 44


def test_the_time_of_reads_by_queue_and_group() -> None:
    broker = Broker()
    for elapsed_s in (0.001, 0.004):
        broker.stats.note_get("T@G", 3, elapsed_s)
    broker.pass_time()
    assert broker.growth(StatsName.GROUP_GET_LATENCY, "3@T@G") == (5, 0.5, 2.5)


def test_without_details_queues_have_no_counters() -> None:
    broker = Broker(has_details=False)
    broker.queues["T", 0].put(100)
    broker.stats.note_get("T@G", 3, 0.002)
    broker.pass_time()
    assert at_once(broker.stats.item(StatsName.QUEUE_PUT_NUMS, "T@0")) is None
    assert at_once(broker.stats.item(StatsName.GROUP_GET_LATENCY, "3@T@G")) is None
    assert broker.growth(StatsName.GROUP_GET_LATENCY, "T@G")[0] == 2
    assert broker.growth(StatsName.TOPIC_PUT_LATENCY, "0@T")[0] == 0


def test_the_counters_of_queues_go_with_their_topic_or_group() -> None:
    broker = Broker()
    broker.queues["U", 0] = Queue()
    for key in ("T", 0), ("U", 0):
        broker.queues[key].put(10)
    for key in ("T@G", "T@H", "U@G", "U@T"):
        broker.stats.note_get(key, 0, 0.001)
    broker.pass_time()
    broker.stats.note_get("T@G", 0, 0.001)
    broker.stats.topic_deleted("T")
    left = {
        name: sorted(broker.stats.items(name))
        for name in (
            StatsName.QUEUE_PUT_NUMS,
            StatsName.QUEUE_PUT_SIZE,
            StatsName.TOPIC_PUT_LATENCY,
            StatsName.GROUP_GET_LATENCY,
        )
    }
    assert list(left.values()) == [["U@0"], ["U@0"], ["0@U"], ["0@U@G", "0@U@T"]]
    broker.stats.group_deleted("G")
    broker.pass_time()
    assert sorted(broker.stats.items(StatsName.GROUP_GET_LATENCY)) == ["0@U@T"]


@pytest.mark.parametrize("jump_ms", [-3_600_000, -25_000, 25_000, 3_600_000])
def test_rates_are_those_of_the_time_that_passed_when_the_clock_is_set(jump_ms: int) -> None:
    broker = Broker()
    history = broker.stats.history
    broker.pass_time()
    broker.queues["T", 0].put(*[10] * 60)
    broker.clock.jump(jump_ms)
    broker.pass_time()
    assert history.rates("put_messages")[0] == 6.0
    broker.pass_time(5)
    assert history.rates("put_messages")[1] == 1.0
    assert broker.growth(PUTS, "T") == (60, 1.0, 1.0)
