"""What a controller costs: memory and CPU while nothing happens, and the time of many elections.

    python -m trocket.bench.controllers                       10 sets of brokers, idle for a minute
    python -m trocket.bench.controllers --sets 1000 --lost 100
    python -m trocket.bench.controllers --sets 10 --beside apache

The brokers are connections of this process: two for each set, which register, come into the in-sync
set and send a heartbeat each second, as brokers do by default. With `--lost N` the masters of N
sets end at once; the time is from that moment until the controller names other masters for all of
them.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
import trio
import typer
from rich.console import Console

from trocket.bench.crowd_peer import Peer
from trocket.bench.kit import Columns, resident_mb, show
from trocket.interop.controller_mode import KINDS, OURS, ControllerProcess, keys_of_controller
from trocket.interop.ports import free_port
from trocket.interop.usage import cpu_seconds
from trocket.remoting.bodies.controller import BrokerReplicasInfo, SyncStateSet
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode as Code

MASTER: Final = 1
SLAVE: Final = 2
HEARTBEAT_S: Final = 1.0
"""Default of brokerHeartbeatInterval."""
TIMEOUT_MS: Final = 10_000
"""Default of controllerHeartBeatTimeoutMills."""
JOINING_MAX: Final = 16
"""Brokers that register at a time."""
ASK_S: Final = 0.05
ELECTIONS_S: Final = 60.0
"""At most, until all sets that lost their masters have other ones."""
REST_S: Final = 3.0
"""Before the measurement: what follows from registering is over."""


@dataclass(frozen=True)
class ControllerResult:
    """One controller.

    Attributes:
      memory_mb: resident, while idle with all brokers.
      cpu_percent: of one core, while idle.
      elections_s: from the end of the masters until all their sets have other ones; None: none
        ended.
    """

    peer: str
    sets: int
    memory_mb: float
    cpu_percent: float
    elections_s: float | None


class Broker:
    """A broker of a set, as far as its controller knows it."""

    def __init__(self, number: int, broker_id: int, address: str) -> None:
        self.name = f"broker-{number}"
        self.id = broker_id
        self.address = address
        self._set = {"clusterName": "Bench", "brokerName": self.name}
        self._running = trio.CancelScope()
        self._peer: Peer

    async def run(
        self, controller: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Register, and send heartbeats until `end`."""
        with self._running:
            async with trio.open_nursery() as nursery:
                self._peer = await Peer.connect(controller, nursery)
                await self._join()
                task_status.started()
                while True:
                    await trio.sleep(HEARTBEAT_S)
                    await self._beat()

    def end(self) -> None:
        """Close the connection."""
        self._running.cancel()

    async def _join(self) -> None:
        applied = {
            "appliedBrokerId": self.id,
            "registerCheckCode": f"{self.address};{self.id}",
        }
        await self._ask(Code.CONTROLLER_APPLY_BROKER_ID, applied)
        register = {"brokerId": self.id, "brokerAddress": self.address}
        await self._ask(Code.CONTROLLER_REGISTER_BROKER, register)
        await self._beat()
        if self.id == MASTER:
            await self._ask(
                Code.CONTROLLER_ELECT_MASTER, {"brokerId": self.id, "designateElect": "false"}
            )

    async def add_slave(self) -> None:
        """Have the slave taken into the in-sync set."""
        body = SyncStateSet(sync_state_set={MASTER, SLAVE}, sync_state_set_epoch=1)
        fields = {"masterBrokerId": self.id, "masterEpoch": 1}
        await self._ask(Code.CONTROLLER_ALTER_SYNC_STATE_SET, fields, body.to_body())

    async def _beat(self) -> None:
        fields = {
            "brokerAddr": self.address, "brokerId": self.id, "epoch": 1, "maxOffset": 1_000,
            "confirmOffset": 1_000, "heartbeatTimeoutMills": TIMEOUT_MS, "electionPriority": 1,
        }  # fmt: skip
        await self._ask(Code.BROKER_HEARTBEAT, fields)

    async def _ask(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> None:
        answer = await self._peer.ask(code, {**self._set, **fields}, body)
        if answer.code:
            raise RuntimeError(f"{self.name}, {Code(code).name}: {answer.code}, {answer.remark}")


@asynccontextmanager
async def listening() -> AsyncIterator[str]:
    """HOST:PORT where connections are taken and all bytes dropped, until the end of the block."""

    async def drop(stream: trio.SocketStream) -> None:
        with stream.socket:
            while await stream.receive_some():
                pass

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, drop, 0, host="127.0.0.1"))
        yield f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


