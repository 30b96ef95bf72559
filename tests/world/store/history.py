"""The history of a store: requests, promises, and what must be readable after a crash.

Moments are counts of disk operations: what happened at moment `m` came after the first `m`
operations. A crash at moment `m` finds what came up to and including `m`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NEVER = 1 << 62

Key = tuple[str, int]
Spans = list[list[int]]


@dataclass(slots=True, eq=False)
class Sent:
    """One message that was put, under the place it was given.

    Attributes:
      number: counts all messages of a run.
      generation: how often its topic had been deleted before.
      queue_offset: -1: in the log only (a prepared message).
      tags_code: what its unit must say.
      keys: by which it must be found.
      asked: what `decode_record` must give back, by field.
      record: its bytes in the log; empty until a commit wrote them.
      sent_at, gone_at: from when it may be readable, and from when it must not be.
      kill, power: when a killed process, a power cut must not take it.
    """

    number: int
    topic: str
    queue_id: int
    generation: int
    queue_offset: int
    physical_offset: int
    tags_code: int
    keys: tuple[str, ...]
    asked: dict[str, Any]
    sent_at: int
    record: bytes = b""
    unit: bytes = b""
    gone_at: int = NEVER
    is_deletable: bool = False
    kill: Spans = field(default_factory=list)
    power: Spans = field(default_factory=list)

    @property
    def end(self) -> int:
        """Physical offset behind it."""
        return self.physical_offset + len(self.record)

    def promise(self, moment: int, *, power: bool) -> None:
        """From now on it must survive a killed process (power: a power cut too)."""
        for spans in (self.kill, self.power) if power else (self.kill,):
            if not self.is_deletable and not (spans and spans[-1][1] == NEVER):
                spans.append([moment, NEVER])

    def release(self, moment: int) -> None:
        """From now on it need not be there."""
        for spans in (self.kill, self.power):
            if spans and spans[-1][1] == NEVER:
                spans[-1][1] = moment

    def is_promised(self, moment: int, *, power: bool) -> bool:
        """Whether it must survive a crash at this moment."""
        spans = self.power if power else self.kill
        return any(start <= moment < end for start, end in spans)

    def __str__(self) -> str:
        place = f"offset {self.queue_offset}" if self.queue_offset >= 0 else "log only"
        return (
            f"#{self.number} {self.topic}/{self.queue_id} {place}, "
            f"{len(self.record)} B at {self.physical_offset}"
        )


@dataclass(slots=True)
class SavedText:
    """One version of a configuration file, and when saving it began and ended."""

    text: bytes
    start: int
    end: int = NEVER


@dataclass(slots=True)
class Lane:
    """What one queue may hold: messages by offset, and which must be there."""

    allowed: dict[int, Sent] = field(default_factory=dict)
    required: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Expectation:
    """What may and what must be readable.

    Attributes:
      lanes: per queue one lane for each life of its topic, the newest first; one must match.
      log_only: messages without a queue, and whether each must be there.
      texts: the versions of the configuration file that may stand; None: there may be none.
      deleted: records of deleted topics.
    """

    lanes: dict[Key, list[Lane]] = field(default_factory=dict)
    log_only: list[tuple[Sent, bool]] = field(default_factory=list)
    texts: list[bytes | None] = field(default_factory=list)
    deleted: set[bytes] = field(default_factory=set)


@dataclass
class History:
    """Everything that happened in one run."""

    sent: list[Sent] = field(default_factory=list)
    saved: list[SavedText] = field(default_factory=list)
    events: list[tuple[int, str]] = field(default_factory=list)

    def expectation(self, moment: int, *, power: bool) -> Expectation:
        """What a crash at this moment may leave."""
        lanes: dict[Key, dict[int, Lane]] = {}
        log_only = []
        for each in self.sent:
            if each.sent_at > moment or each.gone_at <= moment or not each.record:
                continue
            promised = each.is_promised(moment, power=power)
            if each.queue_offset < 0:
                log_only.append((each, promised))
                continue
            generations = lanes.setdefault((each.topic, each.queue_id), {})
            lane = generations.get(each.generation)
            if lane is None:
                lane = generations[each.generation] = Lane()
            lane.allowed[each.queue_offset] = each
            if promised:
                lane.required.add(each.queue_offset)
        texts: list[bytes | None] = [None]
        for version in self.saved:
            if version.end <= moment:
                texts = [version.text]
            elif version.start <= moment:
                texts.append(version.text)
        return Expectation(
            {
                key: [generations[number] for number in sorted(generations, reverse=True)]
                for key, generations in lanes.items()
            },
            log_only,
            texts,
            {each.record for each in self.sent if each.is_deletable},
        )

    def story(self, moment: int, count: int = 25) -> list[str]:
        """The last events up to a moment, for people."""
        before = [f"@{at:<5}{text}" for at, text in self.events if at <= moment]
        return before[-count:]
