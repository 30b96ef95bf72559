"""Soak test of every client: sends and consumes while the broker restarts again and again.

    python -m trocket.bench.soak                         5 minutes, a restart every 10 s
    python -m trocket.bench.soak --minutes 30 --every-s 60 --rate 500
    python -m trocket.bench.soak --minutes 1 --json
    python -m trocket.bench.soak --with-namesrv          name server and broker restart together

The broker is alternately killed (SIGKILL) and stopped (SIGTERM). This process has all clients with
default options: producer, push consumer and pull consumer on asyncio, on trio, and blocking. Each
consumer has a group to itself. In the end the broker is killed once more, and the topic read again.

After a warm-up, memory, tasks and open files of this process should not grow: the figures have the
most of each in the first half of the run and in the second.

The exit status is 1 if a send failed before its deadline, if a confirmed message was not consumed
by a group or is missing in the end, if a client logged an error, or if a task, a thread or an open
file is left over when the clients are closed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from trocket import PullConsumer
from trocket.bench.kit import resident_mb, running
from trocket.bench.soak_clients import (
    FIRST,
    GROUPS,
    POLL_S,
    SEND_TIMEOUT_S,
    SENDERS,
    TOPIC,
    Ledger,
    programs,
)
from trocket.common.terminal import table
from trocket.interop.peer import LocalCluster
from trocket.interop.process import PeerError
from trocket.interop.trocket_peer import TrocketCluster, TrocketPair
from trocket.interop.wire import WireClient, wait_for_route

QUEUES: Final = 4
ROUND_COUNT: Final = 5
"""Messages of each sender and each group between two restarts, at least."""
ROUND_TIMEOUT_S: Final = 60.0
"""Time for ROUND_COUNT messages; a consumer's rebalance may take 20 s."""
CATCH_UP_S: Final = 120.0
SAMPLE_S: Final = 5.0
WARM_UP_S: Final = 120.0
"""At most, and a third of the run: what the process takes until then is not counted as growth."""


class _Errors(logging.Handler):
    """Keeps what clients log with level ERROR."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info is not None:
            text += f": {record.exc_info[1]!r}"
        self.texts.append(f"{record.name}: {text}")


# The run


def wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until a condition is true; False if it is not in time."""
    pause, end_s = threading.Event(), time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end_s:
            return False
        pause.wait(POLL_S)
    return True


def wait_for_round(ledger: Ledger, *, with_groups: bool) -> list[str]:
    """Wait until every client has made progress; the names of those that have not in time.

    Args:
      with_groups: wait for consumers, too.
    """
    begin = ledger.progress()

    def late() -> list[str]:
        now = ledger.progress()
        wanted = [name for name in now if with_groups or name in SENDERS]
        found = [name for name in wanted if now[name] < begin.get(name, 0) + ROUND_COUNT]
        return found + ["clients that did not begin"] * (len(now) < len(SENDERS) + len(GROUPS))

    wait_for(lambda: bool(ledger.crashes) or not late(), ROUND_TIMEOUT_S)
    return late()


@dataclass
class Restarts:
    """The restarts of a run: how many, how long each broker was away, and clients that hung."""

    away_s: list[float] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    bad_stops: list[str] = field(default_factory=list)


def restart(
    cluster: LocalCluster, ledger: Ledger, count: int, every_s: float, away_s: float
) -> Restarts:
    """Restart the broker `count` times, each when every client made progress since the last one.

    Args:
      every_s: least seconds between the beginnings of two restarts; 0: as soon as senders made
        progress, while consumers pause before their next pull.
      away_s: seconds between the broker's end and its start.
    """
    done, pause = Restarts(), threading.Event()
    for number in range(count + 1):
        begin_s = time.monotonic()
        is_whole = every_s > 0 or number in (0, count)
        done.hung += wait_for_round(ledger, with_groups=is_whole)
        if number == count or done.hung or ledger.crashes:
            break
        pause.wait(max(0.0, every_s - (time.monotonic() - begin_s)))
        end_s = time.monotonic()
        try:
            if number % 2:
                cluster.stop_broker()
            else:
                cluster.kill_broker()
        except PeerError as error:
            done.bad_stops.append(str(error)[-500:])
        pause.wait(away_s)
        cluster.start_broker()
        done.away_s.append(time.monotonic() - end_s)
    return done


