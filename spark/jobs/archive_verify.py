"""`archive_parquet --verify`: compares an archive's rows with its manifest and the brokers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trocket.common.terminal import grouped, show
from trocket.spark.cluster import Cluster
from trocket.spark.jobs.archive_checks import Ends, Finding, findings, held
from trocket.spark.jobs.archive_flags import ArchiveFlags
from trocket.spark.jobs.archive_manifest import Manifest
from trocket.spark.jobs.connection import reading
from trocket.spark.jobs.running import EXIT_FINDINGS, JobError, Summary
from trocket.spark.queue_offsets import Queue
from trocket.spark.source_options import source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def verify(rows: DataFrame, manifest: Manifest, given: ArchiveFlags, summary: Summary) -> int:
    """Print the findings, and return the exit status.

    Args:
      rows: all rows of the archive.
      given: `topic` or `topic_pattern`, "" for all; `offline`, `findings`, and the connection.

    Raises:
      JobError: the archive does not have the topic. ClientError: brokers do not answer.
    """
    named = [name.strip() for name in given.topic.split(",") if name.strip()]
    pattern = given.topic_pattern or ".*"
    topics = named or [name for name in manifest.topics if re.fullmatch(pattern, name)]
    if not topics and given.topic_pattern:
        raise JobError(
            f"the archive has no topic that {pattern} matches; it has"
            f" {', '.join(manifest.topics) or 'none'}"
        )
    manifest = manifest.of_topics(topics)
    ends = None if given.offline else queue_ends(given, topics)
    found = held(rows.where(rows["topic"].isin(topics)))
    wrong = findings(manifest, found, ends)
    summary.row("topics", len(topics))
    summary.row("messages archived", sum(each.rows for each in found.values()))
    summary.row("messages lost before they were archived", sum(each.size for each in manifest.lost))
    if ends is not None:
        summary.row("messages to be archived", behind(manifest, ends))
        summary.row("queues that no broker has any longer", len(set(manifest.next) - set(ends)))
    return _print_findings(wrong, given, summary)


def _print_findings(wrong: list[Finding], given: ArchiveFlags, summary: Summary) -> int:
    status = EXIT_FINDINGS if wrong else 0
    counts = Counter(each.kind for each in wrong)
    shown, left = [], Counter[str]()
    for each in wrong:
        left[each.kind] += 1
        if left[each.kind] <= given.findings:
            shown.append(each)
    if given.json:
        summary.row("counts", dict(counts))
        summary.row("findings", [each.tree() for each in shown])
        return summary.finish(status)
    summary.row("findings", len(wrong))
    summary.finish(status)
    columns = ("finding", "topic", "broker", "queue", "from", "to", "what it means")
    if shown:
        rows = [(each.kind, *each.queue, each.start, each.end - 1, each.text) for each in shown]
        show(columns, rows, cell=grouped)
    return status


def queue_ends(given: ArchiveFlags, topics: list[str]) -> dict[Queue, Ends]:
    """The offsets of these topics at the brokers, without deleted topics.

    Raises:
      OptionError: a flag is invalid, or a topic is deleted during the call.
      ClientError: a name server or a broker does not answer.
    """
    if not topics:
        return {}
    cluster = Cluster(source_options(reading(given, topics=",".join(topics))))
    there = set(cluster.topics())
    left = [topic for topic in topics if topic in there]
    if not left:
        return {}
    options = source_options(reading(given, topics=",".join(left)))
    return {
        queue: Ends(cluster.min_offset(queue), cluster.max_offset(queue))
        for queue in cluster.queues(options)
    }


def behind(manifest: Manifest, ends: Mapping[Queue, Ends]) -> int:
    """The number of messages at the brokers that are not archived yet."""
    return sum(
        max(0, end.end - max(end.first, manifest.next.get(queue, end.first)))
        for queue, end in ends.items()
    )
