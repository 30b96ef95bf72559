"""Session: the protocol of one connection without I/O. Bytes come in, events go out.

It has no socket, task or clock; its owner sends the bytes that it returns, and passes it received
bytes and the time::

    session = Session("127.0.0.1:10911")
    sock.sendall(session.request(command, waiter, now_s, timeout_s=3.0))
    for event in session.receive_data(sock.recv(65_536)):
        if isinstance(event, Answered):
            event.waiter(event.answer)
        elif isinstance(event, RemotingCommand):
            sock.sendall(encode(serve(event)))

==========  =============  =================  ========================================
state       accepts bytes  accepts requests   next states
==========  =============  =================  ========================================
``OPEN``    yes            yes                ``FAILED``: the peer sent a bad frame;
                                              ``CLOSED``: `close` or `eof`
``FAILED``  no             no                 ``CLOSED``: `close` or `eof`
``CLOSED``  no             no                 nothing
==========  =============  =================  ========================================

While a session is ``FAILED``, answers to the frames before the bad one may still be sent.

Java counterpart: NettyRemotingAbstract's responseTable, with ResponseFuture and scanResponseTable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import count
from math import inf
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from .codec import (
    FRAME_SIZE_MAX,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    FrameDecoder,
    RemotingCommand,
    encode,
)
from .errors import (
    LocalProtocolError,
    RemoteProtocolError,
    RemotingConnectError,
    RemotingTimeoutError,
)

W = TypeVar("W")

REQUESTS_MAX: Final = 65_535
"""Our unanswered requests on one connection at most. RocketMQ: clientAsyncSemaphoreValue."""

OPAQUE_MAX: Final = 0x7FFF_FFFF
"""The largest opaque, an int32. RocketMQ continues with negative ones, we with 0."""


def opaques(first: int = 1) -> Iterator[int]:
    """An endless iterator of opaques for requests. Sessions and threads may share it."""
    return map(OPAQUE_MAX.__and__, count(first))


class State(Enum):
    """The state of a session; see the table above."""

    OPEN = "open"
    FAILED = "failed"
    CLOSED = "closed"


class Answered(msgspec.Struct, Generic[W], frozen=True, gc=False):
    """The answer to one of our requests, with its waiter."""

    waiter: W
    answer: RemotingCommand


class Unanswered(msgspec.Struct, Generic[W], frozen=True):
    """One of our requests that timed out, or whose connection closed."""

    waiter: W
    error: RemotingTimeoutError | RemotingConnectError


class Unsolicited(msgspec.Struct, frozen=True):
    """An answer without a waiting request.

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
"""An event from received bytes; a RemotingCommand is a request from the peer."""

# A global, because a look-up of an enum's member is slow, and every burst needs this one.
_OPEN: Final = State.OPEN


