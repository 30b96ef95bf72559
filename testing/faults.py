"""Fault injection: errors, delays and missing answers of the servers, and failures of the disk.

It wraps processors in the table of a running server, so the servers have no code for it. If several
faults match a request, the oldest one that is not used up applies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import trio

from ..remoting.channel import Answer, Buffer, Channel, Deferred, Postponed, Processor
from ..remoting.codec import ONEWAY_FLAG, RemotingCommand
from ..remoting.errors import RequestRefused
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from ..remoting.turn import Turn

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

    def __repr__(self) -> str:
        code = "every request" if self.code is None else f"requests {self.code}"
        return f"<fault for {code}, {self.hits} hits, {self.left} left>"

    def matches(self, code: int) -> bool:
        """Whether it affects requests of this code, and is not used up."""
        return self.left != 0 and self.code in (None, code)

    def apply(self, process: Processor, request: RemotingCommand, channel: Channel) -> Answer:
        """Answer a request in place of its processor."""
        self.hits += 1
        if self.left is not None:
            self.left -= 1
        return self._behave(process, request, channel)


class FaultyProcessors:
    """The processors of one server, wrapped so that faults apply.

    Args:
      turn: the server's Turn.
    """

    def __init__(self, turn: Turn) -> None:
        self.faults: list[Fault] = []
        self._turn = turn
        self._table: dict[int, Processor] = {}
        self._plain: dict[int, Processor] = {}

    def install(self, table: dict[int, Processor]) -> None:
        """Wrap the processors of a server that was started."""
        self._table, self._plain = table, dict(table)
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
            self._table[code] = self._wrapped(code, self._plain.get(code, _not_supported))

    def _wrapped(self, code: int, process: Processor) -> Processor:
        def wrapped(request: RemotingCommand, channel: Channel) -> Answer:
            for fault in self.faults:
                if fault.matches(code):
                    return fault.apply(process, request, channel)
            return process(request, channel)

        return wrapped

    def process_later(
        self, seconds: float, process: Processor, request: RemotingCommand, channel: Channel
    ) -> Deferred:
        """Process a request after a delay, in a separate turn."""

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
    """The faults of an embedded broker: `broker.faults`.

    Faults remain over restarts, until they are used up or `clear` is called. In all methods,
    `code` is the request code, such as RequestCode.SEND_MESSAGE_V2, or None for every request;
    `times` is the number of requests that are affected, or None for all of them; and `namesrv=True`
    selects the name server instead of the broker. The methods return a `Fault`, whose `hits` count
    the affected requests.

    Args:
      broker, namesrv: processors of the servers.
      run: calls a function in the servers' loop.
      set_disk: sets whether the disk is full, and whether fsync fails; None: no change.
    """

    def __init__(
        self,
        broker: FaultyProcessors,
        namesrv: FaultyProcessors,
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
        """Answer requests with an error, without processing them.

        Args:
          code: request code; None: every request.
          response: response code of the answer.
          remark: text of the answer.
          times: number of requests, >= 1; None: all.
          namesrv: affect the name server instead of the broker.
        """

        def behave(process: Processor, request: RemotingCommand, channel: Channel) -> Answer:
            raise RequestRefused(response, remark)

        return self._add(Fault(code, times, behave), namesrv)

    def drop(
        self, code: int | None = None, *, times: int | None = 1, namesrv: bool = False
    ) -> Fault:
        """Process requests, but do not send their answers."""
        return self._add(Fault(code, times, _process_unanswered), namesrv)

    def swallow(
        self, code: int | None = None, *, times: int | None = 1, namesrv: bool = False
    ) -> Fault:
        """Neither process nor answer requests, as if they had been lost."""

        def behave(process: Processor, request: RemotingCommand, channel: Channel) -> Answer:
            return None

        return self._add(Fault(code, times, behave), namesrv)

    def delay(
        self,
        code: int | None = None,
        seconds: float = 1.0,
        *,
        times: int | None = 1,
        namesrv: bool = False,
    ) -> Fault:
        """Process and answer requests later.

        Args:
          code: request code; None: every request.
          seconds: the delay, by the clock of the servers' loop: real time for a Broker. `advance`
            does not shorten it.
          times: number of requests, >= 1; None: all.
          namesrv: affect the name server instead of the broker.
        """
        processors = self._namesrv if namesrv else self._broker

        def behave(process: Processor, request: RemotingCommand, channel: Channel) -> Answer:
            return processors.process_later(seconds, process, request, channel)

        return self._add(Fault(code, times, behave), namesrv)

    def disconnect(
        self, code: int | None = None, *, times: int | None = 1, namesrv: bool = False
    ) -> Fault:
        """Close the connection of requests, without processing them."""

        def behave(process: Processor, request: RemotingCommand, channel: Channel) -> Answer:
            channel.close("on request of the test")
            return None

        return self._add(Fault(code, times, behave), namesrv)

    def disk_full(self) -> None:
        """Report a full disk: sends are refused, stored messages can be consumed."""
        self._run(lambda: self._set_disk(True, None))

    def disk_ok(self) -> None:
        """Report free space again: sends are accepted at once."""
        self._run(lambda: self._set_disk(False, None))

    def fail_fsync(self) -> None:
        """Have every fsync of the commit log fail from now on.

        As in a real broker, the first failure makes the store read-only until it is restarted:
        under SYNC_FLUSH sends are refused at once, otherwise within flushIntervalCommitLog. Call
        `clear` and restart the broker to repair it.
        """
        self._run(lambda: self._set_disk(None, True))

    def clear(self) -> None:
        """Remove all faults; requests that are being delayed are not affected."""

        def remove_all() -> None:
            for processors in (self._broker, self._namesrv):
                for fault in processors.faults:
                    fault.left = 0
                processors.faults.clear()
                processors.update()
            self._set_disk(False, False)

        self._run(remove_all)

    def _add(self, fault: Fault, namesrv: bool) -> Fault:
        processors = self._namesrv if namesrv else self._broker

        def add() -> None:
            processors.faults.append(fault)
            processors.update()

        self._run(add)
        return fault


def _process_unanswered(process: Processor, request: RemotingCommand, channel: Channel) -> Answer:
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

    async def unanswered() -> None:
        await run()

    return Deferred(unanswered)


class _SilentChannel(Channel):
    """A channel that discards all that is written; otherwise it behaves like the real one."""

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
        """Discard the frame."""

    def write_all(self, frames: list[bytes]) -> None:
        """Discard the frames."""

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
