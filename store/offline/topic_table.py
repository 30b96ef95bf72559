"""The check and repair of `topics.json`: topics with queues that it lacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...common.topic_names import is_system_topic
from ...disk.json_config import save_json
from ...disk.os_disk import Disk
from ..queues.deleted_topics import DeletedTopics
from ..queues.projection import LIGHT_PREFIX
from .findings import Severity
from .json_files import TOPICS, encode, read_json
from .report import Report


def find_unknown_topics(disk: Disk, report: Report) -> None:
    """Report the topics that have messages and are not in `topics.json`.

    Without a `topics.json` nothing is reported: the broker's start creates all of them again.

    Args:
      report: has the queues; gets `unknown_topics` and a finding for each of them.
    Raises:
      StoreIOError: the deletions could not be read.
    """
    known = report.config.topics
    if known is None or report.is_live:
        return
    deleted = DeletedTopics(disk, report.layout.root)
    deleted.load()
    counts: dict[str, int] = {}
    messages: dict[str, int] = {}
    for key, end in report.max_offsets.items():
        topic, queue_id = key
        is_known = topic in known or topic in deleted.names or is_system_topic(topic)
        if is_known or topic.startswith(LIGHT_PREFIX) or key in report.deleted_queues or end <= 0:
            continue
        counts[topic] = max(counts.get(topic, 0), queue_id + 1)
        messages[topic] = messages.get(topic, 0) + report.message_counts.get(key, 0)
    report.unknown_topics = dict(sorted(counts.items()))
    for topic, count in report.unknown_topics.items():
        report.findings.add(
            Severity.WARNING, "config.topics", f"{report.config.folder}/{TOPICS}", -1,
            f"topic {topic} is not in it, but has {messages[topic]} messages in up to {count} "
            "queues, which no consumer can read",
            "`trocket store repair` makes it again with default settings; if it was deleted, "
            "delete it once more with `mqadmin deleteTopic`",
        )  # fmt: skip


def add_topics(
    disk: Disk, folder: str, topics: Mapping[str, int], batch_topics: Collection[str]
) -> None:
    """Add topics with default settings to `topics.json`.

    Args:
      folder: of the file; it can be read.
      topics: queue counts by name.
      batch_topics: those of them whose queues are batch consume queues.
    Raises:
      StoreIOError: it could not be read or written.
    """
    path = f"{folder}/{TOPICS}"
    tree = read_json(disk, path).tree or {}
    table = tree["topicConfigTable"] = dict(tree.get("topicConfigTable") or {})
    for topic, count in topics.items():
        table[topic] = {
            "attributes": {"queue.type": "BatchCQ"} if topic in batch_topics else {},
            "order": False,
            "perm": 6,
            "readQueueNums": count,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic,
            "topicSysFlag": 0,
            "writeQueueNums": count,
        }
    version = tree.get("dataVersion")
    if isinstance(version, dict) and isinstance(version.get("counter"), int):
        version["counter"] += 1  # so that the next registration sends the table
    save_json(disk, path, encode(tree))
