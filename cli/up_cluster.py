"""`trocket up` with several brokers: the name server here, each broker in a process of its own.

Python uses one core in a process, so brokers in several use several; and one of them can be killed
to see what the others and the clients do. The name server stays in this process, which has nothing
else to do: a process less, and routes outlive every broker.

Masters are started before slaves, which so hear of their master with their own registration, and
stopped before them, so that no send is told that its slave is gone. A broker that ends by itself is
never started again: before all are ready everything stops; later the others go on, which is what
one has slaves for, and in the end the exit status is 1.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from .. import __version__
from ..common import process
from ..namesrv.config import NamesrvConfig
from ..namesrv.controller import NamesrvController
from ..remoting.bodies import ClusterInfo, HARuntimeInfo
from ..remoting.client import RemotingClient, split_address
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RemotingError
from ..remoting.hosts import join_address
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from ..store.clock import SystemClock
from ..store.disk.os_disk import OsDisk
from .self_check import check
from .up_child import Child
from .up_plan import Member, Shape, reachable, usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

JOIN_TIMEOUT_S: Final = 30.0
"""For brokers that serve to be registered, and for their slaves to be connected. A slave tries its
master every 5 s."""

ASK_AGAIN_S: Final = 0.02
"""Between two looks whether they are."""

CALL_TIMEOUT_S: Final = 5.0


class ClusterError(Exception):
    """A broker has ended, or does not do its part."""


class UpCluster:
    """A name server, and brokers as children.

    Args:
      namesrv: its whole configuration, the port may be 0.
      members: the brokers, masters first.
      cluster: the name that name servers list them under.
      further_namesrv: other name servers that they register with.
      log_level: of the children.
      as_json: say one JSON object when ready, and nothing else on standard output.
      home: the data folder, to be shown.
    """

    def __init__(
        self,
        namesrv: NamesrvConfig,
        members: Sequence[Member],
        shape: Shape,
        *,
        cluster: str,
        further_namesrv: Sequence[str],
        log_level: str,
        as_json: bool,
        home: str,
    ) -> None:
        self._namesrv = namesrv
        self._shape = shape
        self._cluster = cluster
        self._further_namesrv = further_namesrv
        self._log_level = log_level
        self._as_json = as_json
        self._home = home
        self._children = [Child(each, on_line=self._say, on_end=self._ended) for each in members]
        self._masters = [child for child in self._children if not child.member.is_slave]
        self._slaves = [child for child in self._children if child.member.is_slave]
        self._client = RemotingClient()
        self._is_ready = self._is_stopping = False
        self._lost: list[Child] = []
        self._loss = trio.Event()

    async def run(self, stop: trio.CancelScope) -> None:
        """Run all of them until `stop` is cancelled.

        Raises: OSError, StoreError: could not start; ClusterError: a broker has ended by itself;
          RemotingError: a message did not pass.
        """
        # Outlives what stops: somebody must read what the children say until they have ended.
        async with trio.open_nursery() as keepers, trio.open_nursery() as outer:
            controller = NamesrvController(self._namesrv, clock=SystemClock(), disk=OsDisk())
            await outer.start(controller.run)
            await outer.start(self._client.run)
            port = split_address(controller.listen_addresses[0])[1]
            try:
                with stop:
                    async with trio.open_nursery() as inner:
                        inner.start_soon(self._watch)
                        await self._start(keepers, port)
                        process.settle()
                        await trio.sleep_forever()
            finally:
                self._is_stopping = True
                with trio.CancelScope(shield=True):
                    for children in (self._masters, self._slaves):
                        async with trio.open_nursery() as stopping:
                            for child in children:
                                stopping.start_soon(child.stop)
            outer.cancel_scope.cancel()
        if self._lost:
            raise ClusterError("\n".join(map(_ending, self._lost)))

    async def _start(self, keepers: trio.Nursery, port: int) -> None:
        """Start all, and wait until they do their parts."""
        namesrv = join_address(reachable(self._namesrv.bind_address), port)
        namesrv_addr = ";".join([namesrv, *self._further_namesrv])
        for children in (self._masters, self._slaves):
            for child in children:
                await child.start(namesrv_addr, self._log_level)
                keepers.start_soon(child.run)
            for child in children:
                await child.has_booted.wait()
        told = await self._registered(namesrv)
        for master in self._masters:
            await self._has_slaves(master, _here(master.member, told))
        check_ms = [await self._check(master.member, namesrv, told) for master in self._masters]
        self._is_ready = True
        first = self._masters[0].member
        if told[first.name] != _here(first, told):  # then they are told another of our addresses
            namesrv = join_address(split_address(told[first.name])[0], port)
        self._announce(namesrv, told, max(check_ms))

    async def _registered(self, namesrv: str) -> dict[str, str]:
        """`host:port` that clients are told of each member, once the name server has all.

        Raises: ClusterError: it does not come to that.
        """
        told: dict[str, str] = {}

        async def are_told() -> bool:
            body = await self._ask(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
            table = ClusterInfo.from_body(body).broker_addr_table
            for child in self._children:
                group = table.get(child.member.broker_name)
                address = group and group.broker_addrs.get(child.member.broker_id)
                if address:
                    told[child.member.name] = address
            return len(told) == len(self._children)

        if not await _comes(are_told):
            missing = [c for c in self._children if c.member.name not in told]
            raise ClusterError(f"not registered: {_with_last_lines(missing)}")
        return told

    async def _has_slaves(self, master: Child, address: str) -> None:
        """Wait until all slaves of a master follow it.

        Raises: ClusterError: it does not come to that.
        """

        async def are_there() -> bool:
            body = await self._ask(address, RequestCode.GET_BROKER_HA_STATUS)
            return len(HARuntimeInfo.from_body(body).ha_connection_info) >= self._shape.slaves

        if not await _comes(are_there):
            name = master.member.broker_name
            group = [child for child in self._children if child.member.broker_name == name]
            raise ClusterError(f"the slaves of {name} do not follow it: {_with_last_lines(group)}")

    async def _ask(self, address: str, code: RequestCode) -> bytes:
        """The answer's body, which has something.

        Raises: RemotingError: there is no such answer.
        """
        answer = await self._client.call(address, RemotingCommand(int(code)), CALL_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise RemotingError(f"{code.name} was answered {answer.code}: {answer.remark}")
        return bytes(answer.body)

    async def _check(self, master: Member, namesrv: str, told: dict[str, str]) -> float:
        """Send a message to a master and consume it; the milliseconds that took."""
        try:
            check_ms, warning = await check(namesrv, _here(master, told), told[master.name])
        except RemotingError as error:
            raise ClusterError(f"the self-check of {master.name} failed: {error}") from error
        if warning:
            process.logger.warning("%s: %s", master.name, warning)
        return check_ms

    # What children do by themselves

    def _say(self, child: Child, line: str) -> None:
        print(f"{child.member.name}: {line}", file=sys.stderr, flush=True)

    def _ended(self, child: Child) -> None:
        is_asked = self._is_stopping and child.status in (0, -signal.SIGTERM)
        if not is_asked:
            self._lost.append(child)
            self._loss.set()

    async def _watch(self) -> None:
        """Tell of brokers that end by themselves.

        Raises: ClusterError: they are needed for the start, or none is left.
        """
        told = 0
        while True:
            await self._loss.wait()
            self._loss = trio.Event()
            for child in self._lost[told:]:
                if self._is_ready:
                    process.logger.error("%s", _with_last_lines([child]))
            told = len(self._lost)
            if not self._is_ready:
                raise ClusterError(_with_last_lines(self._lost))
            if told == len(self._children):
                raise ClusterError("no broker is left")

    def _announce(self, namesrv: str, told: dict[str, str], check_ms: float) -> None:
        seconds = process.seconds_since_start()
        if self._as_json:
            process.say(json.dumps(self._facts(namesrv, told, seconds)))
            return
        width = max(len("name server"), *(len(name) for name in told))
        brokers = "".join(
            f"  {child.member.name:{width}}  {told[child.member.name]}  "
            f"{child.member.role.name} of {self._cluster}, id {child.member.broker_id}, "
            f"process {child.pid}\n"
            for child in self._children
        )
        process.say(
            f"trocket {__version__}, process {os.getpid()}\n"
            f"  {'name server':{width}}  {namesrv}\n"
            f"{brokers}"
            f"  {'data':{width}}  a folder for each broker in {self._home}\n"
            f"  {'self-check':{width}}  one message sent to each master and consumed, "
            f"{check_ms:.0f} ms at most\n"
            f"\n{usage(namesrv)}\n"
            f"ready {seconds:.2f} s after the start; Ctrl-C or SIGTERM stops"
        )

    def _facts(self, namesrv: str, told: dict[str, str], seconds: float) -> dict[str, Any]:
        return {
            "ready": True,
            "seconds": round(seconds, 3),
            "version": __version__,
            "pid": os.getpid(),
            "namesrv": namesrv,
            "home": self._home,
            "brokers": [
                {
                    "name": child.member.name,
                    "brokerName": child.member.broker_name,
                    "brokerId": child.member.broker_id,
                    "brokerRole": child.member.role.name,
                    "broker": told[child.member.name],
                    "pid": child.pid,
                    "store": child.member.store,
                }
                for child in self._children
            ],
        }


def _here(member: Member, told: dict[str, str]) -> str:
    """Where a broker answers on this machine."""
    return join_address(reachable(member.bind_address), split_address(told[member.name])[1])


async def _comes(is_so: Callable[[], Awaitable[bool]]) -> bool:
    """Whether something that is asked for comes true in JOIN_TIMEOUT_S; errors are a no."""
    with trio.move_on_after(JOIN_TIMEOUT_S):
        while True:
            try:
                if await is_so():
                    return True
            except RemotingError as error:
                process.logger.debug("%s", error)
            await trio.sleep(ASK_AGAIN_S)
    return False


def _ending(child: Child) -> str:
    status = child.status
    how = f"signal {-status}" if status is not None and status < 0 else f"exit status {status}"
    return f"{child.member.name} (process {child.pid}) has ended: {how}"


def _with_last_lines(children: Iterable[Child]) -> str:
    """What became of brokers, and the last lines of their logs."""
    return "\n".join(
        line
        for child in children
        for line in (
            child.member.name if child.status is None else _ending(child),
            *(f"  {child.member.name}: {line}" for line in child.last_lines),
        )
    )
