"""A session: one connection's protocol without its I/O. Bytes come in, events go out.

It has no socket, task or clock; those are its owner's, who sends the bytes that it returns, passes
it the bytes that arrive, and says what time it is::

    session = Session("127.0.0.1:10911")
    sock.sendall(session.request(command, waiter, now_s, timeout_s=3.0))
    for event in session.receive_data(sock.recv(65_536)):
        if isinstance(event, Answered):
            event.waiter(event.answer)
        elif isinstance(event, RemotingCommand):
            sock.sendall(encode(serve(event)))

==========  =============  =================  ========================================
state       takes bytes    takes requests     goes on to
==========  =============  =================  ========================================
``OPEN``    yes            yes                ``FAILED``: the peer sent a bad frame;
                                              ``CLOSED``: `close` or `eof`
``FAILED``  no             no                 ``CLOSED``: `close` or `eof`
``CLOSED``  no             no                 nothing
==========  =============  =================  ========================================

While a session is ``FAILED``, answers to the frames before the bad one may still leave.

Java counterpart: NettyRemotingAbstract's responseTable, with ResponseFuture and scanResponseTable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import count
from math import inf
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from .codec import FRAME_SIZE_MAX, ONEWAY_FLAG, RESPONSE_FLAG, FrameDecoder, RemotingCommand, encode
from .errors import (
    LocalProtocolError,
    RemoteProtocolError,
    RemotingConnectError,
    RemotingTimeoutError,
)

W = TypeVar("W")

REQUESTS_MAX: Final = 65_535
"""Requests of ours that may wait for an answer on one connection. RocketMQ:
clientAsyncSemaphoreValue."""

OPAQUE_MAX: Final = 0x7FFF_FFFF
"""The largest opaque: the header has an int32. RocketMQ goes on with negative ones, we with 0."""


def opaques(first: int = 1) -> Iterator[int]:
    """Numbers for requests, for ever. Sessions may share them; so may threads."""
    return map(OPAQUE_MAX.__and__, count(first))


class State(Enum):
    """How far a session has come; see the table above."""

    OPEN = "open"
    FAILED = "failed"
    CLOSED = "closed"


class Answered(msgspec.Struct, Generic[W], frozen=True, gc=False):
    """The answer to a request of ours, with what its owner gave as its waiter."""

    waiter: W
    answer: RemotingCommand


class Unanswered(msgspec.Struct, Generic[W], frozen=True):
    """A request of ours to which no answer can come any more, or none in time."""

    waiter: W
    error: RemotingTimeoutError | RemotingConnectError


class Unsolicited(msgspec.Struct, frozen=True):
    """An answer that no request waits for.

    It came too late, or a second time, or its request was oneway or forgotten.
    """

    answer: RemotingCommand


class _Pending(msgspec.Struct, Generic[W], frozen=True, gc=False):
    """A request that waits for its answer.

    The garbage collector need not look for cycles through it: `close` ends them all.
    """

    waiter: W
    code: int
    timeout_s: float
    due_s: float


Event: TypeAlias = RemotingCommand | Answered[W] | Unsolicited
"""What bytes bring; a RemotingCommand is a request of the peer's."""

# An enum's member costs a look-up in its class, and every burst asks for this one.
_OPEN: Final = State.OPEN


