"""Connection: receives, decodes, processes and answers the requests of one peer, on either side.

`ConnectionLimits` has the limits of a connection, each with its reason; a `MemoryBudget` limits all
connections of a server together. A peer that breaks the protocol, or whose bytes need more memory
than available, causes one log line and loses its connection; others are not affected.

Java counterpart: NettyRemotingAbstract.processMessageReceived, NettyDecoder, IdleStateHandler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import Final

import trio

from ..common.connection_policy import ConnectionPolicy
from ..common.supervision import FailureLog, contained
from .address_limits import PeerAddress
from .burst_reader import BurstReader, RunProcessor
from .channel import Answer, CallWaiter, Channel, Deferred, Postponed, Processor
from .codec import FRAME_SIZE_MAX, NO_EXT_FIELDS, RemotingCommand, encode
from .errors import FrameTooLargeError, RequestRefused
from .loop_monitor import SLOW_BURST_S
from .loop_transport import LoopTransport
from .memory_budget import BUDGET_KEY, MemoryBudget, request_size
from .poller import RECEIVE_SIZE
from .response_codes import ResponseCode
from .session import Answered, Event, State, Unsolicited
from .transport import SocketTransport, StreamTransport
from .turn import Turn

logger = logging.getLogger(__name__)
_failures = FailureLog(logger)

SWEEP_INTERVAL_S = 1.0
"""Seconds between two checks of all connections' time limits."""

_BUSY: Final = "[OVERLOAD]system busy, start flow control for a while"
"""Source: NettyRemotingAbstract.processRequestCommand."""

CROWDED_FIRST_FRAME_S: Final = 2.0
"""Seconds in which a new connection must complete its first frame while nine tenths of all places
are taken: clients send a request as soon as they are connected, and silent connections must not
keep them out."""

READ_SIZE_MIN: Final = 4 * 1024
"""Bytes that are read at a time of a connection whose requests are slow: some 16 of them."""

_FAILED: Final = State.FAILED

LAST_ANSWERS_S: Final = 1.0
"""How long sending the last answers to a peer that broke the protocol may take."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of one connection.

    Attributes:
      frame_size_max: bytes. RocketMQ: com.rocketmq.remoting.frameMaxLength, 16 MiB.
      idle_s: the connection is closed after this time without a byte from the peer. RocketMQ:
        serverChannelMaxIdleTimeSeconds, clientChannelMaxIdleTimeSeconds, 120 s.
      first_frame_s: a new connection must complete its first frame in this time after its first
        byte. RocketMQ has no limit, so peers that send single bytes can occupy connections for
        ever.
      frame_s: a later frame must be complete this long after its first byte.
      policy: the limits with keys of their own; they may change.
    """

    frame_size_max: int = FRAME_SIZE_MAX
    idle_s: float = 120.0
    first_frame_s: float = 10.0
    frame_s: float = 120.0
    policy: ConnectionPolicy = field(default_factory=ConnectionPolicy)


