"""WaitingRequests: pops, or notifications, that wait until there is something to pop.

A request that found nothing waits for a message in one queue of its topic, or in any (queue id -1).
A message wakes one request of each group, and one more that waits for its queue alone; it is served
again as if it had just come. A message in a group's retry topic wakes one of the group.

Nothing here takes time in proportion to all that wait: deadlines are in a wheel, topics without
waiting requests cost one look-up, and anything unbounded (the groups of a topic, requests that are
due together or whose connection was closed) is done in slices, fair between connections.

Pure, but for the task.

Java counterpart: broker/longpolling/PopLongPollingService.java of 5.5.0, which looks at all keys
every 20 ms.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator
from enum import Enum, auto
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from ...common.topic_names import pop_retry_topics
from ...remoting.channel import Channel
from ...remoting.codec import RemotingCommand
from ...remoting.memory_budget import request_size
from ..settings.config import BrokerConfig
from ..waiting.engine import WaitingEngine
from ..waiting.places import Places
from ..waiting.pull import HOLD_MS_MAX, Key, Selector, TagsCodesSince, unknown_codes
from .deadlines import Deadlines

ANY_QUEUE: Final = -1
"""The queue id of requests that wait for all queues of their topic."""

EARLY_MS: Final = 50
"""A waiting request is answered that long before its time is over, so that its client gets the
answer in time; one that has less is not kept. Source: PopRequest.isTimeout."""

WAITING_SIZE: Final = 1_000
"""Bytes of a waiting request's places here, without itself."""

TRIES_PER_SLICE: Final = 25
"""Requests served in one slice, in 30 to 100 us each. Other tasks run before the next one: requests
whose time is over come again, and take longer than to be answered. So when thousands are over
together, a slice and the turn after it take some 5 ms."""

TRY_TIME_MAX_S: Final = 0.002
"""The same limit as a time, because an expression may take up to 10 ms for one pop."""

STEPS_PER_SLICE: Final = 500
"""Requests that are found, woken or dropped in one slice, each in 1 to 2 us."""


class PollingKey(NamedTuple):
    """What a request waits for.

    Attributes:
      topic: never a retry topic of pop.
      queue_id: one queue; ANY_QUEUE: all.
    """

    topic: str
    group: str
    queue_id: int


def polling_key(topic: str, group: str, queue_id: int) -> PollingKey:
    """What a request waits for: any negative queue id stands for all queues."""
    return PollingKey(topic, group, max(queue_id, ANY_QUEUE))


class Polling(Enum):
    """What became of a request that found nothing. Source: longpolling/PollingResult.java."""

    WAITS = auto()
    FULL = auto()
    """Too many wait: it must be answered."""
    TIMEOUT = auto()
    """Its time is over, or it does not want to wait: it must be answered."""


class _State(Enum):
    WAITING = auto()
    """In the list of its key."""
    EXPIRED = auto()
    """In the backlog, because its time is over."""
    WOKEN = auto()
    """In the backlog, because there may be a message for it."""
    DONE = auto()


class Waiter(msgspec.Struct, eq=False):
    """One waiting request. A msgspec.Struct because its construction takes a third of the time.

    Attributes:
      request: is served again, so it keeps its fields, but no body.
      key: what it waits for.
      selector: its filter; None: all messages.
      deadline_s: trio time at which it is answered in any case.
      rank: its deadline and its number: its place among those of its key.
      size: its bytes, without its selector.
      state: only `WaitingRequests` uses it.
    """

    request: RemotingCommand
    channel: Channel
    key: PollingKey
    selector: Selector | None
    deadline_s: float
    rank: tuple[float, int]
    size: int
    state: _State = _State.WAITING


_rank = attrgetter("rank")


class _List:
    """The requests of one key.

    Attributes:
      waiters: those that are neither woken nor over, by rank.
      count: all of them.
    """

    __slots__ = ("count", "waiters")

    def __init__(self) -> None:
        self.waiters: list[Waiter] = []
        self.count = 0


class _Topic:
    """What waits for the messages of a topic.

    Attributes:
      groups: the queue ids of the keys with waiting requests, by group.
      retries: for a retry topic: topic and group of the requests that its messages wake. A name of
        the first form (`%RETRY%a_b_c`) may belong to several.
      seen: by queue, up to which offset its messages were compared with filters.
    """

    __slots__ = ("groups", "retries", "seen")

    def __init__(self) -> None:
        self.groups: dict[str, set[int]] = {}
        self.retries: dict[tuple[str, str], None] = {}
        self.seen: dict[int, int] = {}


