"""The processors of a running server, wrapped so that faults apply, and how each fault answers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
import trio

from ..common.supervision import FailureLog
from ..remoting.channel import Answer, Buffer, Channel, Deferred, Postponed, Processor
from ..remoting.codec import ONEWAY_FLAG, FrameDecoder, RemotingCommand, encode
from ..remoting.errors import RequestRefused
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from ..remoting.turn import Turn

_failures = FailureLog(logging.getLogger(__name__))

Behaviour = Callable[[Processor, RemotingCommand, Channel], Answer]
"""Answers a request in place of its processor."""

_REMEMBERED = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.BROKER_HEARTBEAT,
    }
)
"""Requests for which the server keeps the channel; their processors return the answer."""


class Fault:
    """An injected fault.

    Attributes:
      code: request code of the affected requests; None: all requests.
      hits: number of requests that were affected so far.
      left: number of requests that will be affected; None: all until `Faults.clear`.
    """

    def __init__(self, code: int | None, times: int | None, behave: Behaviour) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times={times}: give a number from 1 on, or None for all requests")
        self.code = code
        self.left = times
        self.hits = 0
        self._behave = behave
        self._removed = trio.Event()
        self._postponed: list[RemotingCommand] = []

    def __repr__(self) -> str:
        code = "every request" if self.code is None else f"requests {self.code}"
        return f"<fault for {code}, {self.hits} hits, {self.left} left>"

    def matches(self, request: RemotingCommand) -> bool:
        """Whether it affects a request: one of its code while it is not used up, or one that it
        affected before and that was postponed."""
        if self.left != 0 and self.code in (None, request.code):
            return True
        return any(each is request for each in self._postponed)

    def apply(self, process: Processor, request: RemotingCommand, channel: Channel) -> Answer:
        """Answer a request in place of its processor."""
        known = [each for each in self._postponed if each is not request]
        if len(known) == len(self._postponed):
            self.hits += 1
            if self.left is not None:
                self.left -= 1
        self._postponed = known
        try:
            return self._behave(process, request, channel)
        except Postponed:  # it comes here again
            self._postponed.append(request)
            raise

    def remove(self) -> None:
        """Affect no more requests, and let those go on that wait for this."""
        self.left = 0
        self._removed.set()

    async def wait_removed(self) -> None:
        """Wait until it is removed."""
        await self._removed.wait()


class FaultyProcessors:
    """The processors of one server, wrapped so that faults apply.

    Args:
      turn: the server's Turn.
    """

    def __init__(self, turn: Turn) -> None:
        self.faults: list[Fault] = []
        self._turn = turn
        self._nursery: trio.Nursery | None = None
        self._table: dict[int, Processor] = {}
        self._plain: dict[int, Processor] = {}

    def install(self, table: dict[int, Processor], nursery: trio.Nursery) -> None:
        """Wrap the processors of a server that was started.

        Args:
          table: the server's own.
          nursery: runs as long as the server; for requests that outlive their connections.
        """
        self._table, self._plain, self._nursery = table, dict(table), nursery
        self.update()

    @property
    def plain(self) -> Mapping[int, Processor]:
        """The processors without faults."""
        return self._plain

    def update(self) -> None:
        """Wrap processors that have faults, and restore the others; call it when faults change."""
        codes = {fault.code for fault in self.faults}
        wrapped = set(self._plain) if None in codes else set()
        wrapped |= {code for code in codes if code is not None}
        for code in set(self._table) - set(self._plain) - wrapped:
            del self._table[code]
        self._table.update(self._plain)
        for code in wrapped:
            self._table[code] = self._wrapped(self._plain.get(code, _not_supported))

    def _wrapped(self, process: Processor) -> Processor:
        def wrapped(request: RemotingCommand, channel: Channel) -> Answer:
            for fault in self.faults:
                if fault.matches(request):
                    return fault.apply(process, request, channel)
            return process(request, channel)

        return wrapped

    def process_later(
        self,
        wait: Callable[[], Awaitable[None]],
        process: Processor,
        request: RemotingCommand,
        channel: Channel,
    ) -> Deferred:
        """Process a request after a wait, in a separate turn.

        It is processed also if its client hangs up meanwhile, as a server would that was slow to
        read it.
        """
        later = _Later()

        async def run() -> RemotingCommand | None:
            nursery = self._nursery
            assert nursery is not None, "install() was not called"
            nursery.start_soon(self._process_after, wait, process, request, channel, later)
            return await later.answer()

        return Deferred(run)

    async def _process_after(
        self,
        wait: Callable[[], Awaitable[None]],
        process: Processor,
        request: RemotingCommand,
        channel: Channel,
        later: _Later,
    ) -> None:
        await wait()
        try:
            # A client that is registered after it has left would stay until it expires.
            if not (channel.closed and request.code in _REMEMBERED):
                later.finish(await self._answer_of(process, request, channel))
        except Exception as error:  # noqa: BLE001 - the answer to its client
            later.finish(error)
            if channel.closed and not isinstance(error, RequestRefused):
                _failures.note("a delayed request", "Its client has left", error)
        finally:
            later.done.set()

    async def _answer_of(
        self, process: Processor, request: RemotingCommand, channel: Channel
    ) -> RemotingCommand | None:
        while True:
            try:
                answer = self._process_in_turn(process, request, channel)
                break
            except Postponed as postponed:
                is_time = trio.Event()
                postponed.when(is_time.set)
                await is_time.wait()
        if isinstance(answer, Deferred):
            return await answer.run()
        return answer if isinstance(answer, RemotingCommand) else None

    def _process_in_turn(
        self, process: Processor, request: RemotingCommand, channel: Channel
    ) -> Answer:
        """Process a request now. Raises: RequestRefused, Postponed."""
        turn = self._turn
        turn.active = True
        try:
            answer = process(request, channel)
            if isinstance(answer, bytes):
                channel.write(answer)
        finally:
            turn.end()
        return answer


class _Later:
    """The answer to a request that is processed in another task."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self._result: RemotingCommand | Exception | None = None

    def finish(self, result: RemotingCommand | Exception | None) -> None:
        self._result = result

    async def answer(self) -> RemotingCommand | None:
        """Wait for the answer. Raises: the errors of the processor."""
        await self.done.wait()
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


