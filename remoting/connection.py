"""The loop of one connection, the same for both sides: receive, decode, process, answer.

Limits, each with its reason, are in `ConnectionLimits`. A peer that breaks the protocol costs one
log line and its own connection, nothing else.

Java counterpart: NettyRemotingAbstract.processMessageReceived, NettyDecoder, IdleStateHandler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import trio

from .channel import Answer, Channel, Deferred, Processor, Turn
from .codec import FRAME_SIZE_MAX, FrameDecoder, RemotingCommand, encode
from .errors import RequestRefused
from .response_codes import ResponseCode
from .transport import StreamTransport, Transport

logger = logging.getLogger(__name__)

SWEEP_INTERVAL_S = 1.0
"""How often a server looks for connections past their limits."""

_LAST_ANSWERS_S = 1.0
"""How long the answers to the good frames before a bad one may take to leave."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one connection may do.

    Attributes:
      frame_size_max: bytes. RocketMQ: com.rocketmq.remoting.frameMaxLength, 16 MiB.
      idle_s: without a byte from the peer, the connection is closed. RocketMQ:
        serverChannelMaxIdleTimeSeconds, clientChannelMaxIdleTimeSeconds, 120 s.
      first_frame_s: a new connection that began a frame must complete it in this time. RocketMQ
        has none: peers that send a byte now and then hold a slot for ever.
      frame_s: any later frame must be complete this long after it began.
      deferred_max: answers of one connection that are being awaited; more are refused with
        SYSTEM_BUSY. RocketMQ bounds them by its executors' queues (10,000 for admin).
    """

    frame_size_max: int = FRAME_SIZE_MAX
    idle_s: float = 120.0
    first_frame_s: float = 10.0
    frame_s: float = 120.0
    deferred_max: int = 10_000


class Connection:
    """One connection: its channel, its decoder, its loop.

    Lifecycle: made with a transport, lives as long as `run`. Owner: the task that awaits `run`.

    Args:
      transport: connected.
      processors: by request code.
      turn: shared by all connections of the process.
      limits: see ConnectionLimits.
      on_closed: called once, when nothing comes or goes any more.
    """

    def __init__(
        self,
        transport: Transport,
        processors: Mapping[int, Processor],
        turn: Turn,
        limits: ConnectionLimits,
        on_closed: Callable[[Channel], None] | None = None,
    ) -> None:
        self.channel = Channel(transport, turn)
        self.channel.on_backlog = self._start_writer
        self._transport = transport
        self._processors = processors
        self._turn = turn
        self._limits = limits
        self._on_closed = on_closed
        self._decoder = FrameDecoder(frame_size_max=limits.frame_size_max)
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._deferred_count = 0
        self._received_at_s = trio.current_time()
        self._frame_began_at_s: float | None = None
        self._frames_seen = False

    async def run(self) -> None:
        """Serve until either side closes, a limit is passed, or the task is cancelled."""
        channel = self.channel
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    if channel.outbox_size:  # written to before this task ran
                        self._start_writer()
                    await self._receive_loop()
                    nursery.cancel_scope.cancel()
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as errors:
            channel.close(f"connection lost: {errors.exceptions[0]}")
        finally:
            channel.close("the connection ended")
            if isinstance(self._transport, StreamTransport):
                with trio.CancelScope(shield=True):
                    await self._transport.aclose()
            if self._on_closed is not None:
                self._on_closed(channel)

    async def _receive_loop(self) -> None:
        channel, decoder = self.channel, self._decoder
        receive = self._transport.receive
        while not channel.closed:
            data = await receive()
            if not data:
                channel.close("closed by the peer")
                return
            self._received_at_s = now_s = trio.current_time()
            commands = decoder.receive_data(data)
            if commands:
                self._frames_seen = True
                self._frame_began_at_s = None
                self._process(commands)
            if decoder.error is not None:
                logger.warning("%s: closed: %s", channel.remote_address, decoder.error)
                with trio.move_on_after(_LAST_ANSWERS_S):
                    await channel.wait_sent()
                channel.close(str(decoder.error))
                return
            if not decoder.partial_size:
                self._frame_began_at_s = None
            elif self._frame_began_at_s is None:
                self._frame_began_at_s = now_s
            await channel.wait_writable()

    def _process(self, commands: list[RemotingCommand]) -> None:
        """One turn: every command to its processor, then all answers out."""
        turn, channel = self._turn, self.channel
        processors = self._processors
        answers: list[bytes] = []
        turn.active = True
        try:
            for request in commands:
                flag = request.flag
                if flag & 1:
                    channel.receive_response(request)
                    continue
                process = processors.get(request.code)
                try:
                    if process is None:
                        answer: Answer = _not_supported(request)
                    else:
                        answer = process(request, channel)
                except RequestRefused as refusal:
                    answer = request.answer(refusal.code, refusal.remark)
                except Exception as error:  # noqa: BLE001 - our bug: others are served on
                    answer = _system_error(request, channel, error)
                if answer is None or (flag & 2 and not isinstance(answer, Deferred)):
                    continue
                if type(answer) is bytes:
                    answers.append(answer)
                elif isinstance(answer, Deferred):
                    self._start_deferred(request, answer)
                elif isinstance(answer, RemotingCommand):
                    answers.append(encode(answer))
            if answers:
                channel.write_all(answers)
        finally:
            turn.end()

    def _start_deferred(self, request: RemotingCommand, deferred: Deferred) -> None:
        if self._deferred_count >= self._limits.deferred_max or self._nursery is None:
            busy = "[OVERLOAD]system busy, start flow control for a while"
            self.channel.write(encode(request.answer(ResponseCode.SYSTEM_BUSY, busy)))
            return
        self._deferred_count += 1
        self._nursery.start_soon(self._run_deferred, request, deferred)

    async def _run_deferred(self, request: RemotingCommand, deferred: Deferred) -> None:
        answer: RemotingCommand | None
        try:
            answer = await deferred.run()
        except RequestRefused as refusal:
            answer = request.answer(refusal.code, refusal.remark)
        except Exception as error:  # noqa: BLE001 - our bug: others are served on
            answer = _system_error(request, self.channel, error)
        finally:
            self._deferred_count -= 1
        if answer is not None and not request.is_oneway:
            self.channel.write(encode(answer))

    def _start_writer(self) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(self.channel.drain)

    def enforce_limits(self, now_s: float) -> None:
        """Close the connection when it is past a time limit.

        Args:
          now_s: trio.current_time().
        """
        limits = self._limits
        began_s = self._frame_began_at_s
        reason = None
        if began_s is not None:
            allowed_s = limits.frame_s if self._frames_seen else limits.first_frame_s
            if now_s - began_s > allowed_s:
                size = self._decoder.partial_size
                reason = f"a frame was not complete {allowed_s:g} s after it began ({size} bytes)"
        if reason is None and now_s - self._received_at_s > limits.idle_s:
            reason = f"nothing was received for {limits.idle_s:g} s"
        if reason is not None:
            logger.warning("%s: closed: %s", self.channel.remote_address, reason)
            self.channel.close(reason)
            self._scope.cancel()


def _not_supported(request: RemotingCommand) -> RemotingCommand:
    # The blank in front is RocketMQ's: NettyRemotingAbstract.processRequestCommand.
    return request.answer(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
    )


def _system_error(request: RemotingCommand, channel: Channel, error: Exception) -> RemotingCommand:
    logger.exception("%s: request %d failed", channel.remote_address, request.code)
    return request.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
