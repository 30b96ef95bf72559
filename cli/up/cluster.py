"""`trocket up` with several brokers: the name server in this process, each broker in a child.

A Python process uses one core, so brokers in several processes use several; and one of them can be
killed to test the others and the clients. The name server runs in this process, which has nothing
else to do: that saves a process, and the routes outlive every broker.

Masters start before slaves, so that a slave learns its master's address when it registers; masters
stop before slaves, so that no send is answered with an unavailable slave. A broker that exits
unexpectedly is not restarted: before all are ready, everything stops; later the others continue, as
slaves are meant to, and the exit status in the end is 1.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from ... import __version__
from ...auth.config import read_access
from ...broker.settings.config import BrokerConfig, known_keys
from ...common import process
from ...common.clock import SystemClock
from ...common.config import Entry, configure
from ...disk.os_disk import OsDisk
from ...namesrv.config import NamesrvConfig
from ...namesrv.controller import NamesrvController
from ...native import choice
from ...remoting.bodies import ClusterInfo, HARuntimeInfo
from ...remoting.client import RemotingClient, split_address
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemotingError
from ...remoting.hosts import join_address
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...remoting.signature import Credentials
from ...remoting.tls_client import ClientTls
from ...remoting.tls_settings import Tls
from ..self_check import check
from .child import Child
from .plan import Member, Shape, reachable, usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

JOIN_TIMEOUT_S: Final = 30.0
"""How long to wait until all brokers are registered, and then until the slaves are connected. A
slave tries its master every 5 s."""

POLL_INTERVAL_S: Final = 0.02
"""Interval between two checks of that."""

CALL_TIMEOUT_S: Final = 5.0


class ClusterError(Exception):
    """A broker has exited, did not register, or has no connected slave in time."""


class UpCluster:
    """A name server in this process, and brokers in child processes.

    Args:
      namesrv: its whole configuration; a port 0 takes any free one.
      members: the brokers, masters first.
      cluster: the cluster's name at the name servers.
      further_namesrv: other name servers that the brokers register with.
      log_level, log_format: of the children's logs.
      as_json: when ready, print one JSON object, and nothing else on standard output.
      home: the data folder, to be printed.
      tls: of the name server.
      check_tls: of our own requests, to servers that only serve TLS; None: they are plain.
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
        log_format: str,
        as_json: bool,
        home: str,
        tls: Tls,
        check_tls: ClientTls | None,
    ) -> None:
        self._tls, self._check_tls = tls, check_tls
        self._namesrv = namesrv
        self._shape = shape
        self._cluster = cluster
        self._further_namesrv = further_namesrv
        self._log_flags = ("--log-level", log_level, "--log-format", log_format)
        self._is_log_json = log_format == "json"
        self._as_json = as_json
        self._home = home
        self._children = [
            Child(each, on_line=self._print_line, on_end=self._ended) for each in members
        ]
        self._masters = [child for child in self._children if not child.member.is_slave]
        self._slaves = [child for child in self._children if child.member.is_slave]
        own = read_access(namesrv).own
        self._account = _account_of(members[0].keys) or own
        self._client = RemotingClient(tls=check_tls, credentials=self._account)
        self._is_ready = self._is_stopping = False
        self._lost: list[Child] = []
        self._loss = trio.Event()

    async def run(self, stop: trio.CancelScope) -> None:
        """Run all of them until `stop` is cancelled.

        Raises: OSError, StoreError: could not start; ClusterError: a broker has exited
          unexpectedly, or the self-check failed.
        """
        # `readers` outlives the stop: a child whose full pipe is not read would not exit.
        async with trio.open_nursery() as readers, trio.open_nursery() as outer:
            controller = NamesrvController(
                self._namesrv, clock=SystemClock(), disk=OsDisk(), tls=self._tls
            )
            await outer.start(controller.run)
            await outer.start(self._client.run)
            port = split_address(controller.listen_addresses[0])[1]
            try:
                with stop:
                    async with trio.open_nursery() as inner:
                        inner.start_soon(self._watch)
                        await self._start(readers, port)
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
            raise ClusterError("\n".join(map(_exit_text, self._lost)))

    async def _start(self, readers: trio.Nursery, port: int) -> None:
        """Start all brokers, and wait until they are registered, connected and checked."""
        namesrv = join_address(reachable(self._namesrv.bind_address), port)
        namesrv_addr = ";".join([namesrv, *self._further_namesrv])
        for children in (self._masters, self._slaves):
            for child in children:
                await child.start(namesrv_addr, self._log_flags)
                readers.start_soon(child.run)
            for child in children:
                await child.has_booted.wait()
        advertised = await self._registered(namesrv)
        for master in self._masters:
            await self._wait_slaves(master, _local_address(master.member, advertised))
        check_ms = [
            await self._check(master.member, namesrv, advertised) for master in self._masters
        ]
        self._is_ready = True
        first = self._masters[0].member
        # Brokers advertise another address than they bind: print it for the name server, too.
        if advertised[first.name] != _local_address(first, advertised):
            namesrv = join_address(split_address(advertised[first.name])[0], port)
        self._announce(namesrv, advertised, max(check_ms))

    async def _registered(self, namesrv: str) -> dict[str, str]:
        """Wait until the name server has all brokers, and return the `host:port` of each by name.

        Raises: ClusterError: some did not register within JOIN_TIMEOUT_S.
        """
        advertised: dict[str, str] = {}

        async def all_registered() -> bool:
            body = await self._ask(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
            table = ClusterInfo.from_body(body).broker_addr_table
            for child in self._children:
                group = table.get(child.member.broker_name)
                address = group and group.broker_addrs.get(child.member.broker_id)
                if address:
                    advertised[child.member.name] = address
            return len(advertised) == len(self._children)

        if not await _wait_until(all_registered):
            missing = [c for c in self._children if c.member.name not in advertised]
            raise ClusterError(
                f"not registered within {JOIN_TIMEOUT_S:g} s: {_with_last_lines(missing)}"
            )
        return advertised

    async def _wait_slaves(self, master: Child, address: str) -> None:
        """Wait until all slaves of a master are connected to it.

        Raises: ClusterError: some are not within JOIN_TIMEOUT_S.
        """

        async def all_connected() -> bool:
            body = await self._ask(address, RequestCode.GET_BROKER_HA_STATUS)
            return len(HARuntimeInfo.from_body(body).ha_connection_info) >= self._shape.slaves

        if not await _wait_until(all_connected):
            name = master.member.broker_name
            group = [child for child in self._children if child.member.broker_name == name]
            raise ClusterError(
                f"slaves of {name} not connected to it within {JOIN_TIMEOUT_S:g} s: "
                f"{_with_last_lines(group)}"
            )

    async def _ask(self, address: str, code: RequestCode) -> bytes:
        """Call and return the answer's body.

        Raises: RemotingError: no answer, or one that is not SUCCESS.
        """
        answer = await self._client.call(address, RemotingCommand(int(code)), CALL_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise RemotingError(f"{code.name} was answered {answer.code}: {answer.remark}")
        return bytes(answer.body)

    async def _check(self, master: Member, namesrv: str, advertised: dict[str, str]) -> float:
        """Check a master, and return the milliseconds it took."""
        try:
            check_ms, warning = await check(
                namesrv,
                _local_address(master, advertised),
                advertised[master.name],
                tls=self._check_tls,
                accounts=(self._account, self._account),
            )
        except RemotingError as error:
            raise ClusterError(f"the self-check of {master.name} failed: {error}") from error
        if warning:
            process.logger.warning("%s: %s", master.name, warning)
        return check_ms

    # Events of the children

    def _print_line(self, child: Child, line: str) -> None:
        name = child.member.name
        if self._is_log_json:
            # What is no object is Python's own, such as the traceback of a process that fails.
            is_object = line.startswith("{")
            head = json.dumps({"server": name, **({} if is_object else {"message": line})})
            text = f"{head[:-1]}, {line[1:]}" if is_object else head
        else:
            text = f"{name}: {line}"
        print(text, file=sys.stderr, flush=True)

    def _ended(self, child: Child) -> None:
        is_expected = self._is_stopping and child.status in (0, -signal.SIGTERM)
        if not is_expected:
            self._lost.append(child)
            self._loss.set()

    async def _watch(self) -> None:
        """Report brokers that exit unexpectedly.

        Raises: ClusterError: one exits before all are ready, or none is left.
        """
        reported = 0
        while True:
            await self._loss.wait()
            self._loss = trio.Event()
            for child in self._lost[reported:]:
                if self._is_ready:
                    process.logger.error("%s", _with_last_lines([child]))
            reported = len(self._lost)
            if not self._is_ready:
                raise ClusterError(_with_last_lines(self._lost))
            if reported == len(self._children):
                raise ClusterError("no broker is left: all have exited")

    def _announce(self, namesrv: str, advertised: dict[str, str], check_ms: float) -> None:
        seconds = process.seconds_since_start()
        if self._as_json:
            process.say(json.dumps(self._facts(namesrv, advertised, seconds)))
            return
        width = max(len("name server"), *(len(name) for name in advertised))
        brokers = "".join(
            f"  {child.member.name:{width}}  {advertised[child.member.name]}  "
            f"{child.member.role.name} of {self._cluster}, id {child.member.broker_id}, "
            f"process {child.pid}\n"
            for child in self._children
        )
        process.say(
            f"trocket {__version__}, process {os.getpid()}\n"
            f"  {'name server':{width}}  {namesrv}\n"
            f"{brokers}"
            f"  {'data':{width}}  a folder for each broker in {self._home}\n"
            f"  {'self-check':{width}}  route, send and pull answered by each master, "
            f"{check_ms:.0f} ms at most\n"
            f"  {'hot path':{width}}  {choice.description}\n"
            f"\n{usage(namesrv)}\n"
            f"ready {seconds:.2f} s after the start; Ctrl-C or SIGTERM stops"
        )

    def _facts(self, namesrv: str, advertised: dict[str, str], seconds: float) -> dict[str, Any]:
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
                    "broker": advertised[child.member.name],
                    "pid": child.pid,
                    "store": child.member.store,
                }
                for child in self._children
            ],
        }