class Session(Generic[W]):
    """One connection, whichever side opened it.

    Times are seconds of any clock, as long as it is always the same one.

    Args:
      peer: the other end, "ip:port", for the texts of errors.
      frame_size_max: bytes, the largest frame accepted after its length word.
      numbers: opaques for requests, where sessions share them; see `opaques`.

    Attributes:
      state: see the table above.
      close_reason: why it is CLOSED; "" before.
      next_due_s: no request is overdue before this time; inf: none ever is.
      partial_size: bytes of the frame that has begun and not ended.
    """

    __slots__ = (
        "_decoder",
        "_numbers",
        "_pending",
        "close_reason",
        "next_due_s",
        "partial_size",
        "peer",
        "state",
    )

    def __init__(
        self,
        peer: str,
        *,
        frame_size_max: int = FRAME_SIZE_MAX,
        numbers: Iterator[int] | None = None,
    ) -> None:
        self.peer = peer
        self.state = State.OPEN
        self.close_reason = ""
        self.next_due_s = inf
        self.partial_size = 0
        self._decoder = FrameDecoder(frame_size_max=frame_size_max)
        self._numbers = opaques() if numbers is None else numbers
        self._pending: dict[int, _Pending[W]] = {}

    @property
    def error(self) -> RemoteProtocolError | None:
        """What was wrong with the peer's bytes; None: nothing."""
        return self._decoder.error

    # ---- requests of ours ----------------------------------------------------------------

    def request(
        self, command: RemotingCommand, waiter: W, now_s: float = 0.0, timeout_s: float = inf
    ) -> bytes:
        """The bytes of a request; it ends as `Answered` or `Unanswered`.

        Args:
          command: its opaque is set here.
          waiter: what the event shall carry.

        Raises:
          RemotingConnectError: the session is not OPEN, or REQUESTS_MAX requests wait already.
          LocalProtocolError: the command does not fit the protocol.
        """
        self._require_open()
        pending = self._pending
        if len(pending) >= REQUESTS_MAX:
            raise RemotingConnectError(f"{self.peer}: {REQUESTS_MAX} requests wait already")
        command.opaque = next(number for number in self._numbers if number not in pending)
        frame = encode(command)
        self.expect(command.opaque, command.code, waiter, now_s, timeout_s)
        return frame

    def expect(
        self, opaque: int, code: int, waiter: W, now_s: float = 0.0, timeout_s: float = inf
    ) -> None:
        """Wait for the answer to a request whose bytes the caller has made, opaque included.

        The caller bounds how many there are. Other arguments and events: as `request`.

        Raises:
          RemotingConnectError: the session is not OPEN.
          LocalProtocolError: a request with this opaque waits already.
        """
        if self.state is not _OPEN:
            self._require_open()
        pending = self._pending
        if opaque in pending:
            raise LocalProtocolError(f"a request with opaque {opaque} waits already")
        due_s = now_s + timeout_s
        pending[opaque] = _Pending(waiter, code, timeout_s, due_s)
        if due_s < self.next_due_s:
            self.next_due_s = due_s

    def oneway(self, command: RemotingCommand) -> bytes:
        """The bytes of a request that is not answered; its opaque and flag are set here.

        Raises: LocalProtocolError: the command does not fit the protocol.
        """
        command.opaque = next(self._numbers)
        command.flag |= ONEWAY_FLAG
        return encode(command)

    def forget(self, opaque: int) -> None:
        """Stop waiting for an answer; when it comes, it is `Unsolicited`."""
        self._pending.pop(opaque, None)

    def expire(self, now_s: float) -> list[Unanswered[W]]:
        """The requests whose time is over, each with a RemotingTimeoutError."""
        pending = self._pending
        late = [opaque for opaque, each in pending.items() if each.due_s <= now_s]
        unanswered: list[Unanswered[W]] = []
        for opaque in late:
            each = pending.pop(opaque)
            error = RemotingTimeoutError(self.peer, each.code, each.timeout_s)
            unanswered.append(Unanswered(each.waiter, error))
        self.next_due_s = min([each.due_s for each in pending.values()], default=inf)
        return unanswered

    # ---- what comes from the peer --------------------------------------------------------

    def receive_data(self, data: bytes) -> Sequence[Event[W]]:
        """Take bytes as they came; returns what is complete by now, in the peer's order.

        It never raises on what a peer sent: `state` becomes FAILED, and `error` says why.
        """
        if self.state is not _OPEN:
            return []
        decoder = self._decoder
        commands = decoder.receive_data(data)
        self.partial_size = decoder.partial_size
        if decoder.error is not None:
            self.state = State.FAILED
        # A server's bursts are requests only, and then this loop is all that they cost.
        for command in commands:
            if command.flag & RESPONSE_FLAG:
                return self._matched(commands)
        return commands

    def _matched(self, commands: list[RemotingCommand]) -> list[Event[W]]:
        """Commands as events: each answer with the waiter of its request."""
        pending = self._pending
        events: list[Event[W]] = []
        for command in commands:
            if not command.flag & RESPONSE_FLAG:
                events.append(command)
            elif (each := pending.pop(command.opaque, None)) is None:
                events.append(Unsolicited(command))
            else:
                events.append(Answered(each.waiter, command))
        return events

    def eof(self) -> list[Unanswered[W]]:
        """The peer sends nothing more: `close`, with that as the reason."""
        half = f" in the middle of a frame, after {self.partial_size} bytes of it"
        return self.close("closed by the peer" + (half if self.partial_size else ""))

    def close(self, reason: str) -> list[Unanswered[W]]:
        """End it, and free the bytes of a frame that has begun.

        Returns: the requests that wait, each with a RemotingConnectError that gives the reason;
          nothing when it is CLOSED already.
        """
        if self.state is State.CLOSED:
            return []
        self.state = State.CLOSED
        self.close_reason = reason
        self.next_due_s = inf
        self.partial_size = 0
        self._decoder.clear()
        pending, self._pending = self._pending, {}
        return [
            Unanswered(each.waiter, RemotingConnectError(f"{self.peer}: {reason}"))
            for each in pending.values()
        ]

    def _require_open(self) -> None:
        if self.state is not _OPEN:
            raise RemotingConnectError(f"{self.peer}: {self.close_reason or self.error}")
