"""A connection of the client: a `Session` with its transport, its timer and its tasks.

It is written for anyio, so that it runs under trio and asyncio. A synchronous call puts a request
into the outbox; a writer task sends all that the outbox holds at once. So requests made at the same
time share a system call, and cancelling a caller never cuts a frame in two. A request that is made
alone, and waited for, is sent in the call itself.

Java counterpart: NettyRemotingAbstract (invokeSyncImpl, invokeAsyncImpl).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias

import anyio
import anyio.abc
import anyio.lowlevel

from ...remoting.codec import RemotingCommand, encode
from ...remoting.errors import RemoteProtocolError, RemotingConnectError, RemotingTimeoutError
from ...remoting.request_codes import RequestCode
from ...remoting.session import Answered, Session, State, Unanswered, Unsolicited
from ..errors import ClientError, ConnectError, RequestTimeoutError
from ..tasks.clock import loop_clock
from ..tasks.task_group import TaskGroup
from .tls import tls_text
from .transport import Transport

logger = logging.getLogger(__name__)

OUTBOX_SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes that may wait to be sent; above it `wait_writable` waits, so a slow peer slows senders."""

READ_ROUNDS: Final = 3
"""Rounds of the loop between a deadline and its error: select, receive, and the layers of TLS."""

OnAnswer: TypeAlias = Callable[[RemotingCommand | ClientError], None]
"""Called once, with the answer or with the error that replaces it; must not raise."""

OnRequest: TypeAlias = "Callable[[Connection, RemotingCommand], None]"
"""Called for each request that the peer sends; must not raise."""


