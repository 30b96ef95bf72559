"""PullRequestHoldService: pulls that wait, by queue.

A pull that found nothing is held until a message arrives in its queue or it times out. A turn tries
a bounded number of the pulls that it wakes, and the task of the engine the rest. A pull by tags is
tried only when a message with one of its tags has arrived.

Pure, but for that task.

Java counterpart: broker/longpolling/PullRequestHoldService.java of 5.3.3, which scans all held
pulls every 5 s, and those of a queue when a message arrives; here all are scanned every second
while one of them is to be held for a short time.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from operator import attrgetter
from typing import Final

import msgspec
import trio

from ...native.path_counts import PathCounts
from ...remoting.channel import Channel
from ...remoting.codec import RemotingCommand
from ...remoting.turn import Turn
from ..settings.config import BrokerConfig
from .engine import WaitingEngine
from .places import Places, take_one
from .pull import Key, Pull, TagsCodesSince, unknown_codes

QUEUE_PULLS_MAX: Final = 20_000
"""Pulls held at a time for one queue. Each costs 0.1 us in every turn that stores a message there.
A broadcasting group holds one for each of its clients, which are at most 10,000
(connectionsMax)."""

CHANNEL_QUEUE_PULLS_MAX: Final = 100
"""Pulls held at a time for one queue and one connection. A client has one for each of its
groups."""

CHECK_INTERVAL_S: Final = 5.0
"""Seconds between two scans for pulls that timed out, as with Apache's broker. Clients ask to be
held for 15 or 20 s and wait 30 s for the answer. The pulls of a client that one scan answers come
again together, and from then on share their reads and sends."""

SHORT_CHECK_INTERVAL_S: Final = 1.0
"""The same while a pull with a short time-out is held: one of at most 5 s in any case. Its client
may wait little longer for the answer."""

SCAN_COUNT: Final = 5_000
"""Pulls scanned in one slice, in about a millisecond. A table by deadline would make scans
unnecessary, but would cost 0.2 us for each pull that is answered soon, as in busy queues."""

TRIES_PER_TURN: Final = 100
"""Pulls tried in one slice; one takes 20 to 50 us. Other tasks run before the next slice."""

TRY_TIME_MAX_S: Final = 0.005
"""The same limit as a time, because an expression may take up to 10 ms for one pull."""

HELD_PULL_SIZE: Final = 800
"""Bytes of one held pull, with topic, group and numbers, without its selector."""


Answers = tuple[Channel, bytes, int]
"""A connection with its answers, and the number of them."""

WakeDirectly = Callable[[list[Key]], tuple[list[Answers], list[Key]]]
"""Answers usual pulls of queues with new messages, and takes them out of their queues. Returns the
answers, and the queues that are not done."""


class HeldPull(msgspec.Struct, eq=False):
    """One parked pull. A msgspec.Struct because its construction takes a third of the time.

    Attributes:
      pull: the request; its offset moves past messages that do not match.
      deadline_s: trio time at which it is answered in any case.
      queue: the queue that holds it; None: it is not held, or has been answered.
    """

    pull: Pull
    deadline_s: float
    queue: _Queue | None = None

    def move_to(self, queue_offset: int) -> None:
        """Continue at another offset."""
        self.pull = self.pull.moved_to(queue_offset)


class _Queue:
    """The held pulls of one queue.

    Attributes:
      tagged: pulls by tags that match none of the messages before `seen`.
      others: pulls that any message may match.
      seen: offset up to which the pulls in `tagged` have been compared with messages.
      of_channels: number of pulls by connection; None: not counted, while no connection can have
        too many.
    """

    __slots__ = ("of_channels", "others", "seen", "tagged")

    def __init__(self) -> None:
        self.tagged: dict[HeldPull, None] = {}
        self.others: dict[HeldPull, None] = {}
        self.seen = 0
        self.of_channels: Counter[Channel] | None = None

    def __len__(self) -> int:
        return len(self.tagged) + len(self.others)

    def __iter__(self) -> Iterator[HeldPull]:
        yield from self.others
        yield from self.tagged

    def add(self, held: HeldPull) -> bool:
        """Hold a pull.

        Returns: False: the limit of all connections or of this one is reached.
        """
        count = len(self.others) + len(self.tagged)
        if count >= CHANNEL_QUEUE_PULLS_MAX and not self._has_place(held.pull.channel, count):
            return False
        held.queue = self
        if held.pull.selector is None:  # nearly always
            self.others[held] = None
        else:
            self.place(held)
        if self.of_channels is not None:
            self.of_channels[held.pull.channel] += 1
        return True

    def _has_place(self, channel: Channel, count: int) -> bool:
        if count >= QUEUE_PULLS_MAX:
            return False
        if self.of_channels is None:
            self.of_channels = Counter(held.pull.channel for held in self)
        return self.of_channels[channel] < CHANNEL_QUEUE_PULLS_MAX

    def remove(self, held: HeldPull) -> None:
        """Stop holding a pull."""
        held.queue = None
        self.others.pop(held, None)
        if self.tagged:
            self.tagged.pop(held, None)
        if self.of_channels is not None:
            take_one(self.of_channels, held.pull.channel)

    def place(self, held: HeldPull) -> None:
        """Put a pull into `tagged` or `others`, again after its offset has moved."""
        pull = held.pull
        if not isinstance(pull.selector, frozenset):
            self.others[held] = None
            return
        if not self.tagged:
            self.seen = pull.queue_offset
        is_tagged = pull.queue_offset == self.seen
        (self.others if is_tagged else self.tagged).pop(held, None)
        (self.tagged if is_tagged else self.others)[held] = None

    def skip_seen(self, held: HeldPull) -> None:
        """Move a pull's offset past the messages that it was compared with."""
        if held in self.tagged and held.pull.queue_offset < self.seen:
            held.move_to(self.seen)

    def arrived(self, codes: Collection[int] | None, end: int) -> list[HeldPull]:
        """The pulls that the messages from `seen` to `end` may match.

        Args:
          codes: the tags codes of these messages; None: unknown.
          end: the queue's end.
        """
        seen, self.seen = self.seen, max(end, self.seen)
        found: list[HeldPull] = []
        for held in self.tagged:
            wanted = held.pull.selector
            if codes is None or not isinstance(wanted, frozenset) or not wanted.isdisjoint(codes):
                found.append(held)
        for held in found:
            if held.pull.queue_offset < seen:
                held.move_to(seen)
            del self.tagged[held]
        woken = [*self.others, *found]
        self.others.update(dict.fromkeys(found))
        return woken


