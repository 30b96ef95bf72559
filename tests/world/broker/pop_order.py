"""Deliveries to groups that pop in order: P3. Pure.

In each queue a group has one *entry* at a time: the messages of its last pop, which hide the rest
of the queue until they are acknowledged or their time is over. Acknowledgements count from the
start of the queue without a gap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trocket.remoting.message import MessageExt

from ..broken import Broken
from .groups import SAVED_MS
from .oracle import LATE_MS, WINDOW_MS, Oracle, Place
from .pop_groups import ANY_QUEUE, Ask


@dataclass(slots=True, eq=False)
class OrderAsk(Ask):
    """A pop in order that is not answered.

    Attributes:
      attempt: its attempt id; "": none.
    """

    attempt: str = ""


@dataclass(slots=True, eq=False)
class Entry:
    """The messages of a pop of one queue.

    Attributes:
      place: the queue.
      attempt: of its pop; "": none.
      popped_ms: when.
      visible_ms: by offset, when the message may be popped again.
      counts: by offset, how often the message was consumed before.
    """

    place: Place
    attempt: str
    popped_ms: int
    visible_ms: dict[int, int]
    counts: dict[int, int]


@dataclass(slots=True)
class _Queue:
    """What the group knows of a queue.

    Attributes:
      tried: offsets that a member acknowledged, whether that arrived or not.
      acked: offsets whose acknowledgement counts, and when it was answered.
      entry: of the last pop that was answered.
      hidden_until_ms: the last end of an invisible time.
      unsure_until_ms: an older entry, that a crash brought back, may hide the queue until then.
    """

    tried: set[int] = field(default_factory=set)
    acked: dict[int, int] = field(default_factory=dict)
    entry: Entry | None = None
    hidden_until_ms: int = 0
    unsure_until_ms: int = 0


class PopOrderGroup:
    """One group that pops a topic in order.

    Args:
      oracle: of all messages.
      topic: the topic.
    """

    def __init__(self, oracle: Oracle, name: str, *, topic: str) -> None:
        self.name = name
        self.topic = topic
        self._oracle = oracle
        self._queues: defaultdict[Place, _Queue] = defaultdict(_Queue)
        self._asks: list[OrderAsk] = []
        self._crashes: list[tuple[int, int]] = []  # when, and what is older than that is saved

    # ---- pops ----------------------------------------------------------------------------

    def asked(
        self, queue_id: int, attempt: str, now_ms: int, poll_ms: int, invisible_ms: int
    ) -> OrderAsk:
        """A member pops; it may be held for `poll_ms`. If no answer arrives, it is `lost`."""
        ask = OrderAsk(queue_id, now_ms, now_ms + poll_ms, invisible_ms, attempt=attempt)
        self._asks.append(ask)
        return ask

    def found(
        self,
        ask: OrderAsk,
        messages: list[MessageExt],
        pop_ms: int,
        counts: Mapping[Place, Mapping[int, int]],
    ) -> list[Entry]:
        """A pop was answered with these messages.

        Args:
          counts: how often each was consumed before, as the broker says, by queue and offset.
        """
        self._asks.remove(ask)
        by_place: defaultdict[Place, list[int]] = defaultdict(list)
        for message in messages:
            by_place[message.topic, message.queue_id].append(message.queue_offset)
        return [
            self._popped(ask, place, offsets, pop_ms, counts.get(place, {}))
            for place, offsets in by_place.items()
        ]

    def _popped(
        self,
        ask: OrderAsk,
        place: Place,
        offsets: list[int],
        pop_ms: int,
        counts: Mapping[int, int],
    ) -> Entry:
        queue, name = self._queues[place], self.name
        if place[0] != self.topic or ask.queue_id not in (ANY_QUEUE, place[1]):
            raise Broken("P3", f"{name} popped {place}, and asked {ask}")
        first = offsets[0]
        if offsets != list(range(first, first + len(offsets))):
            raise Broken("P3", f"{name} popped {offsets} of {place}")
        left_out = next((o for o in range(first) if o not in queue.tried), None)
        if left_out is not None:
            raise Broken("P3", f"{name} popped {offsets} of {place}, and never had {left_out}")
        if first < self._start(queue):
            text = f"{name} popped {offsets} of {place}, acknowledged: {sorted(queue.acked)}"
            raise Broken("P3", text)
        before = queue.entry
        same = before is not None and ask.attempt != "" and ask.attempt == before.attempt
        if before is not None and not same and not self._may_be_forgotten(before.popped_ms):
            hidden = self._hidden(queue, pop_ms)
            if hidden:
                raise Broken("P3", f"{name} popped {offsets} of {place} at {pop_ms}: {before}")
        known = self._counts(queue, offsets, same=same)
        said = {offset: counts.get(offset, 0) for offset in offsets}
        if self._is_sure() and said != known:
            raise Broken("P3", f"{name}'s messages of {place} were popped {known}, not {said}")
        queue.acked = {o: at_ms for o, at_ms in queue.acked.items() if o < first}
        visible_ms = pop_ms + ask.invisible_ms
        queue.hidden_until_ms = max(queue.hidden_until_ms, visible_ms)
        queue.entry = Entry(place, ask.attempt, pop_ms, dict.fromkeys(offsets, visible_ms), said)
        return queue.entry

    def _is_sure(self) -> bool:
        """Whether every pop was answered, and nothing could be forgotten."""
        return not self._crashes and not any(ask.lost for ask in self._asks)

    def _counts(self, queue: _Queue, offsets: list[int], *, same: bool) -> dict[int, int]:
        """How often messages were consumed before a pop; the same attempt is no further time."""
        before = queue.entry.counts if queue.entry is not None else {}
        more = 0 if same else 1
        return {offset: before[offset] + more if offset in before else 0 for offset in offsets}

    def _start(self, queue: _Queue) -> int:
        """The first offset that is not acknowledged for certain."""
        start = 0
        while start in queue.acked:
            start += 1
        return start

    def _hidden(self, queue: _Queue, now_ms: int) -> bool:
        """Whether a message of the last pop is invisible, and not acknowledged for certain."""
        entry = queue.entry
        return entry is not None and any(
            now_ms < visible_ms
            for offset, visible_ms in entry.visible_ms.items()
            if offset not in queue.tried
        )

    def found_nothing(self, ask: OrderAsk, now_ms: int) -> None:
        """A pop was answered without a message: each queue has none, or hides it."""
        self._asks.remove(ask)
        for place, message in self._available(ask, now_ms):
            raise Broken("P3", f"{self.name} popped {place}, and did not get {message.body!r}")

    def _available(self, ask: OrderAsk, now_ms: int) -> Iterator[tuple[Place, MessageExt]]:
        for place, log in self._oracle.log.items():
            if place[0] != self.topic or ask.queue_id not in (ANY_QUEUE, place[1]):
                continue
            queue = self._queues[place]
            message = next((log[o] for o in sorted(log) if o not in queue.tried), None)
            if message is not None and not self._may_be_hidden(ask, place, now_ms):
                yield place, message

    def _may_be_hidden(self, ask: OrderAsk, place: Place, now_ms: int) -> bool:
        queue = self._queues[place]
        entry = queue.entry
        hides = [
            each
            for each in self._asks
            if each.lost
            and each.queue_id in (ANY_QUEUE, place[1])
            and now_ms < each.visible_until_ms
            and not (ask.attempt and each.attempt == ask.attempt)
        ]
        if hides or now_ms < queue.unsure_until_ms:
            return True
        if entry is None or (ask.attempt and entry.attempt == ask.attempt):
            return False
        return any(
            now_ms < visible_ms
            for offset, visible_ms in entry.visible_ms.items()
            if offset not in queue.acked
        )

    def check_held(self, ask: OrderAsk, now_ms: int) -> None:
        """A pop is not held while there is a message for it. P4."""
        for place, message in self._available(ask, now_ms - LATE_MS):
            raise Broken("P4", f"{self.name}'s pop of {place} at {now_ms}: {message.body!r} waits")

    # ---- acknowledgements ----------------------------------------------------------------

    def acking(self, entry: Entry, offset: int) -> None:
        """A member acknowledges; whether that arrives is open."""
        self._queues[entry.place].tried.add(offset)

    def acked(self, entry: Entry, offset: int, now_ms: int) -> None:
        """The acknowledgement was answered with success: of the last pop it counts."""
        queue = self._queues[entry.place]
        if queue.entry is entry and not self._was_popped_since(entry):
            queue.acked.setdefault(offset, now_ms)

    def _was_popped_since(self, entry: Entry) -> bool:
        """Whether a pop without an answer may have taken the queue since."""
        return any(
            ask.lost and ask.until_ms >= entry.popped_ms
            for ask in self._asks
            if ask.queue_id in (ANY_QUEUE, entry.place[1])
        )

    def changing(self, entry: Entry, offset: int, now_ms: int, invisible_ms: int) -> None:
        """A member asks for another invisible time; until the answer the later one holds."""
        if self._queues[entry.place].entry is entry:
            later_ms = max(entry.visible_ms[offset], now_ms + invisible_ms)
            self._set(entry, offset, later_ms)

    def changed(self, entry: Entry, offset: int, visible_ms: int) -> None:
        """The broker has given the new time."""
        if self._queues[entry.place].entry is entry:
            self._set(entry, offset, visible_ms)

    def _set(self, entry: Entry, offset: int, visible_ms: int) -> None:
        queue = self._queues[entry.place]
        entry.visible_ms[offset] = visible_ms
        queue.hidden_until_ms = max(queue.hidden_until_ms, visible_ms)

    # ---- the end -------------------------------------------------------------------------

    def next_moment(self, now_ms: int) -> int | None:
        """The next time at which a queue may be popped again."""
        ends = [ask.visible_until_ms for ask in self._asks if ask.lost]
        for queue in self._queues.values():
            if queue.entry is not None:
                entry = queue.entry.visible_ms
                ends += [end for offset, end in entry.items() if offset not in queue.tried]
        return min((end for end in ends if end > now_ms), default=None)

    def check_all_done(self) -> None:
        """At the very end: every message was acknowledged."""
        for place, log in self._oracle.log.items():
            if place[0] == self.topic:
                for offset, message in log.items():
                    if offset not in self._queues[place].tried:
                        raise Broken("P3", f"{self.name} never had {message.body!r} of {place}")

    # ---- crashes -------------------------------------------------------------------------

    def _may_be_forgotten(self, popped_ms: int) -> bool:
        return any(saved_ms < popped_ms <= crash_ms for crash_ms, saved_ms in self._crashes)

    def crashed(self, crash_ms: int, *, loses: bool) -> None:
        """What was not saved may be gone.

        Args:
          loses: it was a power cut under ASYNC_FLUSH.
        """
        saved_ms = crash_ms - SAVED_MS - (WINDOW_MS if loses else 0)
        self._crashes.append((crash_ms, saved_ms))
        for ask in self._asks:
            ask.lost = True
        for queue in self._queues.values():
            for offset in [offset for offset, at_ms in queue.acked.items() if at_ms > saved_ms]:
                del queue.acked[offset]
            queue.unsure_until_ms = queue.hidden_until_ms

    def lost(self, place: Place, end: int) -> None:
        """After a power cut under ASYNC_FLUSH a queue ends at `end`."""
        queue = self._queues[place]
        queue.tried = {offset for offset in queue.tried if offset < end}
        queue.acked = {offset: at_ms for offset, at_ms in queue.acked.items() if offset < end}
        if queue.entry is not None and any(offset >= end for offset in queue.entry.visible_ms):
            queue.entry = None
