"""Samples of a cluster: rates between samples, and lag, by few requests under one deadline.

A sample takes one request to a name server, and to each broker 2 (its runtime information and the
progress of all groups), each TABLES_S one for its topics and one for its groups, some for topics
without a consumer, and some for delays: see `Bounds`. A broker that gave no answer is first asked
whether it is back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from ..client import ClientError, QueueSpan, ServerError
from ..client.admin.asking import ask_all, is_silence
from ..client.admin.topics import is_own_topic
from ..client.core.topics import is_dlq_topic, is_retry_topic
from ..common.texts import one_line
from ..common.topic_names import is_own_group
from .asking import TIMEOUTS
from .turns import in_turn

if TYPE_CHECKING:
    from ..client import Admin, BrokerConsumeStats, BrokerInfo, BrokerStats

PROBE_S: Final = 1.0
"""Seconds that a sample waits for the first answer of a broker that gave none before: a good one
needs milliseconds."""
TABLES_S: Final = 30.0
"""Seconds between two questions for a broker's topics, and for its groups."""
WINDOW_S: Final = 10.0
"""Seconds over which reading is averaged: clients commit their offsets each 5 s."""
BROKERS_AT_ONCE: Final = 16
"""Brokers that are asked at one time."""


class Bounds(NamedTuple):
    """Requests of one sample to one broker.

    Attributes:
      topics: topics without a consumer that it is asked for; they take turns.
      spans: groups and topics whose delay is asked for: those with the most messages waiting.
    """

    topics: int = 32
    spans: int = 16


TERMINAL: Final = Bounds()
"""For a command that one person looks at: rates of many topics after few samples."""
PAGE: Final = Bounds(2, 4)
"""For pages, which are open for hours: with a sample each 5 s, less than 2 requests a second."""


class BrokerRow(msgspec.Struct, frozen=True, rename="camel"):
    """A broker.

    Attributes:
      in_rate, out_rate: messages stored and read per second, during the last 10 s; None: unknown.
      disk_ratio: the used part of the log's disk, 0 to 1.
      error: why it did not answer; "": it did.
    """

    broker: str
    cluster: str
    address: str
    version: str = ""
    in_rate: float | None = None
    out_rate: float | None = None
    disk_ratio: float | None = None
    error: str = ""


class TopicRow(msgspec.Struct, frozen=True, rename="camel"):
    """A topic; the sum of its brokers.

    Attributes:
      queues: those of all brokers.
      in_rate: messages stored per second since the last sample; None: unknown.
      out_rate: messages read per second by all groups, during WINDOW_S.
      groups: how many groups have offsets in it.
      lag: of the group that is farthest behind, in messages.
      delay_s: the age of the oldest message that waits for a group; None: unknown.
    """

    topic: str
    queues: int
    in_rate: float | None
    out_rate: float | None
    groups: int
    lag: int
    delay_s: float | None


class GroupRow(msgspec.Struct, frozen=True, rename="camel"):
    """A group; the sum of its topics, its retry topic among them.

    Attributes:
      topics: their names, sorted, without the retry topic.
      out_rate, lag, delay_s: as in TopicRow.
      retries: the part of `lag` in its retry topic.
      has_offsets: it has committed in some queue.
    """

    group: str
    topics: tuple[str, ...]
    out_rate: float | None
    lag: int
    delay_s: float | None
    retries: int
    has_offsets: bool = True


class Sample(msgspec.Struct, frozen=True, rename="camel"):
    """A cluster at one time, ms since 1970."""

    timestamp_ms: int
    brokers: tuple[BrokerRow, ...]
    topics: tuple[TopicRow, ...]
    groups: tuple[GroupRow, ...]


K = TypeVar("K")

_OfTopic = tuple[str, str]
"""Broker name and topic."""
_OfGroup = tuple[str, str, str]
"""Broker name, group and topic."""


class _Progress(msgspec.Struct):
    """How far a group is in a topic on one broker: sums of its queues."""

    read: int = 0
    lag: int = 0


class _Reading(msgspec.Struct):
    """What the brokers answered at one time.

    Attributes:
      at_s: the loop's clock.
      ends: when a topic was last asked for, and the sum of its queues' ends.
      in_rates: messages stored per second between the last two of these times.
      queues: the number of its queues: as last asked for, else as the broker's table says.
      delays: the longest known delay of a group in a topic; None: unknown.
      groups: names of those that brokers have settings of.
    """

    at_s: float
    ends: dict[_OfTopic, tuple[float, int]] = {}
    in_rates: dict[_OfTopic, float] = {}
    queues: dict[_OfTopic, int] = {}
    progress: dict[_OfGroup, _Progress] = {}
    delays: dict[tuple[str, str], float | None] = {}
    groups: set[str] = set()


