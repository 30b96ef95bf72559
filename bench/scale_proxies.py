"""Messages per second by gRPC of several `trocket proxy` before one broker, and the CPU of each.

Each proxy has a load, a process (`grpc_load.py`) with one connection and 64 sends of 128 bytes in
flight. Then the loads receive instead: 16 receives of up to 32 messages in flight, and an
acknowledgement of each message.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from trocket.bench.kit import running
from trocket.bench.scale_curve import Curve
from trocket.bench.scale_meter import Caller, Curves, Pace, Task, cpu_s, with_a_core_each
from trocket.bench.scale_tables import create_topics, send_to
from trocket.interop.process import LineProcess, PeerError
from trocket.interop.trocket_peer import TrocketPair
from trocket.interop.trocket_proxy import TrocketProxy

TOPIC: Final = "Scale"
QUEUES: Final = 8
IN_FLIGHT: Final = {"send": 64, "receive": 16}
"""Calls of a load; acknowledgements come in addition."""
BODY_SIZE: Final = 128
STOCK_A_SECOND: Final = 20_000
"""Messages that wait for each second of receiving: more than the loads take on two cores."""
BEGIN_S: Final = 3.0
"""For a group to begin where the topic begins; a new one would at the end of its messages."""
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
      mode: "send" or "receive".
    """

    def __init__(self, proxy: TrocketProxy, broker_pid: int, folder: Path, mode: str) -> None:
        self._proxy_pid = proxy.pid
        self._broker_pid = broker_pid
        self._lines: list[Line] = []
        arguments = [proxy.grpc_address, TOPIC, mode, str(IN_FLIGHT[mode]), str(BODY_SIZE)]
        command = [sys.executable, "-m", "trocket.bench.grpc_load", *arguments]
        self._load_pid: int | None = None
        self._load = LineProcess(command, folder=folder, name=mode, on_line=self._take)
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

        Raises: PeerError: a message failed.
        """
        first, *_, last = lines = self._lines[begin:]
        if last.failed:
            raise PeerError(f"{last.failed} sends or acknowledgements by gRPC failed")
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

    Raises: PeerError: a process ended, or a send or an acknowledgement failed.
    """
    curves = task.curves("proxy processes")
    with running(TrocketPair(task.folder / "cluster")) as cluster, ExitStack() as stack:
        caller = stack.enter_context(Caller(cluster.broker_address))
        create_topics(caller, [TOPIC], QUEUES)
        started: list[tuple[TrocketProxy, Path]] = []
        for size in task.sizes:
            for number in range(len(started), size):
                folder = task.folder / str(number)
                started.append((TrocketProxy(cluster, folder), folder))
                stack.callback(started[-1][0].close)
                started[-1][0].start()
            if len(started) == size == task.sizes[0]:
                with _loads(started, cluster, "receive"):
                    time.sleep(BEGIN_S)
            with _loads(started, cluster, "send") as sides:
                _measure(curves, sides, task.pace, SENDING)
            stock = STOCK_A_SECOND * (WARM_UP_LINES + task.pace.rounds * _seconds(task.pace))
            caller.call_all(send_to(TOPIC, number % QUEUES) for number in range(stock))
            with _loads(started, cluster, "receive") as sides:
                _measure(curves, sides, task.pace, RECEIVING)
    return curves.all()


@contextlib.contextmanager
def _loads(
    started: Sequence[tuple[TrocketProxy, Path]], cluster: TrocketPair, mode: str
) -> Iterator[list[Side]]:
    """Loads of all proxies."""
    with ExitStack() as stack:
        sides = []
        for proxy, folder in started:
            sides.append(Side(proxy, cluster.pids[0], folder, mode))
            stack.callback(sides[-1].close)
        yield sides


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

SENDING: Final = {what: what for what in WHAT}
RECEIVING: Final = {what: f"receiving: {what}" for what in WHAT if what != "p99 of a send"}
"""The names of curves of both kinds of loads. A load measures no time of a receive."""


def _seconds(pace: Pace) -> int:
    """Whole seconds of a round, as a load prints a line each second."""
    return max(round(pace.seconds), 1)


def _measure(curves: Curves, sides: Sequence[Side], pace: Pace, names: Mapping[str, str]) -> None:
    seconds = _seconds(pace)
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
    for what, name in names.items():
        unit, grows_as = WHAT[what]
        claim = with_a_core_each(grows_as, 2 * len(sides) + 1)  # with the loads and the broker
        curves.add(name, unit, claim, len(sides), found[what])


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
