"""Plan of a stream: the end of the next batch, with limits, new queues and lost messages.

Spark keeps one such object per query, which may therefore remember when it last asked the brokers,
when the last batch was, and where AvailableNow ends. All other state is in the offsets that Spark
stores, so that another process can continue the query.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from ..client.errors import ClientError
from .batch_plan import QueueEnds, check_start_names, lost, starts
from .errors import QueueGoneError, SparkConnectorError
from .missing_queues import Missing, is_complete, is_selected
from .queue_offsets import Queue, QueueRange, StreamOffset, limited
from .source_options import SourceOptions

logger = logging.getLogger(__name__)

IDLE_CALLS_MAX: Final = 4
"""Requests for offsets to each broker per second while a stream is idle. With the client's own
requests they are at most five."""

SAMPLED_MAX: Final = 4
"""Queues that are sampled for maxBytesPerTrigger, with one pull each: those with most messages."""

COMMIT_INTERVAL_S: Final = 1.0
"""Interval between commits of a group's offsets. RocketMQ's clients: 5 s."""


class StreamCluster(QueueEnds, Protocol):
    """The cluster of a stream: `Cluster`, or a fake in tests."""

    def queues(self, options: SourceOptions, *, is_strict: bool = True) -> list[Queue]:
        """The queues that the options select.

        Args:
          is_strict: a named topic that does not exist is an error; else it is left out.
        """

    def missing(self, queues: Iterable[Queue]) -> dict[Queue, Missing | None]:
        """Why queues are not among those of `queues`; None: it is there again."""

    def commit_offset(self, queue: Queue, group: str, offset: int) -> None: ...

    def mean_size(self, queue: Queue, offset: int, group: str) -> float | None:
        """The average size of the next messages in bytes."""


class StreamPlan:
    """The offsets of one query.

    Args:
      cluster: returns the cluster; called for each use, as a cluster cannot be pickled to tasks.
      now_s: a monotonic clock.
      wait_s: waits for a time in seconds.
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
        self._discovered_s = self._asked_s = self._committed_s = -1e9
        self._batch_s = now_s()
        self._pause_s = options.offset_poll_interval_ms / 1000
        self._latest: dict[Queue, int] = {}
        self._target: dict[Queue, int] | None = None
        # Queues that the query has read and that are missing, by what was found since `_discover`.
        self._missing: dict[Queue, Missing | None] = {}
        self._reported: dict[Queue, Missing] = {}
        self._committed: dict[Queue, int] = {}

    def initial(self) -> StreamOffset:
        """The offsets at which a new query begins; all calls return the same.

        Raises: the errors of `batch_plan.starts`; ClientError: a broker failed.
        """
        if self._initial is None:
            cluster = self._cluster()
            queues = self._discover(is_strict=True)
            check_start_names(self._options, queues)
            begin = starts(cluster, self._options, queues, default="latest")
            self._initial = StreamOffset(begin, is_boot=True)
        return self._initial

    def pin(self) -> None:
        """Fix the current ends as the stream's end, for AvailableNow.

        Raises: ClientError: a broker failed.
        """
        self._discover()
        self._target = self._ask()

    @property
    def latest(self) -> dict[Queue, int]:
        """The last known ends of the queues."""
        return self._latest

    def next_end(
        self, start: StreamOffset, count_max: int | None, *, all_of_it: bool
    ) -> StreamOffset | None:
        """The end of the next batch; None: there is nothing to read yet.

        Args:
          start: the end of the last batch, as Spark stores it.
          count_max: messages of a batch; None: no limit.
          all_of_it: ignore all limits and the minimum.

        Raises:
          DataLossError: messages from `start` on are gone, and failOnDataLoss is set.
          SparkConnectorError: `start` is of other topics.
          OptionError: a topic that is new in the options does not exist.
          ClientError: a broker failed.
        """
        check_topics(self._options, start)
        self._commit_if_due(start)
        latest = self._target if self._target is not None else self._poll_ends(start)
        begin, init = self._begin(start, latest)
        available = sum(max(latest[queue] - begin[queue], 0) for queue in latest)
        is_waiting = not all_of_it and self._target is None and self._is_too_few(available)
        if start.is_boot and (is_waiting or not available):
            # An empty first batch makes Spark store the offsets at which the query began.
            return StreamOffset(begin, init=init)
        if is_waiting or (not available and begin == start.offsets):
            return None
        count = None if all_of_it else count_max
        if not all_of_it:
            count = self._within_bytes(begin, latest, count)
        ahead = {queue: max(latest[queue], begin[queue]) for queue in latest}
        end = ahead if count is None else limited(begin, ahead, count)
        self._batch_s = self._now_s()
        # Keep the offsets of missing queues: their broker may come back.
        return StreamOffset({**begin, **end}, init=init)

    def _within_bytes(
        self, begin: Mapping[Queue, int], latest: Mapping[Queue, int], count: int | None
    ) -> int | None:
        """The number of messages in maxBytesPerTrigger, estimated by the size of the next ones."""
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
        self, start: StreamOffset, latest: dict[Queue, int]
    ) -> tuple[dict[Queue, int], dict[Queue, int]]:
        """The offset at which each queue continues, and those that differ from `start`."""
        cluster, options = self._cluster(), self._options
        begin = dict(start.offsets)
        self._report_missing(begin, latest)
        init = dict(begin) if start.is_boot else {}
        for queue, end in latest.items():
            offset = begin.get(queue)
            if offset is None:
                begin[queue] = init[queue] = cluster.min_offset(queue)
                logger.info("%s is new: reading it from offset %d on", queue, begin[queue])
            elif offset > end:
                lost(
                    options,
                    f"{queue}: the query has read up to {offset}, but the queue ends at {end}: the"
                    " topic was recreated, or its broker lost messages",
                )
                begin[queue] = init[queue] = cluster.min_offset(queue)
            elif offset < end:
                first = cluster.min_offset(queue)
                if offset < first:
                    text = f"{queue}: the messages [{offset}, {first}) are gone: they expired"
                    lost(options, text)
                    begin[queue] = init[queue] = first
        return begin, init

    def _report_missing(self, begin: dict[Queue, int], latest: dict[Queue, int]) -> None:
        """Report queues that the query has read and that are not there any more.

        Deleted ones are removed from `begin`: if they are created again, they are new. Others keep
        their offset, because their broker may come back; those that are back are added to `latest`.

        Raises:
          DataLossError: unread messages are gone, and failOnDataLoss is set.
          OptionError: a named topic was never read, and does not exist.
        """
        options, cluster = self._options, self._cluster()
        if not is_complete(options, {*begin, *latest}):
            self._discover(is_strict=True)  # says which topic, and how it was looked for
        missing = [each for each in begin if each not in latest and is_selected(options, each)]
        unasked = set(missing).difference(self._missing)
        if unasked:
            self._missing.update(cluster.missing(unasked))
        for queue in missing:
            why = self._missing[queue]
            if why is None:
                latest[queue] = cluster.max_offset(queue)
                self._queues.append(queue)
                continue
            is_read = why is Missing.CLOSED and cluster.max_offset(queue) <= begin[queue]
            if not is_read and self._reported.get(queue) is not why:
                text = (
                    f"{queue}: {why.value.format(queue)}; the query has read up to {begin[queue]}"
                )
                if why is Missing.AWAY:
                    logger.warning("%s, and continues there when the broker is back", text)
                else:
                    lost(options, text)
                self._reported[queue] = why
            if why is Missing.DELETED:
                del begin[queue]

    # Polling the brokers

    def _poll_ends(self, start: StreamOffset) -> dict[Queue, int]:
        """The ends of the queues; waits for the poll interval if the last ones brought no news."""
        since_s = self._now_s() - self._asked_s
        if since_s < self._pause_s and not self._has_news(start):
            self._wait_s(self._pause_s - since_s)
        if self._now_s() - self._discovered_s >= self._options.queue_discovery_interval / 1000:
            self._discover()
        latest = self._ask()
        # While idle, double the interval, up to IDLE_CALLS_MAX requests per second and broker.
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

    def _discover(self, *, is_strict: bool = False) -> list[Queue]:
        self._queues = self._cluster().queues(self._options, is_strict=is_strict)
        self._discovered_s = self._now_s()
        self._missing.clear()
        return self._queues

    def _ask(self) -> dict[Queue, int]:
        cluster = self._cluster()
        if not self._queues:
            self._discover()
        self._latest = {}
        for queue in self._queues:
            try:
                self._latest[queue] = cluster.max_offset(queue)
            except QueueGoneError:  # deleted since the queues were looked up
                self._missing[queue] = Missing.DELETED
        self._asked_s = self._now_s()
        return self._latest

    # Committing

    def _commit_if_due(self, done: StreamOffset) -> None:
        if not done.is_boot and self._now_s() - self._committed_s >= COMMIT_INTERVAL_S:
            self.commit(done)

    def commit(self, done: StreamOffset) -> None:
        """Commit the group's offsets, for monitoring only: the query itself never reads them."""
        if not self._options.is_committing:
            return
        cluster = self._cluster()
        for queue, offset in done.offsets.items():
            if self._committed.get(queue) == offset:
                continue
            try:
                cluster.commit_offset(queue, self._options.consumer_group, offset)
            except ClientError as error:
                logger.warning(
                    "%s: committing offset %d failed, retrying later: %s", queue, offset, error
                )
                continue
            self._committed[queue] = offset
        self._committed_s = self._now_s()


def check_topics(options: SourceOptions, offset: StreamOffset) -> None:
    """Check that a checkpoint and the options share at least one topic.

    Raises:
      SparkConnectorError: they have no offset in common.
    """
    known = {queue.topic for queue in offset.offsets}
    names, pattern = options.topic_names, options.topic_pattern
    if not known or any(name in names if names else re.fullmatch(pattern, name) for name in known):
        return
    raise SparkConnectorError(
        f"the checkpoint is of {', '.join(sorted(known))}, but the query reads"
        f" {', '.join(names) or pattern}: give the query its own checkpointLocation"
    )


def batch_ranges(start: StreamOffset, end: StreamOffset) -> list[QueueRange]:
    """The ranges of a batch between the two offsets that Spark stores.

    `init` in the end takes precedence over `start`: after a crash before the first batch, Spark
    asks for the initial offset again; and `start` lacks new queues.
    """
    found = []
    for queue, stop in sorted(end.offsets.items()):
        first = end.init.get(queue, start.offsets.get(queue, stop))
        found.append(QueueRange(queue, first, max(first, stop)))
    return found
