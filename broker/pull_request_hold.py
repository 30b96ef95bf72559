"""Pull long-polling: parked requests by queue.

A pull that found nothing waits here until a message arrives in its queue or its time is over. A
turn tries a bounded part of what it wakes; the service's own task tries the rest, one pull of each
connection at a time, so that a peer with thousands of pulls delays its own ones. A pull by tags is
tried only when one of its tags has come.

Pure, but for that task: the time comes in as an argument.

Java counterpart: broker/longpolling/PullRequestHoldService.java of 5.3.3, which looks at every
held pull each 5 s and at those of one queue when a message arrives; here the first is each second.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeVar

import trio

from ..common.sql92.expression import Expression
from ..common.supervision import FailureLog
from ..remoting.channel import Channel
from ..remoting.codec import RemotingCommand
from .held_memory import HeldMemory

logger = logging.getLogger(__name__)

HELD_PULLS_MAX = 100_000
"""Pulls held at once; one more is answered at once as if its time were over. RocketMQ bounds the
pulls that wait for a thread by the same number (pullThreadPoolQueueCapacity)."""

QUEUE_PULLS_MAX: Final = 20_000
"""Pulls held at once of one queue. Each costs 0.1 us for every turn that brings the queue a
message. A group that broadcasts holds one for each of its clients, of which there are at most
10,000 (CONNECTIONS_MAX)."""

CHANNEL_QUEUE_PULLS_MAX: Final = 100
"""Pulls held at once of one queue and one connection. A client has one for each of its groups."""

CHANNEL_PULLS_SHARE: Final = 1_000
GROUP_PULLS_SHARE: Final = 10_000
"""Pulls of one connection and of one group that may be held when half of HELD_PULLS_MAX are: the
other half is for those that hold few. Clients hold one for each queue that they consume."""

CHECK_INTERVAL_S = 1.0
"""Seconds between two looks for pulls whose time is over. Clients ask to be held for 15 s and wait
30 s for the answer, so a second more or less is nothing to them."""

TRIES_PER_TURN: Final = 100
"""Pulls that are tried in one go; one takes 20 to 50 us. Others are served before the next go."""

TRY_TIME_MAX_S: Final = 0.005
"""The same as a time, because an expression may take up to 10 ms for one pull."""

K = TypeVar("K")

Key = tuple[str, int]
"""Topic and queue id."""

TagsCodesSince = Callable[[Key, int], tuple[Collection[int] | None, int]]
"""The tags codes of the messages of a queue from an offset on, None where they are not known, and
the offset at which the queue ends."""


def _unknown(key: Key, queue_offset: int) -> tuple[None, int]:
    return None, queue_offset


class HeldPull:
    """One pull that waits.

    Attributes:
      request: to be answered, without its fields and body.
      channel: where it came from.
      key: topic and queue id.
      group: consumer group.
      queue_offset: where to go on; moves past messages that do not match.
      count_max, size_max: limits of the answer.
      tags_codes: of the subscription; None: all.
      expression: of the subscription, if it is no tags.
      deadline_s: trio time at which it is answered in any case.
    """

    __slots__ = (
        "channel",
        "count_max",
        "deadline_s",
        "expression",
        "group",
        "key",
        "queue_offset",
        "request",
        "size_max",
        "tags_codes",
    )

    def __init__(
        self,
        request: RemotingCommand,
        channel: Channel,
        key: tuple[str, int],
        group: str,
        *,
        queue_offset: int,
        count_max: int,
        size_max: int,
        tags_codes: frozenset[int] | None,
        deadline_s: float,
        expression: Expression | None = None,
    ) -> None:
        self.request = request.without_content()
        self.channel = channel
        self.key = key
        self.group = group
        self.queue_offset = queue_offset
        self.count_max = count_max
        self.size_max = size_max
        self.tags_codes = tags_codes
        self.expression = expression
        self.deadline_s = deadline_s


class _Queue:
    """The held pulls of one queue.

    Attributes:
      tagged: pulls by tags that want none of the messages before `seen`.
      others: pulls that any message may be for.
      seen: offset up to which the pulls in `tagged` have been judged.
      channels: number of pulls by connection.
    """

    __slots__ = ("channels", "others", "seen", "tagged")

    def __init__(self) -> None:
        self.tagged: dict[HeldPull, None] = {}
        self.others: dict[HeldPull, None] = {}
        self.seen = 0
        self.channels: dict[Channel, int] = {}

    def __len__(self) -> int:
        return len(self.tagged) + len(self.others)

    def put(self, pull: HeldPull) -> None:
        """Add a pull, or place it anew after its offset has moved."""
        if not self.tagged:
            self.seen = pull.queue_offset
        is_tagged = (
            pull.tags_codes is not None
            and pull.expression is None
            and pull.queue_offset == self.seen
        )
        (self.others if is_tagged else self.tagged).pop(pull, None)
        (self.tagged if is_tagged else self.others)[pull] = None

    def move_on(self, pull: HeldPull) -> None:
        """Note in a pull what it has been judged up to."""
        if pull in self.tagged and pull.queue_offset < self.seen:
            pull.queue_offset = self.seen

    def arrived(self, codes: Collection[int] | None, end: int) -> list[HeldPull]:
        """The pulls that may want the messages from `seen` to `end`.

        Args:
          codes: the tags codes of these messages; None: not known.
          end: where the queue ends.
        """
        seen, self.seen = self.seen, max(end, self.seen)
        found = list(self.tagged)
        if codes is not None:
            found = [pull for pull in found if not _is_disjoint(pull, codes)]
        for pull in found:
            if pull.queue_offset < seen:
                pull.queue_offset = seen
            del self.tagged[pull]
        woken = [*self.others, *found]
        self.others.update(dict.fromkeys(found))
        return woken


def _is_disjoint(pull: HeldPull, codes: Collection[int]) -> bool:
    return pull.tags_codes is not None and pull.tags_codes.isdisjoint(codes)


class _Backlog:
    """Pulls to be tried; each connection's turn comes once per round."""

    def __init__(self) -> None:
        self._of: dict[Channel, dict[HeldPull, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, pulls: Iterable[HeldPull]) -> None:
        """Add pulls; one that is there already keeps its place."""
        of = self._of
        for pull in pulls:
            waiting = of.get(pull.channel)
            if waiting is None:
                of[pull.channel] = {pull: None}
            else:
                waiting[pull] = None

    def pop(self) -> HeldPull:
        """The next pull. The backlog must not be empty."""
        channel = next(iter(self._of))
        waiting = self._of.pop(channel)
        pull = next(iter(waiting))
        del waiting[pull]
        if waiting:
            self._of[channel] = waiting
        return pull


class PullRequestHoldService:
    """The held pulls by queue.

    Args:
      resume: tries a held pull again. Its second argument says that the time is over, so that it
        must answer; it returns whether it answered.
      tags_codes_since: see TagsCodesSince.
      elapsed_s: seconds by which TRY_TIME_MAX_S is measured.
    """

    def __init__(
        self,
        resume: Callable[[HeldPull, bool], bool],
        *,
        tags_codes_since: TagsCodesSince = _unknown,
        elapsed_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._resume = resume
        self._tags_codes_since = tags_codes_since
        self._elapsed_s = elapsed_s
        self._queues: dict[Key, _Queue] = {}
        self._of_channel: dict[Channel, dict[HeldPull, None]] = {}
        self._of_group: dict[str, int] = {}
        self._by_second: dict[int, dict[HeldPull, None]] = {}
        self._count = 0
        self._memory = HeldMemory()
        self._failures = FailureLog(logger)
        self._now_s = 0.0
        self._backlog = _Backlog()
        self._wanted = trio.Event()

    @property
    def count(self) -> int:
        """Pulls that are held."""
        return self._count

    async def run(self) -> None:
        """Answer pulls whose time is over, and try what turns left, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._work_off)
            while True:
                await trio.sleep(CHECK_INTERVAL_S)
                self.check(trio.current_time())

    async def _work_off(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            while self._backlog:
                await trio.lowlevel.checkpoint()
                self._try_some()

    def hold(self, pull: HeldPull) -> bool:
        """Keep a pull until a message arrives or its time is over.

        Returns: False when there are too many already, or the memory budget of the connections has
          no room for it, and it is not kept.
        """
        queue = self._queues.get(pull.key)
        if not self._has_place(pull, queue) or not self._memory.take(pull):
            return False
        channel = pull.channel
        if queue is None:
            queue = self._queues[pull.key] = _Queue()
        queue.put(pull)
        queue.channels[channel] = queue.channels.get(channel, 0) + 1
        _put_in(self._of_channel, channel, pull)
        self._of_group[pull.group] = self._of_group.get(pull.group, 0) + 1
        _put_in(self._by_second, int(pull.deadline_s), pull)
        self._count += 1
        return True

    def _has_place(self, pull: HeldPull, queue: _Queue | None) -> bool:
        if self._count >= HELD_PULLS_MAX:
            return False
        if self._count >= HELD_PULLS_MAX // 2 and (
            len(self._of_channel.get(pull.channel, ())) >= CHANNEL_PULLS_SHARE
            or self._of_group.get(pull.group, 0) >= GROUP_PULLS_SHARE
        ):
            return False
        return queue is None or (
            len(queue) < QUEUE_PULLS_MAX
            and queue.channels.get(pull.channel, 0) < CHANNEL_QUEUE_PULLS_MAX
        )

    def notify_messages(self, queues: Collection[Key]) -> None:
        """Try the pulls of queues that have new messages."""
        if not self._queues:
            return
        woken: list[HeldPull] = []
        for key in queues:
            queue = self._queues.get(key)
            if queue is None:
                continue
            if queue.tagged:
                woken += queue.arrived(*self._tags_codes_since(key, queue.seen))
            else:
                woken += queue.others
        if len(woken) == 1 and not self._backlog:  # as nearly always
            self._try(woken[0])
        elif woken:
            self._backlog.add(woken)
            self._try_some()

    def check(self, now_s: float) -> None:
        """Answer the pulls whose time is over, forget those whose connection is closed."""
        self._now_s = now_s
        for second in [second for second in self._by_second if second <= now_s]:
            pulls = self._by_second[second]
            self._backlog.add([pull for pull in pulls if pull.deadline_s <= now_s])
        for channel in [channel for channel in self._of_channel if channel.closed]:
            self._backlog.add(self._of_channel[channel])
        self._try_some()

    def _try_some(self) -> None:
        """Try what waits for it, as much as one go may; `run` goes on with the rest."""
        backlog = self._backlog
        end_s = self._elapsed_s() + TRY_TIME_MAX_S
        for _ in range(TRIES_PER_TURN):
            if not backlog:
                return
            self._try(backlog.pop())
            if self._elapsed_s() > end_s:
                break
        if backlog:
            self._wanted.set()

    def _try(self, pull: HeldPull) -> None:
        if pull not in self._of_channel.get(pull.channel, ()):
            return  # answered meanwhile
        queue = self._queues[pull.key]
        if queue.tagged:
            queue.move_on(pull)
        try:
            is_done = pull.channel.closed or self._resume(pull, pull.deadline_s <= self._now_s)
        except Exception as error:  # noqa: BLE001 - our bug: other pulls are answered
            meaning = "Its connection is closed, and its client pulls again"
            self._failures.note("answering a held pull", meaning, error)
            pull.channel.close("its held pull could not be answered")
            is_done = True
        if is_done:
            self._forget(pull, queue)
        else:
            queue.put(pull)

    def _forget(self, pull: HeldPull, queue: _Queue) -> None:
        self._count -= 1
        self._memory.give_back(pull)
        channel = pull.channel
        queue.tagged.pop(pull, None)
        queue.others.pop(pull, None)
        _take_one(queue.channels, channel)
        if not queue.channels:
            del self._queues[pull.key]
        _take_out(self._of_channel, channel, pull)
        _take_one(self._of_group, pull.group)
        _take_out(self._by_second, int(pull.deadline_s), pull)


def _put_in(table: dict[K, dict[HeldPull, None]], key: K, pull: HeldPull) -> None:
    pulls = table.get(key)
    if pulls is None:
        table[key] = {pull: None}
    else:
        pulls[pull] = None


def _take_one(counts: dict[K, int], key: K) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]


def _take_out(table: dict[K, dict[HeldPull, None]], key: K, pull: HeldPull) -> None:
    pulls = table[key]
    del pulls[pull]
    if not pulls:
        del table[key]
