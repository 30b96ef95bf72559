"""Comparison of the blocking client's loop thread with anyio's portal, with one async producer.

`nothing` runs an async function that does nothing; `batch` sends a batch of one message and waits
for its answer: a call without a fast path in the blocking producer. Both alternate in one process.
`us` is the process's CPU time per call.

    python -m trocket.bench.portal
    python -m trocket.bench.portal --rounds 10 --threads 1
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from anyio.from_thread import start_blocking_portal

import trocket
from trocket.bench.kit import Columns, running, show
from trocket.blocking.blocking_object import BlockingObject
from trocket.blocking.forwarded import forwarded
from trocket.interop.trocket_peer import TrocketCluster
from trocket.interop.wire import WireClient

TOPIC = "T"
BATCH = [trocket.Message(TOPIC, bytes(128))]


class Producer(trocket.Producer):
    """The async producer with a method that does nothing."""

    async def nothing(self) -> None:
        return


class BlockingProducer(BlockingObject[Producer]):
    """The same producer on the loop thread, without fast paths."""

    nothing = forwarded(Producer.nothing)
    send_batch = forwarded(Producer.send_batch)


@dataclass
class Rate:
    """Calls of one way."""

    call: str
    way: str
    threads: int
    per_s: list[float]
    cpu_us: list[float]


COLUMNS: Columns[Rate] = {
    "call": lambda r: r.call,
    "way": lambda r: r.way,
    "threads": lambda r: str(r.threads),
    "calls/s": lambda r: f"{statistics.median(r.per_s):,.0f}",
    "least..most": lambda r: f"{min(r.per_s):,.0f}..{max(r.per_s):,.0f}",
    "us": lambda r: f"{statistics.median(r.cpu_us):.0f}",
}


def measure(call: Callable[[], Any], threads: int, seconds: float) -> tuple[float, float]:
    """Calls per second of all threads, and CPU microseconds per call."""
    counts: list[int] = []
    start_s, cpu_s = time.perf_counter(), time.process_time()

    def work() -> None:
        count = 0
        while time.perf_counter() - start_s < seconds:
            call()
            count += 1
        counts.append(count)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    cpu_us = (time.process_time() - cpu_s) / sum(counts) * 1e6
    return sum(counts) / (time.perf_counter() - start_s), cpu_us


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    seconds: Annotated[float, typer.Option(min=0.1, help="Measure for this time.")] = 1.5,
    threads: Annotated[list[int], typer.Option(help="Call from this number of threads.")] = [1, 8],  # noqa: B006
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print calls per second and CPU."""
    found: dict[tuple[str, str, int], Rate] = {}
    with tempfile.TemporaryDirectory() as name, running(TrocketCluster(Path(name))) as cluster:
        with WireClient(cluster.broker_address) as wire:
            wire.create_topic(TOPIC, queue_count=4)
        url = cluster.namesrv_address

        async def make() -> Producer:
            return Producer(url, group="portal")

        with (
            BlockingProducer(lambda: Producer(url, group="ours")) as ours,
            start_blocking_portal(backend="asyncio") as portal,
            portal.wrap_async_context_manager(portal.call(make)) as theirs,
        ):
            calls: dict[tuple[str, str], Callable[[], Any]] = {
                ("nothing", "loop thread"): ours.nothing,
                ("nothing", "portal"): partial(portal.call, theirs.nothing),
                ("batch", "loop thread"): partial(ours.send_batch, BATCH),
                ("batch", "portal"): partial(portal.call, theirs.send_batch, BATCH),
            }
            for count in threads:
                for _ in range(rounds):
                    for (what, way), call in calls.items():
                        rate = found.setdefault((what, way, count), Rate(what, way, count, [], []))
                        per_s, cpu_us = measure(call, count, seconds)
                        rate.per_s.append(per_s)
                        rate.cpu_us.append(cpu_us)
    show(list(found.values()), COLUMNS, as_json=as_json)


if __name__ == "__main__":
    typer.run(main)
