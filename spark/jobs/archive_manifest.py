"""The manifest of an archive: which messages of each queue it holds. Pure.

Written after each batch, of the offsets that the batch had, never of the rows themselves: so that
`--verify` compares two things that do not come from one another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from trocket.spark.jobs.running import JobError
from trocket.spark.queue_offsets import (
    Offsets,
    Queue,
    QueueRange,
    StreamOffset,
    as_tree,
    read_offset_spec,
)

VERSION: Final = 1


@dataclass(frozen=True)
class Manifest:
    """What an archive holds.

    Attributes:
      batch: the newest batch, as the folders of the archive name it; "": none.
      first: where each queue's archive begins.
      next: the next message of each queue: [first, next) is archived.
      lost: parts of that which brokers did not have any more.
    """

    batch: str = ""
    first: Offsets = field(default_factory=dict)
    next: Offsets = field(default_factory=dict)
    lost: tuple[QueueRange, ...] = ()

    @property
    def topics(self) -> list[str]:
        """The topics, sorted."""
        return sorted({queue.topic for queue in self.next})

    def after(self, batch: str, end: StreamOffset) -> Manifest:
        """The manifest once a batch is archived; the same batch again changes nothing.

        Args:
          batch: its name.
          end: where it ended; `init` says where queues began that were not read before, or that
            had to begin anew because messages are gone.
        """
        if batch == self.batch:
            return self
        first, lost = dict(self.first), list(self.lost)
        for queue, stop in end.offsets.items():
            begin = end.init.get(queue, self.next.get(queue, stop))
            first.setdefault(queue, begin)
            known = self.next.get(queue, begin)
            if known < begin:
                lost.append(QueueRange(queue, known, begin))
            first[queue] = min(first[queue], begin)
        return Manifest(batch, first, {**self.next, **end.offsets}, tuple(lost))

    def of_topics(self, topics: Iterable[str]) -> Manifest:
        """The part of these topics.

        Raises:
          JobError: one is not in the archive.
        """
        wanted = set(topics)
        missing = sorted(wanted.difference(self.topics))
        if missing:
            raise JobError(
                f"the archive has no topic {missing[0]}; it has {', '.join(self.topics) or 'none'}"
            )
        return replace(
            self,
            first={queue: offset for queue, offset in self.first.items() if queue.topic in wanted},
            next={queue: offset for queue, offset in self.next.items() if queue.topic in wanted},
            lost=tuple(each for each in self.lost if each.queue.topic in wanted),
        )

    def to_text(self) -> str:
        """As the file has it."""
        tree = {
            "version": VERSION,
            "batch": self.batch,
            "first": as_tree(self.first),
            "next": as_tree(self.next),
            "lost": [[*each.queue, each.start, each.end] for each in self.lost],
        }
        return json.dumps(tree, indent=1, ensure_ascii=False) + "\n"


def read_manifest(text: str, path: str) -> Manifest:
    """A manifest's text taken apart.

    Args:
      path: where it is from.

    Raises:
      JobError: it is no manifest, or of another version.
    """
    try:
        tree = json.loads(text)
        if tree["version"] != VERSION:
            raise JobError(
                f"{path} has version {tree['version']}, and this trocket reads {VERSION}: use the"
                " one that wrote it"
            )
        lost = [
            QueueRange(Queue(str(topic), str(broker), int(queue)), int(start), int(end))
            for topic, broker, queue, start, end in tree["lost"]
        ]
        first, following = (_offsets(tree[name]) for name in ("first", "next"))
        if set(first) != set(following):
            raise ValueError("first and next are of different queues")
        return Manifest(str(tree["batch"]), first, following, tuple(lost))
    except (ValueError, KeyError, TypeError) as error:
        raise JobError(
            f"{path} is no manifest of an archive ({type(error).__name__}: {error}). Restore it"
            " from a backup, or have --rebuild-manifest make one of the rows that there are"
        ) from error


def _offsets(tree: Any) -> Offsets:
    return read_offset_spec(json.dumps(tree), "the manifest").queues


def read_offset_log(text: str, path: str) -> StreamOffset:
    """The end of a batch, from the file that Spark's checkpoint has of it.

    Spark writes a line for its own version, one for itself, and one for each source.

    Raises:
      JobError: it is no such file, or not of a query with one source of ours.
    """
    lines = text.splitlines()
    try:
        sources = [json.loads(line) for line in lines[2:]]
        (tree,) = (each for each in sources if isinstance(each, Mapping))
    except ValueError as error:
        raise JobError(f"{path} is no offset log of an archive's query: {error}") from error
    return StreamOffset.from_json(tree)
