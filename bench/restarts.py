"""Endurance test of every client: sends and consumes while the broker restarts again and again.

    python -m trocket.bench.restarts                         5 minutes, a restart every 10 s
    python -m trocket.bench.restarts --minutes 1 --json
    python -m trocket.bench.restarts --with-namesrv          name server and broker restart together

The broker is alternately killed (SIGKILL) and stopped (SIGTERM). This process has all clients with
default options: producer, push consumer and pull consumer on asyncio, on trio, and blocking. Each
consumer has a group to itself. In the end the broker is killed once more, and the topic read again.

The exit status is 1 if a send failed before its deadline, if a confirmed message was not consumed
by a group or is missing in the end, if a client logged an error, or if a task, a thread or an open
file is left over when the clients are closed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
import trio
import typer
from rich.console import Console

from trocket import (
    ClientError,
    ConsumeFromWhere,
    Delivery,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    blocking,
)
from trocket.bench.kit import running
from trocket.common.terminal import table
from trocket.interop.peer import LocalCluster
from trocket.interop.process import PeerError
from trocket.interop.trocket_peer import TrocketCluster, TrocketPair

TOPIC = "Restarts"
BODY_SIZE = 128
SEND_TIMEOUT_S: Final = 10.0
"""The producer's default time limit. A send that failed earlier is a violation."""
SLACK_S: Final = 0.5
"""How much earlier a send may fail: no try begins in the last moments before its deadline."""
ROUND_COUNT: Final = 5
"""Messages of each sender and each group between two restarts, at least."""
ROUND_TIMEOUT_S: Final = 60.0
"""Time for ROUND_COUNT messages; a consumer's rebalance may take 20 s."""
CATCH_UP_S: Final = 120.0
POLL_S: Final = 0.02
FIRST: Final = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@dataclass
class Failure:
    """A send that raised: its sender, the seconds since its start, and the error."""

    sender: str
    after_s: float
    error: str

    @property
    def is_early(self) -> bool:
        """Whether its deadline had not passed."""
        return self.after_s < SEND_TIMEOUT_S - SLACK_S


@dataclass
class Ledger:
    """The messages of all clients; any thread may add to it.

    Attributes:
      rate: sends per second of each sender.
      is_stopping: set when senders should end.
      is_over: set when consumers should end.
      confirmed: the messages that a broker has confirmed, by sender.
      consumed: how often each message was consumed, by group.
      slowest_s: the longest confirmed send, by sender.
      tasks_left: tasks of an event loop that outlived its clients, by loop.
      crashes: exceptions that ended a client's thread.
      begun: number of sends that were begun.
    """

    rate: float
    is_stopping: threading.Event = field(default_factory=threading.Event)
    is_over: threading.Event = field(default_factory=threading.Event)
    confirmed: dict[str, set[str]] = field(default_factory=dict)
    consumed: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    slowest_s: dict[str, float] = field(default_factory=dict)
    tasks_left: dict[str, int] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)
    begun: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_sender(self, sender: str) -> Iterator[Message]:
        """The messages of a new sender, until `is_stopping` is set."""
        with self._lock:
            self.confirmed[sender] = set()
            self.slowest_s[sender] = 0.0
        return self._messages(sender)

    def _messages(self, sender: str) -> Iterator[Message]:
        for number in itertools.count():
            with self._lock:
                if self.is_stopping.is_set():
                    return
                self.begun += 1
            name = f"{sender} {number}"
            yield Message(TOPIC, name.ljust(BODY_SIZE), keys=name.replace(" ", "-"))

    def add_group(self, group: str) -> Callable[[Any], None]:
        """A handler of messages for a new group."""
        consumed = self.consumed[group] = Counter()

        def handle(message: Any) -> None:
            with self._lock:
                consumed[message.text.strip()] += 1

        return handle

    @contextmanager
    def sending(self, sender: str, message: Message, start_s: float) -> Iterator[None]:
        """Record how a send ends, whose outcome the block waits for."""
        try:
            yield
        except ClientError as error:
            after_s = time.monotonic() - start_s
            with self._lock:
                self.failures.append(Failure(sender, after_s, f"{type(error).__name__}: {error}"))
        else:
            with self._lock:
                self.confirmed[sender].add(str(message.body).strip())
                took_s = time.monotonic() - start_s
                self.slowest_s[sender] = max(self.slowest_s[sender], took_s)

    def progress(self) -> dict[str, int]:
        """The number of messages of each sender and each group."""
        with self._lock:
            parts: dict[str, Any] = {**self.confirmed, **self.consumed}
            return {name: len(messages) for name, messages in parts.items()}

    def all_confirmed(self) -> set[str]:
        """The messages of all senders."""
        with self._lock:
            return set[str]().union(*self.confirmed.values())

    def is_settled(self) -> bool:
        """Whether all sends that were begun have ended."""
        with self._lock:
            ended = sum(map(len, self.confirmed.values())) + len(self.failures)
            return ended == self.begun

    def missing(self) -> dict[str, int]:
        """Confirmed messages that a group has not consumed, by group."""
        confirmed = self.all_confirmed()
        with self._lock:
            return {group: len(confirmed - set(seen)) for group, seen in self.consumed.items()}


