"""Offsets of queues, in the form of the options and of a stream's checkpoint. Pure.

Spark compares a stream's offsets as text: equal offsets must have equal text, or an idle query
plans empty batches for ever. So keys are sorted and numbers are integers.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from ..common.java_integers import INT32_MAX, INT64_MAX
from .errors import OptionError, SparkConnectorError

LATEST: Final = -1
EARLIEST: Final = -2
GROUP: Final = -3
"""Stand-ins for an offset in JSON, as in Spark's Kafka source (-3 is trocket's addition)."""

_QUEUE_ID: Final = re.compile(r"[0-9]{1,10}")
_SHOWN_MAX: Final = 64
"""Characters of a refused text in an error."""

_WORDS: Final = {"latest": LATEST, "earliest": EARLIEST, "group": GROUP}

VERSION: Final = 1
"""Version of a stream's offsets; a checkpoint of another version is refused."""


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
    """The offsets at which queues begin or end.

    Attributes:
      everywhere: LATEST, EARLIEST or GROUP; None: use `queues`.
      queues: an offset per queue, or one of those three.
    """

    everywhere: int | None = None
    queues: Offsets = field(default_factory=dict)

    def of(self, queue: Queue) -> int | None:
        """The offset of a queue; None: the spec does not name it."""
        return self.everywhere if self.everywhere is not None else self.queues.get(queue)


@dataclass(frozen=True)
class TimeSpec:
    """The times, in ms since 1970, at which queues begin or end.

    Attributes:
      everywhere: of all queues; None: use `queues`.
      queues: of each queue.
    """

    everywhere: int | None = None
    queues: Offsets = field(default_factory=dict)

    def of(self, queue: Queue) -> int | None:
        """The time of a queue; None: the spec does not name it."""
        return self.everywhere if self.everywhere is not None else self.queues.get(queue)


class QueueRange(NamedTuple):
    """Messages [start, end) of a queue."""

    queue: Queue
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def read_offset_spec(text: str, name: str) -> OffsetSpec:
    """Parse earliest, latest, group, or `{"T":{"broker-a":{"0":23,"1":-2}}}`.

    Args:
      name: the option's name, for error messages.

    Raises:
      OptionError: the string is none of these.
    """
    word = _WORDS.get(text.strip().lower())
    if word is not None:
        return OffsetSpec(word)
    queues = _read_tree(text, f"{name} must be earliest, latest, group, or JSON", 23)
    for queue, offset in queues.items():
        if offset < GROUP:
            raise OptionError(f"{name}: {offset} is not an offset ({queue})")
    return OffsetSpec(None, queues)


def read_time_spec(text: str, name: str) -> TimeSpec:
    """Parse `{"T":{"broker-a":{"0":1763800000000}}}`, times in ms since 1970.

    Args:
      name: the option's name, for error messages.

    Raises:
      OptionError: the text has another form, or a time is before 1970.
    """
    queues = _read_tree(text, f"{name} must be JSON", 1_763_800_000_000)
    for queue, time_ms in queues.items():
        if not 0 <= time_ms < INT64_MAX:  # the end of a range is the ms after it
            raise OptionError(f"{name}: {time_ms} is not a time in ms since 1970 ({queue})")
    return TimeSpec(None, queues)


def _read_tree(text: str, what: str, example: int) -> dict[Queue, int]:
    try:
        tree = msgspec.json.decode(text, type=dict[str, dict[str, dict[str, int]]])
        return dict(_flat(tree))
    except (msgspec.DecodeError, ValueError) as error:
        raise OptionError(
            f'{what} such as {{"T":{{"broker-a":{{"0":{example},"1":{example}}}}}}}: {error}'
        ) from None


def _queue_id(text: str) -> int:
    """Raises: ValueError: it is not from 0 to 2,147,483,647, as Java's int."""
    number = int(text) if _QUEUE_ID.fullmatch(text) else INT32_MAX + 1
    if number > INT32_MAX:
        raise ValueError(f"{text[:_SHOWN_MAX]!r} is not the id of a queue")
    return number


def _flat(tree: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Iterable[tuple[Queue, int]]:
    for topic, brokers in tree.items():
        for broker_name, queues in brokers.items():
            for queue_id, offset in queues.items():
                if abs(offset) > INT64_MAX:
                    raise ValueError(f"{queue_id}: the number is not one of 64 bits")
                yield Queue(topic, broker_name, _queue_id(queue_id)), int(offset)


def as_tree(offsets: Offsets) -> dict[str, dict[str, dict[str, int]]]:
    """Offsets as nested objects, sorted."""
    tree: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in sorted(offsets.items()):
        brokers = tree.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return tree


@dataclass(frozen=True)
class StreamOffset:
    """The position of a stream.

    Attributes:
      offsets: the offset of the next message of each queue.
      is_boot: whether nothing was read yet; the offsets are where the stream begins.
      init: only in the end of the first batch: where the batch began. Spark does not keep that, and
        after a crash asks again, when `latest` may have moved.
    """

    offsets: Offsets
    is_boot: bool = False
    init: Offsets = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The form that the checkpoint keeps."""
        found: dict[str, Any] = {"boot": self.is_boot, "off": as_tree(self.offsets), "v": VERSION}
        if self.init:
            found["init"] = as_tree(self.init)
        # Spark writes the keys in this dict's order.
        return dict(json.loads(json.dumps(found, sort_keys=True)))

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> StreamOffset:
        """Parse the result of `to_json`.

        Raises:
          SparkConnectorError: these are not offsets of a `rocketmq` stream, or another version.
        """
        try:
            version = tree["v"]
            if version != VERSION:
                raise SparkConnectorError(
                    f"the checkpoint's offsets have version {version}, but this trocket reads"
                    f" {VERSION}: use the trocket that wrote it, or another checkpointLocation"
                )
            return cls(
                dict(_flat(tree["off"])), bool(tree["boot"]), dict(_flat(tree.get("init") or {}))
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SparkConnectorError(
                "the checkpoint does not hold offsets of a rocketmq stream; does it belong to"
                f" another query? {str(tree)[:200]}"
            ) from error


def split_ranges(
    ranges: Iterable[QueueRange], *, parts_min: int | None, size_max: int | None
) -> list[QueueRange]:
    """Split ranges into smaller ones that cover the same offsets, in order.

    Args:
      parts_min: least number of ranges; large queues are split more often. None: no minimum.
      size_max: most messages per range; None: no limit.
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
    """The end offsets of a batch of about `count_max` messages, shared by the queues' backlogs.

    Args:
      start: the offset of each queue; a missing queue begins at its latest.
      count_max: messages in total; a queue with a backlog gets at least one.
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
    """The number of messages in each queue that a query has not read yet.

    Args:
      progress: one source of `query.lastProgress["sources"]`, as PySpark gives it (its offsets
        are strings of JSON) or parsed from its JSON.

    Returns: empty if the progress has no latest offset, as before the first batch, and for sources
      of other formats.
    Raises: SparkConnectorError: the offsets are those of another version.
    """
    latest, end = (_offsets(progress.get(key)) for key in ("latestOffset", "endOffset"))
    return {queue: max(latest[queue] - end.get(queue, latest[queue]), 0) for queue in latest}


def _offsets(tree: Any) -> Mapping[Queue, int]:
    if isinstance(tree, str):
        with contextlib.suppress(ValueError):
            tree = json.loads(tree)
    is_ours = isinstance(tree, Mapping) and {"off", "v"} <= tree.keys()
    return StreamOffset.from_json(tree).offsets if is_ours else {}
