"""Plan of a batch: from the options and the cluster's offsets to ranges of queues."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from .errors import DataLossError, OptionError
from .pushdown import ANYTHING, Bounds
from .queue_offsets import EARLIEST, GROUP, LATEST, OffsetSpec, Queue, QueueRange, TimeSpec
from .source_options import SourceOptions

logger = logging.getLogger(__name__)


class QueueEnds(Protocol):
    """The offsets of queues: `Cluster`, or a fake in tests."""

    def min_offset(self, queue: Queue) -> int:
        """The offset of the oldest message."""

    def max_offset(self, queue: Queue) -> int:
        """The offset that the next message will get."""

    def offset_at(self, queue: Queue, timestamp_ms: int) -> int:
        """The offset of the first message stored then or later."""

    def committed_offset(self, queue: Queue, group: str) -> int | None:
        """The offset that a group has committed."""


def starts(
    ends: QueueEnds, options: SourceOptions, queues: Iterable[Queue], *, default: str
) -> dict[Queue, int]:
    """The offset at which each queue begins.

    Args:
      default: startingOffsets if the option is not set, and for a group that committed nothing.

    Raises:
      OptionError: a queue has no offset, or no message is as new as startingTimestamp.
      DataLossError: an offset is before the first message or after the last.
    """
    spec, times = options.start(default), options.start_times
    found = {}
    for queue in queues:
        if times is not None:
            found[queue] = _at_time(ends, options, queue, times)
        else:
            offset = _resolved(ends, options, queue, spec, "startingOffsets", default)
            found[queue] = checked_start(ends, options, queue, offset)
    return found


def stops(ends: QueueEnds, options: SourceOptions, queues: Iterable[Queue]) -> dict[Queue, int]:
    """The offset at which each queue ends in a batch, exclusive.

    Raises:
      OptionError: a queue has no offset.
      DataLossError: an offset is after the last message.
    """
    times = options.end_times
    found = {}
    for queue in queues:
        if times is not None:
            time_ms = _named(times.of(queue), queue, "endingOffsetsByTimestamp")
            found[queue] = ends.offset_at(queue, time_ms + 1)
            continue
        offset = _resolved(ends, options, queue, options.end, "endingOffsets", "latest")
        newest = ends.max_offset(queue)
        if offset > newest:
            lost(options, f"{queue}: endingOffsets is {offset}, but the queue ends at {newest}")
        found[queue] = min(offset, newest)
    return found


def ranges(
    ends: QueueEnds,
    options: SourceOptions,
    queues: Iterable[Queue],
    filters: Mapping[str, Bounds],
) -> list[QueueRange]:
    """The ranges that a batch reads.

    Args:
      filters: bounds from Spark's filters, by column.
    """
    queues = list(queues)
    check_start_names(options, queues)
    if options.end_times is None:
        _check_names(options, options.end, queues, "endingOffsets")
    else:
        _check_names(options, options.end_times, queues, "endingOffsetsByTimestamp")
    wanted = [
        queue
        for queue in queues
        if filters.get("topic", ANYTHING).allows(queue.topic)
        and filters.get("brokerName", ANYTHING).allows(queue.broker_name)
        and filters.get("queueId", ANYTHING).allows(queue.queue_id)
    ]
    begins = starts(ends, options, wanted, default="earliest")
    finishes = stops(ends, options, wanted)
    offsets, times = filters.get("queueOffset", ANYTHING), filters.get("storeTimestamp", ANYTHING)
    if offsets.values:
        offsets = Bounds(None, min(offsets.values), max(offsets.values))
    found = []
    for queue in wanted:
        start, end = begins[queue], finishes[queue]
        if offsets.low is not None:
            start = max(start, offsets.low)
        if offsets.high is not None:
            end = min(end, offsets.high + 1)
        if times.low is not None and start < end:
            start = max(start, ends.offset_at(queue, times.low))
        if times.high is not None and start < end:
            end = min(end, ends.offset_at(queue, times.high + 1))
        found.append(QueueRange(queue, start, max(start, end)))
    return found


def check_start_names(options: SourceOptions, queues: Iterable[Queue]) -> None:
    """Check that each queue that the options name for its start is there.

    Raises:
      DataLossError: one is not, and failOnDataLoss is set.
    """
    if options.start_times is not None:
        _check_names(options, options.start_times, queues, "startingOffsetsByTimestamp")
    elif options.starting_offsets:
        _check_names(options, options.start(""), queues, "startingOffsets")


def _check_names(
    options: SourceOptions, spec: OffsetSpec | TimeSpec, queues: Iterable[Queue], name: str
) -> None:
    for queue in sorted(set(spec.queues).difference(queues)):
        lost(
            options,
            f"{name} names {queue}, which is not among the queues to read: it was deleted, its"
            " broker is away, or the options do not select it",
        )


def checked_start(ends: QueueEnds, options: SourceOptions, queue: Queue, offset: int) -> int:
    """The offset if the queue has it; with failOnDataLoss=false, else the nearest one it has.

    Raises:
      DataLossError: messages from there on are gone, or it is after the queue's end.
    """
    first = ends.min_offset(queue)
    if offset < first:
        lost(
            options,
            f"{queue}: the messages [{offset}, {first}) are gone: they expired, or the queue was"
            " recreated",
        )
        return first
    newest = ends.max_offset(queue)
    if offset > newest:
        lost(
            options,
            f"{queue}: reading starts at {offset}, but the queue ends at {newest}: the topic was"
            " recreated, or its broker lost messages",
        )
        return newest
    return offset


def lost(options: SourceOptions, text: str) -> None:
    """Report lost messages: with an error, or with a warning if failOnDataLoss=false.

    Raises:
      DataLossError: failOnDataLoss is set.
    """
    if options.fail_on_data_loss:
        raise DataLossError(f"{text}; set failOnDataLoss=false to read what is left")
    logger.warning("data loss: %s", text)


def _at_time(ends: QueueEnds, options: SourceOptions, queue: Queue, times: TimeSpec) -> int:
    time_ms = _named(times.of(queue), queue, "startingOffsetsByTimestamp")
    offset = ends.offset_at(queue, time_ms)
    newest = ends.max_offset(queue)
    if offset >= newest and options.starting_offsets_by_timestamp_strategy == "error":
        is_everywhere = times.everywhere is not None
        name = "startingTimestamp" if is_everywhere else "startingOffsetsByTimestamp"
        raise OptionError(
            f"{queue}: no message is as new as {name} {time_ms};"
            " startingOffsetsByTimestampStrategy=latest starts at the end of the queue"
        )
    return min(offset, newest)


def _named(value: int | None, queue: Queue, name: str) -> int:
    if value is None:
        raise OptionError(f"{name} does not name {queue}: name every queue, or use assign")
    return value


def _resolved(
    ends: QueueEnds,
    options: SourceOptions,
    queue: Queue,
    spec: OffsetSpec,
    name: str,
    default: str,
) -> int:
    offset = spec.of(queue)
    if offset == GROUP:
        committed = ends.committed_offset(queue, options.consumer_group)
        if committed is not None:
            return committed
        offset = EARLIEST if default == "earliest" else LATEST
    if offset is None:
        raise OptionError(f"{name} has no offset for {queue}: name every queue, or use assign")
    if offset == EARLIEST:
        return ends.min_offset(queue)
    return ends.max_offset(queue) if offset == LATEST else offset