class Session(Generic[W]):
    """One connection, whichever side opened it.

    Times are seconds of any clock, but always the same one.

    Args:
      peer: "ip:port" of the peer, for error texts.
      frame_size_max: bytes of the largest accepted frame, without its length word.
      numbers: opaques for requests, if sessions share them; see `opaques`.

    Attributes:
      decoder: of the received bytes; a `BurstReader` reads by it.
      state: see the table above.
      close_reason: the reason why it is CLOSED; "" before.
      next_due_s: a lower bound of the times at which requests time out; inf if none does.
      partial_size: received bytes of an incomplete frame.
    """

    __slots__ = (
        "_numbers",
        "_pending",
        "close_reason",
        "decoder",
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
        self.decoder = FrameDecoder(frame_size_max=frame_size_max)
        self._numbers = opaques() if numbers is None else numbers
        self._pending: dict[int, _Pending[W]] = {}

    @property
    def error(self) -> RemoteProtocolError | None:
        """The fault in the peer's bytes; None if there was none."""
        return self.decoder.error

    # ---- our requests --------------------------------------------------------------------

    def request(
        self, command: RemotingCommand, waiter: W, now_s: float = 0.0, timeout_s: float = inf
    ) -> bytes:
        """Encode a request and wait for its answer, with the event `Answered` or `Unanswered`.

        Args:
          command: its opaque is set here.
          waiter: any object, returned with the event.
          now_s: the time.
          timeout_s: seconds until it times out.

        Raises:
          RemotingConnectError: the session is not OPEN, or REQUESTS_MAX requests are waiting.
          LocalProtocolError: the command does not fit the protocol.
        """
        self._require_open()
        pending = self._pending
        if len(pending) >= REQUESTS_MAX:
            raise RemotingConnectError(
                f"{self.peer}: {REQUESTS_MAX} requests wait for answers, which is the limit"
            )
        command.opaque = next(number for number in self._numbers if number not in pending)
        frame = encode(command)
        self.expect(command.opaque, command.code, waiter, now_s, timeout_s)
        return frame

    def expect(
        self, opaque: int, code: int, waiter: W, now_s: float = 0.0, timeout_s: float = inf
    ) -> None:
        """Wait for the answer to a request that the caller has encoded, including its opaque.

        The caller bounds the number of requests.

        Args:
          opaque, code: of the request.
          waiter, now_s, timeout_s: see `request`.

        Raises:
          RemotingConnectError: the session is not OPEN.
          LocalProtocolError: a request with this opaque is waiting.
        """
        if self.state is not _OPEN:
            self._require_open()
        pending = self._pending
        if opaque in pending:
            raise LocalProtocolError(f"another request with opaque {opaque} is waiting")
        due_s = now_s + timeout_s
        pending[opaque] = _Pending(waiter, code, timeout_s, due_s)
        if due_s < self.next_due_s:
            self.next_due_s = due_s

    def oneway(self, command: RemotingCommand) -> bytes:
        """Encode a request that is not answered; its opaque and flag are set here.

        Raises: LocalProtocolError: the command does not fit the protocol.
        """
        command.opaque = next(self._numbers)
        command.flag |= ONEWAY_FLAG
        return encode(command)

    def forget(self, opaque: int) -> None:
        """Stop waiting for an answer; a later one is `Unsolicited`."""
        self._pending.pop(opaque, None)

    def expire(self, now_s: float) -> list[Unanswered[W]]:
        """Remove and return the requests that timed out, each with a RemotingTimeoutError."""
        pending = self._pending
        late = [opaque for opaque, each in pending.items() if each.due_s <= now_s]
        unanswered: list[Unanswered[W]] = []
        for opaque in late:
            each = pending.pop(opaque)
            error = RemotingTimeoutError(self.peer, each.code, each.timeout_s)
            unanswered.append(Unanswered(each.waiter, error))
        self.next_due_s = min([each.due_s for each in pending.values()], default=inf)
        return unanswered

    # ---- received bytes ------------------------------------------------------------------

    def receive_data(self, data: bytes) -> Sequence[Event[W]]:
        """Process received bytes; return the events of complete frames, in the peer's order.

        It never raises because of received bytes: `state` becomes FAILED, `error` has the fault.
        """
        if self.state is not _OPEN:
            return []
        return self.events(self.decoder.receive_data(data))

    def events(self, commands: list[RemotingCommand]) -> Sequence[Event[W]]:
        """The events of commands that `decoder` has decoded, of bytes that came before a `close`,
        too; then `state` and `partial_size` are as after `receive_data`."""
        decoder = self.decoder
        if self.state is State.CLOSED:
            decoder.clear()
        self.partial_size = decoder.partial_size
        if decoder.error is not None and self.state is _OPEN:
            self.state = State.FAILED
        # A server's bursts are requests only, for which this loop is the only cost.
        for command in commands:
            if command.flag & RESPONSE_FLAG:
                return self._matched(commands)
        return commands

    def _matched(self, commands: list[RemotingCommand]) -> list[Event[W]]:
        """Convert commands to events, each answer with the waiter of its request."""
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
        """`close`, because the peer closed its side."""
        half = f" in the middle of a frame, after {self.partial_size} bytes of it"
        return self.close("closed by the peer" + (half if self.partial_size else ""))

    def close(self, reason: str) -> list[Unanswered[W]]:
        """Close the session, and free the bytes of an incomplete frame.

        Returns: the waiting requests, each with a RemotingConnectError that has the reason; empty
          if it is CLOSED already.
        """
        if self.state is State.CLOSED:
            return []
        self.state = State.CLOSED
        self.close_reason = reason
        self.next_due_s = inf
        self.partial_size = 0
        self.decoder.clear()
        pending, self._pending = self._pending, {}
        return [
            Unanswered(each.waiter, RemotingConnectError(f"{self.peer}: {reason}"))
            for each in pending.values()
        ]

    def _require_open(self) -> None:
        if self.state is not _OPEN:
            raise RemotingConnectError(f"{self.peer}: {self.close_reason or self.error}")
