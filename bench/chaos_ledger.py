"""The ledger of a chaos run: what clients were promised, what they saw, and the verdict. Pure.

A *stream* is a producer and one of its keys. A producer sends the numbers 0, 1, 2 … of a stream to
one queue, the next one only after the one before is confirmed. Each group takes all streams. Times
are seconds since the run began.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from trocket.bench import failover_ledger

NOTHING: Final = -1
EFFECT_S: Final = 45.0
"""How long after its end a fault is the reason of repeats: a client asks for routes and rebalances
within 30 s, and commits within 5 s more; 10 s for a busy machine."""
TAKEN_BACK_S: Final = 26.0
"""Committed offsets of the last seconds may be taken back by a broker's end: 11 s by its own
(docs/operations.md), 10 s until a slave has copied them (Apache's interval), and 5 s for a busy
machine."""
HISTORY_S: Final = 300.0
"""How long an offset that was seen is remembered: longer than a fault with its effects."""
GAP_S: Final = 2.0
"""A time without a send or a delivery that a page shows: twenty times the usual one."""
AGAIN: Final = "the send was repeated"
UNEXPLAINED: Final = "no fault was near"

Stream: TypeAlias = tuple[str, int]
"""Producer and key."""


@dataclass
class Fault:
    """A fault that happened.

    Attributes:
      target: a process, or `send-java`, `take-go` and so on.
      until_s: when it was over and the set whole again; inf: not yet.
      problem: what did not come right afterwards; "": nothing.
    """

    kind: str
    target: str
    from_s: float
    until_s: float = float("inf")
    takes_back: bool = False
    problem: str = ""

    def concerns(self, group: str) -> bool:
        """Whether deliveries to a group can be its effect: not those of other clients' faults."""
        role, _, client = self.target.partition("-")
        return role not in ("send", "take") or (role == "take" and client == group)


@dataclass
class Verdict(failover_ledger.Verdict):
    """What went wrong in a chaos run, where each group is to be given each message.

    Attributes:
      unseen: pairs of a group and a confirmed, stored message that it was never given.
      disordered: first deliveries of a message behind one that was sent after it.
      taken_back: committed offsets that went back beyond what is promised.
    """

    taken_back: int = 0

    @property
    def is_good(self) -> bool:
        """Whether nothing went wrong."""
        return super().is_good and not self.taken_back


@dataclass
class Activity:
    """How often a client sent or took something, by seconds, and its longest gap.

    Attributes:
      counts: confirmed sends, or deliveries, in each second of the run.
      longest_s, longest_from_s: the longest time without one, and when it began.
      gaps: those of at least GAP_S: when it began, and its length.
    """

    counts: Counter[int] = field(default_factory=Counter)
    longest_s: float = 0.0
    longest_from_s: float = 0.0
    gaps: list[tuple[float, float]] = field(default_factory=list)
    last_s: float | None = None

    def happened(self, at_s: float) -> None:
        """Count one."""
        self.end(at_s)
        self.counts[int(at_s)] += 1

    def end(self, at_s: float) -> None:
        """The gap since the last one ends here."""
        if self.last_s is not None:
            gap_s = at_s - self.last_s
            if gap_s > self.longest_s:
                self.longest_s, self.longest_from_s = gap_s, self.last_s
            if gap_s >= GAP_S:
                self.gaps.append((self.last_s, gap_s))
        self.last_s = at_s


class Ledger:
    """What clients were promised and saw.

    Attributes:
      faults: in order.
      activity: by client, `send-java` or `take-java`.
      repeats: deliveries to a group of a message that it had been given before, by group and
        reason.
      found: what went wrong until now; `verdict` adds the rest.
    """

    def __init__(self, producers: Iterable[str], groups: Iterable[str], key_count: int) -> None:
        self._streams: list[Stream] = [
            (each, key) for each in producers for key in range(key_count)
        ]
        self._confirmed: dict[Stream, int] = dict.fromkeys(self._streams, 0)
        self._groups = list(groups)
        self._taken: dict[tuple[str, Stream], array[int]] = {
            (group, stream): array("q") for group in self._groups for stream in self._streams
        }
        self._highest: dict[tuple[str, Stream], int] = {}
        self._places: dict[Stream, dict[int, int]] = {stream: {} for stream in self._streams}
        self._offsets: dict[tuple[str, str, int], deque[tuple[float, int]]] = {}
        self.faults: list[Fault] = []
        self.repeats: Counter[tuple[str, str]] = Counter()
        self.found = Verdict()
        self.activity: dict[str, Activity] = {
            f"{role}-{client}": Activity()
            for role, clients in (
                ("send", dict.fromkeys(producer for producer, _ in self._streams)),
                ("take", self._groups),
            )
            for client in clients
        }

    # ---- what clients report -------------------------------------------------------------

    def next_number(self, stream: Stream) -> int:
        """What is to be sent next, also by a producer that begins again."""
        return self._confirmed[stream]

    def confirm(self, stream: Stream, number: int, offset: int, at_s: float) -> None:
        """A number was confirmed at an offset of its queue.

        Raises: ValueError: there is no such stream, or it is not the next number: the producer is
          wrong.
        """
        if stream not in self._places:
            raise ValueError(f"{stream[0]}/{stream[1]} is no stream")
        if number != self._confirmed[stream]:
            raise ValueError(f"{stream} confirmed {number} and not {self._confirmed[stream]}")
        self._confirmed[stream] += 1
        self._place(stream, offset, number)
        self.activity[f"send-{stream[0]}"].happened(at_s)

    def take(self, group: str, stream: Stream, offset: int, number: int, at_s: float) -> None:
        """A group was given a number at an offset.

        Raises: ValueError: there is no such stream.
        """
        if stream not in self._places:
            raise ValueError(f"a message of {stream[0]}/{stream[1]}, which no producer sends to")
        self.activity[f"take-{group}"].happened(at_s)
        self._place(stream, offset, number)
        taken = self._taken[group, stream]
        if number >= len(taken):
            taken.extend([NOTHING] * (number + 1 - len(taken)))
        if taken[number] != NOTHING:
            reason = AGAIN if taken[number] != offset else self.reason(group, at_s)
            self.repeats[group, reason] += 1
            return
        taken[number] = offset
        highest = self._highest.get((group, stream), NOTHING)
        if number < highest:
            place = f"{group}: {_named(stream, number)} after {highest} at {at_s:.1f} s"
            self.found.note("disordered", place)
        self._highest[group, stream] = max(highest, number)

    def commit(self, group: str, topic: str, queue: int, offset: int, at_s: float) -> None:
        """A broker said how far a group has consumed a queue."""
        history = self._offsets.setdefault((group, topic, queue), deque())
        while history and history[0][0] < at_s - HISTORY_S:
            history.popleft()
        if history and offset < max(seen for _, seen in history):
            floor_s = self._taken_back_from_s(at_s)
            floor = max((seen for seen_s, seen in history if seen_s <= floor_s), default=0)
            if offset < floor:
                place = f"{group} of {topic}/{queue}: {offset} after {floor} at {at_s:.1f} s"
                self.found.note("taken_back", place)
            # Reported or promised: from here on it counts as never seen.
            kept = [(seen_s, min(seen, offset)) for seen_s, seen in history]
            history.clear()
            history.extend(kept)
        history.append((at_s, offset))

    def _taken_back_from_s(self, at_s: float) -> float:
        """Offsets that were seen until then must still be there at a moment."""
        causes = [
            fault.from_s
            for fault in self.faults
            if fault.takes_back and fault.from_s <= at_s <= fault.until_s + TAKEN_BACK_S
        ]
        return min(causes, default=at_s + TAKEN_BACK_S) - TAKEN_BACK_S

    def reason(self, group: str, at_s: float) -> str:
        """Why a group may get a message again at a moment: the last fault that concerns it."""
        for fault in reversed(self.faults):
            if fault.concerns(group) and fault.from_s <= at_s <= fault.until_s + EFFECT_S:
                return f"after {fault.kind}"
        return UNEXPLAINED

    def _place(self, stream: Stream, offset: int, number: int) -> None:
        before = self._places[stream].setdefault(offset, number)
        if before != number:
            place = f"{stream[0]}/{stream[1]}@{offset}: {before} and {number}"
            self.found.note("doubled", place)
            self._places[stream][offset] = number

    # ---- the end -------------------------------------------------------------------------

    @property
    def confirmed_count(self) -> int:
        """Messages that were confirmed."""
        return sum(self._confirmed.values())

    def missing(self) -> Counter[str]:
        """By group, confirmed messages that it has not been given yet; groups with none: 0."""
        counts: Counter[str] = Counter(dict.fromkeys(self._groups, 0))
        for (group, stream), taken in self._taken.items():
            wanted = self._confirmed[stream]
            counts[group] += wanted - sum(each != NOTHING for each in taken[:wanted])
        return counts

    def verdict(self, stored: Mapping[Stream, Sequence[int]]) -> Verdict:
        """What went wrong, with the numbers that the queues have in the end; call it once."""
        found = self.found
        found.confirmed = self.confirmed_count
        for stream, wanted in self._confirmed.items():
            there = set(stored.get(stream, ()))
            for number in range(wanted):
                if number not in there:
                    found.note("lost", _named(stream, number))
                    continue
                for group in self._groups:
                    taken = self._taken[group, stream]
                    if number >= len(taken) or taken[number] == NOTHING:
                        found.note("unseen", f"{group}: {_named(stream, number)}")
        return found


def _named(stream: Stream, number: int) -> str:
    return f"{stream[0]}/{stream[1]} {number}"