def unanswered(process: Processor, request: RemotingCommand, channel: Channel) -> Answer:
    """Process a request, and discard the answer, however it is sent."""
    request.flag |= ONEWAY_FLAG
    remembered = request.code in _REMEMBERED
    try:
        answer = process(request, channel if remembered else _SilentChannel(channel))
    except RequestRefused:
        return None
    if not isinstance(answer, Deferred):
        return None
    run = answer.run

    async def run_unanswered() -> None:
        await run()

    return Deferred(run_unanswered)


def answered_twice(process: Processor, request: RemotingCommand, channel: Channel) -> Answer:
    """Process a request once, and send its answer twice, however it is sent."""
    remembered = request.code in _REMEMBERED
    try:
        answer = process(request, channel if remembered else _DoublingChannel(channel))
    except RequestRefused as refusal:
        answer = request.answer(refusal.code, refusal.remark, refusal.fields or {})
    if request.is_oneway:
        return answer
    if isinstance(answer, bytes):
        channel.write(answer)
    elif isinstance(answer, RemotingCommand):
        channel.write(encode(answer))
    elif isinstance(answer, Deferred):
        run = answer.run

        async def run_twice() -> RemotingCommand | None:
            found = await run()
            if found is not None:
                channel.write(encode(found))
            return found

        return Deferred(run_twice)
    return answer


def answered_otherwise(
    code: int, remark: str, process: Processor, request: RemotingCommand, channel: Channel
) -> Answer:
    """Process a request, and answer with another code, however the answer is sent.

    The fields and the body stay. What the processor refuses stays refused.
    """

    def change(answer: RemotingCommand) -> RemotingCommand:
        return msgspec.structs.replace(answer, code=code, remark=remark)

    remembered = request.code in _REMEMBERED
    changing = _ChangingChannel(channel, request.opaque, change)
    answer = process(request, channel if remembered else changing)
    if isinstance(answer, bytes):
        changing.write(answer)
        return None
    if isinstance(answer, RemotingCommand):
        return change(answer)
    if isinstance(answer, Deferred):
        run = answer.run

        async def run_and_change() -> RemotingCommand | None:
            found = await run()
            return None if found is None else change(found)

        return Deferred(run_and_change)
    return answer


class _OtherChannel(Channel):
    """A channel that treats answers in its own way; otherwise it behaves like the real one."""

    __slots__ = ("_real",)

    def __init__(self, real: Channel) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        """What is not set here is the real one's: all of its attributes."""
        return getattr(self._real, name)

    @property
    def closed(self) -> bool:  # type: ignore[override]
        return self._real.closed

    def send_oneway(self, command: RemotingCommand) -> None:
        self._real.send_oneway(command)

    async def call(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        return await self._real.call(command, timeout_s)

    def close(self, reason: str = "closed by us") -> None:
        self._real.close(reason)


class _SilentChannel(_OtherChannel):
    """A channel that discards all that is written."""

    __slots__ = ()

    def write(self, frame: Buffer | Sequence[Buffer], size: int | None = None) -> None:
        """Discard the frame."""

    def write_all(self, frames: list[bytes]) -> None:
        """Discard the frames."""


class _DoublingChannel(_OtherChannel):
    """A channel that sends each frame twice."""

    __slots__ = ()

    def write(self, frame: Buffer | Sequence[Buffer], size: int | None = None) -> None:
        """Send the frame twice."""
        for _ in range(2):
            self._real.write(frame, size)

    def write_all(self, frames: list[bytes]) -> None:
        """Send the frames twice."""
        for _ in range(2):
            self._real.write_all(frames)


class _ChangingChannel(_OtherChannel):
    """A channel that changes the answer to one request."""

    __slots__ = ("_change", "_opaque")

    def __init__(
        self, real: Channel, opaque: int, change: Callable[[RemotingCommand], RemotingCommand]
    ) -> None:
        super().__init__(real)
        self._opaque = opaque
        self._change = change

    def _changed(self, frames: bytes) -> bytes:
        """Whole frames, none or several: the answers of a turn are written together."""
        commands = FrameDecoder().receive_data(frames)
        return b"".join(
            encode(self._change(each) if self._is_answer(each) else each) for each in commands
        )

    def _is_answer(self, command: RemotingCommand) -> bool:
        return command.is_response and command.opaque == self._opaque

    def write(self, frame: Buffer | Sequence[Buffer], size: int | None = None) -> None:
        """Send the frame, with the change if it is the answer."""
        buffers = [frame] if isinstance(frame, bytes | bytearray | memoryview) else frame
        self._real.write(self._changed(b"".join(buffers)))

    def write_all(self, frames: list[bytes]) -> None:
        """Send the frames, with the change in the answer."""
        self._real.write_all([self._changed(each) for each in frames])


def _not_supported(request: RemotingCommand, channel: Channel) -> Answer:
    raise RequestRefused(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
    )
