"""Chaos with official clients: faults by a seeded schedule, and what became of every message.

    make chaos MINUTES=60
    python -m trocket.bench.chaos --minutes 60 --json chaos.json --page chaos.html
    python -m trocket.bench.chaos --minutes 5 --seed 7 --clients java,python
    python -m trocket.bench.chaos --faults kill-master,apache-takes-over

Two name servers, a controller and a set of two brokers are processes, and so are the clients:
Java's 5.5.0, Go's v2, C++'s (its wheel, where it runs) and trocket's for Python. Each is a producer
that sends numbers in order to queues of its topic, and a consumer in order of all topics.
docs/chaos.md has the faults, and what the figures mean.

The exit status is 1 if a confirmed message was lost or not consumed, if first deliveries were out
of order, if an offset had two messages, if committed offsets went back beyond what is promised, or
if the cluster or a client did not come back after a fault.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from trocket.bench.chaos_clients import (
    COMMANDS,
    KEYS,
    Crowd,
    group_of,
    prepared,
    topic_of,
)
from trocket.bench.chaos_faults import Stage, ending
from trocket.bench.chaos_ledger import Fault, Stream
from trocket.bench.chaos_page import page
from trocket.bench.chaos_report import Report, made_report, show
from trocket.bench.chaos_schedule import KINDS, Planned, schedule
from trocket.interop.controller_mode import OURS, ControlledSet, Mix
from trocket.interop.maven import missing_tool
from trocket.interop.process import PeerError
from trocket.interop.wire import WireClient
from trocket.remoting.message_codec import decode_record

PAUSE_MS: Final = 100
"""Between two sends of each key: 10 a second of each, 80 with four clients. Two cores then have
time left for the JVMs that start meanwhile."""
SEED: Final = 41
TABLES_S: Final = 60.0
"""Until a slave has a new topic."""
CATCH_UP_S: Final = 180.0
"""For consumers in the end: a member that was killed counts for 120 s, and its queues wait."""
FIRST_S: Final = 120.0
"""Until each client has sent and taken something, before the first fault."""
WATCH_S: Final = 1.0
POLL_S: Final = 0.1

_pause = threading.Event()

COMMAND: Final = (sys.executable, "-m", "trocket.bench.chaos_broker")
BROKER_KEYS: Final = {"allAckInSyncStateSet": True}
"""Also of Apache's, whose default loses confirmed messages at a failover (docs/failover.md)."""


def prepare(brokers: ControlledSet, names: list[str]) -> None:
    """Make topics and groups, and wait until each broker has them. Raises PeerError."""
    topics = {topic_of(name) for name in names}
    groups = {group_of(name) for name in names}
    with WireClient(brokers.master().address) as client:
        for topic in sorted(topics):
            client.create_topic(topic, queue_count=KEYS)
        for group in sorted(groups):
            client.create_group(group)
    until_s = time.monotonic() + TABLES_S
    for member in brokers.members:
        while True:
            with WireClient(member.address) as client:
                if client.topics().keys() >= topics and client.groups().keys() >= groups:
                    break
            if time.monotonic() > until_s:
                raise PeerError(f"{member.name} lacks topics or groups after {TABLES_S:.0f} s")
            _pause.wait(POLL_S)


