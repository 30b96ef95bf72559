"""Cost of replication: for the store alone, and for whole brokers compared with Apache's.

A slave catches up on one core: checksums, queues and index of all received messages. The goal of
the first case assumes an otherwise idle core.

    python -m trocket.bench.ha
    python -m trocket.bench.ha --case catch-up --gib 2 --json
    python -m trocket.bench.ha --case sends --rounds 3
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import trio
import typer

from trocket.bench.ha_sends import Spread, measure_all, measure_brokers
from trocket.bench.kit import chosen, show
from trocket.bench.store import (
    COLUMNS,
    QUEUE_COUNT,
    TOPIC,
    Figure,
    append,
    new_store,
)
from trocket.store.config import BrokerRole, MessageStoreConfig
from trocket.store.ha.master import HaMaster, open_ha_listener
from trocket.store.ha.slave import HaSlave
from trocket.store.message_store import MessageStore
from trocket.store.services import run_services

CATCH_UP_GOAL = 150
"""MB/s."""

BROKERS_GOAL = 1.6
"""Multiple of one broker's rate, if each process has an otherwise idle core."""


async def follow(folder: Path, port: int, until: int) -> None:
    """Run a slave until its log has `until` bytes; print wall and CPU seconds."""
    config = MessageStoreConfig(store_path_root_dir=str(folder), broker_role=BrokerRole.SLAVE)
    store = MessageStore(config)
    store.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(run_services, store)
        slave = HaSlave(store)
        slave.set_master(f"127.0.0.1:{port}")
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        nursery.start_soon(slave.run)
        while store.max_physical_offset < until:
            await store.activity.wait_for_more()
        took_s = time.perf_counter() - start_s
        cpu_s = time.process_time() - start_cpu_s
        print(json.dumps({"took_s": took_s, "cpu_s": cpu_s}))
        nursery.cancel_scope.cancel()


async def with_slave(store: MessageStore, folder: Path, until: int) -> str:
    """Run a slave process for a master, and return its output.

    Args:
      until: see `follow`.
    """
    listener = open_ha_listener(store.config)
    command = [sys.executable, "-m", "trocket.bench.ha", "--slave-of"]
    command += [str(listener.getsockname()[1]), "--folder", str(folder), "--until", str(until)]
    async with trio.open_nursery() as nursery:
        await nursery.start(run_services, store)
        await nursery.start(HaMaster(store).serve, [listener])
        # Index all messages first: a master in service has no such backlog.
        while store.index.is_behind:
            store.index.work()
            await trio.lowlevel.checkpoint()
        done = await trio.run_process(command, capture_stdout=True)
        nursery.cancel_scope.cancel()
    return done.stdout.decode()


def catch_up_case(folder: Path, body_size: int, gib: float) -> Figure:
    """An empty slave receives a whole log."""
    store = new_store(folder / "master")
    queues = [(TOPIC, queue_id) for queue_id in range(QUEUE_COUNT)]
    while store.max_physical_offset < gib * (1 << 30):
        append(store, bytes(body_size), 200, queues)
    end = store.max_physical_offset
    printed = json.loads(trio.run(with_slave, store, folder / "slave", end))
    store.close()
    rate = end / 1e6 / printed["took_s"]
    return Figure(
        f"catch up, {body_size} B",
        rate,
        "MB/s",
        f"goal {CATCH_UP_GOAL}",
        rate / CATCH_UP_GOAL,
        f"{end / 1e6 / printed['cpu_s']:,.0f} MB for a second of the slave's core",
    )


def sends_cases(
    folder: Path, peers: str, rounds: int, seconds: float, warm_up: float
) -> list[Figure]:
    """Whole brokers without a slave, with one, and waiting for one; trocket's rate over others."""
    figures = measure_all(
        peers.split(","), folder, rounds=rounds, seconds=seconds, warm_up_s=warm_up
    )
    others = {(one.mode, one.case): one.messages_per_s for one in figures if one.peer != "trocket"}
    outcomes = []
    for one in figures:
        other = others.get((one.mode, one.case)) if one.peer == "trocket" else None
        outcomes.append(
            Figure(
                f"{one.peer}, {one.mode}, {one.case}",
                one.messages_per_s,
                "msg/s",
                "" if other is None else f"Apache {other:,.0f}",
                None if other is None else one.messages_per_s / other,
                f"p50 {one.p50_us:,.0f} µs, p99 {one.p99_us:,.0f} µs, "
                f"CPU {one.broker_cpu_us:.1f} µs of the master",
            )
        )
    return outcomes


def brokers_case(folder: Path, rounds: int, seconds: float) -> list[Figure]:
    """The rate of two broker processes over that of one, alternating."""
    ratios: list[float] = []
    two: list[Spread] = []
    for number in range(rounds):
        one_and_two = [
            measure_brokers(count, folder / f"{number}-{count}", seconds=seconds, warm_up_s=1.0)
            for count in (1, 2)
        ]
        two.append(one_and_two[1])
        ratios.append(two[-1].messages_per_s / one_and_two[0].messages_per_s)
    middle = sorted(two, key=lambda each: each.messages_per_s)[len(two) // 2]
    return [
        Figure(
            "two brokers",
            middle.messages_per_s,
            "msg/s",
            f"one (goal {BROKERS_GOAL})",
            statistics.median(ratios),
            f"{min(ratios):.2f} to {max(ratios):.2f}; of {os.cpu_count()} cores the brokers took "
            f"{middle.brokers_share:.2f}, the load {middle.load_share:.2f}",
        )
    ]


def main(
    case: Annotated[str, typer.Option(help="Run catch-up, sends or brokers.")] = "all",
    folder: Annotated[
        Path | None, typer.Option(help="Use this folder's disk. Default: the temporary folder's.")
    ] = None,
    gib: Annotated[float, typer.Option(help="Catch up with a log of this size.")] = 1.0,
    peers: Annotated[str, typer.Option(help="Measure sends to these.")] = "trocket,apache-5.5.0",
    rounds: Annotated[int, typer.Option(help="Repeat sends and brokers this often.")] = 3,
    seconds: Annotated[float, typer.Option(help="Measure sends and brokers for this time.")] = 5.0,
    warm_up: Annotated[float, typer.Option(help="Warm up sends (Java compiles).")] = 8.0,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    slave_of: Annotated[int, typer.Option(hidden=True)] = 0,
    until: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Measure replication and print each figure."""
    if slave_of and folder is not None:
        trio.run(follow, folder, slave_of, until)
        return
    cases: dict[str, list[Callable[[Path], list[Figure]]]] = {
        "catch-up": [
            lambda path, size=size: [catch_up_case(path, size, gib)]  # type: ignore[misc]
            for size in (1024, 4096)
        ],
        "brokers": [lambda path: brokers_case(path, rounds, seconds)],
        "sends": [lambda path: sends_cases(path, peers, rounds, seconds, warm_up)],
    }
    outcomes: list[Figure] = []
    for ones in chosen(None if case == "all" else [case], cases, "--case").values():
        for one in ones:
            with tempfile.TemporaryDirectory(prefix="trocket-bench-", dir=folder) as scratch:
                outcomes += one(Path(scratch))
    show(outcomes, COLUMNS, as_json=json_)


if __name__ == "__main__":
    typer.run(main)
