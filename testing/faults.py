"""Faults on request: what a broker answers wrongly, late or not at all, and a disk that fails.

Implemented by wrapping the processors' table of a running server, so the servers themselves know
nothing of it. What is asked first is used first: of several faults for one request the oldest one
that has not been used up counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import trio

from ..remoting.channel import Answer, Buffer, Channel, Deferred, Postponed, Processor
from ..remoting.codec import ONEWAY_FLAG, RemotingCommand
from ..remoting.errors import RequestRefused
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from ..remoting.turn import Turn

T = TypeVar("T")
Run = Callable[[Callable[[], T]], T]
Act = Callable[[Processor, RemotingCommand, Channel], Answer]

_REMEMBERED = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.BROKER_HEARTBEAT,
    }
)
"""Requests whose connection the server remembers; they are answered by what is returned."""


class Fault:
    """One fault that was asked for.

    Attributes:
      code: the request code that it is for; None: every one.
      hits: how many requests it has met.
      left: how many it still will; None: all until `Faults.clear`.
    """

    def __init__(self, code: int | None, times: int | None, act: Act) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times={times}: it must be 1 or more, or None until clear()")
        self.code = code
        self.left = times
        self.hits = 0
        self.act = act

    def __repr__(self) -> str:
        code = "every request" if self.code is None else f"requests {self.code}"
        return f"<fault for {code}, {self.hits} hits, {self.left} left>"

    def takes(self, code: int) -> bool:
        """Whether it is for such a request, and not used up."""
        return self.left != 0 and self.code in (None, code)

    def meet(self, process: Processor, request: RemotingCommand, channel: Channel) -> Answer:
        """Have a request meet it."""
        self.hits += 1
        if self.left is not None:
            self.left -= 1
        return self.act(process, request, channel)


class FaultyTable:
    """The processors of one server, with faults before them.

    Args:
      turn: the server's.
    """

    def __init__(self, turn: Turn) -> None:
        self.faults: list[Fault] = []
        self._turn = turn
        self._table: dict[int, Processor] = {}
        self._plain: dict[int, Processor] = {}

    def install(self, table: dict[int, Processor]) -> None:
        """Stand before the processors of a server that was started."""
        self._table, self._plain = table, dict(table)
        self.changed()

    @property
    def plain(self) -> Mapping[int, Processor]:
        """The processors as they are without faults."""
        return self._plain

    def changed(self) -> None:
        """Wrap what has faults, and put back what has none."""
        codes = {fault.code for fault in self.faults}
        wrapped = set(self._plain) if None in codes else set()
        wrapped |= {code for code in codes if code is not None}
        for code in set(self._table) - set(self._plain) - wrapped:
            del self._table[code]
        self._table.update(self._plain)
        for code in wrapped:
            self._table[code] = self._wrapped(code, self._plain.get(code, _not_supported))

    def _wrapped(self, code: int, process: Processor) -> Processor:
        def meet(request: RemotingCommand, channel: Channel) -> Answer:
            for fault in self.faults:
                if fault.takes(code):
                    return fault.meet(process, request, channel)
            return process(request, channel)

        return meet

    def process_later(
        self, seconds: float, process: Processor, request: RemotingCommand, channel: Channel
    ) -> Deferred:
        """Process a request after a while, in a turn of its own."""

        async def run() -> RemotingCommand | None:
            await trio.sleep(seconds)
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

        return Deferred(run)

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


class Faults:
    """The faults of an embedded broker; `broker.faults`.

    They stay over restarts, until they are used up or `clear` is called. `times` is how many
    requests meet a fault; None: all of them. `namesrv=True` means the name server in place of the
    broker. Each method returns the `Fault`, whose `hits` tell how often it was met.

    Args:
      broker, namesrv: the servers' tables.
      run: calls a function in the servers' loop.
      set_disk: tells the disk what it is: full or not, and which fsync fails.
    """

    def __init__(
        self,
        broker: FaultyTable,
        namesrv: FaultyTable,
        run: Callable[[Callable[[], None]], None],
        set_disk: Callable[[bool | None, bool | None], None],
    ) -> None:
        self._broker = broker
        self._namesrv = namesrv
        self._run = run
        self._set_disk = set_disk

    def refuse(
        self,
        code: int | None = None,
        response: int = ResponseCode.SYSTEM_BUSY,
        remark: str = "refused on request of the test",
        *,
        times: int | None = 1,
        namesrv: bool = False,
    ) -> Fault:
        """Requests are not processed, and answered with an error.

        Args:
          code: such as RequestCode.SEND_MESSAGE_V2; None: every request.
          response: the answer's code.
          remark: the answer's text.
        """

        def act(process: Processor, request: RemotingCommand, channel: Channel) -> Answer:
            raise RequestRefused(response, remark)

        return self._add(Fault(code, times, act), namesrv)

    def drop(
        self, code: int | None = None, *, times: int | None = 1, namesrv: bool = False
    ) -> Fault:
        """Requests are processed, but their answers never leave."""
        return self._add(Fault(code, times, _process_unanswered), namesrv)

    def swallow(
        self, code: int | None = None, *, times: int | None = 1, namesrv: bool = False
    ) -> Fault:
        """Requests are neither processed nor answered, as if they had got lost on the way."""

        def act(process: Processor, request: RemotingCommand, channel: Channel) -> Answer:
            return None

        return self._add(Fault(code, times, act), namesrv)

    def delay(
        self,
        code: int | None = None,
        seconds: float = 1.0,
        *,
        times: int | None = 1,
        namesrv: bool = False,
    ) -> Fault:
        """Requests are processed, and so answered, later.

        Args:
          seconds: of the servers' loop: real ones for a Broker; `advance` does not shorten them.
        """
        table = self._namesrv if namesrv else self._broker

        def act(process: Processor, request: RemotingCommand, channel: Channel) -> Answer:
            return table.process_later(seconds, process, request, channel)

        return self._add(Fault(code, times, act), namesrv)

    def disconnect(
        self, code: int | None = None, *, times: int | None = 1, namesrv: bool = False
    ) -> Fault:
        """The connection on which such a request comes is closed, and it is not processed."""

        def act(process: Processor, request: RemotingCommand, channel: Channel) -> Answer:
            channel.close("on request of the test")
            return None

        return self._add(Fault(code, times, act), namesrv)

    def disk_full(self) -> None:
        """Nothing is free on the disk: sends are refused, what is there can be consumed."""
        self._run(lambda: self._set_disk(True, None))

    def disk_ok(self) -> None:
        """There is room again; sends are taken at once."""
        self._run(lambda: self._set_disk(False, None))

    def fail_fsync(self) -> None:
        """From now on no fsync of the commit log succeeds.

        The first that fails turns the store read-only, for good, as that of a real broker: sends
        under SYNC_FLUSH are refused from the first one on, others within flushIntervalCommitLog.
        `clear` and a restart make it whole.
        """
        self._run(lambda: self._set_disk(None, True))

    def clear(self) -> None:
        """No faults any more; requests that are being delayed stay so."""

        def act() -> None:
            for table in (self._broker, self._namesrv):
                for fault in table.faults:
                    fault.left = 0
                table.faults.clear()
                table.changed()
            self._set_disk(False, False)

        self._run(act)

    def _add(self, fault: Fault, namesrv: bool) -> Fault:
        table = self._namesrv if namesrv else self._broker

        def act() -> None:
            table.faults.append(fault)
            table.changed()

        self._run(act)
        return fault


def _process_unanswered(process: Processor, request: RemotingCommand, channel: Channel) -> Answer:
    """Have a request processed, and whatever answers it go nowhere."""
    request.flag |= ONEWAY_FLAG
    remembered = request.code in _REMEMBERED
    try:
        answer = process(request, channel if remembered else _Mute(channel))
    except RequestRefused:
        return None
    if not isinstance(answer, Deferred):
        return None
    run = answer.run

    async def unanswered() -> None:
        await run()

    return Deferred(unanswered)


class _Mute(Channel):
    """A connection to which nothing is written; all else is the real one's."""

    __slots__ = ("_real",)

    def __init__(self, real: Channel) -> None:
        self._real = real
        self.remote_address = real.remote_address
        self.remote_host = real.remote_host
        self.local_address = real.local_address
        self.attributes = real.attributes
        self.language = real.language
        self.version = real.version

    @property
    def closed(self) -> bool:  # type: ignore[override]
        return self._real.closed

    def write(self, frame: Buffer | Sequence[Buffer], size: int | None = None) -> None:
        """Nothing."""

    def write_all(self, frames: list[bytes]) -> None:
        """Nothing."""

    def send_oneway(self, command: RemotingCommand) -> None:
        self._real.send_oneway(command)

    async def call(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        return await self._real.call(command, timeout_s)

    def close(self, reason: str = "closed by us") -> None:
        self._real.close(reason)


def _not_supported(request: RemotingCommand, channel: Channel) -> Answer:
    raise RequestRefused(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
    )
