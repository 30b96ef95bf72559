"""Offsets of queues: as a user writes them, and as a stream's checkpoint keeps them. Pure.

Spark compares a stream's offsets as texts: two that mean the same must be written the same, or a
query without news plans empty batches for ever. So keys are sorted and numbers are whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from .errors import OptionError, SparkConnectorError

LATEST: Final = -1
EARLIEST: Final = -2
GROUP: Final = -3
"""In place of an offset in JSON, as in Spark's Kafka source (-3 is ours)."""

_WORDS: Final = {"latest": LATEST, "earliest": EARLIEST, "group": GROUP}

VERSION: Final = 1
"""Of a stream's offsets; a checkpoint of another one is refused."""


class Queue(NamedTuple):
    """One queue."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"topic {self.topic}, broker {self.broker_name}, queue {self.queue_id}"


Offsets = Mapping[Queue, int]


@dataclass(frozen=True)
class OffsetSpec:
    """Where queues begin or end.

    Attributes:
      everywhere: LATEST, EARLIEST or GROUP; None: what `queues` says.
      queues: an offset of each, or one of those three.
    """

    everywhere: int | None = None
    queues: Offsets = field(default_factory=dict)

    def of(self, queue: Queue) -> int | None:
        """What is said of a queue; None: nothing."""
        return self.everywhere if self.everywhere is not None else self.queues.get(queue)


class QueueRange(NamedTuple):
    """Messages [start, end) of a queue."""

    queue: Queue
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many, if none is missing."""
        return self.end - self.start


def read_offset_spec(text: str, name: str) -> OffsetSpec:
    """earliest, latest, group, or `{"T":{"broker-a":{"0":23,"1":-2}}}`.

    Args:
      name: the option's, for the text of an error.

    Raises:
      OptionError: it is none of these.
    """
    word = _WORDS.get(text.strip().lower())
    if word is not None:
        return OffsetSpec(word)
    try:
        tree = msgspec.json.decode(text, type=dict[str, dict[str, dict[str, int]]])
        queues = dict(_flat(tree))
    except (msgspec.DecodeError, ValueError) as error:
        raise OptionError(
            f"{name} must be earliest, latest, group, or JSON such as"
            f' {{"T":{{"broker-a":{{"0":23,"1":-2}}}}}}: {error}'
        ) from None
    for queue, offset in queues.items():
        if offset < GROUP:
            raise OptionError(f"{name}: {offset} of {queue} is no offset")
    return OffsetSpec(None, queues)


def _flat(tree: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Iterable[tuple[Queue, int]]:
    for topic, brokers in tree.items():
        for broker_name, queues in brokers.items():
            for queue_id, offset in queues.items():
                yield Queue(topic, broker_name, int(queue_id)), int(offset)


def as_tree(offsets: Offsets) -> dict[str, dict[str, dict[str, int]]]:
    """Offsets as nested objects, sorted."""
    tree: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in sorted(offsets.items()):
        brokers = tree.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return tree


@dataclass(frozen=True)
class StreamOffset:
    """Where a stream is.

    Attributes:
      offsets: the next message of each queue.
      is_boot: nothing was read yet; the offsets are where the stream begins.
      init: in the end of the first batch, where it began: Spark does not keep that, and asks anew
        for it after a crash, when `latest` is somewhere else.
    """

    offsets: Offsets
    is_boot: bool = False
    init: Offsets = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As the checkpoint keeps it."""
        found: dict[str, Any] = {"boot": self.is_boot, "off": as_tree(self.offsets), "v": VERSION}
        if self.init:
            found["init"] = as_tree(self.init)
        # Spark writes the keys in the order in which they are here.
        return dict(json.loads(json.dumps(found, sort_keys=True)))

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> StreamOffset:
        """Read what `to_json` gave.

        Raises:
          SparkConnectorError: it is of something else, or of another version.
        """
        try:
            version = tree["v"]
            if version != VERSION:
                raise SparkConnectorError(
                    f"the checkpoint's offsets have version {version}, and this trocket reads"
                    f" {VERSION}: use the one that wrote it, or another checkpointLocation"
                )
            return cls(
                dict(_flat(tree["off"])), bool(tree["boot"]), dict(_flat(tree.get("init") or {}))
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SparkConnectorError(
                "the checkpoint holds no offsets of a stream of rocketmq (is it another query's?):"
                f" {str(tree)[:200]}"
            ) from error


def split_ranges(
    ranges: Iterable[QueueRange], *, parts_min: int | None, size_max: int | None
) -> list[QueueRange]:
    """Cut ranges into more and smaller ones that cover the same, in order.

    Args:
      parts_min: at least so many in all, large queues into more of them; None: as they are.
      size_max: messages of each at most; None: any.
    """
    found = [each for each in ranges if each.size > 0]
    total = sum(each.size for each in found)
    pieces: list[QueueRange] = []
    for each in found:
        count = 1
        if parts_min is not None and len(found) < parts_min:
            count = max(1, min(each.size, -(-each.size * parts_min // total)))
        if size_max is not None:
            count = max(count, -(-each.size // size_max))
        for part in range(count):
            first, last = (each.start + each.size * n // count for n in (part, part + 1))
            pieces.append(QueueRange(each.queue, first, last))
    return pieces


def limited(start: Offsets, latest: Offsets, count_max: int) -> dict[Queue, int]:
    """How far to go so that about so many messages are read, from each queue by its backlog.

    Args:
      start: of each queue; a queue that it does not have begins at its latest.
      count_max: messages in all; a queue with news gets one at least.
    """
    backlogs = {queue: max(end - start.get(queue, end), 0) for queue, end in latest.items()}
    total = sum(backlogs.values())
    if total <= count_max:
        return dict(latest)
    found = {}
    for queue, backlog in backlogs.items():
        share = min(backlog, max(backlog * count_max // total, 1))
        found[queue] = start.get(queue, latest[queue]) + share
    return found


def lag(progress: Mapping[str, Any]) -> dict[Queue, int]:
    """How many messages each queue has that a query has not read.

    Args:
      progress: one source of `query.lastProgress["sources"]`.
    """
    latest, end = (_offsets(progress.get(key)) for key in ("latestOffset", "endOffset"))
    return {queue: max(latest[queue] - end.get(queue, latest[queue]), 0) for queue in latest}


def _offsets(tree: Any) -> Mapping[Queue, int]:
    return StreamOffset.from_json(tree).offsets if isinstance(tree, Mapping) else {}
