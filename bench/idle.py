"""Start time, memory and idle CPU of a name server and a broker with idle consumers, per peer.

    python -m trocket.bench.idle                              # trocket and Apache 5.5.0
    python -m trocket.bench.idle --peers trocket --seconds 10 --topics 100 --consumers 10

Each peer gets 1,000 topics of 4 queues, then 100 consumers, each in a separate group over 10 of the
topics, so that 4,000 pulls are held and renewed. No message is sent. When the consumers have their
queues, CPU and memory of both servers are measured for a minute. All clients run in this process.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import trio
import typer
from rich.console import Console

from trocket.bench.kit import Columns, make_cluster, resident_mb, running, show
from trocket.client import Admin, PushConsumer
from trocket.interop.usage import cpu_seconds

if TYPE_CHECKING:
    from trocket.interop.peer import Cluster

QUEUES = 4
TOPICS_PER_CONSUMER = 10
SETTLE_TIMEOUT_S = 120.0
REST_S = 10.0
"""Between the last rebalance and the measurement: the first pulls are held by then."""


@dataclass(frozen=True)
class IdleResult:
    """One peer.

    Attributes:
      start_s: from the start of the name server until the broker can be used.
      started_mb, idle_mb: resident memory of both servers after the start, and while measured.
      cpu_percent: of one core, both servers together (`trocket up` is one process).
    """

    peer: str
    start_s: float
    started_mb: float
    idle_mb: float
    cpu_percent: float


async def measure(
    peer: str,
    folder: Path,
    *,
    topics: int,
    consumers: int,
    seconds: float,
    rest_s: float = REST_S,
) -> IdleResult:
    """Start a peer, connect the consumers, and measure for some seconds.

    Raises: PeerError: it does not start. trio.TooSlowError: a consumer got no queues in time.
    """
    start_s = time.perf_counter()
    with running(make_cluster(peer, folder)) as cluster:
        start_s = time.perf_counter() - start_s
        started_mb = resident_mb(*cluster.pids)
        url = f"rocketmq://{cluster.namesrv_address}"
        names = [f"Idle-{number}" for number in range(topics)]
        async with Admin(url) as admin:
            for name in names:
                await admin.create_topic(name, queues=QUEUES)
        async with AsyncExitStack() as stack:
            for number in range(consumers):
                first = number * TOPICS_PER_CONSUMER % topics
                mine = names[first : first + TOPICS_PER_CONSUMER]
                consumer = PushConsumer(
                    url, group=f"idle-{number}", subscriptions=dict.fromkeys(mine, "*")
                )
                await stack.enter_async_context(consumer)
                with trio.fail_after(SETTLE_TIMEOUT_S):
                    while len(consumer.queues) < QUEUES * len(mine):  # noqa: ASYNC110
                        await trio.sleep(0.05)
            await trio.sleep(rest_s)
            cpu_s, begin_s = _cpu_seconds(cluster), time.perf_counter()
            await trio.sleep(seconds)
            took_s = time.perf_counter() - begin_s
            share = 100 * (_cpu_seconds(cluster) - cpu_s) / took_s
            return IdleResult(peer, start_s, started_mb, resident_mb(*cluster.pids), share)


def _cpu_seconds(cluster: Cluster) -> float:
    return sum(map(cpu_seconds, cluster.pids))


COLUMNS: Columns[IdleResult] = {
    "peer": lambda one: one.peer,
    "start s": lambda one: f"{one.start_s:.2f}",
    "RSS MB after the start": lambda one: f"{one.started_mb:.0f}",
    "RSS MB idle": lambda one: f"{one.idle_mb:.0f}",
    "CPU %": lambda one: f"{one.cpu_percent:.2f}",
}


def main(
    peers: Annotated[str, typer.Option(help="Measure these.")] = "trocket,apache-5.5.0",
    topics: Annotated[int, typer.Option(min=TOPICS_PER_CONSUMER, help="Create these.")] = 1_000,
    consumers: Annotated[int, typer.Option(min=0, help="Connect this number.")] = 100,
    seconds: Annotated[float, typer.Option(min=1, help="Measure for this time.")] = 60.0,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure start time, memory and idle CPU."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for peer in peers.split(","):
            Console(stderr=True).print(f"{peer}: {topics} topics, {consumers} consumers")
            results.append(
                trio.run(
                    partial(measure, topics=topics, consumers=consumers, seconds=seconds),
                    peer,
                    Path(folder) / peer,
                )
            )
    facts = {"load at the end": os.getloadavg()[0], "python": sys.version.split()[0]}
    show(results, COLUMNS, as_json=json_, title="idle", facts=facts)


if __name__ == "__main__":
    typer.run(main)