@contextmanager
def watching(brokers: ControlledSet, crowd: Crowd, names: list[str]) -> Iterator[None]:
    """Ask the master each second for all committed offsets, and note them."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(WATCH_S):
            try:
                _note_offsets(brokers, crowd, names)
            except (PeerError, OSError):
                continue  # no master, or it ended meanwhile

    thread = threading.Thread(target=watch, name="offsets", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _note_offsets(brokers: ControlledSet, crowd: Crowd, names: list[str]) -> None:
    master = brokers.master()
    with WireClient(master.address) as client:
        for name in names:
            for topic in map(topic_of, names):
                for queue in range(KEYS):
                    offset = client.consumer_offset(group_of(name), topic, queue)
                    if offset is not None:
                        with crowd.lock:
                            crowd.ledger.commit(name, topic, queue, offset, crowd.now_s())


def wait_all_began(crowd: Crowd) -> None:
    """Wait until each client has sent or taken something. Raises PeerError."""
    until_s = time.monotonic() + FIRST_S
    while True:
        with crowd.lock:
            idle = [name for name, each in crowd.ledger.activity.items() if each.last_s is None]
        if not idle:
            return
        if time.monotonic() > until_s:
            raise PeerError(f"{', '.join(idle)} did nothing in {FIRST_S:.0f} s: {crowd.errors}")
        _pause.wait(POLL_S)


def play(stage: Stage, planned: Planned) -> Fault:
    """Have a fault happen, and wait until the set is whole again; what happened.

    A fault after which the cluster or a client did not come back has a `problem`.
    """
    crowd = stage.crowd
    fault = Fault(
        planned.kind, planned.target, crowd.now_s(), takes_back=KINDS[planned.kind].takes_back
    )
    with crowd.lock:
        crowd.ledger.faults.append(fault)
    try:
        stage.play(planned)
        stage.wait_whole()
    except PeerError as error:
        fault.problem = str(error)
    gone = [name for name, member in crowd.members.items() if not member.is_running]
    for name in gone:
        fault.problem = f"{fault.problem} {name} ended by itself".strip()
        try:
            crowd.members[name].start()
        except PeerError as error:
            fault.problem += f", and does not start: {error}"
    with crowd.lock:
        fault.until_s = crowd.now_s()
    return fault


def stored(brokers: ControlledSet, names: list[str]) -> dict[Stream, list[int]]:
    """The numbers of each stream that the master has. Raises PeerError."""
    numbers: dict[Stream, list[int]] = {(name, key): [] for name in names for key in range(KEYS)}
    with WireClient(brokers.master().address) as client:
        for name in names:
            for queue in range(KEYS):
                for record in client.pull_all("chaos-reader", topic_of(name), queue):
                    key, _, number = decode_record(record).body.decode().partition(":")
                    numbers[name, int(key)].append(int(number))
    return numbers


def catch_up(crowd: Crowd) -> None:
    """Wait until each group has taken all that was confirmed, or the time is over."""
    until_s = time.monotonic() + CATCH_UP_S
    while time.monotonic() < until_s:
        with crowd.lock:
            if not crowd.ledger.missing().total():
                return
        _pause.wait(1.0)


def run(
    brokers: ControlledSet,
    names: list[str],
    faults: Iterator[Planned],
    *,
    minutes: float,
    pause_ms: int,
    on_fault: Callable[[Planned | Fault], None],
) -> tuple[Crowd, list[str]]:
    """Start all, play faults for a time, and judge; the clients with their ledger, and problems.

    Raises: PeerError: it could not begin, or the end could not be read.
    """
    problems: list[str] = []
    brokers.start()
    prepare(brokers, names)
    made = Crowd(names, brokers.namesrv_address, brokers.folder / "clients", pause_ms)
    with ending(made) as crowd:
        crowd.start()
        wait_all_began(crowd)
        stage = Stage(brokers, crowd)
        with watching(brokers, crowd, names):
            until_s = time.monotonic() + minutes * 60
            for planned in faults:
                if time.monotonic() + planned.after_s + planned.for_s > until_s:
                    break
                on_fault(planned)
                _pause.wait(planned.after_s)
                fault = play(stage, planned)
                on_fault(fault)
                if fault.problem:
                    problems.append(f"{fault.kind} at {fault.from_s:.0f} s: {fault.problem}")
            _pause.wait(max(until_s - time.monotonic(), 0.0))
            sent_s = crowd.now_s()
            problems += [f"{name} did not end as asked" for name in crowd.stop_sending()]
            catch_up(crowd)
        numbers = stored(brokers, names)
        with crowd.lock:
            crowd.ledger.verdict(numbers)
            for each in crowd.ledger.activity.values():
                each.end(max(sent_s, each.last_s or 0.0))
            problems += crowd.crashes
        problems += [f"{name} did not end as asked" for name in crowd.stop_taking()]
    return crowd, problems


def main(
    minutes: Annotated[float, typer.Option(min=0.5, help="How long faults are played.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Of the schedule of faults.")] = SEED,
    clients: Annotated[str, typer.Option(help="Which clients.")] = ",".join(COMMANDS),
    faults: Annotated[str, typer.Option(help="Play only these kinds.")] = "",
    pause_ms: Annotated[
        int, typer.Option(min=1, help="Between two sends of each key, ms.")
    ] = PAUSE_MS,
    folder: Annotated[Path | None, typer.Option(help="Leave all files here.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures.")] = None,
    page_file: Annotated[Path | None, typer.Option("--page", help="Write the page.")] = None,
) -> None:
    """Run, and print the report."""
    console = Console(stderr=True)
    progress = Progress(TextColumn("{task.description}"), TimeElapsedColumn(), console=console)
    task = progress.add_task("start")

    def on_fault(fault: Planned | Fault) -> None:
        progress.update(task, description=f"{fault.kind} of {fault.target}")
        if isinstance(fault, Fault):
            length_s = fault.until_s - fault.from_s
            line = f"{fault.from_s:7.1f} s  {fault.kind} of {fault.target}, {length_s:.1f} s"
            console.print(f"{line} {fault.problem}".rstrip(), markup=False, highlight=False)

    with tempfile.TemporaryDirectory(prefix="trocket-chaos-") as scratch, progress:
        place = folder or Path(scratch)
        for name in clients.split(","):
            if name not in COMMANDS:
                raise typer.BadParameter(f"{name!r} is none of {', '.join(COMMANDS)}")
        names, missing = prepared(clients.split(","), place)
        with_apache = missing_tool() is None
        if not with_apache:
            missing["Apache's broker"] = str(missing_tool())
        try:
            kinds = faults.split(",") if faults else list(KINDS)
            planned = schedule(seed, names, kinds, with_apache=with_apache)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        brokers = ControlledSet(
            Mix((OURS, OURS), OURS), place, keys=BROKER_KEYS, namesrv_count=2, command=COMMAND
        )
        try:
            with brokers:
                crowd, problems = run(
                    brokers, names, planned, minutes=minutes, pause_ms=pause_ms, on_fault=on_fault
                )
        except PeerError as error:
            sys.exit(f"chaos: {error}")
    report: Report = made_report(
        crowd.ledger,
        seed=seed,
        minutes=minutes,
        seconds=crowd.now_s(),
        errors=crowd.errors,
        problems=problems,
        missing=missing,
    )
    if json_file is not None:
        json_file.write_text(json.dumps(report.as_json(), indent=1), encoding="utf-8")
    if page_file is not None:
        page_file.write_bytes(page(report))
    show(report, Console())
    sys.exit(0 if report.is_good else 1)


if __name__ == "__main__":
    typer.run(main)