# Clients in event loops


async def run_in_loop(url: str, name: str, ledger: Ledger) -> None:
    """The clients of one event loop, asyncio's or trio's, until the ledger is over."""
    before = _task_count(name)
    push, pull = f"push-{name}", f"pull-{name}"
    async with (
        Producer(url, group=f"producer-{name}") as producer,
        PushConsumer(
            url, group=push, subscriptions={TOPIC: "*"}, consume_from_where=FIRST
        ) as pushed,
        PullConsumer(url, group=pull, consume_from_where=FIRST) as pulled,
    ):
        pulled.assign(await pulled.queues(TOPIC))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pushed.run, ledger.add_group(push))
            tasks.start_soon(_poll, pulled, ledger.add_group(pull), ledger)
            tasks.start_soon(_send, producer, f"send-{name}", ledger)
            tasks.start_soon(_send_soon, producer, f"send_soon-{name}", ledger)
            while not ledger.is_over.is_set():  # noqa: ASYNC110 - set by another thread
                await anyio.sleep(POLL_S)
            pushed.stop()
    ledger.tasks_left[name] = _task_count(name) - before


def _task_count(name: str) -> int:
    if name == "trio":
        return trio.lowlevel.current_statistics().tasks_living
    return len(asyncio.all_tasks())


async def _send(producer: Producer, sender: str, ledger: Ledger) -> None:
    for message in ledger.add_sender(sender):
        with ledger.sending(sender, message, time.monotonic()):
            await producer.send(message)
        await anyio.sleep(1 / ledger.rate)


async def _send_soon(producer: Producer, sender: str, ledger: Ledger) -> None:
    async def settle(message: Message, delivery: Delivery, start_s: float) -> None:
        with ledger.sending(sender, message, start_s):
            await delivery

    async with anyio.create_task_group() as tasks:
        for message in ledger.add_sender(sender):
            start_s = time.monotonic()
            try:
                delivery = await producer.send_soon(message)
            except ClientError as error:
                with ledger.sending(sender, message, start_s):
                    raise error
            else:
                tasks.start_soon(settle, message, delivery, start_s)
            await anyio.sleep(1 / ledger.rate)


async def _poll(consumer: PullConsumer, handle: Callable[[Any], None], ledger: Ledger) -> None:
    while not ledger.is_over.is_set():
        for message in await consumer.poll(timeout_s=0.2):
            handle(message)


# Blocking clients, one thread each


def send_blocking(url: str, ledger: Ledger) -> None:
    """A blocking producer that waits for each message."""
    sender = "send-blocking"
    with blocking.Producer(url, group="producer-blocking") as producer:
        for message in ledger.add_sender(sender):
            with ledger.sending(sender, message, time.monotonic()):
                producer.send(message)
            ledger.is_stopping.wait(1 / ledger.rate)


def send_soon_blocking(url: str, ledger: Ledger) -> None:
    """A blocking producer that sends ahead; each delivery is waited for in the order of sends."""
    sender = "send_soon-blocking"
    with blocking.Producer(url, group="producer-blocking-ahead") as producer:
        waiting: list[tuple[Message, blocking.Delivery, float]] = []
        for message in ledger.add_sender(sender):
            start_s = time.monotonic()
            try:
                waiting.append((message, producer.send_soon(message), start_s))
            except ClientError as error:
                with ledger.sending(sender, message, start_s):
                    raise error
            _settle(sender, ledger, waiting, is_last=False)
            ledger.is_stopping.wait(1 / ledger.rate)
        _settle(sender, ledger, waiting, is_last=True)


def _settle(
    sender: str,
    ledger: Ledger,
    waiting: list[tuple[Message, blocking.Delivery, float]],
    *,
    is_last: bool,
) -> None:
    for each in waiting[:]:
        message, delivery, start_s = each
        if is_last or delivery.is_done:
            waiting.remove(each)
            with ledger.sending(sender, message, start_s):
                delivery.result()


def push_blocking(url: str, ledger: Ledger) -> None:
    """A blocking push consumer."""
    group = "push-blocking"
    with blocking.PushConsumer(
        url, group=group, subscriptions={TOPIC: "*"}, consume_from_where=FIRST
    ) as consumer:

        def stop_in_the_end() -> None:
            ledger.is_over.wait()
            consumer.stop()

        ender = threading.Thread(target=stop_in_the_end)
        ender.start()
        try:
            consumer.run(ledger.add_group(group))
        finally:
            ender.join()