@dataclass(frozen=True)
class Sample:
    """What this process takes at a moment: seconds since the start, MB, tasks, open files."""

    at_s: float
    resident_mb: float
    tasks: int
    files: int


@contextmanager
def watched(ledger: Ledger, on_sample: Callable[[str], None]) -> Iterator[list[Sample]]:
    """Take samples, one at the beginning and one when the block has ended.

    Args:
      on_sample: called with a line about each.
    """
    samples: list[Sample] = []
    start_s, is_over = time.monotonic(), threading.Event()

    def watch() -> None:
        while True:
            files, tasks = _open_files().total(), sum(ledger.tasks.values())
            at_s = time.monotonic() - start_s
            samples.append(Sample(at_s, resident_mb(os.getpid()), tasks, files))
            on_sample(f"{ledger.confirmed.count:,} confirmed, {asdict(samples[-1])}")
            if is_over.is_set():
                return
            is_over.wait(SAMPLE_S)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield samples
    finally:
        is_over.set()
        thread.join()


def growth(samples: list[Sample]) -> dict[str, Any]:
    """What was taken after the warm-up: the most in the first half, and in the second."""
    warm = [one for one in samples if one.at_s >= min(WARM_UP_S, samples[-1].at_s / 3)]
    half = len(warm) // 2

    def most(some: list[Sample]) -> dict[str, float]:
        names = ("resident_mb", "tasks", "files")
        return {name: max((getattr(one, name) for one in some), default=0) for name in names}

    return {"first_half_max": most(warm[:half]), "second_half_max": most(warm[half:])}


async def read_again(url: str, ledger: Ledger) -> int:
    """Read the topic in a new group; the number of confirmed messages that are missing."""
    handle = ledger.add_group("read-again")
    async with PullConsumer(url, group="read-again", consume_from_where=FIRST) as consumer:
        consumer.assign(await consumer.queues(TOPIC))
        end_s = time.monotonic() + CATCH_UP_S
        while (missing := ledger.missing()["read-again"]) and time.monotonic() < end_s:
            for message in await consumer.poll(timeout_s=1):
                handle(message)
    return missing


def create_topic(cluster: LocalCluster) -> None:
    """Create the topic, and wait until the name server knows its route."""
    with WireClient(cluster.broker_address) as wire:
        wire.create_topic(TOPIC, queue_count=QUEUES)
    wait_for_route(cluster.namesrv_address, TOPIC, timeout_s=ROUND_TIMEOUT_S)


def seen_by_clients(ledger: Ledger) -> dict[str, Any]:
    """The figures of senders and groups."""
    early = [each for each in ledger.failures if each.is_early]
    return {
        "confirmed": dict(ledger.sent),
        "consumed": {name: each.count for name, each in ledger.consumed.items()},
        "consumed_again": {name: each.again for name, each in ledger.consumed.items()},
        "slowest_send_s": {name: round(each, 2) for name, each in ledger.slowest_s.items()},
        "failed_late": len(ledger.failures) - len(early),
        "failed_early": len(early),
        "last_failure": ledger.failures[-1].error[-500:] if ledger.failures else "",
        "not_consumed": {name: each for name, each in ledger.missing().items() if each},
        "crashes": ledger.crashes,
        "tasks_left": {name: each for name, each in ledger.tasks_left.items() if each},
    }


