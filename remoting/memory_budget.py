"""Memory budget: the bytes that all connections of one server may hold together.

Limits of single connections do not bound a server: 10,000 connections with one incomplete frame of
16 MiB each are 160 GiB. So every server has one budget, divided into named shares. A share counts
the bytes of its kind that each connection holds. If the sum exceeds the share's limit, the
connection that holds most is closed, or the request that would exceed it is refused; the log names
the connection, the bytes, the share, and the key that sets the budget.

Pure: `memory_limit.py` derives the default budget from the machine.

Java counterpart: none. A JVM has -Xmx and -XX:MaxDirectMemorySize, and fails when they are reached.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Final, Protocol

from .codec import RemotingCommand
from .refusals import Refusals

logger = logging.getLogger(__name__)

BUDGET_KEY: Final = "remotingBytesMax"
"""The configuration key that sets the budget of a server."""

BUDGET_DEFAULT_MAX: Final = 1024 * 1024 * 1024
"""Bytes of the largest default budget: room for 96 incomplete messages of the largest size (4 MiB),
and for 100,000 held pulls. A larger one must be configured."""

LARGE_PARTS: Final = 8
"""A connection that holds more than this part of a share is closed when the share is full."""

REQUEST_SIZE: Final = 400
"""Bytes of a request object and of the task that answers it, without fields and body."""

FIELD_SIZE: Final = 150
"""Bytes of one header field's two strings, without their characters."""


class Holder(Protocol):
    """The part of a connection that the budget uses; `channel.Channel` implements it."""

    remote_address: str
    closed: bool

    def close(self, reason: str = ...) -> None:
        """Close the connection and free what it holds; may be called twice."""


class MemoryShare:
    """The bytes of one kind that the connections of a server hold, by connection.

    Args:
      name: plural noun for the log, such as "half frames".
      limit: bytes, of all connections together.
      refusals: counts what is refused and closed.

    Attributes:
      used: bytes held now.
      used_max: the largest `used` in `hold` since `take_used_max`.
    """

    __slots__ = (
        "_is_refusing",
        "_large_size",
        "_refusals",
        "_sizes",
        "limit",
        "name",
        "used",
        "used_max",
    )

    def __init__(self, name: str, limit: int, refusals: Refusals | None = None) -> None:
        self.name = name
        self._refusals = refusals or Refusals()
        self.limit = limit
        self.used = self.used_max = 0
        self._large_size = limit // LARGE_PARTS
        self._sizes: dict[Holder, int] = {}
        self._is_refusing: set[Holder] = set()

    def __repr__(self) -> str:
        return f"<MemoryShare {self.name}: {self.used} of {self.limit} bytes>"

    @property
    def is_tight(self) -> bool:
        """Whether more than half of the share is used."""
        return self.used * 2 > self.limit

    def size_of(self, holder: Holder) -> int:
        """Bytes that one connection holds."""
        return self._sizes.get(holder, 0)

    def hold(self, holder: Holder, size: int) -> None:
        """Set the bytes that a connection holds; close the largest ones if the limit is exceeded.

        For memory that cannot be refused, because it is already allocated.
        """
        sizes = self._sizes
        self.used += size - sizes.get(holder, 0)
        if size:
            sizes[holder] = size
        else:
            sizes.pop(holder, None)
        if self.used > self.used_max:
            self.used_max = self.used
        # Closing the largest frees most, and hits the fewest clients.
        while self.used > self.limit and self.close_largest(self._full()):
            pass

    def take(self, holder: Holder, size: int) -> bool:
        """Reserve `size` more bytes for a connection, unless the share is full.

        A connection that holds a large part of a full share (LARGE_PARTS) is closed, so that others
        can be served again; its bytes are released later.

        Returns: False if the share is full, nothing was reserved, and the request must be refused.
        """
        sizes = self._sizes
        if self.used + size > self.limit:
            self._refuse(holder, size)
            return False
        self.used += size
        sizes[holder] = sizes.get(holder, 0) + size
        return True

    @property
    def room(self) -> int:
        """Bytes that are free."""
        return self.limit - self.used

    def give_back(self, holder: Holder, size: int) -> None:
        """Release `size` of the bytes that a connection reserved."""
        left = self._sizes.get(holder, 0) - size
        if left > 0:
            self._sizes[holder] = left
            self.used -= size
        else:
            self.forget(holder)

    def forget(self, holder: Holder) -> None:
        """Release all bytes of a connection."""
        self.used -= self._sizes.pop(holder, 0)
        self._is_refusing.discard(holder)

    def end_refusals(self, holder: Holder) -> None:
        """Drop the refusal state of a closed connection; its bytes are released separately."""
        self._is_refusing.discard(holder)

    def close_largest(self, why: str) -> bool:
        """Close the connection that holds most.

        Args:
          why: the reason, for the log.
        Returns: whether there was one.
        """
        if not self._sizes:
            return False
        holder = max(self._sizes, key=self._sizes.__getitem__)
        self._close(holder, why)
        # At once, although its objects go later: the loop of `hold` must not choose it again.
        self.forget(holder)
        return True

    def _full(self) -> str:
        return (
            f"all connections hold {self.used} bytes, the limit is {self.limit}; "
            f"{BUDGET_KEY} sets the sum of all shares"
        )

    def _refuse(self, holder: Holder, size: int) -> None:
        self._refusals.count(BUDGET_KEY)
        # One peer that holds much is closed rather than that all others are refused.
        large = [one for one, held in self._sizes.items() if held > self._large_size]
        largest = max(large, key=self._sizes.__getitem__, default=None)
        if largest is not None and not largest.closed and largest is not holder:
            self._close(largest, self._full())
        if holder not in self._is_refusing:
            # One line per connection: a peer that repeats its request would fill the log.
            self._is_refusing.add(holder)
            logger.warning(
                "%(peer)s: a request of %(size)d bytes is refused (further ones are not "
                "logged): the server holds %(used)d bytes of %(share)s, the limit is %(limit)d; "
                "%(key)s sets the sum of all shares",
                {
                    "peer": holder.remote_address,
                    "size": size,
                    "used": self.used,
                    "share": self.name,
                    "limit": self.limit,
                    "key": BUDGET_KEY,
                },
            )

    def _close(self, holder: Holder, why: str) -> None:
        reason = f"it holds {self._sizes[holder]} bytes of {self.name}, more than any other; {why}"
        if not holder.closed:
            self._refusals.count(BUDGET_KEY)
            logger.warning(
                "%(peer)s: closed: %(reason)s", {"peer": holder.remote_address, "reason": reason}
            )
        holder.close(reason)


