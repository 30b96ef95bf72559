"""Channel: one connection as the processors use it, with its buffer of unsent answers.

Answers written during a turn (`turn.py`) are sent at its end, in one send per channel. A
`Transport` (`transport.py`) does the sends that may block.

Java counterpart: io.netty.channel.Channel with NettyRemotingAbstract.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import trio

from ..common.connection_policy import ConnectionPolicy
from ..common.steps import Steps, in_steps
from ..common.supervision import FailureLog
from .codec import FRAME_SIZE_MAX, RemotingCommand
from .errors import RemotingError
from .hosts import host_bytes
from .memory_budget import MemoryBudget
from .session import Session, Unanswered
from .signature import Credentials, sign
from .turn import Turn

logger = logging.getLogger(__name__)
_failures = FailureLog(logger)

Buffer = bytes | memoryview

OUTBOX_HIGH_WATER = 4 * 1024 * 1024
"""Unsent bytes of one connection above which its requests are no longer read. RocketMQ has Netty's
write buffer mark (64 KiB by default) but keeps reading, so a peer that never reads its answers
grows the heap. 4 MiB is a few pull answers of the largest size."""

BACKLOG_PIECE_SIZE = 64 * 1024
"""Bytes of a backlog after which `taken` counts: a peer that takes none of them makes no
progress."""

OUTBOX_TIGHT_HIGH_WATER = 64 * 1024
"""The high water mark while more than half of the server's share for unread answers is used, so
that requests of slow peers wait before any of them has to be closed."""

_BUFFER_SIZE = 64
_VIEW_SIZE = 200
"""Bytes of a bytes object and of a memoryview, without their content."""

JOIN_PIECE_SIZE = 2048
"""A frame whose buffers are smaller than this on average is joined: a segment costs the kernel more
than copying 2 KiB (32 records of 1 KiB: 21 us joined, 26 us by `sendmsg`)."""


class Deferred:
    """An answer that must be awaited: the server runs `run` in a separate task.

    Args:
      run: an async function without arguments; it returns the answer, or None for no answer, and
        may raise the errors of a processor.
    """

    __slots__ = ("run",)

    def __init__(self, run: Callable[[], Awaitable[RemotingCommand | None]]) -> None:
        self.run = run


class Postponed(Exception):
    """Raised by a processor, before any change, to have its request served again later.

    The connection serves the request from the beginning, in a turn, when its callback is called.

    Args:
      when: takes that callback, and calls it once, never inside a turn.
    """

    def __init__(self, when: Callable[[Callable[[], None]], None]) -> None:
        super().__init__()
        self.when = when


Answer = RemotingCommand | bytes | Deferred | None


class Processor(Protocol):
    """Serves one request code.

    Returns the answer, or its encoded frame; `Deferred` if it must be awaited; None if the answer
    is written later through the channel, or there is none.

    Raises:
      RequestRefused: the refusal to send to the peer.
      Postponed: the request is to be served again later.
    """

    def __call__(self, request: RemotingCommand, channel: Channel, /) -> Answer: ...


class Transport(Protocol):
    """A byte stream in both directions. `send_nowait` and `abort` never wait."""

    remote_address: str
    local_address: str

    def send_nowait(self, buffers: list[Buffer]) -> list[Buffer]:
        """Send as much as possible without blocking; return the rest. Raises OSError."""

    async def send_all(self, buffers: list[Buffer]) -> None:
        """Send everything. Raises OSError, trio.BrokenResourceError, trio.ClosedResourceError."""

    def abort(self) -> None:
        """Close at once, without waiting."""


def _ignore() -> None:
    pass  # no callback is set yet


_DEFAULT_POLICY = ConnectionPolicy()


def _pieces(buffers: list[Buffer]) -> Iterator[list[Buffer]]:
    """Divide a backlog into parts of about BACKLOG_PIECE_SIZE."""
    piece: list[Buffer] = []
    size = 0
    for buffer in buffers:
        if len(buffer) <= BACKLOG_PIECE_SIZE:
            piece.append(buffer)
            size += len(buffer)
        else:
            if piece:
                yield piece
                piece, size = [], 0
            # `taken` counts pieces: it distinguishes a slow peer that still reads from one that
            # does not.
            view = memoryview(buffer)
            for start in range(0, len(view), BACKLOG_PIECE_SIZE):
                yield [view[start : start + BACKLOG_PIECE_SIZE]]
        if size >= BACKLOG_PIECE_SIZE:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _memory_of(buffer: Buffer) -> int:
    """Bytes of anonymous memory that a buffer keeps. A view of a mapped file keeps none, because
    the kernel can drop the file's pages and read them again."""
    if isinstance(buffer, memoryview):
        owner = buffer.obj
        return _VIEW_SIZE + (len(owner) if isinstance(owner, (bytes, bytearray)) else 0)
    return _BUFFER_SIZE + len(buffer)


