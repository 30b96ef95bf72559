"""The manifest of an archive: the archived offsets of each queue. Pure.

It is written after each batch, from the batch's offsets and never from the rows, so that `--verify`
compares two independent sources.
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
    """The archived offsets of each queue.

    Attributes:
      batch: the newest batch, by its folder name in the archive; "": none.
      first: the first archived offset of each queue.
      next: the next offset of each queue: [first, next) is archived.
      lost: ranges in [first, next) that had expired at the brokers.
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
        """The manifest after a batch; the same batch again changes nothing.

        Args:
          end: its end; `init` has the beginning of new queues, and of queues that had to restart
            because messages are gone.
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
        """The manifest as JSON text."""
        tree = {
            "version": VERSION,
            "batch": self.batch,
            "first": as_tree(self.first),
            "next": as_tree(self.next),
            "lost": [[*each.queue, each.start, each.end] for each in self.lost],
        }
        return json.dumps(tree, indent=1, ensure_ascii=False) + "\n"


def read_manifest(text: str, path: str) -> Manifest:
    """Parse a manifest.

    Args:
      path: its file, for error messages.

    Raises:
      JobError: the text is not a manifest, or of another version.
    """
    try:
        tree = json.loads(text)
        if tree["version"] != VERSION:
            raise JobError(
                f"{path} has version {tree['version']}, but this trocket reads {VERSION}: use the"
                " trocket that wrote it"
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
            f"{path} is not a manifest of an archive ({type(error).__name__}: {error}). Restore it"
            " from a backup, or rebuild it from the rows with --rebuild-manifest"
        ) from error


def _offsets(tree: Any) -> Offsets:
    return read_offset_spec(json.dumps(tree), "the manifest").queues


def read_offset_log(text: str, path: str) -> StreamOffset:
    """The end of a batch, from its file in Spark's checkpoint.

    Spark writes a line with the version, one with metadata, and one for each source.

    Raises:
      JobError: it is not such a file, or the query has another number of sources than one.
    """
    lines = text.splitlines()
    try:
        sources = [json.loads(line) for line in lines[2:]]
        (tree,) = (each for each in sources if isinstance(each, Mapping))
    except ValueError as error:
        raise JobError(f"{path} is not an offset log of an archive's query: {error}") from error
    return StreamOffset.from_json(tree)