def pull_blocking(url: str, ledger: Ledger) -> None:
    """A blocking pull consumer."""
    group = "pull-blocking"
    with blocking.PullConsumer(url, group=group, consume_from_where=FIRST) as consumer:
        consumer.assign(consumer.queues(TOPIC))
        handle = ledger.add_group(group)
        while not ledger.is_over.is_set():
            for message in consumer.poll(timeout_s=0.2):
                handle(message)


def programs(url: str, ledger: Ledger) -> dict[str, Callable[[], None]]:
    """What each thread runs."""
    in_loops: dict[str, Callable[[], None]] = {
        backend: partial(anyio.run, run_in_loop, url, backend, ledger, backend=backend)
        for backend in ("asyncio", "trio")
    }
    threads = (send_blocking, send_soon_blocking, push_blocking, pull_blocking)
    return in_loops | {each.__name__: partial(each, url, ledger) for each in threads}


SENDERS_AND_GROUPS = 12
"""Each of asyncio, trio and blocking has two senders and two groups."""


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
        wanted = [name for name in now if with_groups or name in ledger.confirmed]
        found = [name for name in wanted if now[name] < begin.get(name, 0) + ROUND_COUNT]
        return found + ["clients that did not begin"] * (len(now) < SENDERS_AND_GROUPS)

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


async def read_again(url: str, wanted: set[str]) -> int:
    """Read the topic in a new group; the number of wanted messages that are missing."""
    missing = set(wanted)
    async with PullConsumer(url, group="read-again", consume_from_where=FIRST) as consumer:
        consumer.assign(await consumer.queues(TOPIC))
        end_s = time.monotonic() + CATCH_UP_S
        while missing and time.monotonic() < end_s:
            missing -= {message.text.strip() for message in await consumer.poll(timeout_s=1)}
    return len(missing)


def create_topic(url: str) -> None:
    """Create the topic, and have its route known to the name server."""
    with blocking.Producer(url) as producer:
        producer.send(Message(TOPIC, "first"))


def seen_by_clients(ledger: Ledger) -> dict[str, Any]:
    """The figures of senders and groups."""
    early = [each for each in ledger.failures if each.is_early]
    return {
        "confirmed": {name: len(each) for name, each in ledger.confirmed.items()},
        "consumed": {name: len(each) for name, each in ledger.consumed.items()},
        "consumed_again": {
            name: each.total() - len(each) for name, each in ledger.consumed.items()
        },
        "slowest_send_s": {name: round(each, 2) for name, each in ledger.slowest_s.items()},
        "failed_late": len(ledger.failures) - len(early),
        "failed_early": len(early),
        "last_failure": ledger.failures[-1].error[-500:] if ledger.failures else "",
        "not_consumed": {name: each for name, each in ledger.missing().items() if each},
        "crashes": ledger.crashes,
        "tasks_left": {name: each for name, each in ledger.tasks_left.items() if each},
    }


def run(
    cluster: LocalCluster, count: int, every_s: float, rate: float, away_s: float = 0.0
) -> dict[str, Any]:
    """Restart a running cluster under load, and return the figures.

    Args:
      count: number of restarts.
      every_s, away_s: see `restart`.
      rate: sends per second of each of the six senders.
    """
    ledger, errors = Ledger(rate), _Errors()
    url = cluster.namesrv_address
    create_topic(url)
    threads_before, files_before = _threads(), _open_files()

    def guarded(name: str, program: Callable[[], None]) -> None:
        try:
            program()
        except BaseException as error:  # noqa: BLE001 - reported as a figure
            ledger.crashes.append(f"{name}: {error!r}")

    threads = [
        threading.Thread(target=guarded, args=each, name=f"restarts-{each[0]}")
        for each in programs(url, ledger).items()
    ]
    logging.getLogger("trocket").addHandler(errors)
    begin_s = time.monotonic()
    try:
        for thread in threads:
            thread.start()
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
        "not_there_after_kill": asyncio.run(read_again(url, ledger.all_confirmed())),
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
            with running(cluster):
                figures = run(cluster, count, every_s, rate, away_s)
        except PeerError as error:
            sys.exit(f"restarts: {error}")
    wrong = violations(figures)
    if as_json:
        print(json.dumps(figures, indent=2))
    else:
        rows = [[name, json.dumps(value)] for name, value in figures.items()]
        Console().print(table(("figure", "value"), rows))
    if wrong:
        sys.exit(f"restarts: wrong: {', '.join(wrong)}")


if __name__ == "__main__":
    typer.run(main)
