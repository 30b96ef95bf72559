"""Fault injection: errors, delays and missing answers of the servers, and failures of the disk.

It wraps processors in the table of a running server, so the servers have no code for it. If several
faults match a request, the oldest one that is not used up applies. `faulty_processors.py` has how
each of them answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

import trio

from ..remoting.channel import Answer, Channel, Processor
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RequestRefused
from ..remoting.response_codes import ResponseCode
from .faulty_processors import (
    Fault,
    FaultyProcessors,
    answered_otherwise,
    answered_twice,
    unanswered,
)


class SetDisk(Protocol):
    """Sets whether the disk is full, whether fsync fails, and how many ms it takes; None: as is."""

    def __call__(
        self, is_full: bool | None, fails_fsync: bool | None, slow_ms: int | None = None, /
    ) -> None: ...


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
      set_disk: `Driver.set_disk`.
    """

    def __init__(
        self,
        broker: FaultyProcessors,
        namesrv: FaultyProcessors,
        run: Callable[[Callable[[], None]], None],
        set_disk: SetDisk,
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
        return self._add(Fault(code, times, unanswered), namesrv)

    def duplicate(
        self, code: int | None = None, *, times: int | None = 1, namesrv: bool = False
    ) -> Fault:
        """Process requests once, and send each answer twice."""
        return self._add(Fault(code, times, answered_twice), namesrv)

    def change(
        self,
        code: int | None = None,
        response: int = ResponseCode.FLUSH_SLAVE_TIMEOUT,
        remark: str = "changed on request of the test",
        *,
        times: int | None = 1,
        namesrv: bool = False,
    ) -> Fault:
        """Process requests, and answer with another code.

        By default a send is answered as by a SYNC_MASTER whose slaves lag: the message is stored,
        and no slave is known to have it. What the server refuses stays refused.

        Args:
          code: request code; None: every request.
          response: response code of the answer; its fields and its body stay.
          remark: text of the answer.
          times: number of requests, >= 1; None: all.
          namesrv: affect the name server instead of the broker.
        """
        behave = partial(answered_otherwise, response, remark)
        return self._add(Fault(code, times, behave), namesrv)

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
        """Process and answer requests later, also if their client hangs up meanwhile.

        Args:
          code: request code; None: every request.
          seconds: the delay, by the clock of the servers' loop: real time for a Broker. `advance`
            does not shorten it.
          times: number of requests, >= 1; None: all.
          namesrv: affect the name server instead of the broker.
        """

        async def wait() -> None:
            await trio.sleep(seconds)

        return self._put_off(code, times, namesrv, lambda fault: wait())

    def hang(
        self, code: int | None = None, *, times: int | None = 1, namesrv: bool = False
    ) -> Fault:
        """Process and answer requests when the fault is removed, as a server does that hangs.

        `remove` and `clear` remove it; connections stay open meanwhile.
        """
        return self._put_off(code, times, namesrv, Fault.wait_removed)

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

    def remove(self, fault: Fault) -> None:
        """Remove a fault; it has no effect if it was removed before."""

        def remove() -> None:
            fault.remove()
            for processors in (self._broker, self._namesrv):
                if fault in processors.faults:
                    processors.faults.remove(fault)
                    processors.update()

        self._run(remove)

    def slow_fsync(self, milliseconds: int) -> None:
        """Have each fsync of the commit log take so long; 0: as long as it takes.

        Under SYNC_FLUSH every send waits for one; otherwise the broker syncs beside its work.

        Raises: EmbeddedBrokerError: the broker is in memory, where no fsync takes long.
        """
        self._run(lambda: self._set_disk(None, None, milliseconds))

    def clear(self) -> None:
        """Remove all faults; requests that are being delayed are not affected."""

        def remove_all() -> None:
            for processors in (self._broker, self._namesrv):
                for fault in processors.faults:
                    fault.remove()
                processors.faults.clear()
                processors.update()
            self._set_disk(False, False, 0)

        self._run(remove_all)

    def _put_off(
        self,
        code: int | None,
        times: int | None,
        namesrv: bool,
        wait: Callable[[Fault], Awaitable[None]],
    ) -> Fault:
        """Have requests wait before they are processed."""
        processors = self._namesrv if namesrv else self._broker

        def behave(process: Processor, request: RemotingCommand, channel: Channel) -> Answer:
            return processors.process_later(lambda: wait(fault), process, request, channel)

        fault = Fault(code, times, behave)
        return self._add(fault, namesrv)

    def _add(self, fault: Fault, namesrv: bool) -> Fault:
        processors = self._namesrv if namesrv else self._broker

        def add() -> None:
            processors.faults.append(fault)
            processors.update()

        self._run(add)
        return fault