def run(
    cluster: LocalCluster,
    count: int,
    every_s: float,
    rate: float,
    away_s: float = 0.0,
    on_sample: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Restart a running cluster under load, and return the figures.

    Args:
      count: number of restarts.
      every_s, away_s: see `restart`.
      rate: sends per second of each of the six senders.
      on_sample: see `watched`.
    """
    ledger, errors = Ledger(rate, round(rate * every_s * count * 1.1)), _Errors()
    url = cluster.namesrv_address
    create_topic(cluster)
    threads_before, files_before = _threads(), _open_files()

    def guarded(name: str, program: Callable[[], None]) -> None:
        try:
            program()
        except BaseException as error:  # noqa: BLE001 - reported as a figure
            ledger.crashes.append(f"{name}: {error!r}")

    threads = [
        threading.Thread(target=guarded, args=each, name=f"soak-{each[0]}")
        for each in programs(url, ledger).items()
    ]
    logging.getLogger("trocket").addHandler(errors)
    begin_s = time.monotonic()
    try:
        for thread in threads:
            thread.start()
        with watched(ledger, on_sample) as samples:
            restarts = restart(cluster, ledger, count, every_s, away_s)
        lasted_s = time.monotonic() - begin_s
        ledger.is_stopping.set()
        wait_for(ledger.is_settled, SEND_TIMEOUT_S * 2)
        wait_for(lambda: not any(ledger.missing().values()), CATCH_UP_S)
    finally:
        ledger.is_stopping.set()
        ledger.is_over.set()
        for thread in threads:
            thread.join(CATCH_UP_S)
        logging.getLogger("trocket").removeHandler(errors)
    # Threads of closed clients may take a moment to end.
    wait_for(lambda: _threads() <= threads_before, SEND_TIMEOUT_S)
    left = sorted(thread.name for thread in _threads() - threads_before)
    files_left = sorted((_open_files() - files_before).elements())
    cluster.kill_broker()
    cluster.start_broker()
    return {
        "seconds": round(lasted_s, 1),
        "restarts": len(restarts.away_s),
        "away_s_max": round(max(restarts.away_s, default=0.0), 2),
        **seen_by_clients(ledger),
        "not_there_after_kill": asyncio.run(read_again(url, ledger)),
        **growth(samples),
        "hung": restarts.hung,
        "bad_stops": restarts.bad_stops,
        "errors_logged": errors.texts[:10],
        "threads_left": left,
        "files_left": files_left,
    }


def _threads() -> set[threading.Thread]:
    """The threads of this process, without those that read what the servers print."""
    return {each for each in threading.enumerate() if not each.name.startswith("read-")}


def _open_files() -> Counter[str]:
    """The open files of this process, without the numbers of sockets and pipes. Linux only."""
    found: Counter[str] = Counter()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the folder itself, closed by now
            found[str(link.readlink()).partition("[")[0]] += 1
    return found


MUST_BE_NOTHING = (
    "failed_early",
    "not_consumed",
    "not_there_after_kill",
    "hung",
    "bad_stops",
    "crashes",
    "errors_logged",
    "tasks_left",
    "threads_left",
    "files_left",
)


def violations(figures: dict[str, Any]) -> list[str]:
    """The names of figures that are wrong."""
    return [name for name in MUST_BE_NOTHING if figures[name]]


def make_cluster(folder: Path, *, with_namesrv: bool) -> LocalCluster:
    """A stopped cluster whose broker, or both servers together, can be restarted."""
    return TrocketCluster(folder) if with_namesrv else TrocketPair(folder)


def main(
    minutes: Annotated[float, typer.Option(min=0.1, help="Run for this time.")] = 5.0,
    every_s: Annotated[float, typer.Option(help="Restart every S seconds.", min=0)] = 10.0,
    rate: Annotated[float, typer.Option(help="Send this often per second, six times.")] = 20.0,
    away_s: Annotated[float, typer.Option(help="Start it again after S seconds.", min=0)] = 0.0,
    with_namesrv: Annotated[bool, typer.Option(help="Restart the name server, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    keep: Annotated[Path | None, typer.Option(help="Keep logs and store here.")] = None,
) -> None:
    """Restart a broker under load for a time, and print what its clients saw."""
    count = max(1, round(minutes * 60 / max(every_s, 1)))
    with tempfile.TemporaryDirectory() as name:
        cluster = make_cluster((keep or Path(name)) / "cluster", with_namesrv=with_namesrv)
        try:
            with running(cluster), Console(stderr=True).status("starting") as status:
                figures = run(cluster, count, every_s, rate, away_s, status.update)
        except PeerError as error:
            sys.exit(f"soak: {error}")
    wrong = violations(figures)
    if as_json:
        print(json.dumps(figures, indent=2))
    else:
        rows = [[name, json.dumps(value)] for name, value in figures.items()]
        Console().print(table(("figure", "value"), rows))
    if wrong:
        sys.exit(f"soak: wrong: {', '.join(wrong)}")


if __name__ == "__main__":
    typer.run(main)
