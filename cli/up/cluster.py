"""`trocket up` with several brokers: the name server in this process, each broker in a child.

A Python process uses one core, so brokers in several processes use several; and one of them can be
killed to test the others and the clients. The name server runs in this process, which has nothing
else to do: that saves a process, and the routes outlive every broker.

With failover, one more child is the controller, whose state is in a folder beside the brokers'.
Each set's first broker starts first, so that it becomes the master; later the controller decides.

Masters start before slaves, so that a slave learns its master's address when it registers; masters
stop before slaves, so that no send is answered with an unavailable slave. A broker that exits
unexpectedly is not restarted: before all are ready, everything stops; later the others continue, as
slaves are meant to, and the exit status in the end is 1.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from ... import __version__
from ...auth.config import read_access
from ...broker.settings.config import MASTER_ID, BrokerConfig, known_keys
from ...common import process
from ...common.clock import SystemClock
from ...common.config import Entry, configure, property_line
from ...disk.os_disk import OsDisk
from ...namesrv.config import NamesrvConfig
from ...namesrv.controller import NamesrvController
from ...native import choice
from ...remoting.bodies import ClusterInfo, HARuntimeInfo
from ...remoting.client import RemotingClient
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemotingError
from ...remoting.hosts import join_address
from ...remoting.opener import split_address
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...remoting.signature import Credentials
from ...remoting.tls_client import ClientTls
from ...remoting.tls_settings import Tls
from ...store.config import BrokerRole
from ..self_check import check
from .child import COMMAND, CONTROLLER, Child
from .console import ConsoleChild
from .plan import Member, Shape, reachable, usage
from .ready import announce

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

JOIN_TIMEOUT_S: Final = 30.0
"""How long to wait until all brokers are registered, and then until the slaves are connected. A
slave tries its master every 5 s."""

POLL_INTERVAL_S: Final = 0.02
"""Interval between two checks of that."""

CALL_TIMEOUT_S: Final = 5.0

CONTROLLER_NAME: Final = "controller"
"""Of its folder, and of its log lines."""

_BOOT_SUCCESS: Final = re.compile(rb"The broker\[[^,]*, ([^\]\s]+)\] boot success")
"""What a broker prints, as RocketMQ's."""


class ClusterError(Exception):
    """A broker has exited, did not register, or has no connected slave in time."""