class Sampler:
    """Takes samples; each is compared with earlier ones.

    Args:
      admin: open.
      is_all: RocketMQ's own topics and groups, retry topics and DLQ topics, too.
      with_new_groups: groups that never committed, too.
      bounds: how much is asked for.
      limit_s: seconds for a sample; None: TIMEOUTS of the client's `timeout_s`, which limits each
        request, too.
    """

    def __init__(
        self,
        admin: Admin,
        *,
        is_all: bool = False,
        with_new_groups: bool = False,
        bounds: Bounds = TERMINAL,
        limit_s: float | None = None,
    ) -> None:
        self._admin = admin
        self._is_all = is_all
        self._with_new_groups = with_new_groups
        self._bounds = bounds
        self._limit_s = TIMEOUTS * admin.client.timeout_s if limit_s is None else limit_s
        self._silent: dict[str, str] = {}
        self._readings: deque[_Reading] = deque()
        self._tables: dict[str, tuple[float, dict[str, int]]] = {}
        self._group_tables: dict[str, tuple[float, list[str]]] = {}
        self._turns: dict[str, int] = {}
        self._own: set[str] = set()

    async def sample(self) -> Sample:
        """Ask the cluster. A broker that does not answer has its error in its row.

        Raises: ServerError; ConnectError: no name server answers.
        """
        view = await self._admin.cluster()
        # Brokers have topics of these names.
        clusters = {broker.cluster for broker in view.brokers}
        replies = {f"{cluster}_REPLY_TOPIC" for cluster in clusters}
        self._own = clusters | replies | {broker.name for broker in view.brokers}
        reading = _Reading(anyio.current_time())
        rows: dict[str, BrokerRow] = {}
        limiter = anyio.CapacityLimiter(BROKERS_AT_ONCE)

        async def ask(broker: BrokerInfo) -> None:
            async with limiter:
                rows[broker.name] = await self._ask_in_time(broker, reading)

        async with anyio.create_task_group() as group:
            for broker in view.brokers:
                group.start_soon(ask, broker)
        self._tables = {name: self._tables[name] for name in self._tables if name in rows}
        self._group_tables = {
            name: self._group_tables[name] for name in self._group_tables if name in rows
        }
        self._silent = {name: self._silent[name] for name in self._silent if name in rows}
        delays = reading.delays
        earlier = list(self._readings)
        self._readings.append(reading)
        while len(self._readings) > 1 and self._readings[1].at_s <= reading.at_s - WINDOW_S:
            self._readings.popleft()
        await anyio.lowlevel.checkpoint()
        topics = tuple(self._topics(reading, earlier, delays))
        await anyio.lowlevel.checkpoint()
        return Sample(
            self._admin.client.wall_ms(),
            tuple(rows[broker.name] for broker in view.brokers),
            topics,
            tuple(self._groups(reading, earlier, delays)),
        )

    # Asking

    async def _ask_in_time(self, broker: BrokerInfo, reading: _Reading) -> BrokerRow:
        """Ask one broker, until the sample's deadline or, if it gave no answer before, PROBE_S."""
        now_s, end_s = anyio.current_time(), reading.at_s + self._limit_s
        before = self._silent.get(broker.name)
        late = before or f"it did not answer all within {self._limit_s:.3g} s"
        row = _row(broker, late)
        probe_s = now_s + PROBE_S if before else end_s
        with anyio.CancelScope(deadline=min(probe_s, end_s)) as scope:

            def has_answered() -> None:
                scope.deadline = end_s

            row = await self._ask(broker, reading, has_answered)
        if scope.cancelled_caught:
            self._silent[broker.name] = late
        return row

    async def _ask(
        self, broker: BrokerInfo, reading: _Reading, has_answered: Callable[[], None]
    ) -> BrokerRow:
        row, address = _row(broker), broker.address
        if address is None:
            return msgspec.structs.replace(row, error="none of its addresses is up")
        try:
            try:
                row = _with_stats(row, await self._admin.broker_stats(address))
            except ServerError as error:
                # Apache's broker of 4.9 fails in its first second; the rest it can tell.
                row = _with_error(row, error)
            has_answered()
            try:
                consume_stats = await self._admin.broker_consume_stats(address)
                await anyio.lowlevel.checkpoint()  # a thousand groups take a while
                self._read_progress(broker.name, consume_stats, reading)
            except ServerError as error:
                row = _with_error(row, error)  # the topics it can tell
            await self._read_topics(broker.name, address, reading)
            if self._with_new_groups:
                await self._read_groups(broker.name, address, reading)
            await self._read_delays(broker.name, address, reading)
            self._silent.pop(broker.name, None)
        except ClientError as error:
            row = _with_error(row, error)
            if is_silence(error):
                self._silent[broker.name] = row.error
        return row

    def _read_progress(self, name: str, stats: BrokerConsumeStats, reading: _Reading) -> None:
        ends: dict[str, dict[int, int]] = {}
        for group in stats.groups:
            by_topic = _sorted_by(group.queues, lambda queue: queue.topic)
            for topic, queues in by_topic.items():
                ends[topic] = {q.queue_id: q.end for q in queues} | ends.get(topic, {})
                if self._is_all or not is_own_group(group.group):
                    reading.progress[name, group.group, topic] = _Progress(
                        # Brokers of 4.x do not tell what was pulled.
                        sum(max(queue.committed, queue.pulled) for queue in queues),
                        sum(queue.lag for queue in queues),
                    )

        for topic, by_queue in ends.items():
            self._note((name, topic), list(by_queue.values()), reading)

    def _note(self, key: _OfTopic, ends: list[int], reading: _Reading) -> None:
        """Keep the ends of a topic's queues, and how fast they grew since they were last asked for.

        A broker that lost its store, or a topic that was made anew, begins at 0 again: no rate.
        """
        at_s, end = anyio.current_time(), sum(ends)
        reading.ends[key] = (at_s, end)
        reading.queues[key] = len(ends)
        before = self._readings[-1].ends.get(key) if self._readings else None
        reading.in_rates.pop(key, None)
        if before is not None and end >= before[1] and at_s > before[0]:
            reading.in_rates[key] = (end - before[1]) / (at_s - before[0])

    async def _read_topics(self, name: str, address: str, reading: _Reading) -> None:
        """Ask for the topics of which the groups' progress says nothing."""
        now_s = anyio.current_time()
        asked_s, topics = self._tables.get(name, (-TABLES_S, {}))
        if now_s - asked_s >= TABLES_S:
            table = await self._admin.broker_topics(address)
            topics = {
                topic: config.write_queue_nums
                for topic, config in table.items()
                if self._is_all or not self._is_own_topic(topic)
            }
            self._tables[name] = (now_s, topics)
        rest = [topic for topic in topics if (name, topic) not in reading.ends]
        chosen, self._turns[name] = in_turn(rest, self._turns.get(name, 0), self._bounds.topics)
        if self._readings:
            self._carry_over([(name, topic) for topic in rest], self._readings[-1], reading)
        for topic in rest:
            reading.queues.setdefault((name, topic), topics[topic])
        answers = await ask_all(
            {topic: partial(self._admin.topic_offsets, address, topic) for topic in chosen}
        )
        for topic, queues in answers.values.items():
            self._note((name, topic), [queue.end for queue in queues], reading)
        for topic, error in answers.errors.items():
            if not isinstance(error, ServerError):
                raise error
            reading.ends.pop((name, topic), None)  # deleted meanwhile
            reading.queues.pop((name, topic), None)

    async def _read_groups(self, name: str, address: str, reading: _Reading) -> None:
        """Ask for the names of all groups."""
        now_s = anyio.current_time()
        asked_s, groups = self._group_tables.get(name, (-TABLES_S, []))
        if now_s - asked_s >= TABLES_S:
            groups = await self._admin.broker_groups(address)
            self._group_tables[name] = (now_s, groups)
        reading.groups.update(each for each in groups if self._is_all or not is_own_group(each))

    def _carry_over(self, keys: Iterable[_OfTopic], last: _Reading, reading: _Reading) -> None:
        """Keep what was known of topics whose turn it is not."""
        for key in keys:
            if key in last.ends:
                reading.ends[key] = last.ends[key]
                reading.queues[key] = last.queues[key]
            if key in last.in_rates:
                reading.in_rates[key] = last.in_rates[key]

    async def _read_delays(self, name: str, address: str, reading: _Reading) -> None:
        """Ask for the delays of the groups and topics with the most messages waiting."""
        lags = {
            key: progress.lag
            for key, progress in reading.progress.items()
            if key[0] == name and progress.lag
        }
        chosen = sorted(lags, key=lambda key: -lags[key])[: self._bounds.spans]
        answers = await ask_all(
            {
                (group, topic): partial(self._admin.consume_spans, group, topic, broker=address)
                for _, group, topic in chosen
            }
        )
        for key, spans in answers.values.items():
            known = [longest(spans), reading.delays.get(key)]
            reading.delays[key] = max((each for each in known if each is not None), default=None)
        for error in answers.errors.values():
            if is_silence(error):  # else it was deleted meanwhile
                raise error

    def _is_own_topic(self, topic: str) -> bool:
        is_own = topic in self._own or is_own_topic(topic)
        return is_own or is_retry_topic(topic) or is_dlq_topic(topic)

    # Rows

    def _topics(
        self,
        reading: _Reading,
        earlier: list[_Reading],
        delays: Mapping[tuple[str, str], float | None],
    ) -> list[TopicRow]:
        rows = []
        of_topics = _sorted_by(reading.queues, lambda key: key[1])
        progress_of = _sorted_by(reading.progress, lambda key: key[2])
        for topic, keys in of_topics.items():
            if not self._is_all and self._is_own_topic(topic):
                continue
            in_rates = [reading.in_rates[key] for key in keys if key in reading.in_rates]
            of_groups = progress_of.get(topic, [])
            lags: dict[str, int] = {}
            for key in of_groups:
                lags[key[1]] = lags.get(key[1], 0) + reading.progress[key].lag
            rows.append(
                TopicRow(
                    topic,
                    sum(reading.queues[key] for key in keys),
                    sum(in_rates) if in_rates else None,
                    _out_rate(reading, earlier, of_groups),
                    len(lags),
                    max(lags.values(), default=0),
                    _worst(lags, ((group, topic) for group in lags if lags[group]), delays),
                )
            )
        return rows

    def _groups(
        self,
        reading: _Reading,
        earlier: list[_Reading],
        delays: Mapping[tuple[str, str], float | None],
    ) -> list[GroupRow]:
        rows = []
        for group, keys in _sorted_by(reading.progress, lambda key: key[1]).items():
            topics = sorted({topic for _, _, topic in keys})
            lags = dict.fromkeys(topics, 0)
            for key in keys:
                lags[key[2]] += reading.progress[key].lag
            rows.append(
                GroupRow(
                    group,
                    tuple(topic for topic in topics if not is_retry_topic(topic)),
                    _out_rate(reading, earlier, keys),
                    sum(lags.values()),
                    _worst(lags, ((group, topic) for topic in topics if lags[topic]), delays),
                    sum(lags[topic] for topic in topics if is_retry_topic(topic)),
                )
            )
        new = reading.groups - {row.group for row in rows}
        rows += [GroupRow(group, (), None, 0, 0.0, 0, has_offsets=False) for group in new]
        return sorted(rows, key=lambda row: row.group)