class Connection:
    """One connection: its channel, its session, its task.

    Lifecycle: created with a transport, ends with `run`. Owner: the task that awaits `run`.

    Args:
      transport: connected.
      processors: by request code.
      turn: shared by all connections of the process.
      limits: see ConnectionLimits.
      on_closed: called once, after the connection is closed.
      memory: shared by all connections of the server; None: there is no limit.
      runs: serves runs of usual requests before they are decoded; None: there are none.
      address: counted together with the other connections of its address; None: alone.
    """

    def __init__(
        self,
        transport: SocketTransport | StreamTransport | LoopTransport,
        processors: Mapping[int, Processor],
        turn: Turn,
        limits: ConnectionLimits,
        on_closed: Callable[[Channel], None] | None = None,
        memory: MemoryBudget | None = None,
        runs: RunProcessor | None = None,
        *,
        address: PeerAddress | None = None,
    ) -> None:
        self.channel = Channel(
            transport, turn, memory, frame_size_max=limits.frame_size_max, policy=limits.policy
        )
        self._address = address or PeerAddress(self.channel.remote_address)
        self.channel.on_backlog = self._start_writer
        self.channel.on_attention = self._wake
        self._transport = transport
        self._processors = processors
        self._turn = turn
        self._limits = limits
        self._on_closed = on_closed
        self._session = self.channel.session
        self._reader = BurstReader(self.channel, processors, runs)
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._attention = trio.Event()
        self._deferred_count = 0
        self._partial_size = 0
        # Set on the hot path; `enforce_limits` converts them to times, once a second.
        self._has_received = True
        self._has_frames = False
        self._received_at_s = 0.0
        self._frame_began_at_s: float | None = None
        self._frames_seen = False
        self._read_size = 0  # bytes of a burst at most; 0: as many as fit
        self._began_at_s: float | None = None
        # Until then nothing can exceed a limit, unless bytes arrive or an answer has to wait.
        self._quiet_until_s = -inf
        self._unread_since_s: float | None = None  # no part of the backlog was taken since
        self._taken = 0

    async def run(self) -> None:
        """Serve until either side closes, a limit is exceeded, or the task is cancelled."""
        channel, transport = self.channel, self._transport
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    if channel.outbox_size:  # written before this task ran
                        self._start_writer()
                    if isinstance(transport, SocketTransport):
                        await self._read_socket(transport)
                    else:
                        await self._read_stream(transport)
                    nursery.cancel_scope.cancel()
                    self._nursery = None
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as errors:
            channel.close(f"connection lost: {errors.exceptions[0]}")
        except* MemoryError:
            channel.run_out_of_memory("its task")
        except* Exception as errors:  # noqa: BLE001 - our bug: other connections are served
            self._fail(errors)
        finally:
            self._nursery = None
            channel.close("the connection ended")
            channel.forget_owner()
            meaning = "It is closed, but its client may stay registered until it expires"
            with contained(_failures, "closing a connection", meaning):
                if isinstance(transport, StreamTransport):
                    with trio.CancelScope(shield=True):
                        await transport.aclose()
            if self._on_closed is not None:
                with contained(_failures, "forgetting a connection", meaning):
                    self._on_closed(channel)

    def _fail(self, error: Exception) -> None:
        """Close the connection after an unexpected error."""
        meaning = "That connection is closed; others are still served"
        _failures.note("serving a connection", meaning, error)
        self.channel.close("the server failed")

    async def _read_socket(self, transport: SocketTransport) -> None:
        """Let the poller read; wait for the end, and pause for a peer that does not read."""

        on_readable = reader_of(transport, self.channel, self.take)
        while await self._may_read():
            self._attention = trio.Event()
            transport.start_reading(on_readable)
            await self._attention.wait()
            transport.stop_reading()

    async def _read_stream(self, transport: StreamTransport | LoopTransport) -> None:
        while await self._may_read():
            data = await transport.receive()
            self._turn.active = True
            try:
                self.take(data)
            finally:
                self._turn.end()

    def take(self, data: bytes) -> None:
        """Process bytes of the peer inside a turn."""
        try:
            self._receive(data)
        except Exception as error:  # noqa: BLE001 - our bug: other connections are served
            self._fail(error)

    async def _may_read(self) -> bool:
        """Wait until the peer has read enough of its answers; False: the connection ends."""
        channel, error = self.channel, self._session.error
        if error is not None and not channel.closed:
            logger.warning(
                "%(peer)s: closed: %(error)s", {"peer": channel.remote_address, "error": error}
            )
            with trio.move_on_after(LAST_ANSWERS_S):
                await channel.wait_sent()
            channel.close(str(error))
        await channel.wait_writable()
        return not channel.closed

    def _receive(self, data: bytes) -> None:
        """Process one burst inside a turn: pass commands to processors, answers to the channel."""
        if not data:
            self.channel.eof()
            return
        self._has_received = True
        self.channel.heard += 1
        session, reader = self._session, self._reader
        events: list[Event[CallWaiter]] = []
        answers: list[bytes] = []
        began_s = perf_counter()
        try:
            for some in reader.read(data):
                answers += self._process(some)
                events += some
            if events or reader.has_taken:
                self._has_frames = True
            if answers:
                self.channel.write_all(answers)
            if session.partial_size != self._partial_size:
                self._count_partial_frame()
        except MemoryError:
            self.channel.run_out_of_memory("what it sent")
            return
        took_s = perf_counter() - began_s
        if self._turn.request_times is not None:
            self._turn.request_times.note(events, reader.run_counts, took_s)
        if took_s > SLOW_BURST_S or self._read_size:
            self._note_slowness(events, len(data), took_s)
        if session.state is _FAILED:
            self._wake()

    def _note_slowness(self, events: Sequence[Event[CallWaiter]], size: int, took_s: float) -> None:
        """Read as much at a time as is served within SLOW_BURST_S: less after a slow burst, which
        the monitor reports, and twice as much after another one.

        Args:
          events: of the last burst.
          size: its bytes.
          took_s: seconds that it took.
        """
        if took_s > SLOW_BURST_S:
            requests = [each for each in events if isinstance(each, RemotingCommand)]
            self._turn.monitor.served(requests, self.channel, took_s, self._reader.run_counts)
            self._read_size = max(int(size * SLOW_BURST_S / took_s), READ_SIZE_MIN)
        else:
            self._read_size *= 2
            if self._read_size > RECEIVE_SIZE:
                self._read_size = 0
        if isinstance(self._transport, SocketTransport):
            self._transport.receive_size = self._read_size

    def _count_partial_frame(self) -> None:
        """Update the memory budget by the size of an incomplete frame."""
        if not self.channel.closed:
            self._partial_size = self._session.partial_size
            self.channel.memory.half_frames.hold(self.channel, self._partial_size)

    def _wake(self) -> None:
        """Wake the connection's task after a close, a failure, or a full outbox."""
        self._attention.set()

    def _process(self, events: Sequence[Event[CallWaiter]]) -> list[bytes]:
        """Pass requests to their processors. Returns: the answers, to be written in this turn."""
        channel = self.channel
        processors = self._processors
        answers: list[bytes] = []
        for request in events:
            if type(request) is not RemotingCommand:
                self._note_response(request)
                continue
            flag = request.flag
            process = processors.get(request.code)
            try:
                if process is None:
                    answer: Answer = _not_supported(request)
                else:
                    answer = process(request, channel)
            except RequestRefused as refusal:
                answer = _refused(request, refusal)
                if self._turn.request_times is not None:
                    self._turn.request_times.refuse(request.code, refusal.code)
            except Postponed as postponed:
                answer = self._postpone(request, postponed)
            except MemoryError:
                raise  # `_receive` closes the connection
            except Exception as error:  # noqa: BLE001 - our bug: other requests are served
                answer = system_error(request, channel, error)
            # A oneway request gets no answer, but what it deferred is done.
            if answer is None or (flag & 2 and not isinstance(answer, Deferred)):
                continue
            if type(answer) is bytes:
                answers.append(answer)
            elif isinstance(answer, Deferred):
                self._start_deferred(request, answer)
            elif isinstance(answer, RemotingCommand):
                answers.append(_encoded(answer, request, channel))
        return answers

    def _note_response(self, event: Event[CallWaiter]) -> None:
        if isinstance(event, Answered):
            event.waiter.finish(event.answer)
        elif isinstance(event, Unsolicited):
            peer, opaque = self.channel.remote_address, event.answer.opaque
            logger.debug(
                "%(peer)s: response %(opaque)d to an unknown request",
                {"peer": peer, "opaque": opaque},
            )

    def _start_deferred(self, request: RemotingCommand, deferred: Deferred) -> None:
        size = request_size(request)
        refusal = self._take_in_flight(request, size)
        if refusal is not None or self._nursery is None:
            if refusal is None:  # the connection ends
                self._end_in_flight(size)
            self.channel.write(encode(refusal or _busy(request)))
            return
        self._nursery.start_soon(self._run_deferred, request, deferred, size)

    async def _run_deferred(self, request: RemotingCommand, deferred: Deferred, size: int) -> None:
        answer: RemotingCommand | None
        try:
            self._turn.monitor.served([request], self.channel, 0.0)
            answer = await deferred.run()
        except RequestRefused as refusal:
            answer = _refused(request, refusal)
        except MemoryError:
            self.channel.run_out_of_memory("answering it")
            return
        except Exception as error:  # noqa: BLE001 - our bug: other requests are served
            answer = system_error(request, self.channel, error)
        finally:
            self._end_in_flight(size)
        if answer is not None and not request.is_oneway:
            self.channel.write(_encoded(answer, request, self.channel))

    def _postpone(self, request: RemotingCommand, postponed: Postponed) -> RemotingCommand | None:
        """Serve a request again later, or refuse it if too many are waiting."""
        channel, turn = self.channel, self._turn
        size = request_size(request)
        refusal = self._take_in_flight(request, size)
        if refusal is not None:
            return refusal

        def serve_again() -> None:
            self._end_in_flight(size)
            turn.active = True
            try:
                channel.write_all(self._process([request]))
            finally:
                turn.end()

        postponed.when(serve_again)
        return None

    def _take_in_flight(self, request: RemotingCommand, size: int) -> RemotingCommand | None:
        """Count a request that will be answered later; returns the refusal at a limit.

        Args:
          size: bytes that it holds; see `request_size`.
        """
        policy, address, channel = self._limits.policy, self._address, self.channel
        own, together = self._deferred_count, address.in_flight
        limit = what = ""
        if own >= policy.requests_in_flight_max:
            limit, what = "requestsInFlightMax", f"{own} requests of this connection"
        elif together >= policy.requests_in_flight_per_address_max and not address.is_exempt:
            limit = "requestsInFlightPerAddressMax"
            what = f"{together} requests of this address"
        if limit:
            reason = f"{what} wait for their answers"
            channel.memory.refusals.note(
                limit,
                channel.remote_address,
                f"request {request.code} is refused, because {reason}",
            )
            return _busy(request, f"{reason}, which is the limit {limit}")
        if not channel.memory.held_requests.take(channel, size):
            return _busy(request, f"the memory for waiting requests is used up ({BUDGET_KEY})")
        self._deferred_count += 1
        address.in_flight += 1
        return None

    def _end_in_flight(self, size: int) -> None:
        """Stop counting a request that `_take_in_flight` counted."""
        self._deferred_count -= 1
        self._address.in_flight -= 1
        self.channel.memory.held_requests.give_back(self.channel, size)

    def _start_writer(self) -> None:
        self._quiet_until_s = -inf
        if self._nursery is not None:
            self._nursery.start_soon(self.channel.drain)

    def enforce_limits(self, now_s: float, *, is_crowded: bool = False) -> None:
        """Close the connection if it has exceeded a time limit.

        Args:
          now_s: trio.current_time().
          is_crowded: there are few places left for other connections.
        """
        # Most connections of a large server have been silent since the last call.
        if now_s < self._quiet_until_s and not self._has_received:
            return
        limits = self._limits
        if self._exceeds_policy(now_s, is_crowded=is_crowded):
            self._scope.cancel()
            return
        # The hot path only sets flags, so these times are as coarse as the calls of this method.
        if self._has_received:
            self._has_received = False
            self._received_at_s = now_s
        reason = None
        partial_size = self._session.partial_size
        if not partial_size:
            self._frame_began_at_s = None
        elif self._has_frames or self._frame_began_at_s is None:
            # A frame was completed since the last call, so the incomplete one is another.
            self._frame_began_at_s = now_s
        else:
            allowed_s = limits.frame_s if self._frames_seen else limits.first_frame_s
            if now_s - self._frame_began_at_s > allowed_s:
                reason = (
                    f"a frame was not complete {allowed_s:g} s after its first byte "
                    f"({partial_size} bytes)"
                )
        if self._has_frames:
            self._has_frames = False
            self._frames_seen = True
        if reason is None and now_s - self._received_at_s > limits.idle_s:
            reason = f"nothing was received for {limits.idle_s:g} s"
        if reason is not None:
            logger.warning(
                "%(peer)s: closed: %(reason)s",
                {"peer": self.channel.remote_address, "reason": reason},
            )
            self.channel.close(reason)
            self._scope.cancel()
        is_quiet = self._frames_seen and not partial_size and not self.channel.has_backlog
        self._quiet_until_s = self._received_at_s + limits.idle_s if is_quiet else -inf

    def _exceeds_policy(self, now_s: float, *, is_crowded: bool) -> bool:
        """Close the connection if it leaves its answers unread, or says nothing in a crowd."""
        channel = self.channel
        if self._began_at_s is None:
            self._began_at_s = now_s
        limit = reason = ""
        if not channel.has_backlog:
            self._unread_since_s = None
        elif self._unread_since_s is None or channel.taken != self._taken:
            self._unread_since_s, self._taken = now_s, channel.taken
        elif now_s - self._unread_since_s > self._limits.policy.unread_answers_timeout_seconds:
            limit = "unreadAnswersTimeoutSeconds"
            waited_s = now_s - self._unread_since_s
            reason = (
                f"the peer has not read its answers for {waited_s:.0f} s "
                f"({channel.outbox_size} bytes)"
            )
        silent_s = now_s - self._began_at_s
        has_spoken = self._frames_seen or self._has_frames
        if is_crowded and not has_spoken and silent_s > CROWDED_FIRST_FRAME_S:
            limit = "connectionsMax"
            reason = (
                f"it sent no request in {silent_s:.0f} s, and nine tenths of all connections are "
                "taken"
            )
        if reason:
            channel.memory.refusals.note(limit, channel.remote_address, f"closed: {reason}")
            channel.close(reason)
        return bool(reason)


