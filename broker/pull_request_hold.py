"""Pulls that found nothing and wait: long polling.

Pure: the time comes in as an argument; who wakes and who expires is told by the caller.

Java counterpart: broker/longpolling/PullRequestHoldService.java of 5.3.3, which looks at every
held pull each 5 s and at those of one queue when a message arrives; here the first is each second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..remoting.channel import Channel
from ..remoting.codec import RemotingCommand
from .filter.sql92 import Expression

HELD_PULLS_MAX = 100_000
"""Pulls held at once; one more is answered at once as if its time were over. RocketMQ bounds the
pulls that wait for a thread by the same number (pullThreadPoolQueueCapacity)."""

CHECK_INTERVAL_S = 1.0
"""Seconds between two looks for pulls whose time is over. Clients ask to be held for 15 s and wait
30 s for the answer, so a second more or less is nothing to them."""


class HeldPull:
    """One pull that waits.

    Attributes:
      request, channel: to be answered.
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
        self.request = request
        self.channel = channel
        self.key = key
        self.group = group
        self.queue_offset = queue_offset
        self.count_max = count_max
        self.size_max = size_max
        self.tags_codes = tags_codes
        self.expression = expression
        self.deadline_s = deadline_s


class PullRequestHoldService:
    """The held pulls by queue.

    Args:
      resume: tries a held pull again. Its second argument says that the time is over, so that it
        must answer; it returns whether it answered.
    """

    def __init__(self, resume: Callable[[HeldPull, bool], bool]) -> None:
        self._resume = resume
        self._held: dict[tuple[str, int], list[HeldPull]] = {}
        self._count = 0

    @property
    def count(self) -> int:
        """Pulls that are held."""
        return self._count

    def hold(self, pull: HeldPull) -> bool:
        """Keep a pull until a message arrives or its time is over.

        Returns: False when there are HELD_PULLS_MAX already, and it is not kept.
        """
        if self._count >= HELD_PULLS_MAX:
            return False
        self._count += 1
        held = self._held.get(pull.key)
        if held is None:
            self._held[pull.key] = [pull]
        else:
            held.append(pull)
        return True

    def notify_messages(self, queues: Collection[tuple[str, int]]) -> None:
        """Try the pulls of queues that have new messages."""
        if not self._held:
            return
        for key in queues:
            held = self._held.pop(key, None)
            if held is not None:
                self._keep(key, [p for p in held if not self._done(p, over=False)], len(held))

    def check(self, now_s: float) -> None:
        """Answer the pulls whose time is over, forget those whose connection is closed."""
        for key in list(self._held):
            held = self._held[key]
            if any(pull.deadline_s <= now_s or pull.channel.closed for pull in held):
                del self._held[key]
                left = [p for p in held if not self._done(p, over=p.deadline_s <= now_s)]
                self._keep(key, left, len(held))

    def _done(self, pull: HeldPull, *, over: bool) -> bool:
        return pull.channel.closed or self._resume(pull, over)

    def _keep(self, key: tuple[str, int], left: list[HeldPull], count_before: int) -> None:
        self._count -= count_before - len(left)
        if left:
            # A pull may have been held anew meanwhile: a resumed one answers, its client is asked.
            self._held[key] = left + self._held.get(key, [])