def _local_address(member: Member, advertised: dict[str, str]) -> str:
    """The `host:port` at which a broker answers on this machine."""
    return join_address(reachable(member.bind_address), split_address(advertised[member.name])[1])


async def _wait_until(condition: Callable[[], Awaitable[bool]]) -> bool:
    """Whether the condition holds within JOIN_TIMEOUT_S; a failed request counts as false."""
    with trio.move_on_after(JOIN_TIMEOUT_S):
        while True:
            try:
                if await condition():
                    return True
            except RemotingError as error:
                process.logger.debug("%s", error)
            await trio.sleep(POLL_INTERVAL_S)
    return False


def _exit_text(child: Child) -> str:
    status = child.status
    how = f"signal {-status}" if status is not None and status < 0 else f"exit status {status}"
    return f"{child.member.name} (process {child.pid}) has ended: {how}"


def _with_last_lines(children: Iterable[Child]) -> str:
    """The names or exit statuses of brokers, and the last lines of their logs."""
    return "\n".join(
        line
        for child in children
        for line in (
            child.member.name if child.status is None else _exit_text(child),
            *(f"  {child.member.name}: {line}" for line in child.last_lines),
        )
    )


def _account_of(keys: Mapping[str, str]) -> Credentials | None:
    """The account with which a broker signs its own requests."""
    names = ("initAuthenticationUser", "innerClientAuthenticationCredentials")
    entries = [Entry(name, keys[name], 0) for name in names if name in keys]
    return read_access(configure(entries, (BrokerConfig(),), known_keys).configs[0]).own