async def measure(
    controller: ControllerProcess, *, sets: int, lost: int, seconds: float
) -> ControllerResult:
    """Connect the brokers of some sets, measure for some seconds, and end some of the masters.

    Raises: RuntimeError: a request was refused. trio.TooSlowError: not all masters were replaced.
    """
    elections_s = None
    async with listening() as slaves_at, trio.open_nursery() as nursery:
        async with listening() as masters_at:
            masters = [Broker(number, MASTER, masters_at) for number in range(sets)]
            slaves = [Broker(number, SLAVE, slaves_at) for number in range(sets)]
            for each in (masters, slaves):
                await _start(each, controller.address, nursery)
            for master in masters:
                await master.add_slave()
            await trio.sleep(REST_S)
            cpu_s, begin_s = cpu_seconds(controller.pid), time.perf_counter()
            await trio.sleep(seconds)
            took_s = time.perf_counter() - begin_s
            share = 100 * (cpu_seconds(controller.pid) - cpu_s) / took_s
            memory_mb = resident_mb(controller.pid)
        if lost:
            asking = await Peer.connect(controller.address, nursery)
            begin_s = time.perf_counter()
            for master in masters[:lost]:
                master.end()
            with trio.fail_after(ELECTIONS_S):
                while not await _replaced(  # noqa: ASYNC110 - a controller is asked, as by an operator
                    asking, [each.name for each in masters[:lost]]
                ):
                    await trio.sleep(ASK_S)
            elections_s = time.perf_counter() - begin_s
        nursery.cancel_scope.cancel()
    return ControllerResult(controller.kind, sets, memory_mb, share, elections_s)


async def _start(brokers: list[Broker], controller: str, nursery: trio.Nursery) -> None:
    limit = trio.CapacityLimiter(JOINING_MAX)

    async def start(broker: Broker) -> None:
        async with limit:
            await nursery.start(broker.run, controller)

    async with trio.open_nursery() as starting:
        for broker in brokers:
            starting.start_soon(start, broker)


async def _replaced(peer: Peer, names: list[str]) -> bool:
    answer: RemotingCommand = await peer.ask(
        Code.CONTROLLER_GET_SYNC_STATE_DATA, {}, msgspec.json.encode(names)
    )
    table = BrokerReplicasInfo.from_body(answer.body).replicas_info_table
    return all(table[name].master_broker_id == SLAVE for name in names)


COLUMNS: Columns[ControllerResult] = {
    "peer": lambda one: one.peer,
    "sets": lambda one: f"{one.sets:,}",
    "RSS MB": lambda one: f"{one.memory_mb:.0f}",
    "idle CPU %": lambda one: f"{one.cpu_percent:.2f}",
    "elections s": lambda one: "-" if one.elections_s is None else f"{one.elections_s:.2f}",
}


def main(
    sets: Annotated[int, typer.Option(min=1, help="Of two brokers each.")] = 10,
    lost: Annotated[int, typer.Option(min=0, help="End this number of masters.")] = 0,
    seconds: Annotated[float, typer.Option(min=1, help="Measure for this time.")] = 60.0,
    beside: Annotated[str, typer.Option(help="Measure this kind, too: apache.")] = "",
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure a controller."""
    if beside and beside not in KINDS:
        raise typer.BadParameter(f"{beside!r} is none of {', '.join(KINDS)}")
    results = []
    run = partial(measure, sets=sets, lost=min(lost, sets), seconds=seconds)
    with tempfile.TemporaryDirectory(prefix="trocket-controllers-") as scratch:
        for kind in filter(None, (OURS, beside)):
            Console(stderr=True).print(f"{kind}: {sets} sets, {seconds:.0f} s")
            keys = keys_of_controller(kind, Path(scratch), [free_port()], 0)
            controller = ControllerProcess(0, kind, Path(scratch) / kind, keys)
            controller.start()
            try:
                results.append(trio.run(run, controller))
            finally:
                controller.kill()
    facts = {"load at the end": os.getloadavg()[0], "python": sys.version.split()[0]}
    show(results, COLUMNS, as_json=json_, title="controllers", facts=facts)


if __name__ == "__main__":
    typer.run(main)
