"""WaitingEngine: tries waiting requests again, in short slices that are fair between connections.

What a request waits for, and until when, is the matter of its policy: `PullRequestHoldService` has
queues, offsets and tags, `WaitingRequests` (of pops) topics, groups and queues. The policy finds
the requests that there may be a message for, or whose time is over; the engine tries them. A client
with thousands of requests delays only its own.

Pure, but for the task.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from ...common.supervision import FailureLog
from ...remoting.channel import Channel
from ...remoting.turn import Turn
from .due_task import DueTask

logger = logging.getLogger(__name__)

T = TypeVar("T")
H = TypeVar("H", contravariant=True)


class Policy(Protocol[H]):
    """What the requests of one kind wait for."""

    @property
    def next_s(self) -> float:
        """When to look next, by the engine's clock; -infinity: at once; infinity: after `wake`."""

    def look(self, now_s: float) -> None:
        """Do one slice of finding requests to be tried."""

    def try_again(self, held: H) -> None:
        """Serve a request; do nothing if it was done since it was found."""

    def leave(self, held: H) -> None:
        """Forget a waiting request."""


class WaitingEngine(Generic[T]):
    """The tries of one kind of requests.

    Args:
      policy: finds the requests, and serves them.
      channel_of: the connection of a request.
      now_s: the policy's clock, such as trio.current_time.
      elapsed_s: a clock that measures `try_time_max_s`.
      tries_max, try_time_max_s: requests tried in one slice, and for how long.
      what: names such a request in the log.

    Attributes:
      over: requests to be tried when the backlog is empty, from the end. A policy may sort those
        whose time is over by connection, so that the answers to one are sent together.
    """

    def __init__(
        self,
        policy: Policy[T],
        channel_of: Callable[[T], Channel],
        *,
        now_s: Callable[[], float],
        elapsed_s: Callable[[], float],
        tries_max: int,
        try_time_max_s: float,
        what: str,
    ) -> None:
        self._policy = policy
        self._channel_of = channel_of
        self._now_s, self._elapsed_s = now_s, elapsed_s
        self._tries_max, self._try_time_max_s = tries_max, try_time_max_s
        self._what = what
        self.over: list[T] = []
        # Not plain dicts: to take the first key of one again and again takes quadratic time.
        self._backlog: OrderedDict[Channel, OrderedDict[T, None]] = OrderedDict()
        self._turn = Turn()
        self._task = DueTask(self._slice_in_turn, failing=f"waiting {what}s are answered later")
        self._failures = FailureLog(logger)

    @property
    def has_backlog(self) -> bool:
        """Whether requests that were woken have not been tried yet."""
        return bool(self._backlog)

    def add(self, items: Iterable[T]) -> None:
        """Have requests tried; one that is in the backlog already keeps its place."""
        backlog, channel_of = self._backlog, self._channel_of
        for held in items:
            channel = channel_of(held)
            waiting = backlog.get(channel)
            if waiting is None:
                waiting = backlog[channel] = OrderedDict()
            waiting[held] = None

    def wake(self) -> None:
        """Run a slice soon: something was added, or `next_s` is earlier."""
        self._task.wake()

    async def run(self, turn: Turn) -> None:
        """Run slices when they are due, until cancelled.

        Args:
          turn: of the connections: the answers to one connection are one send, and what the
            requests store is committed together.
        """
        self._turn = turn
        await self._task.run()

    def _slice_in_turn(self) -> float:
        with self._turn:
            return self.run_slice()

    def run_slice(self) -> float:
        """Look, and try some requests. Returns: seconds until the next slice; 0 or less: now."""
        now_s = self._now_s()
        self._policy.look(now_s)
        self.try_some(self._tries_max)
        return 0.0 if self._backlog or self.over else self._policy.next_s - now_s

    def try_some(self, count_max: int) -> None:
        """Try some requests, within the limits of a slice; the task continues with the rest."""
        end_s = self._elapsed_s() + self._try_time_max_s
        for _ in range(count_max):
            if self._backlog:
                self.try_one(self._pop())
            elif self.over:
                self.try_one(self.over.pop())
            else:
                return
            if self._elapsed_s() > end_s:
                break
        if self._backlog or self.over:
            self._task.wake()

    def _pop(self) -> T:
        """The next request of the backlog, of another connection than the last one."""
        channel, waiting = next(iter(self._backlog.items()))
        held, _ = waiting.popitem(last=False)
        if waiting:
            self._backlog.move_to_end(channel)
        else:
            del self._backlog[channel]
        return held

    def try_one(self, held: T) -> None:
        """Try a request; an error costs only its own connection."""
        try:
            self._policy.try_again(held)
        except Exception as error:  # noqa: BLE001 - our bug: other requests are answered
            meaning = "Its connection is closed, and its client asks again"
            self._failures.note(f"answering a waiting {self._what}", meaning, error)
            self._channel_of(held).close(f"its waiting {self._what} could not be answered")
            self._policy.leave(held)
