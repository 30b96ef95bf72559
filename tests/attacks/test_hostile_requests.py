"""The defect: single requests held the loop for seconds. Here each code gets its worst request.

This measures CPU time of the loop's thread, as nothing else can be counted for all codes alike: the
longest step between two checkpoints, with a bound of 10 times the 20 ms that are aimed at, because
a busy machine doubles and trebles it. Before, the worst was 28 s. As in a server's process, the
garbage collector does not look at what was there at the start.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.kit import TrioClock, embedded_broker
from trocket.common.clock import SystemClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import OsDisk
from trocket.namesrv.config import NamesrvConfig
from trocket.namesrv.controller import NamesrvController
from trocket.remoting.codec import RemotingCommand, encode, frame_start
from trocket.remoting.server import RemotingServer

from .hostile_requests import (
    BROKER_ATTACKS,
    NAME_SERVER_ATTACKS,
    Attack,
    fill_broker,
    fill_name_server,
)
from .step_times import StepTimes, settled_collector

STEP_MAX_S = 0.2
BATCH = "batch at the limit"
BATCH_STEP_MAX_S = 1.0
"""A batch is stored whole, however many messages it has; see docs/quirks.md."""


GROWING = frozenset({17, 18, 21, 34, 43, 200, 201, 207, 215, 225, 300, 317})
"""Codes of a broker whose work may grow with its tables, or that have a table saved."""


async def play(server: RemotingServer, attacks: list[Attack], times: StepTimes) -> dict[str, float]:
    """Send each attack on a separate connection, and close that afterwards.

    Returns: the longest step, seconds, by name.
    """
    found: dict[str, float] = {}
    for attack in attacks:
        fields, body = attack.make()
        frame = encode(RemotingCommand(attack.code, fields, body, opaque=1))
        if attack.raw_header is not None:
            header = attack.raw_header()
            frame = frame_start(len(header), len(body), 0) + header + body
        near, far = trio.testing.memory_stream_pair()
        times.longest_s = 0.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve_stream, near)
            await far.send_all(frame)
            await trio.testing.wait_all_tasks_blocked()
            await far.aclose()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        found[attack.name] = times.longest_s
    return found


@asynccontextmanager
async def name_server() -> AsyncIterator[NamesrvController]:
    controller = NamesrvController(
        NamesrvConfig(), clock=TrioClock(), disk=MemoryDisk(), listeners=[]
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.run)
        yield controller
        nursery.cancel_scope.cancel()


def longest_steps(
    run: Callable[[StepTimes], Awaitable[dict[str, float]]],
    make_clock: Callable[[], trio.testing.MockClock | None] = lambda: None,
) -> dict[str, float]:
    """What `run` finds, in a process whose garbage collector has settled.

    If a step was too long, `run` is called once more and the shorter times count: other processes
    on the same core make steps longer, while a step that is too long in itself is so twice.
    """
    found = _longest_steps(run, make_clock())
    if max(found.values()) > STEP_MAX_S:
        again = _longest_steps(run, make_clock())
        found = {name: min(seconds, again[name]) for name, seconds in found.items()}
    return found


def _longest_steps(
    run: Callable[[StepTimes], Awaitable[dict[str, float]]], clock: trio.testing.MockClock | None
) -> dict[str, float]:
    times = StepTimes()

    async def main() -> dict[str, float]:
        times.ignored.add(trio.lowlevel.current_task())
        return await run(times)

    with settled_collector():
        found = trio.run(main, instruments=[times], clock=clock)
    print(*(f"{name}: {seconds * 1000:.1f} ms" for name, seconds in found.items()), sep="\n")
    return found


@pytest.mark.slow
def test_no_request_takes_the_loop_for_long() -> None:
    async def run(times: StepTimes) -> dict[str, float]:
        async with embedded_broker(enable_property_filter=True) as broker:
            server = broker.controller.server
            assert server is not None
            found = await play(server, BROKER_ATTACKS, times)
        async with name_server() as controller:
            return found | await play(controller.server, NAME_SERVER_ATTACKS, times)

    found = longest_steps(run, trio.testing.MockClock)
    slow = {name: seconds for name, seconds in found.items() if seconds > STEP_MAX_S}
    assert slow.pop(BATCH, 0.0) < BATCH_STEP_MAX_S
    assert slow == {}
    assert len(found) == len(BROKER_ATTACKS) + len(NAME_SERVER_ATTACKS) - 1  # "all topics" twice


@pytest.mark.matrix
@pytest.mark.slow
def test_no_request_takes_the_loop_for_long_where_tables_are_large(tmp_path: Path) -> None:
    """With a disk whose saves are put off; the saves are looked at, too."""

    async def run(times: StepTimes) -> dict[str, float]:
        folder = tempfile.mkdtemp(dir=tmp_path)
        async with embedded_broker(
            OsDisk(), clock=SystemClock(), store_path_root_dir=folder
        ) as broker:
            tables = broker.controller
            fill_broker(tables)
            gc.freeze()
            for table in (tables.topics, tables.groups):
                await table.file.saved()
            found = {"first saves": times.longest_s}
            server = tables.server
            assert server is not None
            for attack in [attack for attack in BROKER_ATTACKS if attack.code in GROWING]:
                found |= await play(server, [attack], times)
                for table in (tables.topics, tables.groups):
                    await table.file.saved()
                found[attack.name] = times.longest_s
        async with name_server() as controller:
            fill_name_server(controller)
            gc.freeze()
            found |= await play(controller.server, NAME_SERVER_ATTACKS, times)
        return found

    found = longest_steps(run)
    assert {name: seconds for name, seconds in found.items() if seconds > STEP_MAX_S} == {}
