"""The promises of the cluster, checked against what clients see: N1 to N7 of the test plan.

Pure: it knows no broker and no clock; clients tell it what they sent, heard and read. As soon as
two of these do not go together, it raises `Broken`. The injector of a fault
declares by `may_lose` what the fault may take by contract.

A message is known by its number, which its body begins with: `m17`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trocket.remoting.message import MessageExt

from ..broken import Broken

TOPIC = "T"
QUEUES = 2

_BODY = re.compile(rb"m([0-9]+)\.*")

ROUNDED_MS = 2
"""Times are cut to whole milliseconds."""


@dataclass(slots=True)
class Sent:
    """One message that was sent, once.

    Attributes:
      producer: who sent it.
      queue_id: where it belongs.
      body: all of it.
      asked_at: the oracle's count of events when it was sent.
      level: its delay level; 0: none.
      epoch: the oracle's when it was sent.
      not_before_ms: when it may be there, less all that clocks of brokers were set forward.
      is_refused: the answer said that it is not stored.
    """

    number: int
    producer: str
    queue_id: int
    body: bytes
    asked_at: int
    level: int
    epoch: int
    not_before_ms: int
    is_refused: bool = False


@dataclass(slots=True)
class Promise:
    """An answer that gave a message its place.

    Attributes:
      made_ms: when it came.
      is_full: SEND_OK; else it is on the master only (11, 12), or maybe there (10).
      machine: the broker that answered.
    """

    sent: Sent
    queue_offset: int
    made_ms: int
    is_full: bool
    machine: str


@dataclass(slots=True)
class Seen:
    """A message that a consumer got."""

    message: MessageExt
    seen_ms: int
    machine: str


MayLose = Callable[[Promise | Seen], bool]


class Oracle:
    """All that clients know.

    Attributes:
      sent: by number.
      promises, seen: by queue id and queue offset.
      delayed: promises of messages that come later, by number.
      consumed: numbers by queue id and offset that the group has consumed there.
      epoch: counts up with each loss by contract; what was under way then promises nothing.
      repeats: deliveries of delayed messages that may come once more, by crash.
      min_offsets: queue offsets below which retention deleted, by queue id.
      losers: addresses of masters whose word will not count: of two, the one that gives way.
    """

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.promises: defaultdict[int, dict[int, Promise]] = defaultdict(dict)
        self.seen: defaultdict[int, dict[int, Seen]] = defaultdict(dict)
        self.delayed: dict[int, Promise] = {}
        self.consumed: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        self.epoch = 0
        self.repeats = 0
        self.min_offsets = [0] * QUEUES
        self.losers: set[str] = set()
        self._events = 0
        self._last: dict[tuple[str, int], tuple[int, int]] = {}

    # ---- sends ---------------------------------------------------------------------------

    def new(
        self, producer: str, queue_id: int, size: int, level: int, not_before_ms: int = 0
    ) -> Sent:
        """A message that is going to be sent."""
        number = len(self.sent)
        body = (b"m%d" % number).ljust(size, b".")
        self._events += 1
        made = Sent(
            number, producer, queue_id, body, self._events, level, self.epoch, not_before_ms
        )
        self.sent.append(made)
        return made

    def promise(
        self, sent: Sent, queue_offset: int, *, is_full: bool, machine: str, now_ms: int
    ) -> None:
        """The answer says where it is. N1, N2, N3."""
        promise = Promise(sent, queue_offset, now_ms, is_full, machine)
        if sent.epoch != self.epoch or machine in self.losers:
            return  # under way when something was lost by contract: it may have been lost, too
        if sent.level:
            self.delayed[sent.number] = promise
            return
        place = f"queue {sent.queue_id} offset {queue_offset}"
        known = self.promises[sent.queue_id].get(queue_offset)
        if known is not None:
            raise Broken("N2", f"m{known.sent.number} and m{sent.number} both got {place}")
        there = self.seen[sent.queue_id].get(queue_offset)
        if there is not None and there.message.body != sent.body:
            raise Broken("N1", f"m{sent.number} got {place}, {there.message.body!r} was read there")
        # Only what is sent after the answer to the one before has a higher offset.
        key = (sent.producer, sent.queue_id)
        answered_at, last_offset = self._last.get(key, (-1, -1))
        if sent.asked_at > answered_at and queue_offset <= last_offset:
            raise Broken("N3", f"{sent.producer}'s m{sent.number} got {place}, not a higher one")
        if queue_offset > last_offset:
            self._events += 1
            self._last[key] = (self._events, queue_offset)
        self.promises[sent.queue_id][queue_offset] = promise

    def refuse(self, sent: Sent) -> None:
        """The answer says that nothing is stored."""
        sent.is_refused = True

    # ---- reads ---------------------------------------------------------------------------

    def check_message(self, message: MessageExt) -> Sent:
        """Whether a client sent this message as it is. N1, N4."""
        match = _BODY.fullmatch(message.body)
        number = int(match[1]) if match is not None else len(self.sent)
        if number >= len(self.sent):
            raise Broken("N4", f"no client sent {message.body!r}, it is at {place_of(message)}")
        sent = self.sent[number]
        if sent.is_refused:
            raise Broken("N4", f"m{number} was refused, it is at {place_of(message)}")
        if message.topic != TOPIC or message.queue_id != sent.queue_id:
            raise Broken("N4", f"m{number} is at {place_of(message)}, not in {sent.queue_id}")
        properties = message.properties
        known = (properties.get("KEYS"), properties.get("TAGS"), properties.get("UNIQ_KEY"))
        if message.body != sent.body or known != (f"K{number}", "a", f"U{number}"):
            raise Broken("N1", f"m{number} is not as it was sent: {message}")
        return sent

    def saw(
        self, message: MessageExt, *, epoch: int, machine: str, now_ms: int, forward_ms: int = 0
    ) -> None:
        """A client got a message. N2, N5, N9.

        Args:
          epoch: the oracle's when it was asked for.
          forward_ms: by how much clocks of brokers were set forward since the start.
        """
        sent = self.check_message(message)
        early_ms = sent.not_before_ms - forward_ms - now_ms
        if sent.level and early_ms > ROUNDED_MS:
            raise Broken("N9", f"m{sent.number} is there {early_ms} ms too early")
        if epoch != self.epoch or machine in self.losers:
            return
        queue_id, offset = message.queue_id, message.queue_offset
        known = self.seen[queue_id].get(offset)
        if known is not None:
            if not is_same(known.message, message):
                raise Broken("N5", f"{place_of(message)} was {known.message}, and is {message}")
            return
        promise = self.promises[queue_id].get(offset)
        if promise is not None and promise.sent is not sent:
            raise Broken("N1", f"m{promise.sent.number} was promised {place_of(message)}")
        self.seen[queue_id][offset] = Seen(message, now_ms, machine)

    def consume(self, message: MessageExt) -> None:
        """The group is through with a message."""
        number = self.check_message(message).number
        self.consumed[message.queue_id, message.queue_offset].add(number)

    # ---- what is there -------------------------------------------------------------------

    def hold(self, queues: Sequence[list[MessageExt]]) -> None:
        """What a master has in the end, or after a recovery, against all that is known. N1 to N5.

        Args:
          queues: all messages of each queue.
        """
        times: defaultdict[int, int] = defaultdict(int)
        for queue_id, messages in enumerate(queues):
            there = self._check_queue(queue_id, messages)
            for message in messages:
                times[self.check_message(message).number] += 1
            low = self.min_offsets[queue_id]
            for offset, promise in self.promises[queue_id].items():
                found = there.get(offset)
                if (found is None and offset >= low) or (
                    found is not None and found.body != promise.sent.body
                ):
                    text = f"m{promise.sent.number} was promised queue {queue_id} offset {offset}"
                    raise Broken("N1", f"{text} by {promise.machine}, there is {found}")
            for offset, seen in self.seen[queue_id].items():
                found = there.get(offset)
                if (found is None and offset >= low) or (
                    found is not None and not is_same(found, seen.message)
                ):
                    text = f"queue {queue_id} offset {offset} was {seen.message}"
                    raise Broken("N5", f"{text} at {seen.machine}, is {found}")
        for number, count in times.items():
            allowed = 1 + (self.repeats if self.sent[number].level else 0)
            if count > allowed:
                raise Broken("N4", f"m{number} is there {count} times, {allowed} at most")

    def hold_delayed(self, queues: Sequence[list[MessageExt]]) -> None:
        """Delayed messages that are due are there. N1."""
        missing = self._missing(queues)
        if missing:
            raise Broken("N1", f"{missing} were to come later, and have not come")

    def is_waiting(self, queues: Sequence[list[MessageExt]]) -> bool:
        """Whether delayed messages are still to come."""
        return bool(self._missing(queues))

    def _missing(self, queues: Sequence[list[MessageExt]]) -> list[int]:
        if any(self.min_offsets):
            return []  # they may have expired before anybody saw them
        there = {self.check_message(each).number for messages in queues for each in messages}
        return [number for number in self.delayed if number not in there]

    def _check_queue(self, queue_id: int, messages: list[MessageExt]) -> dict[int, MessageExt]:
        """N3."""
        offsets = [message.queue_offset for message in messages]
        first = offsets[0] if offsets else 0
        if offsets != list(range(first, first + len(offsets))):
            raise Broken("N3", f"queue {queue_id} has the offsets {offsets}")
        if messages and first > self.min_offsets[queue_id]:
            raise Broken("N10", f"queue {queue_id} begins at {first}")
        return dict(zip(offsets, messages, strict=True))

    def hold_group(self, queue_id: int, messages: list[MessageExt], committed: int) -> None:
        """All that lies before the group's offset it has consumed. N6."""
        end = messages[-1].queue_offset + 1 if messages else self.min_offsets[queue_id]
        if committed > end:
            raise Broken("N6", f"the group is at {committed} of queue {queue_id}, its end is {end}")
        for message in messages:
            if message.queue_offset >= committed:
                break
            number = self.check_message(message).number
            if number not in self.consumed[queue_id, message.queue_offset]:
                raise Broken(
                    "N6", f"the group is at {committed} of queue {queue_id}, m{number} at "
                    f"{message.queue_offset} never came",
                )  # fmt: skip

    # ---- losses by contract --------------------------------------------------------------

    def lose(self, queues: Sequence[list[MessageExt]], may_lose: MayLose) -> int:
        """Forget what is gone and may be; returns how many promises that were.

        Args:
          queues: what is there now.
          may_lose: whether a promise, or what was seen, may be gone.
        Raises: Broken: something is gone that must not.
        """
        self.epoch += 1
        self._last.clear()
        count = 0
        for queue_id, messages in enumerate(queues):
            there = {message.queue_offset: message for message in messages}
            low = self.min_offsets[queue_id]
            for offset, promise in list(self.promises[queue_id].items()):
                found = there.get(offset)
                if offset >= low and (found is None or found.body != promise.sent.body):
                    if not may_lose(promise):
                        text = f"m{promise.sent.number} of queue {queue_id} offset {offset}"
                        raise Broken("N1", f"{text}, promised by {promise.machine}, is lost")
                    del self.promises[queue_id][offset]
                    count += 1
            for offset, seen in list(self.seen[queue_id].items()):
                found = there.get(offset)
                if offset >= low and (found is None or not is_same(found, seen.message)):
                    if not may_lose(seen):
                        raise Broken("N5", f"{seen.message} of {seen.machine} is lost")
                    del self.seen[queue_id][offset]
        for number, promise in list(self.delayed.items()):
            if may_lose(promise):
                del self.delayed[number]
        return count


def is_same(one: MessageExt, other: MessageExt) -> bool:
    """N1 and N5: body, properties, tags, keys, hosts, times, offsets."""
    return one == other


def place_of(message: MessageExt) -> str:
    """For people."""
    return f"queue {message.queue_id} offset {message.queue_offset} of {message.topic}"