class Translator(Protocol):
    """A session whose server speaks another protocol: what the client sends has to be translated.

    See `grpc.translator.Translator`.
    """

    state: State
    error: RemoteProtocolError | None
    close_reason: str
    next_due_s: float

    def expect(
        self, opaque: int, code: int, waiter: OnAnswer, now_s: float, timeout_s: float
    ) -> None:
        """Wait for the answer to the request that `outgoing` is given next."""

    def outgoing(self, frame: bytes) -> None:
        """Take a frame that the client sends."""

    def forget(self, opaque: int) -> None:
        """Give up a request."""

    def receive_data(self, data: bytes) -> Sequence[Event]:
        """Process received bytes."""

    def events(self) -> Sequence[Event]:
        """Events that are no consequence of received bytes."""

    def output(self) -> bytes:
        """The bytes to send now."""

    def expire(self, now_s: float) -> list[Unanswered[OnAnswer]]:
        """Remove and return the requests that timed out."""

    def close(self, reason: str) -> list[Unanswered[OnAnswer]]:
        """Close the session."""

    @property
    def has_news(self) -> bool:
        """Whether there are events, or the end of the connection is near."""

    @property
    def is_leaving(self) -> bool:
        """Whether new requests belong on another connection; those under way go on."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""


Event: TypeAlias = "RemotingCommand | Answered[OnAnswer] | Unanswered[OnAnswer]"


class Connection:
    """A connection to one server.

    Lifecycle: created with an open transport; it ends when `run` returns. Owner: the task that
    awaits `run`.

    Args:
      transport: open.
      address: `host:port`, for error messages.
      on_request: called with the requests that the peer sends.
      silence_hint: what is probable if the peer ends the connection before it sends anything.
      translator: of a server that speaks another protocol; None: it speaks remoting.
    """

    __slots__ = (
        "_due_s",
        "_has_ended",
        "_has_news",
        "_has_received",
        "_is_quiet",
        "_is_writing",
        "_now_s",
        "_on_request",
        "_outbox",
        "_outbox_size",
        "_scope",
        "_session",
        "_silence_hint",
        "_sweep",
        "_translator",
        "_transport",
        "_wake",
        "_writable",
        "address",
        "closed",
    )

    def __init__(
        self,
        transport: Transport,
        address: str,
        on_request: OnRequest,
        silence_hint: str = "",
        translator: Translator | None = None,
    ) -> None:
        self.address: str = address
        self.closed: bool = False
        self._transport = transport
        self._on_request = on_request
        self._now_s = loop_clock()
        self._translator = translator
        self._session: Session[OnAnswer] | Translator = translator or Session(address)
        self._has_ended = False
        self._has_news = False  # the translator may have events
        self._outbox: list[bytes] = []
        self._outbox_size = 0
        self._is_writing = False  # the writer task waits for the peer
        self._silence_hint = silence_hint
        self._has_received = False
        self._is_quiet = True  # no request was sent in its own call since bytes were received
        self._wake = anyio.Event()
        self._writable: anyio.Event | None = None
        self._sweep = anyio.Event()
        self._due_s = self._session.next_due_s  # deadline of the timer task
        self._scope = anyio.CancelScope()
        if translator is not None:
            self._flush(translator)  # HTTP/2 begins with the client's settings

    async def run(self) -> None:
        """Read and write until either side closes the connection."""
        reason = "the connection ended"
        hint = self._silence_hint
        try:
            with self._scope:
                async with TaskGroup() as group:
                    group.start_soon(self._write)
                    group.start_soon(self._expire_requests)
                    await self._transport.receive(self._take)
                    reason = self._end_of_peer
                    group.cancel_scope.cancel()
        except* (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as errors:
            error = _first(errors)
            explained = tls_text(error)
            hint = "" if explained else hint
            reason = f"the connection was lost: {explained or str(error) or type(error).__name__}"
        finally:
            if hint and not self._has_received:
                reason += f"; {hint}"
            self._end(reason)
            await self._transport.aclose()

    def close(self, reason: str) -> None:
        """Close it now; pending requests fail with ConnectError, which has the reason."""
        self._end(reason)
        self._scope.cancel()

    def submit(
        self,
        frame: bytes,
        opaque: int,
        on_answer: OnAnswer,
        timeout_s: float,
        code: int = RequestCode.SEND_MESSAGE_V2,
        *,
        at_once: bool = False,
    ) -> None:
        """Send a request without waiting; a callback gets the answer.

        Args:
          frame: the encoded request.
          opaque: the opaque in `frame`; no other pending request may have it.
          on_answer: see `OnAnswer`.
          timeout_s: seconds until `on_answer` is called with a RequestTimeoutError.
          code: the request code, for error messages.
          at_once: send it in this call if that is possible, for callers that will wait for the
            answer; otherwise it shares a system call with the requests that follow.

        Raises: ConnectError: the connection is closed.
        """
        session = self._session
        try:
            session.expect(opaque, code, on_answer, self._now_s(), timeout_s)
        except RemotingConnectError as error:
            raise ConnectError(self.address, "the connection is closed") from error
        if self._translator is not None:
            self._translator.outgoing(frame)
            self._flush(self._translator, at_once=at_once)
            return
        if session.next_due_s < self._due_s:
            self._sweep.set()
        if at_once and self._is_quiet and not self._outbox and not self._is_writing:
            # Only the first of the requests that one burst of answers leads to: those of many tasks
            # share a system call.
            self._is_quiet = False
            rest = self._transport.send_nowait(frame)
            if not rest:
                return
            frame = bytes(rest)
        self._put(frame)

    def forget(self, opaque: int) -> None:
        """Ignore the answer to a request."""
        self._session.forget(opaque)
        if self._translator is not None and not self._has_ended:
            self._flush(self._translator)

    def send_oneway(self, frame: bytes) -> None:
        """Send a request that the peer does not answer.

        Raises: ConnectError: the connection is closed.
        """
        if self.closed:
            raise ConnectError(self.address, "the connection is closed")
        if self._translator is not None:
            self._translator.outgoing(frame)
            self._flush(self._translator)
        else:
            self._put(frame)

    async def call(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request and wait for its answer.

        Raises: ConnectError: closed before the answer; RequestTimeoutError: no answer in time.
        """
        return await self.exchange(encode(command), command.opaque, timeout_s, command.code)

    async def exchange(
        self, frame: bytes, opaque: int, timeout_s: float, code: int
    ) -> RemotingCommand:
        """Do the same as `call`, with a request that is encoded already.

        Raises: ConnectError: closed before the answer; RequestTimeoutError: no answer in time.
        """
        waiter = _Waiter()
        self.submit(frame, opaque, waiter, timeout_s, code, at_once=True)
        try:
            await waiter.event.wait()
        finally:
            self.forget(opaque)
        answer = waiter.answer
        if isinstance(answer, RemotingCommand):
            return answer
        assert answer is not None  # the event is set with it
        raise answer

    @property
    def has_received(self) -> bool:
        """Whether the peer has sent anything."""
        return self._has_received

    @property
    def close_reason(self) -> str:
        """Why it is closed; "" before."""
        return self._session.close_reason

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

    def _flush(self, translator: Translator, *, at_once: bool = False) -> None:
        """Send what the translator has to send; its events are for the writer task.

        So no answer comes before the call that has sent the request returns.

        Args:
          at_once: see `submit`.
        """
        data: bytes | memoryview = translator.output()
        if data and at_once and self._is_quiet and not self._outbox and not self._is_writing:
            self._is_quiet = False
            data = self._transport.send_nowait(bytes(data))
        if data:
            self._put(bytes(data))
        if translator.has_news:
            self._has_news = True
            self._wake.set()
        if translator.next_due_s < self._due_s:
            self._sweep.set()
        if translator.is_leaving:
            self.closed = True

    def _look_at(self, translator: Translator) -> None:
        """Hand on the translator's events, and end the connection if it is over."""
        self._has_news = False
        self._hand_on(translator.events())
        if translator.state is State.FAILED:
            self.close(self._end_of_peer)
        elif translator.is_leaving and translator.is_idle:
            self.close("the server asked for another connection")

    @property
    def _end_of_peer(self) -> str:
        error = self._session.error
        if error is None:
            return "the peer closed the connection"
        return f"the peer broke the protocol: {error}"

    def _put(self, frame: bytes) -> None:
        if not self._outbox:
            self._wake.set()
        self._outbox.append(frame)
        self._outbox_size += len(frame)

    async def _write(self) -> None:
        while True:
            if self._translator is not None:
                self._look_at(self._translator)
            while self._outbox:
                data = self._outbox[0] if len(self._outbox) == 1 else b"".join(self._outbox)
                self._outbox.clear()
                self._outbox_size = 0
                if self._writable is not None:
                    self._writable.set()
                    self._writable = None
                rest = self._transport.send_nowait(data)
                if rest:
                    self._is_writing = True
                    await self._transport.send(rest)
                    self._is_writing = False
            if not self._has_news:
                self._wake = anyio.Event()
                await self._wake.wait()

    def _take(self, data: bytes) -> bool:
        """Process received data; returns False if the peer broke the protocol."""
        self._is_quiet = self._has_received = True
        session = self._session
        self._hand_on(session.receive_data(data))
        if self._translator is not None:
            self._flush(self._translator)
        return session.state is not State.FAILED

    def _hand_on(self, events: Sequence[Event | Unsolicited]) -> None:
        for event in events:
            if isinstance(event, Answered):
                event.waiter(event.answer)
            elif isinstance(event, RemotingCommand):
                self._on_request(self, event)
            elif isinstance(event, Unanswered):
                self._fail([event])

    async def _expire_requests(self) -> None:
        """Fail requests whose time is over; sleeps until the earliest deadline."""
        session = self._session
        while True:
            self._due_s = session.next_due_s
            self._sweep = anyio.Event()
            with anyio.CancelScope(deadline=self._due_s):
                await self._sweep.wait()
            now_s = self._now_s()
            if session.next_due_s <= now_s:
                # The loop may have been held up past the deadline, with the answers in the socket's
                # buffer. An answer that arrived counts, so let `_read` run first.
                for _ in range(READ_ROUNDS):
                    await anyio.lowlevel.checkpoint()
            self._fail(session.expire(now_s))
            if self._translator is not None:
                self._flush(self._translator)

    def _end(self, reason: str) -> None:
        if self._has_ended:
            return
        self._has_ended = self.closed = True
        if self._writable is not None:
            self._writable.set()
        self._fail(self._session.close(reason))

    def _fail(self, requests: Iterable[Unanswered[OnAnswer]]) -> None:
        """Complete requests that got no answer with an error of the client."""
        for each in requests:
            error = each.error
            if isinstance(error, RemotingTimeoutError):
                what = request_name(error.code)
                each.waiter(RequestTimeoutError(what, self.address, error.timeout_s))
            else:
                reason = self._session.close_reason or str(error)
                text = f"{reason}, before the answer came"
                # A peer that breaks the protocol is another program.
                is_final = self._session.state is State.FAILED
                error_ = ConnectError(
                    self.address, text, is_connection_lost=True, is_final=is_final
                )
                each.waiter(error_)


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
    """The name of a request code, for error messages."""
    try:
        return RequestCode(code).name
    except ValueError:
        return f"request {code}"


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
