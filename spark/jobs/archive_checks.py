"""Comparison of an archive's rows with its manifest and the brokers: gaps and duplicates.

The manifest has [first, next) of each queue. Offsets of a queue are dense in RocketMQ, so each of
them must have exactly one row. Messages that expired before they were archived are in the manifest,
too, and not a finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from trocket.spark.jobs.archive_manifest import Manifest
from trocket.spark.queue_offsets import Queue, QueueRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUEUE: Final = ("topic", "brokerName", "queueId")


class Finding(NamedTuple):
    """A difference between an archive's rows, its manifest and the brokers.

    Attributes:
      kind: gap, duplicate, unlisted (after the manifest's end), expired, ahead.
      start, end: offsets [start, end).
      text: an explanation for the operator.
    """

    kind: str
    queue: Queue
    start: int
    end: int
    text: str

    def tree(self) -> dict[str, Any]:
        """The finding as JSON."""
        topic, broker_name, queue_id = self.queue
        return {
            "kind": self.kind, "topic": topic, "brokerName": broker_name, "queueId": queue_id,
            "start": self.start, "end": self.end, "text": self.text,
        }  # fmt: skip


class Held(NamedTuple):
    """The offsets of a queue's rows.

    Attributes:
      rows: the number of rows.
      start, end: the first offset, and the last one + 1.
      gaps: ranges between these without rows.
      repeated: ranges with more than one row per offset.
    """

    rows: int
    start: int
    end: int
    gaps: tuple[tuple[int, int], ...] = ()
    repeated: tuple[tuple[int, int], ...] = ()


class Ends(NamedTuple):
    """The offsets [first, end) of a queue at its broker."""

    first: int
    end: int


def held(rows: DataFrame) -> dict[Queue, Held]:
    """The offsets of the rows by queue. Spark sorts them; the driver gets only their ranges."""
    counted = rows.groupBy(*QUEUE, "queueOffset").count()
    in_order = Window.partitionBy(*QUEUE).orderBy("queueOffset")
    offset, count = F.col("queueOffset"), F.col("count")
    # Consecutive offsets, either all with one row or all with several, form one stretch.
    with_before = counted.select(
        "*", F.lag(offset).over(in_order).alias("before"),
        F.lag(count > 1).over(in_order).alias("was_repeated"),
    )  # fmt: skip
    is_edge = F.col("before").isNull() | (offset > F.col("before") + 1) | (
        F.col("was_repeated") != (count > 1)
    )  # fmt: skip
    numbered = with_before.withColumn("stretch", F.sum(is_edge.cast("int")).over(in_order))
    stretches = numbered.groupBy(*QUEUE, "stretch").agg(
        F.min(offset).alias("start"), (F.max(offset) + 1).alias("end"),
        F.sum(count).alias("rows"), F.max(count > 1).alias("repeated"),
    )  # fmt: skip
    by_queue: dict[Queue, list[Any]] = {}
    for row in sorted(stretches.collect(), key=lambda row: int(row["start"])):
        queue = Queue(row["topic"], row["brokerName"], row["queueId"])
        by_queue.setdefault(queue, []).append(row)
    return {queue: _held(each) for queue, each in by_queue.items()}


def _held(stretches: list[Any]) -> Held:
    edges = [(row["start"], row["end"]) for row in stretches]
    between = pairwise(edges)
    return Held(
        sum(row["rows"] for row in stretches),
        edges[0][0],
        edges[-1][1],
        tuple((before[1], after[0]) for before, after in between if before[1] < after[0]),
        tuple(edge for edge, row in zip(edges, stretches, strict=True) if row["repeated"]),
    )


def rebuilt(rows: DataFrame) -> Manifest:
    """A manifest from the rows of an archive; offsets missing between them count as gaps."""
    found = held(rows)
    return Manifest(
        first={queue: each.start for queue, each in found.items()},
        next={queue: each.end for queue, each in found.items()},
    )


def findings(
    manifest: Manifest, found: Mapping[Queue, Held], ends: Mapping[Queue, Ends] | None
) -> list[Finding]:
    """Compare manifest, rows and brokers; the findings are sorted by queue.

    Args:
      found: the offsets of the rows.
      ends: the offsets at the brokers; None: not asked. No broker has a queue that is missing.
    """
    queues = sorted({*manifest.next, *found})
    return [
        finding
        for queue in queues
        for finding in _of_queue(queue, manifest, found.get(queue), ends)
    ]


def _of_queue(
    queue: Queue,
    manifest: Manifest,
    rows: Held | None,
    ends: Mapping[Queue, Ends] | None,
) -> Iterable[Finding]:
    following = manifest.next.get(queue, 0)
    first = manifest.first.get(queue, 0)
    end = None if ends is None else ends.get(queue)
    if rows is None:
        missing = [(first, following)]
    else:
        missing = [(first, min(rows.start, following)), *rows.gaps, (rows.end, following)]
        repeats = [Finding("duplicate", queue, *each, "archived more than once")
                   for each in rows.repeated]  # fmt: skip
        yield from repeats
        if rows.end > following:
            start = max(rows.start, following)
            yield Finding("unlisted", queue, start, rows.end, "archived, but not in the manifest:"
                          " the next run archives it again, or completes it")  # fmt: skip
    known = [each for each in manifest.lost if each.queue == queue]
    for start, stop in without(missing, known):
        yield Finding("gap", queue, start, stop, _fate(start, stop, end, ends is None))
    if end is not None and end.first > following:
        yield Finding("expired", queue, following, end.first,
                      "expired before it was archived: archive more often")  # fmt: skip
    if end is not None and end.end < following:
        yield Finding("ahead", queue, end.end, following, "archived, but the queue ends earlier:"
                      " the topic was recreated, or its broker lost messages")  # fmt: skip


def _fate(start: int, stop: int, end: Ends | None, is_offline: bool) -> str:
    if is_offline:
        return "not archived"
    if end is None or end.first >= stop:
        return "not archived, and no broker has it any longer"
    if end.first > start:
        return f"not archived; brokers still have it from {end.first} on"
    return "not archived, and brokers still have it"


def without(
    ranges: Iterable[tuple[int, int]], known: Iterable[QueueRange]
) -> list[tuple[int, int]]:
    """The ranges minus the known ones, without empty ranges."""
    left = [(start, end) for start, end in ranges if start < end]
    for each in known:
        parts = [
            part
            for start, end in left
            for part in ((start, min(end, each.start)), (max(start, each.end), end))
        ]
        left = [(start, end) for start, end in parts if start < end]
    return sorted(left)
