"""Messages per second by gRPC of several `trocket proxy` before one broker, and the CPU of each.

Each proxy has a load, a process (`grpc_load.py`) with one connection and 64 sends of 128 bytes in
flight.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from trocket.bench.kit import running
from trocket.bench.scale_curve import Curve
from trocket.bench.scale_meter import Caller, Curves, Pace, Task, cpu_s
from trocket.bench.scale_tables import create_topics
from trocket.interop.process import LineProcess, PeerError
from trocket.interop.trocket_peer import TrocketPair
from trocket.interop.trocket_proxy import TrocketProxy

TOPIC: Final = "Scale"
QUEUES: Final = 8
IN_FLIGHT: Final = 64
BODY_SIZE: Final = 128
WARM_UP_LINES: Final = 5
"""A load prints a line each second."""
LINE_TIMEOUT_S: Final = 60.0


class Line(NamedTuple):
    """A line of a load, and the CPU seconds of all processes when it came.

    Attributes:
      at_s: by the clock of `time.perf_counter`.
      done, failed: messages since the load began.
      p99_ms: of the sends of the last second.
    """

    at_s: float
    done: int
    failed: int
    p99_ms: float
    proxy_s: float
    load_s: float
    broker_s: float


SPENT: Final = ("proxy_s", "load_s", "broker_s")


class Rates(NamedTuple):
    """What one proxy and its load did each second, between two lines.

    Attributes:
      messages: that were confirmed.
      proxy, load, broker: CPU seconds; the broker's are for the messages of all proxies.
    """

    messages: float
    proxy: float
    load: float
    broker: float


class Side:
    """A proxy with its load, which starts now.

    Args:
      proxy: runs already.
      broker_pid: of the broker behind it.
      folder: for logs.
    """

    def __init__(self, proxy: TrocketProxy, broker_pid: int, folder: Path) -> None:
        self._proxy_pid = proxy.pid
        self._broker_pid = broker_pid
        self._lines: list[Line] = []
        arguments = [proxy.grpc_address, TOPIC, "send", str(IN_FLIGHT), str(BODY_SIZE)]
        command = [sys.executable, "-m", "trocket.bench.grpc_load", *arguments]
        self._load_pid: int | None = None
        self._load = LineProcess(command, folder=folder, name="load", on_line=self._take)
        self._load_pid = self._load.pid

    def _take(self, line: str) -> None:
        if self._load_pid is None or not line.startswith("{"):
            return
        counts, pids = json.loads(line), (self._proxy_pid, self._load_pid, self._broker_pid)
        with contextlib.suppress(PeerError):  # one has ended, which the next wait says
            now_s, spent = time.perf_counter(), list(map(cpu_s, pids))
            self._lines.append(
                Line(now_s, counts["done"], counts["failed"], counts["p99_ms"], *spent)
            )

    def wait(self, count: int) -> None:
        """Wait for further lines. Raises: PeerError: they do not come."""
        wanted = len(self._lines) + count
        self._load.wait(
            lambda: True if len(self._lines) >= wanted else None,
            timeout_s=count + LINE_TIMEOUT_S,
            what=f"{count} further lines",
        )

    def since(self, begin: int) -> tuple[Rates, list[float]]:
        """The rates from a line, by its number, to the newest; p99 in ms of each second.

        Raises: PeerError: a send failed.
        """
        first, *_, last = lines = self._lines[begin:]
        if last.failed:
            raise PeerError(f"{last.failed} sends by gRPC failed")
        took_s = last.at_s - first.at_s
        rates = Rates(
            (last.done - first.done) / took_s,
            *((getattr(last, name) - getattr(first, name)) / took_s for name in SPENT),
        )
        return rates, [each.p99_ms for each in lines[1:]]

    @property
    def newest(self) -> int:
        """The number of the newest line."""
        return len(self._lines) - 1

    def close(self) -> None:
        """End the load."""
        self._load.kill()


def proxies(task: Task) -> list[Curve]:
    """More and more proxies before one broker.

    Raises: PeerError: a process ended, or a send failed.
    """
    curves = task.curves("proxy processes")
    with running(TrocketPair(task.folder / "cluster")) as cluster:
        with Caller(cluster.broker_address) as caller:
            create_topics(caller, [TOPIC], QUEUES)
        for size in task.sizes:
            with ExitStack() as stack:
                sides = []
                for number in range(size):
                    folder = task.folder / f"{size}-{number}"
                    proxy = TrocketProxy(cluster, folder)
                    stack.callback(proxy.close)
                    proxy.start()
                    sides.append(Side(proxy, cluster.pids[0], folder))
                    stack.callback(sides[-1].close)
                _measure(curves, sides, task.pace)
    return curves.all()


def _measure(curves: Curves, sides: Sequence[Side], pace: Pace) -> None:
    seconds = max(round(pace.seconds), 1)
    for side in sides:
        side.wait(min(WARM_UP_LINES, seconds))
    found: dict[str, list[float]] = {}
    for _ in range(pace.rounds):
        begins = [side.newest for side in sides]
        for side in sides:
            side.wait(seconds)
        results = [side.since(begin) for side, begin in zip(sides, begins, strict=True)]
        for what, cost in _costs(results).items():
            found.setdefault(what, []).append(cost)
    for what, (unit, grows_as) in WHAT.items():
        curves.add(what, unit, grows_as, len(sides), found[what])


WHAT: Final[dict[str, tuple[str, float | None]]] = {
    "messages in all": ("1/s", None),
    "messages of a CPU second of a proxy": ("1/s", None),
    "a message, in its proxy": ("µs CPU", 0.0),
    "a message, in the broker": ("µs CPU", 0.0),
    "a message, in its load": ("µs CPU", 0.0),
    "the loads' share of the CPU": ("%", 0.0),
    "p99 of a send": ("ms", 1.0),
}
"""The curves: the unit, and the exponent that is claimed; a rate is no cost, and claims none."""


def _costs(results: Sequence[tuple[Rates, list[float]]]) -> dict[str, float]:
    """The costs of a round, in the order of WHAT."""
    messages = sum(rates.messages for rates, _ in results)
    proxy = sum(rates.proxy for rates, _ in results)
    load = sum(rates.load for rates, _ in results)
    broker = statistics.mean(rates.broker for rates, _ in results)
    costs = (
        messages,
        messages / proxy,
        proxy * 1e6 / messages,
        broker * 1e6 / messages,
        load * 1e6 / messages,
        100 * load / (proxy + load + broker),
        statistics.median(each for _, p99_ms in results for each in p99_ms),
    )
    return dict(zip(WHAT, costs, strict=True))