class MemoryBudget:
    """The shares of one server.

    Args:
      total: bytes, at least BUDGET_MIN of `common/connection_policy.py`; None: no limit.
      refusals: of the server; None: new ones.

    Attributes:
      refusals: counts what this and the other limits of the connections refuse.
      half_frames: received bytes of incomplete frames. 3/8 of the total, so that it holds a whole
        frame if the total is BUDGET_MIN.
      held_requests: requests that wait for their answers: held pulls, and requests that need
        another server or a thread. 1/4.
      unread_answers: answers that peers have not read. 1/4. Views of mapped files count as the
        view alone, because the kernel can drop their pages.
      subscriptions: clients and subscriptions of heartbeats. 1/8.
    """

    __slots__ = ("half_frames", "held_requests", "refusals", "subscriptions", "unread_answers")

    def __init__(self, total: int | None = None, refusals: Refusals | None = None) -> None:
        size = sys.maxsize if total is None else total
        self.refusals = refusals = refusals or Refusals()
        self.half_frames = MemoryShare("half frames", size * 3 // 8, refusals)
        self.held_requests = MemoryShare("held requests", size // 4, refusals)
        self.unread_answers = MemoryShare("unread answers", size // 4, refusals)
        self.subscriptions = MemoryShare("subscriptions", size // 8, refusals)

    @property
    def shares(self) -> tuple[MemoryShare, ...]:
        return self.half_frames, self.held_requests, self.unread_answers, self.subscriptions

    @property
    def used(self) -> int:
        """Bytes held now, of all kinds."""
        return sum(share.used for share in self.shares)

    def take_used_max(self) -> int:
        """The sum of each share's maximum since the last call, which may be of different times."""
        most = 0
        for share in self.shares:
            most += max(share.used_max, share.used)
            share.used_max = share.used
        return most

    def run_out(self, holder: Holder, doing: str) -> None:
        """Free memory after a failed allocation.

        It closes the connection that needed it, and those with the largest incomplete frames, until
        half of the bytes of incomplete frames are free for other connections.

        Args:
          doing: the failed action, such as "reading what it sent".
        """
        # Frees before it allocates, because even the log line needs memory.
        holder.close("the process has no memory left")
        before = self.used
        enough = self.half_frames.used // 2
        with suppress(MemoryError):  # if even the log line fails, the next failure logs it
            while self.half_frames.used > enough:
                self.half_frames.close_largest("the process has no memory left")
            logger.error(
                "%(peer)s: closed: the process has no memory for %(doing)s; all other "
                "connections held %(before)d bytes of %(shares)s; lower %(key)s, or allow the "
                "process more memory",
                {
                    "peer": holder.remote_address,
                    "doing": doing,
                    "before": before,
                    "shares": ", ".join(share.name for share in self.shares),
                    "key": BUDGET_KEY,
                },
            )

    def forget_closed(self, holder: Holder) -> None:
        """Release the memory of a closed connection.

        Its held requests are released later, when they would have been answered.
        """
        self.half_frames.forget(holder)
        self.unread_answers.forget(holder)
        self.subscriptions.forget(holder)
        self.held_requests.end_refusals(holder)


def request_size(request: RemotingCommand) -> int:
    """Approximate bytes of a held request."""
    fields = request.ext_fields
    characters = sum(map(len, fields)) + sum(map(len, fields.values()))
    return REQUEST_SIZE + len(request.body) + FIELD_SIZE * len(fields) + characters
