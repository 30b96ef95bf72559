"""Deliveries to groups that pop, and their acknowledgements: P1, P2 and P4. Pure.

The model knows the protocol and the promises of docs/testing.md, and nothing of how a broker keeps
them. A pop or an acknowledgement without an answer may or may not have happened. `pop_order.py` is
the model of groups that pop in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from trocket.common.java_hash import tags_code
from trocket.remoting.message import MessageExt

from ..broken import Broken
from .groups import SAVED_MS
from .oracle import WINDOW_MS, Oracle, Place, number_of

COMMITTED_MS = SAVED_MS + 2_000
"""The committed offset passes a check point a second after its record is on the device; time
passes in steps of a second here."""

MERGED_MS = COMMITTED_MS + 11_000
"""With the merge buffer a check point is in memory for 10 s, and its acknowledgements, too."""

REPEATS = 2
"""Copies that a crash may lead to once more: the revive service reads a check point again, and the
timer service may deliver its record again after that."""

RETURNS_MS = 3_000
"""P1: what is not acknowledged is there again no later than this after its invisible time."""

ANY_QUEUE = -1


class Memory(NamedTuple):
    """What a crash may take: pops and acknowledgements that are younger than this, ms.

    Attributes:
      pops_ms: the committed offset behind a pop.
      acks_ms: an acknowledgement or a changed time, though it was answered.
    """

    pops_ms: int
    acks_ms: int


def memory_of(*, merges: bool, loses: bool) -> Memory:
    """What a crash may take.

    Args:
      merges: enablePopBufferMerge.
      loses: the crash is a power cut under ASYNC_FLUSH.
    """
    pops_ms = MERGED_MS if merges else COMMITTED_MS
    acks_ms = MERGED_MS if merges else 0
    return Memory(pops_ms + WINDOW_MS, acks_ms + WINDOW_MS) if loses else Memory(pops_ms, acks_ms)


@dataclass(slots=True, eq=False)
class Ask:
    """A pop that is not answered: it may have made messages invisible.

    Attributes:
      queue_id: ANY_QUEUE: all queues.
      from_ms: what it pops becomes visible no earlier than `invisible_ms` after this.
      until_ms: and no later than `invisible_ms` after this.
      lost: no answer will arrive any more.
    """

    queue_id: int
    from_ms: int
    until_ms: int
    invisible_ms: int
    lost: bool = False

    @property
    def visible_from_ms(self) -> int:
        """When what it popped may come again."""
        return self.from_ms + self.invisible_ms

    @property
    def visible_until_ms(self) -> int:
        """When what it popped must come again, if it is not acknowledged."""
        return self.until_ms + self.invisible_ms

    def could_have(self, message: MessageExt) -> bool:
        """Whether it may have popped a message, though no answer arrived."""
        return self.lost and message.store_timestamp_ms <= self.until_ms


@dataclass(slots=True, eq=False)
class Delivery:
    """One delivery of a message.

    Attributes:
      place, offset: where it was.
      number, times: which message, and its tries before this one.
      popped_ms, visible_ms: between these no other member gets it.
      may_return: it is not acknowledged for certain.
      owed: no member tried to acknowledge it.
      settled_ms: when the acknowledgement, or a new invisible time, was answered; -1: never.
      suspended: its return is no further try.
    """

    place: Place
    offset: int
    number: int
    times: int
    popped_ms: int
    visible_ms: int
    may_return: bool = True
    owed: bool = True
    settled_ms: int = -1
    suspended: bool = False

    @property
    def next_times(self) -> int:
        """The tries behind the copy that this delivery leads to, if it is not acknowledged."""
        return self.times + (0 if self.suspended else 1)


class PopGroup:
    """One group that pops a topic from all its queues.

    Args:
      oracle: of all messages.
      tags: it wants these; empty: everything.
      topic: the topic.
      retry_topic: where the broker puts what is not acknowledged.
      merges: enablePopBufferMerge.
    """

    def __init__(
        self,
        oracle: Oracle,
        name: str,
        tags: Iterable[str],
        *,
        topic: str,
        retry_topic: str,
        merges: bool,
    ) -> None:
        self.name = name
        self.tags = tuple(tags)
        self.topic = topic
        self.retry_topic = retry_topic
        self._oracle = oracle
        self._merges = merges
        self._codes = frozenset(tags_code(tag) for tag in self.tags)
        self._asks: list[Ask] = []
        self._by_number: defaultdict[int, list[Delivery]] = defaultdict(list)
        self._latest: dict[tuple[Place, int], Delivery] = {}
        self._done: set[int] = set()
        self._copies: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        self._crashes: list[tuple[int, Memory]] = []

    def wants(self, message: MessageExt) -> bool:
        """Whether the broker's filter, which compares hash codes, lets a message through."""
        if message.topic == self.retry_topic or not self._codes:
            return True
        return tags_code(message.tags or "") in self._codes

    # ---- pops ----------------------------------------------------------------------------

    def asked(self, queue_id: int, now_ms: int, poll_ms: int, invisible_ms: int) -> Ask:
        """A member pops; it may be held for `poll_ms`. If no answer arrives, it is `lost`."""
        ask = Ask(queue_id, now_ms, now_ms + poll_ms, invisible_ms)
        self._asks.append(ask)
        return ask

    def found(self, ask: Ask, messages: list[MessageExt], pop_ms: int) -> list[Delivery]:
        """A pop was answered with these messages, whose topic and offset are those of the log."""
        self._asks.remove(ask)
        return [self._delivered(ask, message, pop_ms) for message in messages]

    def found_nothing(self, ask: Ask, now_ms: int) -> None:
        """A pop was answered without a message, so there must be none. P1."""
        self._asks.remove(ask)
        waiting = next(self._waiting(ask.queue_id), None)
        if waiting is not None:
            raise Broken(
                "P1", f"{self.name} popped queue {ask.queue_id}, and did not get {waiting.body!r}"
                f" of {waiting.topic} {waiting.queue_id} {waiting.queue_offset}, now {now_ms}"
            )  # fmt: skip
        if ask.queue_id == ANY_QUEUE:
            for message in self._not_done():
                if self._visible_ms(message) + RETURNS_MS <= now_ms:
                    known = self._by_number[number_of(message)]
                    raise Broken("P1", f"{message.body!r} is lost to {self.name}: {known}")

    def _visible_ms(self, message: MessageExt) -> int:
        """When the last time ends in which a message may be invisible."""
        ends = [each.visible_ms for each in self._by_number[number_of(message)]]
        ends += [ask.visible_until_ms for ask in self._asks if ask.could_have(message)]
        return max(self._oracle.up_since_ms, *ends, 0)

    def _waiting(self, queue_id: int) -> Iterator[MessageExt]:
        """Messages that any pop of a queue must find: they are wanted, and were never popped."""
        for place, log in self._logs():
            if place[0] == self.topic and queue_id not in (ANY_QUEUE, place[1]):
                continue
            for offset, message in log.items():
                if (place, offset) in self._latest or not self.wants(message):
                    continue
                if not any(ask.could_have(message) for ask in self._asks):
                    yield message

    def _logs(self) -> Iterator[tuple[Place, dict[int, MessageExt]]]:
        for place, log in self._oracle.log.items():
            if place[0] in (self.topic, self.retry_topic):
                yield place, log

    def check_held(self, ask: Ask) -> None:
        """A pop is not held while there is a message for it. P4."""
        for waiting in self._waiting(ask.queue_id):
            if ask.queue_id in (ANY_QUEUE, waiting.queue_id):  # arrivals wake their own queue's
                text = f"{self.name}'s pop of queue {ask.queue_id}: {waiting.body!r} waits"
                raise Broken("P4", text)

    def _delivered(self, ask: Ask, message: MessageExt, pop_ms: int) -> Delivery:
        place, offset = (message.topic, message.queue_id), message.queue_offset
        number = number_of(message)
        if place[0] not in (self.topic, self.retry_topic) or not self.wants(message):
            raise Broken("P2", f"{self.name} popped {message.body!r} of {place}, {message.tags}")
        if ask.queue_id not in (ANY_QUEUE, place[1]) and place[0] == self.topic:
            raise Broken("P2", f"{self.name} popped {message.body!r} of {place}, not {ask}")
        before = self._latest.get((place, offset))
        if before is not None and not self._may_be_forgotten(before):
            raise Broken(
                "P2", f"{self.name} popped {message.body!r} of {place} {offset} at {pop_ms}, and no"
                f" crash could forget {before}"
            )  # fmt: skip
        delivery = Delivery(
            place, offset, number, message.reconsume_times, pop_ms, pop_ms + ask.invisible_ms
        )
        self._latest[place, offset] = delivery
        self._by_number[number].append(delivery)
        return delivery

    def _may_be_forgotten(self, before: Delivery) -> bool:
        return any(
            crash_ms - memory.pops_ms < before.popped_ms <= crash_ms
            for crash_ms, memory in self._crashes
        )

    # ---- acknowledgements ----------------------------------------------------------------

    def acking(self, delivery: Delivery) -> None:
        """A member acknowledges; whether that arrives is open."""
        delivery.owed = False
        self._done.add(delivery.number)

    def acked(self, delivery: Delivery, now_ms: int) -> None:
        """The acknowledgement was answered with success: in time it holds. P2."""
        if now_ms < delivery.visible_ms and delivery.may_return:
            delivery.may_return = False
            delivery.settled_ms = now_ms

    def changing(
        self, delivery: Delivery, now_ms: int, invisible_ms: int, *, suspend: bool
    ) -> Delivery:
        """A member asks for another invisible time; whether that arrives is open.

        Returns: the delivery of the new receipt, which nothing is owed for yet.
        """
        delivery.owed = False
        new = Delivery(
            delivery.place, delivery.offset, delivery.number, delivery.times, now_ms,
            now_ms + invisible_ms, owed=False, suspended=suspend,
        )  # fmt: skip
        self._by_number[delivery.number].append(new)
        return new

    def changed(
        self, delivery: Delivery, new: Delivery, now_ms: int, *, pop_ms: int, invisible_ms: int
    ) -> None:
        """The broker has given the new receipt."""
        self.acked(delivery, now_ms)
        new.popped_ms, new.visible_ms, new.owed = pop_ms, pop_ms + invisible_ms, True

    def not_changed(self, delivery: Delivery, new: Delivery) -> None:
        """The broker refused, and all is as before."""
        deliveries = self._by_number[delivery.number]
        if new in deliveries:  # else a power cut has taken both
            deliveries.remove(new)
        delivery.owed = True

    # ---- what comes again ----------------------------------------------------------------

    def came_again(self, message: MessageExt) -> None:
        """A copy is in the retry topic. P2: something must have led to it, and not too early."""
        number, times = number_of(message), message.reconsume_times
        copies = self._copies[number, times]
        copies.add(message.queue_offset)
        causes = [
            each.visible_ms
            for each in self._by_number[number]
            if each.may_return and each.next_times == times
        ]
        causes += [ask.visible_from_ms for ask in self._asks if ask.lost]
        text = f"{self.name} gets {message.body!r} again, tries {times}"
        if not causes:
            raise Broken("P2", f"{text}: {self._by_number[number]}")
        due = [cause_ms for cause_ms in causes if cause_ms <= message.store_timestamp_ms]
        if not due:
            early_ms = min(causes) - message.store_timestamp_ms
            raise Broken("P2", f"{text}, {early_ms} ms too early")
        allowed = len(due) * (1 + REPEATS * len(self._crashes))
        # A pop without an answer may have had several copies of a message.
        if len(copies) > allowed and not any(ask.lost for ask in self._asks):
            raise Broken("P2", f"{text}, for the time {len(copies)}, {allowed} at most")

    def check(self, now_ms: int) -> None:
        """What is overdue, now that everything visible was read. P1."""
        for delivery in self._owed():
            due_ms = max(delivery.visible_ms, self._oracle.up_since_ms) + RETURNS_MS
            if due_ms <= now_ms and not self._is_there_again(delivery):
                raise Broken("P1", f"{self.name} does not get again: {delivery}, now {now_ms}")

    def _owed(self) -> Iterator[Delivery]:
        for number, deliveries in self._by_number.items():
            if number not in self._done:
                yield from (each for each in deliveries if each.owed)

    def _is_there_again(self, delivery: Delivery) -> bool:
        """Whether there is a copy, or the broker may have forgotten that it was popped."""
        if self._copies[delivery.number, delivery.next_times]:
            return True
        return self._may_be_forgotten(delivery)

    def next_moment(self, now_ms: int) -> int | None:
        """The next time at which something may go wrong, or a message comes again."""
        ends = [each.visible_ms for each in self._owed()]
        ends += [ask.visible_until_ms for ask in self._asks if ask.lost]
        up_ms = self._oracle.up_since_ms
        moments = [
            moment
            for end in ends
            for moment in (end - 1, end, max(end, up_ms) + RETURNS_MS)
            if moment > now_ms
        ]
        return min(moments, default=None)

    def check_all_done(self) -> None:
        """At the very end: every message was acknowledged."""
        for message in self._not_done():
            known = self._by_number[number_of(message)]
            raise Broken("P1", f"{self.name} never had {message.body!r}: {known}")

    def _not_done(self) -> Iterator[MessageExt]:
        """Messages that no member tried to acknowledge."""
        for _, log in self._logs():
            for message in filter(self.wants, log.values()):
                if number_of(message) not in self._done:
                    yield message

    # ---- crashes -------------------------------------------------------------------------

    def crashed(self, crash_ms: int, *, loses: bool) -> None:
        """What was in memory may be gone.

        Args:
          loses: it was a power cut under ASYNC_FLUSH.
        """
        memory = memory_of(merges=self._merges, loses=loses)
        for ask in self._asks:
            ask.lost = True
        self._crashes.append((crash_ms, memory))
        for deliveries in self._by_number.values():
            for each in deliveries:
                if each.settled_ms > crash_ms - memory.acks_ms:
                    each.may_return = True

    def lost(self, place: Place, end: int) -> None:
        """After a power cut under ASYNC_FLUSH a queue ends at `end`."""
        for known in [known for known in self._latest if known[0] == place and known[1] >= end]:
            del self._latest[known]
        for deliveries in self._by_number.values():
            deliveries[:] = [
                each for each in deliveries if each.place != place or each.offset < end
            ]
        if place[0] == self.retry_topic:
            for copies in self._copies.values():
                copies.difference_update([offset for offset in copies if offset >= end])