def _host_of(address: str) -> bytes:
    ip, _, port = address.rpartition(":")
    return host_bytes(ip.strip("[]"), int(port))


class Channel:
    """One connection, whichever side opened it.

    Owner: the connection's task (`connection.py`). `write`, `send_oneway` and `close` may be
    called from any code of the same trio run, and never block.

    Args:
      transport: connected.
      turn: shared by all connections of the process.
      memory: shared by all connections of the server; None if there is no limit.
      frame_size_max: bytes of the largest frame that the peer may send.
      policy: the limits; None: their defaults.

    Attributes:
      remote_address: "ip:port" of the peer.
      remote_host: the same in the form of records, 8 or 20 bytes.
      local_address: "ip:port" of our end.
      closed: nothing more can be written.
      taken: parts of backlogs that the peer has taken (BACKLOG_PIECE_SIZE).
      heard: number of times that bytes were received from the peer.
      on_backlog: called when the socket is full, so that `drain` must be run.
      on_attention: called when the channel was closed, or its backlog is above the high water mark.
      memory: the budget of the server's connections.
      session: the protocol's state: the received part of a frame, and our unanswered calls.
      attributes: data that higher layers keep for this connection.
      credentials: the account that signs our requests; None: they are not signed.
    """

    __slots__ = (
        "_counted",
        "_dirty",
        "_drained",
        "_outbox",
        "_outbox_memory",
        "_outbox_size",
        "_policy",
        "_sending_memory",
        "_transport",
        "_turn",
        "attributes",
        "close_reason",
        "closed",
        "credentials",
        "heard",
        "language",
        "local_address",
        "memory",
        "on_attention",
        "on_backlog",
        "remote_address",
        "remote_host",
        "session",
        "taken",
        "version",
    )

    def __init__(
        self,
        transport: Transport,
        turn: Turn,
        memory: MemoryBudget | None = None,
        *,
        frame_size_max: int = FRAME_SIZE_MAX,
        policy: ConnectionPolicy | None = None,
    ) -> None:
        self._policy = policy or _DEFAULT_POLICY
        self.taken = 0
        self.remote_address = transport.remote_address
        self.remote_host = _host_of(transport.remote_address)
        self.local_address = transport.local_address
        self.session: Session[CallWaiter] = Session(
            self.remote_address, frame_size_max=frame_size_max
        )
        self.closed = False
        self.heard = 0
        self.close_reason = ""
        self.memory = memory or MemoryBudget()
        self.attributes: dict[str, object] = {}
        self.credentials: Credentials | None = None
        self.language = 0
        self.version = 0
        self.on_backlog: Callable[[], None] = _ignore
        self.on_attention: Callable[[], None] = _ignore
        self._transport = transport
        self._turn = turn
        self._outbox: list[Buffer] = []
        self._outbox_size = 0
        # The backlog's share of the memory budget, counted only while there is a backlog.
        self._counted = 0
        self._outbox_memory = 0
        self._sending_memory = 0
        self._dirty = False
        self._drained: trio.Event | None = None

    def __repr__(self) -> str:
        return f"<Channel {self.remote_address}{' closed' if self.closed else ''}>"

    @property
    def turn(self) -> Turn:
        """The turn of all connections; `with` begins one for work that follows a request."""
        return self._turn

    @property
    def outbox_size(self) -> int:
        """Unsent bytes."""
        return self._outbox_size

    def write(self, frame: Buffer | Sequence[Buffer], size: int | None = None) -> None:
        """Send bytes at the end of this turn; outside a turn, at once. Never blocks.

        Frames written to a closed channel are dropped: the peer will repeat its request elsewhere.

        Args:
          frame: one or more whole frames, in one or several buffers. A memoryview must stay
            valid until it is sent.
          size: bytes of all buffers, if the caller knows it.
        """
        if self.closed:
            return
        outbox = self._outbox
        if isinstance(frame, (bytes, memoryview)):
            outbox.append(frame)
            self._outbox_size += len(frame)
        else:
            if size is None:
                size = sum(map(len, frame))
            self._outbox_size += size
            if size < len(frame) * JOIN_PIECE_SIZE:
                # Many small pieces cost more as separate buffers of a system call than to be
                # copied.
                outbox.append(b"".join(frame))
            else:
                outbox += frame
        if not self._dirty and self._outbox_size:
            self._dirty = True
            self._turn.dirty.append(self)
            # In a turn the answers of all its requests leave with one system call per connection.
            if not self._turn.active:
                self._turn.flush()

    def write_all(self, frames: list[bytes]) -> None:
        """Write a turn's answers, inside the turn."""
        if self.closed:
            return
        data = b"".join(frames)
        # Oneway requests have no answers.
        if not data:
            return
        self._outbox.append(data)
        self._outbox_size += len(data)
        if not self._dirty:
            self._dirty = True
            self._turn.dirty.append(self)

    def flush(self) -> None:
        """Send as much of the outbox as possible without blocking."""
        self._dirty = False
        if self.closed or not self._outbox or self._drained is not None:
            self._check_size()
            return
        try:
            left = self._transport.send_nowait(self._outbox)
        except OSError as error:
            self.close(f"sending failed: {error}")
            return
        except MemoryError:
            self.run_out_of_memory("sending answers to it")
            return
        self._outbox = left
        if not left:
            self._outbox_size = 0
            return
        self._outbox_size = sum(map(len, left))
        self._drained = trio.Event()
        self.on_backlog()
        self._check_size()

    def _check_size(self) -> None:
        if self._outbox_size > self._policy.unread_answers_max:
            reason = f"the peer does not read: {self._outbox_size} bytes of answers are unsent"
            self.memory.refusals.note("unreadAnswersMax", self.remote_address, f"closed: {reason}")
            self.close(reason)
            return
        if self._drained is not None and not self.closed:
            self._count_backlog()
        # The connection reads no further requests until its answers have left.
        if self._outbox_size > self._high_water:
            self.on_attention()

    def _count_backlog(self) -> None:
        """Update the memory budget by the size of the backlog; only new buffers are counted."""
        self._outbox_memory += sum(map(_memory_of, islice(self._outbox, self._counted, None)))
        self._counted = len(self._outbox)
        self.memory.unread_answers.hold(self, self._sending_memory + self._outbox_memory)

    @property
    def _high_water(self) -> int:
        is_tight = self.memory.unread_answers.is_tight
        return OUTBOX_TIGHT_HIGH_WATER if is_tight else OUTBOX_HIGH_WATER

    async def drain(self) -> None:
        """Send the backlog, blocking as needed. Only the connection's writer task calls it."""
        try:
            while self._outbox and not self.closed:
                sending, self._outbox = self._outbox, []
                self._sending_memory = sum(map(_memory_of, sending))
                self._counted = self._outbox_memory = 0
                for piece in _pieces(sending):
                    await self._transport.send_all(piece)
                    self.taken += 1
                self._outbox_size = sum(map(len, self._outbox))
                self._sending_memory = 0
                if not self.closed:
                    self._count_backlog()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.close(f"sending failed: {error}")
        except MemoryError:
            self.run_out_of_memory("sending answers to it")
        finally:
            drained, self._drained = self._drained, None
            if drained is not None:
                drained.set()

    @property
    def has_backlog(self) -> bool:
        """Whether the peer has not taken all that was written to it."""
        return self._drained is not None

    @property
    def is_backlogged(self) -> bool:
        """Whether the backlog is so large that the peer's requests should not be read."""
        return self._drained is not None and self._outbox_size > self._high_water

    async def wait_writable(self) -> None:
        """Wait until the backlog is below the high water mark."""
        while self.is_backlogged and self._drained is not None:
            await self._drained.wait()

    async def wait_sent(self) -> None:
        """Wait until everything is sent, or the channel is closed."""
        while self._drained is not None:
            await self._drained.wait()

    def close(self, reason: str = "closed by us") -> None:
        """Close the connection; unsent answers are lost. May be called twice."""
        if self.closed:
            return
        self.closed = True
        self.close_reason = reason
        # A closed channel must not hold the memory of answers that never leave.
        self._outbox = []
        self._outbox_size = 0
        self.memory.forget_closed(self)
        # The writer task and callers may wait: they see `closed` and end.
        if self._drained is not None:
            self._drained.set()
        end_calls(self.session.close(reason))
        try:
            self._transport.abort()
        except Exception as error:  # noqa: BLE001 - our bug: other connections are served
            _failures.note("closing a connection", "Its descriptor may stay open", error)
        self.on_attention()

    def forget_owner(self) -> None:
        """Forget the callbacks of a connection that has ended.

        They refer to it, and it to this channel: without them its memory is freed at once, and not
        by a full collection of garbage, which a server has seldom (`common/collector.py`).
        """
        self.on_backlog = self.on_attention = _ignore

    def eof(self) -> None:
        """Close, because the peer closed its side."""
        end_calls(self.session.eof())
        self.close(self.session.close_reason)

    def run_out_of_memory(self, doing: str) -> None:
        """Close the connection after a failed allocation, and free memory of others.

        Args:
          doing: the failed action, such as "sending answers to it".
        """
        self.memory.run_out(self, doing)

    # Our requests to the peer

    def send_oneway(self, command: RemotingCommand) -> None:
        """Send a request that is not answered."""
        self._sign(command)
        self.write(self.session.oneway(command))

    async def call(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request and wait for its response.

        Args:
          command: its opaque is set here.
          timeout_s: seconds, > 0.

        Raises:
          RemotingTimeoutError: no response within `timeout_s`.
          RemotingConnectError: the channel is or gets closed, or REQUESTS_MAX calls are waiting.
        """
        session, waiter, now_s = self.session, CallWaiter(), trio.current_time()
        self._sign(command)
        frame = session.request(command, waiter, now_s, timeout_s)
        try:
            self.write(frame)
            with trio.move_on_at(now_s + timeout_s) as scope:
                await waiter.done.wait()
            # The session ends what is over time, so that a late answer finds no waiter.
            if scope.cancelled_caught:
                end_calls(session.expire(trio.current_time()))
        finally:
            session.forget(command.opaque)
        if isinstance(waiter.result, RemotingCommand):
            return waiter.result
        raise waiter.result

    def _sign(self, command: RemotingCommand) -> None:
        """Sign a request, whose fields and body are complete."""
        account = self.credentials
        if account is not None:
            # A copy, because the caller may send the same fields to several servers.
            fields = dict(command.ext_fields)
            sign(
                fields, command.body, account.access_key, account.secret_key, account.security_token
            )
            command.ext_fields = fields


class CallWaiter:
    """A call's result, for the task that waits for it."""

    __slots__ = ("done", "result")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.result: RemotingCommand | RemotingError = RemotingError("the call is not done")

    def finish(self, result: RemotingCommand | RemotingError) -> None:
        """Set the result and wake the task."""
        self.result = result
        self.done.set()


def end_calls(calls: Iterable[Unanswered[CallWaiter]]) -> None:
    """Wake the tasks of unanswered calls, with their errors."""
    for call in calls:
        call.waiter.finish(call.error)


def answer_of(
    steps: Steps[RemotingCommand]
    | Steps[RemotingCommand | None]
    | Steps[RemotingCommand | Deferred],
) -> Answer:
    """The answer to a request: immediate if there is one step, as for nearly all requests.

    None: the last step wrote it.

    Raises: the errors of the first step.
    """
    try:
        next(steps)
    except StopIteration as end:
        # One step: no task is needed, and the answer leaves with the turn.
        answer: RemotingCommand | Deferred | None = end.value
        return answer

    async def run() -> RemotingCommand | None:
        answer = await in_steps(steps)
        return await answer.run() if isinstance(answer, Deferred) else answer

    return Deferred(run)