def _sorted_by(keys: Iterable[K], name: Callable[[K], str]) -> dict[str, list[K]]:
    """The keys of each name, sorted by name: rows look at their own keys only."""
    found: dict[str, list[K]] = {}
    for key in keys:
        found.setdefault(name(key), []).append(key)
    return dict(sorted(found.items()))


def longest(spans: Iterable[QueueSpan]) -> float | None:
    """The longest delay of several queues; None: unknown."""
    return max((span.delay_s for span in spans if span.delay_s is not None), default=None)


def _row(broker: BrokerInfo, error: str = "") -> BrokerRow:
    return BrokerRow(broker.name, broker.cluster, broker.address or "", error=error)


def _with_error(row: BrokerRow, error: ClientError) -> BrokerRow:
    return msgspec.structs.replace(row, error=one_line(error))


def _with_stats(row: BrokerRow, stats: BrokerStats) -> BrokerRow:
    return msgspec.structs.replace(
        row,
        version=stats.version,
        in_rate=None if stats.put is None else stats.put.last_10_s,
        out_rate=None if stats.got is None else stats.got.last_10_s,
        disk_ratio=stats.commit_log_disk_ratio,
    )


def _out_rate(reading: _Reading, earlier: list[_Reading], keys: Iterable[_OfGroup]) -> float | None:
    """Messages per second during the window; None: of none it is known. A reset counts as 0."""
    total, is_known = 0.0, False
    for key in keys:
        before = next((each for each in earlier if key in each.progress), None)
        if before is not None and before.at_s < reading.at_s:
            grown = max(reading.progress[key].read - before.progress[key].read, 0)
            total += grown / (reading.at_s - before.at_s)
            is_known = True
    return total if is_known else None


def _worst(
    lags: Mapping[str, int],
    waiting: Iterable[tuple[str, str]],
    delays: Mapping[tuple[str, str], float | None],
) -> float | None:
    """The longest known delay; 0: no message waits; None: it is unknown."""
    if not any(lags.values()):
        return 0.0
    known = [delay for key in waiting if (delay := delays.get(key)) is not None]
    return max(known, default=None)