def reader_of(
    transport: SocketTransport, channel: Channel, take: Callable[[bytes], None]
) -> Callable[[], None]:
    """What a poller calls for a connection of any protocol: receives bytes, and passes them on.

    Args:
      take: processes them; empty at the end. It does not raise.
    """

    def on_readable() -> None:
        try:
            data = transport.receive_nowait()
        except BlockingIOError:
            return
        except OSError as error:
            channel.close(f"connection lost: {error}")
            return
        except MemoryError:
            channel.run_out_of_memory("reading what it sent")
            return
        take(data)

    return on_readable


def _refused(request: RemotingCommand, refusal: RequestRefused) -> RemotingCommand:
    return request.answer(refusal.code, refusal.remark, refusal.fields or NO_EXT_FIELDS)


def _busy(request: RemotingCommand, reason: str = "the connection ends") -> RemotingCommand:
    return request.answer(ResponseCode.SYSTEM_BUSY, f"{_BUSY}: {reason}")


def _not_supported(request: RemotingCommand) -> RemotingCommand:
    # The leading space is RocketMQ's: NettyRemotingAbstract.processRequestCommand.
    return request.answer(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
    )


def _encoded(answer: RemotingCommand, request: RemotingCommand, channel: Channel) -> bytes:
    """Encode an answer; one that cannot be encoded becomes a SYSTEM_ERROR."""
    try:
        return encode(answer)
    except Exception as error:  # noqa: BLE001 - our bug: other requests are served
        return encode(system_error(request, channel, error))


def system_error(request: RemotingCommand, channel: Channel, error: Exception) -> RemotingCommand:
    """Log an unexpected error of a processor, which is a bug, and build the answer."""
    if isinstance(error, FrameTooLargeError):
        return _too_large(request, channel, error)
    logger.exception(
        "%(peer)s: request %(code)d failed", {"peer": channel.remote_address, "code": request.code}
    )
    return request.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def _too_large(
    request: RemotingCommand, channel: Channel, error: FrameTooLargeError
) -> RemotingCommand:
    """The refusal that replaces an answer that the peer would not accept."""
    logger.warning(
        "%(peer)s: request %(code)d is refused, because its answer is too large: %(error)s. "
        "Read the table in pages, or reduce its entries",
        {"peer": channel.remote_address, "code": request.code, "error": error},
    )
    remark = f"the answer to request {request.code} is too large: {error}; ask for less, in pages"
    return request.answer(ResponseCode.SYSTEM_ERROR, remark)
