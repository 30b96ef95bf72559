"""Topics with messages in the store that are missing from the topic table.

The broker's start and `trocket store repair` create them again from the consume queues: a queue's
folder names its topic and queue id. Pure except for reads by the queues.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from .consume_queue import ConsumeQueue
from .projection import LIGHT_PREFIX

QUEUES_SHOWN_MAX = 16
"""Queues of one topic that a log line lists."""


@dataclass(slots=True)
class UnknownTopic:
    """A topic that is missing from the topic table.

    Attributes:
      queues: (oldest offset, next offset) by queue id.
      is_batch: its queues are batch consume queues.
      physical_end: physical offset after its newest record.
    """

    topic: str
    queues: dict[int, tuple[int, int]] = field(default_factory=dict)
    is_batch: bool = False
    physical_end: int = 0

    @property
    def queue_count(self) -> int:
        """The number of queues that the topic had, at least."""
        return max(self.queues) + 1

    @property
    def message_count(self) -> int:
        return sum(end - begin for begin, end in self.queues.values())

    def __str__(self) -> str:
        shown = sorted(self.queues.items())[:QUEUES_SHOWN_MAX]
        parts = [
            f"queue {queue_id}: {begin} to {end - 1}" if begin < end else f"queue {queue_id}: none"
            for queue_id, (begin, end) in shown
        ]
        if len(self.queues) > len(shown):
            parts.append(f"and {len(self.queues) - len(shown)} more queues")
        count = self.message_count
        return f"{count} message{'s' if count != 1 else ''} ({', '.join(parts)})"


def unknown_topics(
    queues: Iterable[ConsumeQueue], known: Container[str], deleted: Container[str]
) -> list[UnknownTopic]:
    """The topics of queues that are missing from the topic table, sorted by name.

    Deleted topics are left out, and light queues, which have no topic.

    Args:
      queues: all of the store's.
      known: the configured topics.
      deleted: the deleted topics.
    """
    found: dict[str, UnknownTopic] = {}
    for queue in queues:
        topic, queue_id = queue.key
        is_known = topic in known or topic in deleted or topic.startswith(LIGHT_PREFIX)
        end = queue.committed_offset  # hidden messages become visible
        if is_known or end <= 0:
            continue
        unknown = found.setdefault(topic, UnknownTopic(topic))
        unknown.queues[queue_id] = (min(queue.min_offset, end), end)
        unknown.is_batch = queue.is_batch
        unknown.physical_end = max(unknown.physical_end, queue.physical_end())
    return [found[topic] for topic in sorted(found)]
