"""How far a stream goes in its next batch: news, limits, new queues, losses.

Spark asks one object of one process for a query's whole life, so it remembers: when it last asked
the brokers, when the last batch was, what AvailableNow may read up to. Everything else it says is
in the offsets that Spark keeps, so that another process can go on.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from ..client.errors import ClientError
from .batch_plan import QueueEnds, lost, starts
from .errors import SparkConnectorError
from .queue_offsets import Queue, QueueRange, StreamOffset, limited
from .source_options import SourceOptions

logger = logging.getLogger(__name__)

IDLE_CALLS_MAX: Final = 4
"""Questions about queues to each broker per second while nothing comes. With what a client asks
beside them they are not more than five."""

SAMPLED_MAX: Final = 4
"""Queues whose messages are measured for maxBytesPerTrigger, one pull each: those with the most."""

COMMIT_INTERVAL_S: Final = 1.0
"""Between two times that a group's offsets are told to the brokers. RocketMQ's clients: 5 s."""


class StreamCluster(QueueEnds, Protocol):
    """Whom a stream asks: `Cluster`, or a stand-in of the tests."""

    def queues(self, options: SourceOptions) -> list[Queue]:
        """The queues that the options mean."""

    def commit_offset(self, queue: Queue, group: str, offset: int) -> None:
        """Tell the broker where a group goes on."""

    def mean_size(self, queue: Queue, offset: int, group: str) -> float | None:
        """Bytes of the next messages, on average."""


class StreamPlan:
    """The offsets of one query.

    Args:
      options: the user's.
      cluster: gives whom to ask; called for each use, as it cannot be sent to tasks.
      now_s: a clock that only runs forward.
      wait_s: waits so many seconds.
    """

    def __init__(
        self,
        options: SourceOptions,
        cluster: Callable[[], StreamCluster],
        now_s: Callable[[], float],
        wait_s: Callable[[float], object],
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._now_s = now_s
        self._wait_s = wait_s
        self._initial: StreamOffset | None = None
        self._queues: list[Queue] = []
        self._looked_s = self._asked_s = self._committed_s = -1e9
        self._batch_s = now_s()
        self._pause_s = options.offset_poll_interval_ms / 1000
        self._latest: dict[Queue, int] = {}
        self._target: dict[Queue, int] | None = None
        self._committed: dict[Queue, int] = {}

    def initial(self) -> StreamOffset:
        """Where a new query begins: the same as often as it is asked for.

        Raises: as `batch_plan.starts`; ClientError.
        """
        if self._initial is None:
            cluster = self._cluster()
            begin = starts(cluster, self._options, self._look(), default="latest")
            self._initial = StreamOffset(begin, is_boot=True)
        return self._initial

    def pin(self) -> None:
        """Read nothing that comes after now: for AvailableNow. Raises: ClientError."""
        self._look()
        self._target = self._ask()

    @property
    def latest(self) -> dict[Queue, int]:
        """The ends of the queues as they were last seen."""
        return self._latest

    def next_end(
        self, start: StreamOffset, count_max: int | None, *, all_of_it: bool
    ) -> StreamOffset | None:
        """How far the next batch goes; None: there is nothing yet.

        Args:
          start: what is done, as Spark keeps it.
          count_max: messages of a batch; None: any number.
          all_of_it: no limit and no minimum counts.

        Raises:
          DataLossError: messages from `start` on are gone, and failOnDataLoss is set.
          SparkConnectorError: `start` is of other topics.
          ClientError: a broker cannot be asked.
        """
        check_topics(self._options, start)
        self._tell(start)
        latest = self._target if self._target is not None else self._news(start)
        begin, init = self._begin(start, latest)
        available = sum(max(latest[queue] - begin[queue], 0) for queue in latest)
        is_waiting = not all_of_it and self._target is None and self._is_too_few(available)
        if start.is_boot and (is_waiting or not available):
            # An empty batch: now Spark has written down where the query began.
            return StreamOffset(begin, init=init)
        if is_waiting or (not available and begin == start.offsets):
            return None
        count = None if all_of_it else count_max
        if not all_of_it:
            count = self._within_bytes(begin, latest, count)
        ahead = {queue: max(latest[queue], begin[queue]) for queue in latest}
        end = ahead if count is None else limited(begin, ahead, count)
        self._batch_s = self._now_s()
        # Queues that are not there now stay where they are: they may come back.
        return StreamOffset({**begin, **end}, init=init)

    def _within_bytes(
        self, begin: Mapping[Queue, int], latest: Mapping[Queue, int], count: int | None
    ) -> int | None:
        """How many messages make maxBytesPerTrigger, as large as the next ones are."""
        size_max = self._options.max_bytes_per_trigger
        if size_max is None:
            return count
        backlogs = {queue: end - begin[queue] for queue, end in latest.items()}
        size = sampled = 0.0
        for queue in sorted(backlogs, key=lambda queue: -backlogs[queue])[:SAMPLED_MAX]:
            if backlogs[queue] > 0:
                mean = self._cluster().mean_size(queue, begin[queue], self._options.consumer_group)
                if mean is not None:
                    size += mean * backlogs[queue]
                    sampled += backlogs[queue]
        if not size:
            return count
        found = max(int(size_max * sampled / size), 1)
        return found if count is None else min(found, count)

    def _is_too_few(self, available: int) -> bool:
        wanted = self._options.min_offsets_per_trigger
        waited_ms = (self._now_s() - self._batch_s) * 1000
        return (
            wanted is not None
            and available < wanted
            and (waited_ms < self._options.max_trigger_delay)
        )

    def _begin(
        self, start: StreamOffset, latest: Mapping[Queue, int]
    ) -> tuple[dict[Queue, int], dict[Queue, int]]:
        """Where each queue goes on, and of which of them `start` does not say so."""
        cluster, options = self._cluster(), self._options
        begin = dict(start.offsets)
        init = dict(start.offsets) if start.is_boot else {}
        for queue, end in latest.items():
            offset = begin.get(queue)
            if offset is None:
                begin[queue] = init[queue] = cluster.min_offset(queue)
                logger.info("%s is new, and read from %d on", queue, begin[queue])
            elif offset > end:
                lost(
                    options,
                    f"{queue}: it was read up to {offset}, and ends at {end}: the topic was made"
                    " anew, or its broker lost messages",
                )
                begin[queue] = init[queue] = cluster.min_offset(queue)
            elif offset < end:
                first = cluster.min_offset(queue)
                if offset < first:
                    text = f"{queue}: the messages [{offset}, {first}) are gone: they expired"
                    lost(options, text)
                    begin[queue] = init[queue] = first
        return begin, init

    # Asking

    def _news(self, start: StreamOffset) -> dict[Queue, int]:
        """The ends of the queues; waits a while where nothing has come since the last time."""
        since_s = self._now_s() - self._asked_s
        if since_s < self._pause_s and not self._has_news(start):
            self._wait_s(self._pause_s - since_s)
        if self._now_s() - self._looked_s >= self._options.queue_discovery_interval / 1000:
            self._look()
        latest = self._ask()
        least_s = self._options.offset_poll_interval_ms / 1000
        if self._has_news(start):
            self._pause_s = least_s
        else:
            counts: dict[str, int] = {}
            for queue in latest:
                counts[queue.broker_name] = counts.get(queue.broker_name, 0) + 1
            most_s = max(counts.values(), default=1) / IDLE_CALLS_MAX
            self._pause_s = max(least_s, min(self._pause_s * 2, most_s))
        return latest

    def _has_news(self, start: StreamOffset) -> bool:
        return any(end != start.offsets.get(queue) for queue, end in self._latest.items())

    def _look(self) -> list[Queue]:
        self._queues = self._cluster().queues(self._options)
        self._looked_s = self._now_s()
        return self._queues

    def _ask(self) -> dict[Queue, int]:
        cluster = self._cluster()
        if not self._queues:
            self._look()
        self._latest = {queue: cluster.max_offset(queue) for queue in self._queues}
        self._asked_s = self._now_s()
        return self._latest

    # Telling

    def _tell(self, done: StreamOffset) -> None:
        if not done.is_boot and self._now_s() - self._committed_s >= COMMIT_INTERVAL_S:
            self.commit(done)

    def commit(self, done: StreamOffset) -> None:
        """Tell the brokers how far the group is: for whoever looks, never for the query itself."""
        if not self._options.is_committing:
            return
        cluster = self._cluster()
        for queue, offset in done.offsets.items():
            if self._committed.get(queue) == offset:
                continue
            try:
                cluster.commit_offset(queue, self._options.consumer_group, offset)
            except ClientError as error:
                logger.warning("%s: offset %d was not committed: %s", queue, offset, error)
                continue
            self._committed[queue] = offset
        self._committed_s = self._now_s()


def check_topics(options: SourceOptions, offset: StreamOffset) -> None:
    """Whether a checkpoint is of the topics that are read; others may have come to them, or gone.

    Raises:
      SparkConnectorError: none of its topics is read.
    """
    known = {queue.topic for queue in offset.offsets}
    names, pattern = options.topic_names, options.topic_pattern
    if not known or any(name in names if names else re.fullmatch(pattern, name) for name in known):
        return
    raise SparkConnectorError(
        f"the checkpoint is of {', '.join(sorted(known))}, and the query reads"
        f" {', '.join(names) or pattern}: give the query a checkpointLocation of its own"
    )


def batch_ranges(start: StreamOffset, end: StreamOffset) -> list[QueueRange]:
    """What a batch reads, by the two offsets that Spark keeps.

    Where the end says where a queue began, that counts: `start` is asked for anew when the first
    batch is planned again after a crash, and does not have new queues.
    """
    found = []
    for queue, stop in sorted(end.offsets.items()):
        first = end.init.get(queue, start.offsets.get(queue, stop))
        found.append(QueueRange(queue, first, max(first, stop)))
    return found
