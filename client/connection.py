"""One connection of the client: a `Session` with its stream, its timer and its tasks.

The text is anyio's, so that the same lines run under trio and under asyncio. A request is put into
the outbox by a plain call; a writer task joins what has gathered there into one send, so that many
requests of one moment cost one system call, and cancelling a caller never cuts a frame in two.

Java counterpart: NettyRemotingAbstract (invokeSyncImpl, invokeAsyncImpl).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import anyio
import anyio.abc

from ..remoting.codec import RemotingCommand, encode
from ..remoting.errors import RemotingConnectError, RemotingTimeoutError
from ..remoting.request_codes import RequestCode
from ..remoting.session import Answered, Session, State, Unanswered
from .clock import loop_clock
from .errors import ClientError, ConnectError, RequestTimeoutError

logger = logging.getLogger(__name__)

RECEIVE_SIZE: Final = 256 * 1024
"""Bytes read at once: a pull's answer of 32 messages fits several times."""

OUTBOX_SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes that may wait to be sent; above it `wait_writable` waits, and so a slow peer slows us."""

OnAnswer: TypeAlias = Callable[[RemotingCommand | ClientError], None]
"""Called once, with the answer or with why there is none; must not raise."""

OnRequest: TypeAlias = "Callable[[Connection, RemotingCommand], None]"
"""Called for each request that the peer sends; must not raise."""


class Connection:
    """A connection to one server.

    Lifecycle: made with an open stream, lives as long as `run`. Owner: the task that awaits `run`.

    Args:
      stream: open.
      address: `host:port`, for texts.
      on_request: for what the peer asks of us.
    """

    __slots__ = (
        "_due_s",
        "_now_s",
        "_on_request",
        "_outbox",
        "_outbox_size",
        "_scope",
        "_session",
        "_stream",
        "_sweep",
        "_wake",
        "_writable",
        "address",
        "closed",
    )

    def __init__(self, stream: anyio.abc.ByteStream, address: str, on_request: OnRequest) -> None:
        self.address: str = address
        self.closed: bool = False
        self._stream = stream
        self._on_request = on_request
        self._now_s = loop_clock()
        self._session: Session[OnAnswer] = Session(address)
        self._outbox: list[bytes] = []
        self._outbox_size = 0
        self._wake = anyio.Event()
        self._writable: anyio.Event | None = None
        self._sweep = anyio.Event()
        self._due_s = self._session.next_due_s  # what the timer is set to
        self._scope = anyio.CancelScope()

    async def run(self) -> None:
        """Carry bytes until either side closes."""
        reason = "the connection ended"
        try:
            with self._scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._write)
                    group.start_soon(self._time_out)
                    reason = await self._read()
                    group.cancel_scope.cancel()
        except* (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as errors:
            reason = f"the connection was lost: {_first_text(errors)}"
        finally:
            self._end(reason)
            await anyio.aclose_forcefully(self._stream)

    def close(self, reason: str) -> None:
        """End it now; what waits for an answer is told so."""
        self._end(reason)
        self._scope.cancel()

    def submit(
        self,
        frame: bytes,
        opaque: int,
        on_answer: OnAnswer,
        timeout_s: float,
        code: int = RequestCode.SEND_MESSAGE_V2,
    ) -> None:
        """Send a request; the answer goes to a function.

        Args:
          frame: the whole request, with this `opaque`, of which no other request is under way.
          timeout_s: seconds until `on_answer` gets a RequestTimeoutError.
          code: the request's, for the text of errors.

        Raises: ConnectError: closed.
        """
        session = self._session
        try:
            session.expect(opaque, code, on_answer, self._now_s(), timeout_s)
        except RemotingConnectError as error:
            raise ConnectError(self.address, "the connection is closed") from error
        if session.next_due_s < self._due_s:
            self._sweep.set()
        self._put(frame)

    def forget(self, opaque: int) -> None:
        """Drop the answer to a request when it comes."""
        self._session.forget(opaque)

    def send_oneway(self, frame: bytes) -> None:
        """Send what is not answered.

        Raises: ConnectError: closed.
        """
        if self.closed:
            raise ConnectError(self.address, "the connection is closed")
        self._put(frame)

    async def call(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request and wait for its answer.

        Raises: ConnectError; RequestTimeoutError.
        """
        return await self.exchange(encode(command), command.opaque, timeout_s, command.code)

    async def exchange(
        self, frame: bytes, opaque: int, timeout_s: float, code: int
    ) -> RemotingCommand:
        """`call` with the request's own bytes.

        Raises: ConnectError; RequestTimeoutError.
        """
        waiter = _Waiter()
        self.submit(frame, opaque, waiter, timeout_s, code)
        try:
            await waiter.event.wait()
        finally:
            self._session.forget(opaque)
        answer = waiter.answer
        if isinstance(answer, RemotingCommand):
            return answer
        assert answer is not None  # the event is set with it
        raise answer

    @property
    def is_backed_up(self) -> bool:
        """Whether `wait_writable` would wait."""
        return self._outbox_size > OUTBOX_SIZE_MAX

    async def wait_writable(self) -> None:
        """Wait while more than OUTBOX_SIZE_MAX bytes wait to be sent."""
        while self._outbox_size > OUTBOX_SIZE_MAX and not self.closed:
            if self._writable is None:
                self._writable = anyio.Event()
            await self._writable.wait()

    def _put(self, frame: bytes) -> None:
        if not self._outbox:
            self._wake.set()
        self._outbox.append(frame)
        self._outbox_size += len(frame)

    async def _write(self) -> None:
        while True:
            while self._outbox:
                data = self._outbox[0] if len(self._outbox) == 1 else b"".join(self._outbox)
                self._outbox.clear()
                self._outbox_size = 0
                if self._writable is not None:
                    self._writable.set()
                    self._writable = None
                await self._stream.send(data)
            self._wake = anyio.Event()
            await self._wake.wait()

    async def _read(self) -> str:
        """Take what comes; returns why nothing comes any more."""
        receive, session = self._stream.receive, self._session
        while True:
            try:
                data = await receive(RECEIVE_SIZE)
            except anyio.EndOfStream:
                return "the peer closed the connection"
            for event in session.receive_data(data):
                if isinstance(event, Answered):
                    event.waiter(event.answer)
                elif isinstance(event, RemotingCommand):
                    self._on_request(self, event)
            if session.state is State.FAILED:
                return f"the peer broke the protocol: {session.error}"

    async def _time_out(self) -> None:
        """Complete the requests that waited long enough; wakes for the earliest of them only."""
        session = self._session
        while True:
            self._due_s = session.next_due_s
            self._sweep = anyio.Event()
            with anyio.CancelScope(deadline=self._due_s):
                await self._sweep.wait()
            self._fail(session.expire(self._now_s()))

    def _end(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        if self._writable is not None:
            self._writable.set()
        self._fail(self._session.close(reason))

    def _fail(self, requests: Iterable[Unanswered[OnAnswer]]) -> None:
        """Tell requests that got no answer, with an error of the client's."""
        for each in requests:
            error = each.error
            if isinstance(error, RemotingTimeoutError):
                what = request_name(error.code)
                each.waiter(RequestTimeoutError(what, self.address, error.timeout_s))
            else:
                reason = self._session.close_reason
                each.waiter(ConnectError(self.address, f"{reason}, before the answer came"))


class _Waiter:
    """Holds one answer for the task that waits for it."""

    __slots__ = ("answer", "event")

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.answer: RemotingCommand | ClientError | None = None

    def __call__(self, answer: RemotingCommand | ClientError) -> None:
        self.answer = answer
        self.event.set()


def request_name(code: int) -> str:
    """A request code for people."""
    try:
        return RequestCode(code).name
    except ValueError:
        return f"request {code}"


def _first_text(errors: BaseExceptionGroup[BaseException]) -> str:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