def _refuse(pull: Pull, limit: str, why: str) -> None:
    """Note that a pull is answered at once, as if it had timed out, because a limit is reached."""
    what = f"a pull of {pull.terms.topic} by {pull.terms.group} is not held, because {why}"
    pull.channel.memory.refusals.note(limit, pull.channel.remote_address, what)


HeldQueues = dict[Key, _Queue]
"""The queues that hold pulls, or held some lately."""


class PullRequestHoldService:
    """The held pulls by queue: the policy of pulls for the engine of waiting requests.

    Args:
      resume: tries a held pull again. Its second argument is true when the pull has timed out and
        must be answered; it returns whether it answered.
      config: the broker's; None: its defaults.
      tags_codes_since: see TagsCodesSince.
      now_s: the clock of the deadlines.
      elapsed_s: a clock that measures TRY_TIME_MAX_S.

    Attributes:
      wake_directly: answers usual pulls; None: all pulls are tried by `resume`.
      counts: of the pulls that are held and want all messages.
      askers: who asked for a held pull, where there are accounts; an entry goes with its pull.
    """

    def __init__(
        self,
        resume: Callable[[HeldPull, bool], bool],
        *,
        config: BrokerConfig | None = None,
        tags_codes_since: TagsCodesSince = unknown_codes,
        now_s: Callable[[], float] = trio.current_time,
        elapsed_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._resume = resume
        self._config = config or BrokerConfig()
        self.settings_changed()
        self._tags_codes_since = tags_codes_since
        self._queues: HeldQueues = {}
        self.wake_directly: WakeDirectly | None = None
        self.askers: dict[HeldPull, RemotingCommand] = {}
        # Pulls of idle consumers come one by one, and the first of these are left to Python.
        self.counts = PathCounts(is_judged=False)
        self._places = Places(self._config, self._held)
        self._engine = WaitingEngine[HeldPull](
            self,
            attrgetter("pull.channel"),
            now_s=now_s,
            elapsed_s=elapsed_s,
            tries_max=TRIES_PER_TURN,
            try_time_max_s=TRY_TIME_MAX_S,
            what="pull",
        )
        self._scan: Iterator[None] | None = None
        self._next_scan_s = math.inf
        self._now_s = self._scanned_s = 0.0  # when the last scan began
        self._short_below_s = math.inf
        self._short_until_s = -math.inf

    def settings_changed(self) -> None:
        """Use heldPullsMax as it is now."""
        self._half = self._config.held_pulls_max // 2

    @property
    def count(self) -> int:
        """Pulls that are held."""
        return self._places.count

    @property
    def queues(self) -> HeldQueues:
        """The queues that hold pulls, always the same object. Only the C extension reads them."""
        return self._queues

    async def run(self, turn: Turn | None = None) -> None:
        """Answer pulls that timed out, and try those that turns left over, until cancelled.

        Args:
          turn: of the connections; the answers to one connection are one send. None: each answer is
            sent at once.
        """
        self._plan_scan(trio.current_time())
        await self._engine.run(turn or Turn())

    def _held(self) -> Iterator[tuple[Channel, str]]:
        """Connection and group of each pull."""
        for queue in self._queues.values():
            for held in queue:
                yield held.pull.channel, held.pull.terms.group

    def hold(self, held: HeldPull) -> bool:
        """Hold a pull until a message arrives or it times out.

        Returns: False: it is not held, because a limit or the connections' memory budget is
          reached.
        """
        pull = held.pull
        places, channel, group = self._places, pull.channel, pull.terms.group
        if places.count >= self._half:
            full = places.refusal(channel, group, "heldPullsMax", self._config.held_pulls_max)
            if full is not None:
                _refuse(pull, *full)
                return False
        key = pull.terms.topic, pull.queue_id
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        if not queue.add(held):
            _refuse(pull, "CHANNEL_QUEUE_PULLS_MAX", "its connection or its queue has enough")
            return False
        if not places.take(pull, group, HELD_PULL_SIZE):
            queue.remove(held)
            return False
        if pull.selector is None:
            self.counts.left += 1
        self._note_deadline(held.deadline_s)
        return True

    def room(self, channel: Channel) -> int:
        """Pulls without a filter that a connection may certainly have held now, by all limits but
        those of one queue; may be negative."""
        if self._places.has_shares:
            return 0
        memory = channel.memory.held_requests
        return min(self._half - self._places.count, memory.room // HELD_PULL_SIZE)

    def count_held(self, channel: Channel, count: int, deadline_s: float) -> None:
        """Count pulls that were put into `queues`, within `room`, all with one deadline."""
        self.counts.taken += count
        self._places.count += count  # no shares are counted within `room`
        channel.memory.held_requests.take(channel, HELD_PULL_SIZE * count)
        self._note_deadline(deadline_s)

    def notify_messages(self, queues: Collection[Key]) -> None:
        """Try the pulls of queues that have new messages."""
        engine, places = self._engine, self._places
        if self.wake_directly is not None and not (places.has_shares or engine.has_backlog):
            queues = self._wake_directly(self.wake_directly, list(queues))
            if not queues:
                return
        queue_of = self._queues.get
        woken: list[HeldPull] = []
        # Pulls that are alone in their queues are tried without the backlog. Those without a filter
        # cost so little that their number alone bounds their time.
        left, is_direct = TRIES_PER_TURN, not engine.has_backlog
        for key in queues:
            queue = queue_of(key)
            if queue is None:
                continue
            if queue.tagged:
                woken += queue.arrived(*self._tags_codes_since(key, queue.seen))
                continue
            others = queue.others
            if is_direct and left and len(others) == 1:
                (held,) = others
                if held.pull.selector is None:
                    left -= 1
                    engine.try_one(held)
                    continue
            woken += others
        if woken:
            engine.add(woken)
            engine.try_some(left)

    def _wake_directly(self, wake: WakeDirectly, queues: list[Key]) -> list[Key]:
        """Answer the usual pulls; return the queues that are not done."""
        answers, rest = wake(queues)
        for channel, data, count in answers:
            self._places.count -= count
            channel.memory.held_requests.give_back(channel, HELD_PULL_SIZE * count)
            channel.write(data)
        return rest

    # Scans for pulls that timed out

    def check(self, now_s: float) -> None:
        """Answer the pulls that timed out, and drop those whose connection is closed."""
        for _ in self._find_expired(now_s):
            pass
        self._engine.try_some(TRIES_PER_TURN)

    def _plan_scan(self, now_s: float) -> None:
        """Note that a scan begins now, and when the next one does."""
        self._scanned_s = now_s
        # A pull that comes before the next scan, and may wait no longer than to the scan after it,
        # has a deadline before this time.
        self._short_below_s = now_s + 2 * CHECK_INTERVAL_S
        is_short = self._short_until_s > now_s
        self._next_scan_s = now_s + (SHORT_CHECK_INTERVAL_S if is_short else CHECK_INTERVAL_S)

    def _note_deadline(self, deadline_s: float) -> None:
        """Scan at short intervals until the deadline of a pull, if that is soon."""
        if deadline_s < self._short_below_s:
            self._short_until_s = max(self._short_until_s, deadline_s)
            if self._next_scan_s > self._scanned_s + SHORT_CHECK_INTERVAL_S:
                self._next_scan_s = self._scanned_s + SHORT_CHECK_INTERVAL_S
                self._engine.wake()

    def look(self, now_s: float) -> None:
        """Do a slice of a scan, if one has begun or is due."""
        if self._scan is None and now_s >= self._next_scan_s:
            self._plan_scan(now_s)
            self._scan = self._find_expired(now_s)
        if self._scan is not None and next(self._scan, "ended") == "ended":
            self._scan = None

    @property
    def next_s(self) -> float:
        """When the next slice of a scan is due."""
        return self._next_scan_s if self._scan is None else -math.inf

    def _find_expired(self, now_s: float) -> Iterator[None]:
        """Find the pulls to be answered or dropped; yields after every SCAN_COUNT pulls."""
        self._now_s = now_s
        # By connection: the answers to one are sent together.
        expired: dict[Channel, list[HeldPull]] = {}
        count = 0
        for queue in list(self._queues.values()):
            for pulls in (queue.others, queue.tagged):
                for held in pulls:
                    channel = held.pull.channel
                    if held.deadline_s <= now_s or channel.closed:
                        expired.setdefault(channel, []).append(held)
            count += len(queue)
            if count >= SCAN_COUNT:
                count = 0
                yield
        self._engine.over = [held for pulls in expired.values() for held in pulls]
        self._engine.over.reverse()  # they are tried from the end
        self._release_counts()

    def _release_counts(self) -> None:
        """Drop empty queues, and counts that are only needed while many pulls are held."""
        for key in [key for key, queue in self._queues.items() if not len(queue)]:
            del self._queues[key]
        for queue in self._queues.values():
            if queue.of_channels is not None and len(queue) < CHANNEL_QUEUE_PULLS_MAX // 2:
                queue.of_channels = None
        if self._places.count < self._half // 2:
            self._places.drop_shares()

    def try_again(self, held: HeldPull) -> None:
        """Answer a pull, or hold it further."""
        queue = held.queue
        if queue is None:
            return  # answered meanwhile
        if queue.tagged:
            queue.skip_seen(held)
        if held.pull.channel.closed or self._resume(held, held.deadline_s <= self._now_s):
            self.leave(held)
        else:
            queue.place(held)

    def leave(self, held: HeldPull) -> None:
        """Forget a pull that is done."""
        if held.queue is not None:
            held.queue.remove(held)
        if self.askers:
            self.askers.pop(held, None)
        self._places.give_back(held.pull, held.pull.terms.group, HELD_PULL_SIZE)