class BrokerChild(NamedTuple):
    """A broker, and the process that runs it."""

    member: Member
    child: Child

    @property
    def address(self) -> str:
        """The `host:port` that it advertises; it has booted."""
        found = _BOOT_SUCCESS.search(self.child.report)
        return "" if found is None else found[1].decode()

    @property
    def local_address(self) -> str:
        """The `host:port` at which it answers on this machine; it has booted."""
        return join_address(reachable(self.member.bind_address), split_address(self.address)[1])


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
      console: is started when all are ready; None: there is none.
      ready_file: gets the line of JSON when all are ready; None: there is none.
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
        console: ConsoleChild | None = None,
        ready_file: str | None = None,
    ) -> None:
        self._console = console
        self._ready_file = ready_file
        self._console_address = ""
        self._tls, self._check_tls = tls, check_tls
        self._namesrv = namesrv
        self._shape = shape
        self._cluster = cluster
        self._further_namesrv = further_namesrv
        self._log_flags = ("--log-level", log_level, "--log-format", log_format)
        self._is_log_json = log_format == "json"
        self._as_json = as_json
        self._home = home
        self._brokers = [BrokerChild(each, self._new_child(each.name)) for each in members]
        self._masters = [broker for broker in self._brokers if not broker.member.is_slave]
        self._slaves = [broker for broker in self._brokers if broker.member.is_slave]
        self._controller: Child | None = None
        self._controller_address = ""
        own = read_access(namesrv).own
        self._account = _account_of(members[0].keys) or own
        self._client = RemotingClient(tls=check_tls, credentials=self._account)
        self._ids: dict[str, int] = {}
        self._is_ready = self._is_stopping = False
        self._lost: list[Child] = []
        self._loss = trio.Event()

    def _new_child(self, name: str, command: Sequence[str] = COMMAND) -> Child:
        return Child(name, command, on_line=self._print_line, on_end=self._ended)

    async def run(self, stop: trio.CancelScope) -> None:
        """Run all of them until `stop` is cancelled.

        Raises: OSError, StoreError: could not start; ClusterError: a broker has exited
          unexpectedly, or the self-check failed; ConsoleError: the console did not start.
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
                        if self._console is not None:
                            inner.start_soon(self._console.watch)
                        process.settle()
                        await trio.sleep_forever()
            finally:
                self._is_stopping = True
                with trio.CancelScope(shield=True):
                    if self._console is not None:
                        await self._console.stop()
                    # A controller that ended last would see each master go, and elect another.
                    if self._controller is not None:
                        await self._controller.stop()
                    for brokers in (self._masters, self._slaves):
                        async with trio.open_nursery() as stopping:
                            for broker in brokers:
                                stopping.start_soon(broker.child.stop)
            outer.cancel_scope.cancel()
        if self._lost:
            raise ClusterError("\n".join(map(_exit_text, self._lost)))

    async def _start(self, readers: trio.Nursery, port: int) -> None:
        """Start all brokers, and wait until they are registered, connected and checked."""
        namesrv = join_address(reachable(self._namesrv.bind_address), port)
        namesrv_addr = ";".join([namesrv, *self._further_namesrv])
        if self._shape.is_failover:
            await self._start_controller(readers)
        for brokers in (self._masters, self._slaves):
            for broker in brokers:
                properties = broker.member.properties(namesrv_addr, self._controller_address)
                await broker.child.start(self._log_flags, properties)
                readers.start_soon(broker.child.run)
            for broker in brokers:
                await broker.child.has_booted.wait()
        self._ids = await self._registered(namesrv)
        masters = [each for each in self._brokers if self._ids[each.member.name] == MASTER_ID]
        for master in masters:
            await self._wait_slaves(master)
        check_ms = [await self._check(master, namesrv) for master in masters]
        if self._console is not None:
            self._console_address = await self._console.start(namesrv, self._account)
        self._is_ready = True
        first = self._masters[0]
        # Brokers advertise another address than they bind: print it for the name server, too.
        if first.address != first.local_address:
            namesrv = join_address(split_address(first.address)[0], port)
        self._announce(namesrv, max(check_ms))

    async def _start_controller(self, readers: trio.Nursery) -> None:
        """Start the controller, and wait until it serves."""
        home = Path(self._home) / CONTROLLER_NAME
        file = home / "controller.conf"
        home.mkdir(parents=True, exist_ok=True)
        keys = {
            "controllerStorePath": str(home),
            "listenPort": "0",
            "bindAddress": self._masters[0].member.bind_address,
            "brokerClusterName": self._cluster,
        }
        file.write_text("".join(starmap(property_line, keys.items())), encoding="ascii")
        child = self._controller = self._new_child(CONTROLLER_NAME, (*CONTROLLER, "-c", str(file)))
        await child.start(self._log_flags)
        readers.start_soon(child.run)
        await child.has_booted.wait()
        port = split_address(child.report.decode().split()[-1])[1]
        self._controller_address = join_address(reachable(keys["bindAddress"]), port)

    async def _registered(self, namesrv: str) -> dict[str, int]:
        """Wait until the name server has all brokers; returns the broker id of each by name.

        Raises: ClusterError: some did not register within JOIN_TIMEOUT_S.
        """
        ids: dict[str, int] = {}

        async def all_registered() -> bool:
            body = await self._ask(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
            table = ClusterInfo.from_body(body).broker_addr_table
            ids.clear()
            for broker in self._brokers:
                group = table.get(broker.member.broker_name)
                known = {} if group is None else group.broker_addrs
                found = [each for each, address in known.items() if address == broker.address]
                if found:
                    ids[broker.member.name] = min(found)
            master_count = sum(each == MASTER_ID for each in ids.values())
            return len(ids) == len(self._brokers) and master_count == self._shape.masters

        if not await _wait_until(all_registered):
            missing = [each.child for each in self._brokers if each.member.name not in ids]
            raise ClusterError(
                f"not registered within {JOIN_TIMEOUT_S:g} s: "
                + _with_last_lines(missing or [each.child for each in self._brokers])
            )
        return ids

    async def _wait_slaves(self, master: BrokerChild) -> None:
        """Wait until all slaves of a master are connected to it.

        Raises: ClusterError: some are not within JOIN_TIMEOUT_S.
        """

        async def all_connected() -> bool:
            body = await self._ask(master.local_address, RequestCode.GET_BROKER_HA_STATUS)
            return len(HARuntimeInfo.from_body(body).ha_connection_info) >= self._shape.slaves

        if not await _wait_until(all_connected):
            name = master.member.broker_name
            group = [each.child for each in self._brokers if each.member.broker_name == name]
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

    async def _check(self, master: BrokerChild, namesrv: str) -> float:
        """Check a master, and return the milliseconds it took."""
        try:
            check_ms, warning = await check(
                namesrv,
                master.local_address,
                master.address,
                tls=self._check_tls,
                accounts=(self._account, self._account),
            )
        except RemotingError as error:
            name = master.member.name
            raise ClusterError(f"the self-check of {name} failed: {error}") from error
        if warning:
            process.logger.warning("%s: %s", master.member.name, warning)
        return check_ms

    # Events of the children

    def _print_line(self, child: Child, line: str) -> None:
        name = child.name
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
            if reported == len(self._brokers) + (self._controller is not None):
                raise ClusterError("no broker is left: all have exited")

    def _announce(self, namesrv: str, check_ms: float) -> None:
        seconds = process.seconds_since_start()
        width = max(len("name server"), *(len(each.member.name) for each in self._brokers))
        brokers = "".join(
            f"  {each.member.name:{width}}  {each.address}  "
            f"{self._role_name(each.member)} of {self._cluster}, id {self._ids[each.member.name]}, "
            f"process {each.child.pid}\n"
            for each in self._brokers
        )
        if self._controller is not None:
            brokers = (
                f"  {CONTROLLER_NAME:{width}}  {self._controller_address}  "
                f"process {self._controller.pid}\n{brokers}"
            )
        address = self._console_address
        console = f"  {'console':{width}}  {address}\n" if address else ""
        text = (
            f"trocket {__version__}, process {os.getpid()}\n"
            f"  {'name server':{width}}  {namesrv}\n"
            f"{brokers}"
            f"  {'data':{width}}  a folder for each broker in {self._home}\n"
            f"{console}"
            f"  {'self-check':{width}}  route, send and pull answered by each master, "
            f"{check_ms:.0f} ms at most\n"
            f"  {'hot path':{width}}  {choice.description}\n"
            f"\n{usage(namesrv)}\n"
            f"ready {seconds:.2f} s after the start; Ctrl-C or SIGTERM stops"
        )
        facts = self._facts(namesrv, seconds)
        announce(facts, text, as_json=self._as_json, ready_file=self._ready_file)

    def _role_name(self, member: Member) -> str:
        """The role that a broker has now."""
        if not self._shape.is_failover:
            return member.role.name
        is_master = self._ids[member.name] == MASTER_ID
        return (BrokerRole.SYNC_MASTER if is_master else BrokerRole.SLAVE).name

    def _facts(self, namesrv: str, seconds: float) -> dict[str, Any]:
        return {
            "ready": True,
            "seconds": round(seconds, 3),
            "version": __version__,
            "pid": os.getpid(),
            "namesrv": namesrv,
            "home": self._home,
            "console": self._console_address,
            "controller": self._controller_address,
            "controllerPid": 0 if self._controller is None else self._controller.pid,
            "brokers": [
                {
                    "name": each.member.name,
                    "brokerName": each.member.broker_name,
                    "brokerId": self._ids[each.member.name],
                    "brokerRole": self._role_name(each.member),
                    "broker": each.address,
                    "pid": each.child.pid,
                    "store": each.member.store,
                }
                for each in self._brokers
            ],
        }


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
    return f"{child.name} (process {child.pid}) has ended: {how}"


def _with_last_lines(children: Iterable[Child]) -> str:
    """The names or exit statuses of brokers, and the last lines of their logs."""
    return "\n".join(
        line
        for child in children
        for line in (
            child.name if child.status is None else _exit_text(child),
            *(f"  {child.name}: {line}" for line in child.last_lines),
        )
    )


def _account_of(keys: Mapping[str, str]) -> Credentials | None:
    """The account with which a broker signs its own requests."""
    names = ("initAuthenticationUser", "innerClientAuthenticationCredentials")
    entries = [Entry(name, keys[name], 0) for name in names if name in keys]
    return read_access(configure(entries, (BrokerConfig(),), known_keys).configs[0]).own
