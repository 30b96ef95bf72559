"""The broker's promises, checked against what clients see: N1 to N5, N8 and N9 of the test plan.

Pure: no broker, no trio, no clock. Whoever drives a broker tells the oracle of every request, every
answer, every message that was read and every crash; the oracle raises `Broken` as soon as two of
them do not go together. `transactions.py`, `groups.py` and `locks.py` are its other parts.

A message is known by its number, which is its body: `m17`. What may or must come is kept by *key*:
the topic, the number, and how often it was tried again. So a message that was sent, its retries and
its dead letter are three keys.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from trocket.remoting.message import MessageExt

from ..broken import Broken

LATE_MS = 1_000
"""N9: a healthy broker delivers no later than this after the time is due."""

WINDOW_MS = 10_000
"""M0: what a power cut may take under ASYNC_FLUSH; what was stored before that stays."""

Place = tuple[str, int]
"""Topic and queue id."""

_BODY = re.compile(rb"m([0-9]+)")


class Key(NamedTuple):
    """A message in one topic, by the tries it has behind it."""

    topic: str
    number: int
    times: int = 0


class Promise(NamedTuple):
    """One copy that must come: when that was promised, and by when it is due.

    Attributes:
      due_ms: it may come later by all of `Oracle.back_ms`: a message that was sent after the clock
        was set back waits for those of its level that were sent before.
    """

    made_ms: int
    due_ms: int


@dataclass(slots=True)
class Coming:
    """The copies of a key.

    Attributes:
      queue_id: where they belong.
      asked_for: requests that may each lead to one copy, answered or not.
      since_ms: the first of them.
      not_before_ms: no copy may be visible before, less what the clock was set forward since; all
        of `Oracle.forward_ms` is added.
      once: a crash repeats nothing, as with plain sends.
      promises: those that were answered with success.
      seen: queue offsets of the copies that are there.
      taken_back_ms: when the broker said that there will be none; -1: never.
    """

    queue_id: int
    since_ms: int
    not_before_ms: int
    once: bool
    asked_for: int = 0
    promises: list[Promise] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    taken_back_ms: int = -1


class Oracle:
    """Messages: what was sent, what must come, what is where.

    Args:
      sync: SYNC_FLUSH: a power cut takes nothing that was answered.

    Attributes:
      log: by place and queue offset, every message that was ever read and is not lost by contract.
      tags: tag by message number.
      crashes: when the broker was killed or lost power, ms.
      up_since_ms: when it became healthy again.
      cuts: power cuts under ASYNC_FLUSH.
      forward_ms, back_ms: by how much the wall clock was set forward, and back, all jumps together.
        Delays count by that clock: what waits meanwhile may come earlier, or later, by as much.
      forward_at_start_ms: `forward_ms` at the last start.
      judges: for topics whose messages no client asks for: checks a message that is new there.
    """

    def __init__(self, *, sync: bool, now_ms: int) -> None:
        self.sync = sync
        self.log: defaultdict[Place, dict[int, MessageExt]] = defaultdict(dict)
        self.tags: dict[int, str] = {}
        self.crashes: list[int] = []
        self.cuts: list[int] = []
        self.judges: dict[str, Callable[[MessageExt], None]] = {}
        self.up_since_ms = now_ms
        self.forward_ms = self.back_ms = self.forward_at_start_ms = 0
        self._coming: dict[Key, Coming] = {}
        self._open: dict[Key, Coming] = {}  # with a promise that is not seen kept yet
        self._acked: defaultdict[Place, dict[int, tuple[int, int]]] = defaultdict(dict)
        self._rising: dict[tuple[str, Place], int] = {}

    # ---- requests and their answers ------------------------------------------------------

    def new_number(self, tag: str) -> int:
        """A number for a message that is going to be sent."""
        number = len(self.tags)
        self.tags[number] = tag
        return number

    def ask(
        self, key: Key, queue_id: int, *, now_ms: int, not_before_ms: int, once: bool = False
    ) -> None:
        """Somebody asks for a copy; whether it comes is open until an answer."""
        coming = self._coming.get(key)
        if coming is None:
            coming = self._coming[key] = Coming(
                queue_id, now_ms, not_before_ms + self.forward_ms, once
            )
        coming.asked_for += 1
        coming.not_before_ms = min(coming.not_before_ms, not_before_ms + self.forward_ms)

    def promise(self, key: Key, *, now_ms: int, due_ms: int) -> None:
        """The answer says that the copy is stored."""
        coming = self._coming[key]
        coming.promises.append(Promise(now_ms, due_ms))
        self._open[key] = coming

    def promise_place(self, key: Key, sender: str, offset: int, *, now_ms: int) -> None:
        """A plain send was answered with its place. N1, N2, and rising offsets of N3."""
        place = (key.topic, self._coming[key].queue_id)
        known = self._acked[place].get(offset)
        if known is not None:
            raise Broken("N2", f"m{known[0]} and m{key.number} both got {place} offset {offset}")
        there = self.log[place].get(offset)
        if there is not None and number_of(there) != key.number:
            raise Broken(
                "N1", f"m{key.number} was acknowledged at {place} {offset}, {there.body!r} is there"
            )
        if offset <= self._rising.get((sender, place), -1):
            raise Broken(
                "N3", f"{sender}'s m{key.number} in {place} got {offset}, not a higher one"
            )
        self._rising[sender, place] = offset
        self._acked[place][offset] = (key.number, now_ms)
        self.promise(key, now_ms=now_ms, due_ms=now_ms)

    def refuse(self, key: Key) -> None:
        """The answer says that nothing is stored. N4."""
        coming = self._coming[key]
        coming.asked_for -= 1
        self._check_count(key, coming)

    def taking_back(self, key: Key) -> None:
        """A producer does not want what it sent; whether it comes is open again."""
        self._coming[key].promises.clear()

    def took_back(self, key: Key, now_ms: int) -> None:
        """The answer says that it will not come."""
        coming = self._coming[key]
        if not coming.seen:  # else it came in this very moment
            coming.taken_back_ms = now_ms

    # ---- what is read --------------------------------------------------------------------

    def saw(self, message: MessageExt, now_ms: int) -> None:
        """A message was read from a queue. N2, N4, N5, N9."""
        place = (message.topic, message.queue_id)
        known = self.log[place].get(message.queue_offset)
        if known is not None:
            if known != message:
                raise Broken("N5", f"{place} {message.queue_offset} was {known}, is {message}")
            return
        number = number_of(message)
        key = Key(message.topic, number, message.reconsume_times)
        judge = self.judges.get(message.topic)
        if judge is not None:
            self._check_properties(message, key)
            judge(message)
            self.log[place][message.queue_offset] = message
            return
        coming = self._coming.get(key)
        if coming is None:
            raise Broken("N4", f"no client asked for {key}, it is at {message.queue_offset}")
        if coming.queue_id != message.queue_id:
            raise Broken("N4", f"{key} is in queue {message.queue_id}, not {coming.queue_id}")
        self._check_properties(message, key)
        acked = self._acked[place].get(message.queue_offset)
        if acked is not None and acked[0] != number:
            raise Broken(
                "N1", f"m{acked[0]} was promised {place} {message.queue_offset}, not {key}"
            )
        early_ms = coming.not_before_ms - self.forward_ms - now_ms
        if early_ms > 0:
            raise Broken("N9", f"{key} is visible {early_ms} ms too early")
        if coming.taken_back_ms >= 0:
            raise Broken("N9", f"{key} was taken back, and is there")
        self.log[place][message.queue_offset] = message
        coming.seen.add(message.queue_offset)
        self._check_count(key, coming)

    def _check_properties(self, message: MessageExt, key: Key) -> None:
        number = key.number
        if (message.tags or "") != self.tags[number] or message.unique_key != f"K{number}":
            raise Broken("N1", f"{key} has other properties: {message.properties}")

    def _check_count(self, key: Key, coming: Coming) -> None:
        repeats = sum(crash_ms >= coming.since_ms for crash_ms in self.crashes)
        allowed = coming.asked_for + (0 if coming.once or not coming.asked_for else repeats)
        if len(coming.seen) > allowed:
            raise Broken("N4", f"{key} is there {len(coming.seen)} times, {allowed} at most")

    def saw_end(self, place: Place, end: int) -> None:
        """A queue ends at `end`, and everything before was read. N3."""
        known = self.log[place]
        if len(known) != end or any(offset not in known for offset in range(end)):
            raise Broken("N3", f"{place} has offsets {sorted(known)}, and ends at {end}")

    def check(self, now_ms: int) -> None:
        """What is overdue, now that everything visible was read. N1, N9."""
        for key, coming in list(self._open.items()):
            owed = sum(
                max(p.due_ms + self.back_ms, self.up_since_ms) + LATE_MS <= now_ms
                for p in coming.promises
            )
            if len(coming.seen) < owed:
                raise Broken("N1/N9", f"{key} is overdue: {coming}, now {now_ms}")
            if len(coming.seen) >= len(coming.promises):
                del self._open[key]
        for place, acked in self._acked.items():
            for offset, (number, _) in acked.items():
                there = self.log[place].get(offset)
                if there is None or number_of(there) != number:
                    raise Broken("N1", f"m{number} was promised {place} {offset}: {there}")

    def is_there(self, key: Key) -> bool:
        """Whether a copy is visible."""
        coming = self._coming.get(key)
        return coming is not None and bool(coming.seen)

    def next_moment(self, now_ms: int) -> int | None:
        """The next time at which something may go wrong: just before and at a due time, or late."""
        moments = [
            moment
            for coming in self._open.values()
            for promise in coming.promises
            for due_ms in (promise.due_ms + self.back_ms,)
            for early_ms in (coming.not_before_ms - self.forward_ms - 1,)
            for moment in (early_ms, due_ms - 1, due_ms, due_ms + LATE_MS)
            if moment > now_ms
        ]
        return min(moments, default=None)

    def clock_set(self, by_ms: int) -> None:
        """The broker's wall clock was set."""
        if by_ms > 0:
            self.forward_ms += by_ms
        else:
            self.back_ms -= by_ms

    # ---- crashes -------------------------------------------------------------------------

    def crashed(self, now_ms: int) -> None:
        """Killed, or out of power: what is answered stays, some of it may come once more."""
        self.crashes.append(now_ms)

    def restarted(self, now_ms: int) -> None:
        """The broker is healthy again."""
        self.up_since_ms = now_ms
        self.forward_at_start_ms = self.forward_ms

    def power_was_cut(self, cut_ms: int) -> None:
        """Under ASYNC_FLUSH: promises of the last ten seconds are forgotten."""
        self.cuts.append(cut_ms)
        self._rising.clear()
        for coming in self._coming.values():
            coming.promises = [p for p in coming.promises if p.made_ms <= cut_ms - WINDOW_MS]
            if coming.taken_back_ms > cut_ms - WINDOW_MS:
                coming.taken_back_ms = -1

    def lost(self, place: Place, end: int, cut_ms: int) -> None:
        """After a power cut under ASYNC_FLUSH a queue ends at `end`. Only what is new may go."""
        log = self.log[place]
        for offset in [offset for offset in log if offset >= end]:
            message = log.pop(offset)
            if message.store_timestamp_ms <= cut_ms - WINDOW_MS:
                raise Broken("N1", f"{message.body!r} of {place} is old, and lost in a power cut")
            if place[0] in self.judges:
                continue
            key = Key(message.topic, number_of(message), message.reconsume_times)
            coming = self._coming[key]
            coming.seen.discard(offset)
            if coming.promises:
                self._open[key] = coming
        acked = self._acked[place]
        for offset in [offset for offset in acked if offset >= end]:
            number, acked_ms = acked.pop(offset)
            if acked_ms <= cut_ms - WINDOW_MS:
                raise Broken("N1", f"m{number} of {place} is old, and lost in a power cut")


def number_of(message: MessageExt) -> int:
    """Which message it is. Raises: Broken: none that a client sent."""
    match = _BODY.fullmatch(message.body)
    if match is None:
        raise Broken("N4", f"no client sent {message.body!r}")
    return int(match[1])


def bodies(messages: Iterable[MessageExt]) -> list[str]:
    """For people."""
    return [message.body.decode("ascii", "replace") for message in messages]
