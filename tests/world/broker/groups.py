"""Deliveries and offsets of consumer groups: N6, and that filters and order lose nothing. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial

from trocket.common.java_hash import tags_code
from trocket.remoting.message import MessageExt

from ..broken import Broken
from .locks import Locks
from .oracle import Oracle, Place, number_of

SAVED_MS = 6_000
"""Offsets are saved each 5 s: what was committed longer ago is there after a crash."""

_UNKNOWN: Callable[[], frozenset[int]] = partial(frozenset, {-1})


class Group:
    """One consumer group.

    Args:
      oracle: of all messages.
      tags: it wants these; empty: everything.
      in_order: each queue one message after the other, under a lock.

    Attributes:
      locks: of its members.
    """

    def __init__(self, oracle: Oracle, name: str, tags: Iterable[str], *, in_order: bool) -> None:
        self.name = name
        self.tags = tuple(tags)
        self.in_order = in_order
        self.locks = Locks()
        self._oracle = oracle
        self._codes = frozenset(tags_code(tag) for tag in self.tags)
        self._done: defaultdict[Place, set[int]] = defaultdict(set)
        self._numbers: set[int] = set()
        self._possible: defaultdict[Place, frozenset[int]] = defaultdict(_UNKNOWN)
        self._commits: defaultdict[Place, list[tuple[int, frozenset[int]]]] = defaultdict(list)
        self._looked_at: list[tuple[Place, int, int, frozenset[int]]] = []
        self._returned: list[tuple[Place, int]] = []

    def wants(self, message: MessageExt) -> bool:
        """Whether the broker's filter, which compares hash codes, lets a message through."""
        retry = message.topic.startswith("%RETRY%")
        return retry or not self._codes or tags_code(message.tags or "") in self._codes

    # ---- pulls ---------------------------------------------------------------------------

    def pulled(
        self, place: Place, start: int, end: int, messages: list[MessageExt], now_ms: int
    ) -> None:
        """A pull from `start` was answered: these messages, and go on at `end`."""
        offsets = [message.queue_offset for message in messages]
        if offsets != sorted(set(offsets)) or any(not start <= o < end for o in offsets):
            raise Broken("N6", f"{self.name} asked {place} from {start}, got {offsets}, next {end}")
        for message in messages:
            if (message.topic, message.queue_id) != place:
                raise Broken("N4", f"{message.body!r} came from {place}")
            if not self.wants(message):
                raise Broken("N6", f"{self.name} got {message.body!r} with tag {message.tags}")
            self._oracle.saw(message, now_ms)
        self._looked_at.append((place, start, end, frozenset(offsets)))

    def would_get(self, place: Place, start: int) -> MessageExt | None:
        """A message that a pull from `start` must be answered with at once."""
        log = self._oracle.log[place]
        return next((m for o, m in log.items() if o >= start and self.wants(m)), None)

    def done(self, message: MessageExt, *, consumed: bool) -> None:
        """A message was consumed, or its sending back was answered with success."""
        place, offset = (message.topic, message.queue_id), message.queue_offset
        if self.in_order:
            left_out = self._not_done(place, 0, offset)
            if left_out is not None:
                raise Broken("order", f"{self.name}: {message.body!r} before {left_out.body!r}")
        self._done[place].add(offset)
        if consumed:
            self._numbers.add(number_of(message))

    def _not_done(self, place: Place, start: int, end: int) -> MessageExt | None:
        log, done = self._oracle.log[place], self._done[place]
        missing = (log[o] for o in range(start, end) if o in log and o not in done)
        return next(filter(self.wants, missing), None)

    # ---- offsets -------------------------------------------------------------------------

    def committed(self, place: Place, offset: int, now_ms: int, *, surely: bool) -> None:
        """A member noted how far the group is; not surely, if the broker died meanwhile."""
        before = self._possible[place]
        self._commits[place].append((now_ms, before | {offset}))
        self._possible[place] = frozenset({offset}) if surely else before | {offset}

    def told_offset(self, place: Place, offset: int) -> None:
        """The broker says how far the group is; -1: it does not know."""
        possible = self._possible[place]
        if max(offset, 0) not in possible | ({0} if -1 in possible else set()):
            text = f"{self.name} was given {place} {offset}, and committed {sorted(possible)}"
            raise Broken("N6", text)
        if offset > 0:
            self._possible[place] = frozenset({offset})
        self._returned.append((place, offset))

    def check(self, ends: dict[Place, int]) -> None:
        """What pulls and offsets have passed over, now that everything visible was read."""
        for place, start, end, offsets in self._looked_at:
            log = self._oracle.log[place]
            for offset in range(start, end):
                message = log.get(offset)
                if message is not None and offset not in offsets and self.wants(message):
                    raise Broken(
                        "N6", f"{self.name} pulled {place} {start}…{end} without {message.body!r}"
                    )
        self._looked_at.clear()
        for place, offset in self._returned:
            left_out = self._not_done(place, 0, offset)
            if left_out is not None:
                raise Broken("N6", f"{self.name} at {place} {offset} never had {left_out.body!r}")
            if offset > ends.get(place, 0):
                raise Broken("N6", f"{self.name} at {place} {offset}, its end is {ends.get(place)}")
        self._returned.clear()

    def check_all_done(self) -> None:
        """At the very end: every message was consumed, or is among the dead letters."""
        for place, log in self._oracle.log.items():
            if place[0] not in ("T", f"%RETRY%{self.name}"):
                continue
            for offset, message in log.items():
                if not self.wants(message):
                    continue
                if offset not in self._done[place]:
                    raise Broken("N6", f"{self.name} never had {message.body!r} of {place}")
                if number_of(message) not in self._numbers and not self._is_dead(message):
                    raise Broken("N6", f"{self.name} never consumed {message.body!r} of {place}")

    def _is_dead(self, message: MessageExt) -> bool:
        letters = self._oracle.log[f"%DLQ%{self.name}", 0].values()
        return any(letter.body == message.body for letter in letters)

    # ---- crashes -------------------------------------------------------------------------

    def crashed(self, crash_ms: int) -> None:
        """Commits of the last seconds may be gone, and returned offsets are no longer checked."""
        for place, commits in self._commits.items():
            for commit_ms, offsets in commits:
                if commit_ms > crash_ms - SAVED_MS:
                    self._possible[place] |= offsets
        self._looked_at.clear()
        self._returned.clear()

    def lost(self, place: Place, end: int) -> None:
        """After a power cut under ASYNC_FLUSH a queue ends at `end`: so do the group's offsets."""
        self._done[place] = {offset for offset in self._done[place] if offset < end}
        self._possible[place] = frozenset(min(o, end) for o in self._possible[place])
        self._commits.pop(place, None)