class WaitingRequests:
    """The waiting requests of one kind: the policy of pops for the engine of waiting requests.

    Args:
      serve: serves a request again. Either it answers, or it calls `hold` with the request, which
        then keeps its place and its time.
      youngest_first: whether a message wakes the request that may wait longest, as notifications
        do, instead of the one whose time is over first.
      now_s: the clock for deadlines, such as trio.current_time.
      elapsed_s: a clock that measures TRY_TIME_MAX_S.
      tags_codes_since: see TagsCodesSince.
    """

    def __init__(
        self,
        serve: Callable[[RemotingCommand, Channel], None],
        config: BrokerConfig,
        *,
        youngest_first: bool = False,
        now_s: Callable[[], float],
        elapsed_s: Callable[[], float],
        tags_codes_since: TagsCodesSince = unknown_codes,
    ) -> None:
        self._serve = serve
        self._config = config
        self._next_index = -1 if youngest_first else 0
        self._now_s = now_s
        self._tags_codes_since = tags_codes_since
        self._serial = 0
        self._lists: dict[PollingKey, _List] = {}
        self._topics: dict[str, _Topic] = {}
        self._of_channels: dict[Channel, dict[Waiter, None]] = {}
        self._places = Places(config)
        self._deadlines = Deadlines[Waiter]()
        self._engine = WaitingEngine[Waiter](
            self,
            attrgetter("channel"),
            now_s=now_s,
            elapsed_s=elapsed_s,
            tries_max=TRIES_PER_SLICE,
            try_time_max_s=TRY_TIME_MAX_S,
            what="pop",
        )
        self.run, self.run_slice = self._engine.run, self._engine.run_slice
        self._arrived: dict[Key, None] = {}
        self._waking: Iterator[None] | None = None
        self._closed: list[dict[Waiter, None]] = []
        self._tried: Waiter | None = None
        self._is_over = self._is_held_again = self._is_woken_again = False
        self._wakes_below_s = math.inf  # a deadline before it moves `next_s`
        self._slice_s = 0.0  # when the last slice began

    @property
    def count(self) -> int:
        """Requests that wait, with those that were woken and have not been tried yet."""
        return self._places.count

    def polling_num(self, key: PollingKey) -> int:
        """Requests that wait for a message of this key."""
        known = self._lists.get(key)
        return 0 if known is None else len(known.waiters)

    # Waiting

    def hold(
        self,
        request: RemotingCommand,
        channel: Channel,
        key: PollingKey,
        *,
        wait_ms: int,
        selector: Selector | None = None,
    ) -> Polling:
        """Hold a request until it is woken or its time is over.

        Args:
          request: the same object each time that it is held. Its body is dropped.
          key: what it waits for.
          wait_ms: see `wait_ms_of`.
          selector: tags codes: only messages with one of them wake it. An expression is compared
            when the request is served again.
        Returns: whether it waits; if not, the caller must answer it.
        """
        tried = self._tried
        if tried is not None and tried.request is request:
            if self._is_over:
                return Polling.TIMEOUT
            self._is_held_again = True
            return Polling.WAITS
        if wait_ms < EARLY_MS:
            return Polling.TIMEOUT
        full = self._full(channel, key)
        if full is not None:
            limit, why = full
            what = f"a pop of {key.topic} by {key.group} does not wait, because {why}"
            channel.memory.refusals.note(limit, channel.remote_address, what)
            return Polling.FULL
        request.body = b""
        deadline_s = self._now_s() + (min(wait_ms, HOLD_MS_MAX) - EARLY_MS) / 1000
        self._serial += 1
        rank, size = (deadline_s, self._serial), WAITING_SIZE + request_size(request)
        waiter = Waiter(request, channel, key, selector, deadline_s, rank, size)
        if not self._places.take(waiter, key.group, size):
            return Polling.FULL
        of_channel = self._of_channels.get(channel)
        if of_channel is None:
            of_channel = self._of_channels[channel] = {}
        of_channel[waiter] = None
        known = self._lists.get(key)
        if known is None:
            known = self._lists[key] = _List()
            self._watch(key)
        known.count += 1
        if isinstance(selector, frozenset) and key.queue_id >= 0:
            # Of all queues, the first message of each wakes in any case.
            seen, queue = self._topics[key.topic].seen, (key.topic, key.queue_id)
            if key.queue_id not in seen:
                seen[key.queue_id] = self._tags_codes_since(queue, -1)[1]
        self._enlist(waiter)
        return Polling.WAITS

    def _full(self, channel: Channel, key: PollingKey) -> tuple[str, str] | None:
        """The key of the limit that one more request would exceed, and why; None: it may wait."""
        config = self._config
        count_max = config.max_pop_polling_size
        found = self._places.refusal(channel, key.group, "maxPopPollingSize", count_max)
        if found is not None:
            return found
        known = self._lists.get(key)
        if known is None:
            if len(self._lists) >= config.pop_polling_map_size:
                keys = len(self._lists)
                return "popPollingMapSize", f"some wait for {keys} topics, groups and queues"
        elif known.count >= config.pop_polling_size:
            return "popPollingSize", f"{known.count} wait for the same"
        return None

    def _enlist(self, waiter: Waiter) -> None:
        """Put a request at its place among those of its key."""
        waiters, deadline_s = self._lists[waiter.key].waiters, waiter.deadline_s
        waiter.state = _State.WAITING
        if not waiters or waiters[-1].rank < waiter.rank:  # nearly always
            waiters.append(waiter)
        else:
            insort(waiters, waiter, key=_rank)
        self._deadlines.add(waiter, deadline_s)
        if deadline_s < self._wakes_below_s:
            self._wakes_below_s = deadline_s
            self._engine.wake()

    def _delist(self, waiter: Waiter) -> None:
        """Take a request from the list of its key."""
        waiters = self._lists[waiter.key].waiters
        del waiters[bisect_left(waiters, waiter.rank, key=_rank)]
        self._deadlines.remove(waiter, waiter.deadline_s)

    def _watch(self, key: PollingKey) -> None:
        """Record that there is a list of this key."""
        topic, group, queue_id = key
        groups = self._topic(topic).groups
        queue_ids = groups.get(group)
        if queue_ids is not None:
            queue_ids.add(queue_id)
            return
        groups[group] = {queue_id}
        for name in pop_retry_topics(topic, group):
            self._topic(name).retries[topic, group] = None

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = _Topic()
        return topic

    def _unwatch(self, key: PollingKey) -> None:
        """Record that there is no list of this key any more."""
        name, group, queue_id = key
        topic = self._topics[name]
        queue_ids = topic.groups[group]
        queue_ids.discard(queue_id)
        if queue_ids:
            return
        del topic.groups[group]
        if not topic.groups and not topic.retries:
            del self._topics[name]
        for retry_name in pop_retry_topics(name, group):
            retry = self._topics[retry_name]
            del retry.retries[name, group]
            if not retry.retries and not retry.groups:
                del self._topics[retry_name]

    # Waking

    def arrived(self, queues: Collection[Key]) -> None:
        """Wake requests that wait for messages of these queues, which have new ones."""
        topics = self._topics
        if not topics:
            return
        arrived = self._arrived
        for key in queues:
            if key[0] in topics:
                arrived[key] = None
        if arrived:
            self._engine.wake()

    def wake(self, key: PollingKey) -> bool:
        """Wake one request of a key, whatever its filter; return whether there is one.

        If there is none but the one that is being tried now, that one is tried again unless it is
        answered. So a pop that went on in its queue without an answer can continue; it must have
        gone on, or it is tried for ever.
        """
        waiter = self._next(key)
        if waiter is not None:
            self._wake(waiter)
            return True
        tried = self._tried
        if tried is not None and tried.key == key:
            self._is_woken_again = True
            return True
        return False

    def wake_queue(self, topic: str, group: str, queue_id: int) -> bool:
        """Wake one request that a queue's messages are for, if there is one.

        For a queue that a group can pop again: a message was acknowledged in order, a time is over,
        or an offset was reset.
        """
        return self.wake(PollingKey(topic, group, ANY_QUEUE)) or self.wake(
            PollingKey(topic, group, queue_id)
        )

    def _next(self, key: PollingKey) -> Waiter | None:
        while (known := self._lists.get(key)) is not None and known.waiters:
            waiter = known.waiters[self._next_index]
            if not waiter.channel.closed:
                return waiter
            self._drop(waiter)
        return None

    def _wake(self, waiter: Waiter) -> None:
        self._delist(waiter)
        waiter.state = _State.WOKEN
        self._engine.add((waiter,))
        self._engine.wake()

    def _wake_arrived(self) -> Iterator[None]:
        """Wake requests for the queues in `_arrived`; yields after every STEPS_PER_SLICE groups."""
        arrived, self._arrived = self._arrived, {}
        count = 0
        for name, queue_id in arrived:
            topic = self._topics.get(name)
            if topic is None:
                continue
            codes: Collection[int] | None = None
            is_known = False
            for group in list(topic.groups):
                for asked in (ANY_QUEUE, queue_id):
                    waiter = self._next(PollingKey(name, group, asked))
                    if waiter is None:
                        continue
                    if isinstance(waiter.selector, frozenset):
                        if not is_known:
                            # Once for all groups, and only if one of them filters by tags.
                            codes, is_known = self._new_codes(name, topic, queue_id), True
                        if codes is not None and waiter.selector.isdisjoint(codes):
                            continue
                    self._wake(waiter)
                count += 1
                if count % STEPS_PER_SLICE == 0:
                    yield
            for origin, group in list(topic.retries):
                self._wake_for_retry(origin, group, queue_id)
                count += 1
                if count % STEPS_PER_SLICE == 0:
                    yield

    def _new_codes(self, name: str, topic: _Topic, queue_id: int) -> Collection[int] | None:
        """The tags codes of a queue's new messages; None: all requests are woken."""
        known = topic.seen.get(queue_id)
        codes, end = self._tags_codes_since((name, queue_id), -1 if known is None else known)
        topic.seen[queue_id] = end
        seen = end - 1 if known is None else known
        if seen >= end:
            return None  # nothing is new: an offset was reset
        interval = self._config.pop_long_polling_force_notify_interval
        # Without this a filter that nothing matches would never move its group's offset.
        has_forcing = (end - 1) // interval > (seen - 1) // interval
        return None if has_forcing else codes

    def _wake_for_retry(self, topic: str, group: str, queue_id: int) -> None:
        """Wake one request of a group for a message in its retry topic."""
        if self.wake_queue(topic, group, queue_id):
            return
        # Every pop reads all queues of the retry topic, so one that waits for another queue of its
        # topic will do. RocketMQ wakes none then.
        entry = self._topics.get(topic)
        if entry is not None and group in entry.groups:
            others = list(entry.groups[group])
            any(self.wake(PollingKey(topic, group, other)) for other in others)

    # Slices and tries, called by the engine

    def look(self, now_s: float) -> None:
        """Find some of the requests to be tried."""
        self._slice_s = now_s
        self._wakes_below_s = -math.inf  # the end of this slice says when the next one is
        self._drop_closed()
        if self._waking is None and self._arrived:
            self._waking = self._wake_arrived()
        if self._waking is not None:
            for _ in self._waking:
                break
            else:
                self._waking = None
        for waiter in self._deadlines.take_due(now_s, STEPS_PER_SLICE):
            self._delist(waiter)
            waiter.state = _State.EXPIRED
            self._engine.add((waiter,))

    @property
    def next_s(self) -> float:
        """When the next slice is due."""
        if self._waking is not None or self._arrived or self._closed:
            return -math.inf
        self._wakes_below_s = self._deadlines.next_s
        return self._wakes_below_s

    def try_again(self, waiter: Waiter) -> None:
        """Serve a request again, and forget it unless it is held again."""
        if waiter.state is _State.DONE:
            return  # its connection was closed
        if waiter.channel.closed:
            self._drop(waiter)
            return
        self._tried, self._is_over = waiter, self._slice_s >= waiter.deadline_s
        self._is_held_again = self._is_woken_again = False
        try:
            self._serve(waiter.request, waiter.channel)
        finally:
            self._tried = None
        if not self._is_held_again:
            self.leave(waiter)
            return
        self._enlist(waiter)
        if self._is_woken_again:
            self._wake(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Forget a request that was taken from the list of its key."""
        waiter.state = _State.DONE
        channel, key = waiter.channel, waiter.key
        known = self._lists[key]
        known.count -= 1
        if not known.count:
            del self._lists[key]
            self._unwatch(key)
        self._places.give_back(waiter, key.group, waiter.size)
        of_channel = self._of_channels.get(channel)
        if of_channel is not None:
            of_channel.pop(waiter, None)
            if not of_channel:
                del self._of_channels[channel]

    # Requests that are given up

    def withdraw(self, channel: Channel, opaque: int) -> bool:
        """Forget a request that its client has given up; whether it waited.

        A linear search: a client has one for each queue that it consumes.
        """
        for waiter in self._of_channels.get(channel, ()):
            if waiter.request.opaque == opaque:
                self._drop(waiter)
                return True
        return False

    def channel_closed(self, channel: Channel) -> None:
        """Forget the requests of a connection; their places are free soon."""
        waiters = self._of_channels.pop(channel, None)
        if waiters:
            self._closed.append(waiters)
            self._engine.wake()

    def _drop_closed(self) -> None:
        """Forget some of the requests whose connections were closed."""
        for _ in range(STEPS_PER_SLICE):
            if not self._closed:
                return
            waiters = self._closed[-1]
            if waiters:
                self._drop(waiters.popitem()[0])
            else:
                self._closed.pop()

    def _drop(self, waiter: Waiter) -> None:
        """Forget a request whose connection is closed; if it was woken, another one is."""
        state = waiter.state
        if state is _State.DONE:
            return
        if state is _State.WAITING:
            self._delist(waiter)
        self.leave(waiter)
        if state is _State.WOKEN:
            self.wake(waiter.key)


def wait_ms_of(born_ms: int, poll_ms: int, now_ms: int) -> int:
    """How long a request may wait, ms; 0 or less: not at all.

    A client's clock may be ahead of ours: a request never waits longer than its client asked,
    because a message that is given to a client that has gone is invisible to all others.

    Args:
      born_ms: when its client sent it, ms since 1970; 0: now.
      poll_ms: how long the client waits from then on.
      now_ms: ms since 1970.
    """
    return poll_ms if born_ms <= 0 else min(poll_ms, born_ms + poll_ms - now_ms)
