"""Failover of a set in controller mode: kills and freezes its processes, and judges what was lost.

    python -m trocket.bench.failover                              trocket's brokers and controller
    python -m trocket.bench.failover --brokers apache,apache --controller apache --defaults
    python -m trocket.bench.failover --controllers 3 --faults kill-master,kill-etcd
    python -m trocket.bench.failover --rounds 100 --faults kill-master,kill-both --json
    python -m trocket.bench.failover --features       delays, transactions, pops, retries, too
    python -m trocket.bench.failover --java           a producer of Java's client, too

Four clients send numbered messages in order, and a consumer takes them; then, round by round, a
fault, until the set is whole again. In the end all queues are read, the consumer has caught up, and
the stores of all members are compared.

The switch time is from the kill to the first send that is confirmed by another broker. The exit
status is 1 if a confirmed message was lost, if an offset had two messages, if a message stayed
invisible or came out of order, if the stores differ, or if the set did not become whole again.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from trocket.bench.failover_clients import GROUP, TOPIC, Clients
from trocket.bench.failover_features import FEATURES, KEYS, PREFIX
from trocket.bench.failover_java import TOPIC as JAVA_TOPIC
from trocket.bench.failover_java import java_producer
from trocket.bench.failover_ledger import Verdict
from trocket.common.terminal import table
from trocket.interop.controller_mode import OURS, ControlledSet, Member, Mix
from trocket.interop.process import PeerError
from trocket.interop.wire import WireClient
from trocket.remoting.message_codec import decode_record
from trocket.store.offline.layout import read_layout
from trocket.store.offline.read_only import ReadOnlyDisk
from trocket.store.offline.store_diff import compare

CLIENTS: Final = 4
FAULT_AFTER_S: Final = (0.3, 1.5)
"""A fault comes at a random moment of this span, after the set is whole."""
AWAY_S: Final = 1.0
"""How long a slave or a controller stays away."""
CASCADE_S: Final = 0.5
"""From the end of the slave to that of the master."""
SWITCH_S: Final = 60.0
"""At most, for a confirmed send after a fault."""
WHOLE_S: Final = 90.0
"""At most, until all members are in sync after a fault."""
TABLES_S: Final = 60.0
"""Until a slave of Apache's has a new topic: it asks every 10 s."""
CATCH_UP_S: Final = 30.0
FEATURES_S: Final = 60.0
"""Until all delays, transactions, pops and retries have come: a transaction is asked for again
after some seconds, and a popped message comes again after its time."""
POLL_S: Final = 0.1
SEED: Final = 40

_pause = threading.Event()


@dataclass
class Round:
    """What one fault did; times in seconds, None: not within the limit, or nothing to measure.

    Attributes:
      switch_s: from the fault to the first send that another broker confirmed; with both brokers
        gone, to the first send that any confirmed.
      java_s: the same as switch_s, of the Java producer.
      stall_s: the longest time of the round without a confirmed send.
      whole_s: from the return of what was lost until all members are in sync.
    """

    fault: str
    switch_s: float | None = None
    java_s: float | None = None
    stall_s: float = 0.0
    whole_s: float | None = None


@dataclass
class Report:
    """A whole run; `problems` are texts, such as a set that did not become whole."""

    mix: str
    rounds: list[Round] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    features: dict[str, dict[str, object]] = field(default_factory=dict)
    stores: str = ""
    problems: list[str] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return self.verdict.is_good and not self.problems


# Faults: what ends, and what is measured; each leaves everything running again.


def switch(
    brokers: ControlledSet, clients: Clients, lost: Member, end: Callable[[], None]
) -> float | None:
    """End a member, and the seconds until another one confirms."""
    began_s = time.monotonic()
    end()
    ended_s = time.monotonic()
    done = clients.wait_confirmed(after_s=ended_s, lost=lost.address, timeout_s=SWITCH_S)
    if clients.java is not None:
        at_s = clients.java.wait_sent(after_s=ended_s, lost=lost.address, timeout_s=SWITCH_S)
        clients.java_s = None if at_s is None else at_s - began_s
    return None if done is None else done.at_s - began_s


def kill_master(brokers: ControlledSet, clients: Clients) -> float | None:
    master = brokers.master()
    took_s = switch(brokers, clients, master, master.kill)
    master.start()
    return took_s


def stop_master(brokers: ControlledSet, clients: Clients) -> float | None:
    master = brokers.master()
    took_s = switch(brokers, clients, master, master.stop)
    master.start()
    return took_s


def freeze_master(brokers: ControlledSet, clients: Clients) -> float | None:
    master = brokers.master()
    took_s = switch(brokers, clients, master, master.freeze)
    master.thaw()
    return took_s


def kill_slave(brokers: ControlledSet, clients: Clients) -> float | None:
    slave = brokers.slaves()[0]
    slave.kill()
    _pause.wait(AWAY_S)
    slave.start()
    return None


def freeze_slave(brokers: ControlledSet, clients: Clients) -> float | None:
    slave = brokers.slaves()[0]
    slave.freeze()
    _pause.wait(AWAY_S)
    slave.thaw()
    return None


def kill_controller(brokers: ControlledSet, clients: Clients) -> float | None:
    leader = brokers.leader()
    if leader is None:
        raise PeerError("no controller leads")
    leader.kill()
    _pause.wait(AWAY_S)
    leader.start()
    return None


def kill_etcd(brokers: ControlledSet, clients: Clients) -> float | None:
    """The member of the controllers' etcd that leads."""
    if brokers.etcd is None:
        raise PeerError("these controllers have no etcd; use --controllers 3")
    member = brokers.etcd.leader()
    member.kill()
    _pause.wait(AWAY_S)
    member.start()
    brokers.etcd.wait_ready()
    return None


def kill_both(brokers: ControlledSet, clients: Clients) -> float | None:
    """All members at once, which start in any order."""
    began_s = time.monotonic()
    for member in brokers.members:
        member.kill()
    ended_s = time.monotonic()
    for member in random.sample(brokers.members, len(brokers.members)):
        member.start()
    done = clients.wait_confirmed(after_s=ended_s + POLL_S, lost="", timeout_s=SWITCH_S)
    return None if done is None else done.at_s - began_s


def cascade(brokers: ControlledSet, clients: Clients) -> float | None:
    """The slave ends, a moment later the master; the slave alone returns first."""
    master = brokers.master()
    slave = brokers.slaves()[0]
    slave.kill()
    _pause.wait(CASCADE_S)
    master.kill()
    slave.start()
    _pause.wait(AWAY_S)
    master.start()
    return None


FAULTS: Final[Mapping[str, Callable[[ControlledSet, Clients], float | None]]] = {
    "kill-master": kill_master,
    "kill-slave": kill_slave,
    "kill-controller": kill_controller,
    "kill-both": kill_both,
    "kill-etcd": kill_etcd,
    "freeze-master": freeze_master,
    "freeze-slave": freeze_slave,
    "stop-master": stop_master,
    "cascade": cascade,
}


# The run


def prepare(brokers: ControlledSet) -> None:
    """Make topics and groups, and wait until each member has them.

    Raises: PeerError: a member does not have them in time.
    """
    topics = [TOPIC, JAVA_TOPIC, *(PREFIX + feature for feature in FEATURES)]
    groups = [GROUP, *(f"take-{feature}" for feature in FEATURES)]
    with WireClient(brokers.master().address) as client:
        for topic in topics:
            client.create_topic(topic, queue_count=CLIENTS)
        for group in groups:
            client.create_group(group)
    for member in brokers.members:
        until_s = time.monotonic() + TABLES_S
        while True:
            with WireClient(member.address) as client:
                if client.topics().keys() >= {*topics} and client.groups().keys() >= {*groups}:
                    break
            if time.monotonic() > until_s:
                raise PeerError(f"{member.name} lacks topics or groups after {TABLES_S:.0f} s")
            _pause.wait(POLL_S)


def play_round(
    fault: str, brokers: ControlledSet, clients: Clients, chance: random.Random
) -> Round:
    """Have one fault happen to a whole set, and wait until it is whole again.

    Raises: PeerError: no send is confirmed, or the set does not become whole.
    """
    _pause.wait(chance.uniform(*FAULT_AFTER_S))
    clients.take_longest_s()
    one = Round(fault)
    clients.java_s = None
    one.switch_s = FAULTS[fault](brokers, clients)
    one.java_s = clients.java_s
    began_s = time.monotonic()
    brokers.wait_in_sync(len(brokers.members), timeout_s=WHOLE_S)
    one.whole_s = time.monotonic() - began_s
    done = clients.wait_confirmed(after_s=time.monotonic(), lost="", timeout_s=SWITCH_S)
    if done is None:
        raise PeerError(f"no send is confirmed {SWITCH_S:.0f} s after {fault}: {brokers.state()}")
    one.stall_s = clients.take_longest_s()
    return one


def judge(brokers: ControlledSet, clients: Clients) -> Verdict:
    """Stop sending, let the consumer catch up, and read what the master has."""
    clients.stop_sending()
    until_s = time.monotonic() + CATCH_UP_S
    while clients.ledger.missing_count() and time.monotonic() < until_s:
        _pause.wait(POLL_S)
    until_s = time.monotonic() + FEATURES_S
    features = clients.features
    while features is not None and not features.is_settled and time.monotonic() < until_s:
        _pause.wait(POLL_S)
    numbers: dict[int, list[int]] = {}
    begins: dict[int, int] = {}
    with WireClient(brokers.master().address) as client:
        for queue in range(CLIENTS):
            begins[queue] = client.min_offset(TOPIC, queue)
            bodies = (decode_record(each).body for each in client.pull_all("reader", TOPIC, queue))
            numbers[queue] = [int(body.partition(b":")[2]) for body in bodies]
    return clients.ledger.verdict(numbers, begins)


def compare_stores(brokers: ControlledSet) -> tuple[str, bool]:
    """Compare the logs and queues of all stopped members below the shorter one's end.

    Returns: a line for people; whether they are equal.
    """
    disk = ReadOnlyDisk()
    first, *others = (read_layout(disk, str(member.store)) for member in brokers.members)
    lines = []
    are_equal = True
    for other in others:
        found = compare(disk, first, other)
        are_equal = are_equal and found.is_none
        line = f"{found.record_count:,} records are equal, the logs end at {found.ends}"
        if found.log_offset >= 0:
            line += f", and differ from {found.log_offset} on"
        if found.queue_count:
            line += f", and {found.queue_count} queues differ: {found.queues[0]}"
        lines.append(line)
    return "; ".join(lines), are_equal


def run(
    brokers: ControlledSet,
    faults: list[str],
    *,
    rate: float,
    seed: int,
    with_features: bool,
    with_java: bool = False,
    on_round: Callable[[str, Round | None], None],
) -> Report:
    """Start the set, play all rounds, and judge."""
    report = Report(str(brokers.mix))
    began_s = time.monotonic()
    chance = random.Random(seed)
    brokers.start()
    prepare(brokers)
    namesrv = brokers.namesrv_address
    with (
        java_producer(namesrv, brokers.folder / "java") if with_java else nullcontext() as java,
        Clients(namesrv, count=CLIENTS, rate=rate, with_features=with_features) as clients,
    ):
        clients.java = java
        if clients.wait_confirmed(after_s=began_s, lost="", timeout_s=SWITCH_S) is None:
            raise PeerError(f"no send is confirmed at the beginning: {dict(clients.errors)}")
        try:
            for fault in faults:
                on_round(fault, None)
                one = play_round(fault, brokers, clients, chance)
                report.rounds.append(one)
                on_round(fault, one)
        except PeerError as error:
            report.problems.append(f"round {len(report.rounds)}: {error}")
        try:
            report.verdict = judge(brokers, clients)
        except PeerError as error:
            report.problems.append(f"verdict: {error}")
        for name, promise in (clients.features.promises if clients.features else {}).items():
            report.features[name] = promise.outcome()
            if not promise.is_kept:
                report.problems.append(f"{name}: {promise.outcome()}")
        report.errors = dict(clients.errors)
    try:
        brokers.wait_in_sync(len(brokers.members))
        for member in brokers.members:
            member.stop()
        report.stores, are_equal = compare_stores(brokers)
        if not are_equal:
            report.problems.append(report.stores)
    except PeerError as error:
        report.problems.append(f"stores: {error}")
    report.seconds = time.monotonic() - began_s
    return report


def show(report: Report, console: Console) -> None:
    """Print a report for people."""
    rows = []
    for fault, count in Counter(one.fault for one in report.rounds).items():
        ones = [one for one in report.rounds if one.fault == fault]
        switches = [one.switch_s for one in ones if one.switch_s is not None]
        whole = [one.whole_s for one in ones if one.whole_s is not None]
        stalls = [one.stall_s for one in ones]
        java = [one.java_s for one in ones if one.java_s is not None]
        rows.append([fault, str(count), *map(_spread, (switches, stalls, whole, java))])
    columns = ["Fault", "Rounds", "Switch s", "Stall s", "Whole again s", "Java's s"]
    console.print(table(columns, rows, title=report.mix, width=console.width))
    verdict = report.verdict
    console.print(
        f"confirmed {verdict.confirmed:,}: lost {verdict.lost:,}, offsets with two messages "
        f"{verdict.doubled:,}, unseen {verdict.unseen:,}, disordered {verdict.disordered:,}"
    )
    for kind, places in verdict.examples.items():
        console.print(f"  {kind}: {', '.join(places)}")
    console.print(f"stores: {report.stores}")
    for name, outcome in report.features.items():
        console.print(f"{name}: {outcome}")
    for problem in report.problems:
        console.print(f"problem: {problem}")


def _spread(values: list[float]) -> str:
    """Median and most; "-": there are none."""
    return f"{statistics.median(values):.2f} / {max(values):.2f}" if values else "-"


def main(
    brokers: Annotated[str, typer.Option(help="Kinds of the brokers.")] = f"{OURS},{OURS}",
    controller: Annotated[str, typer.Option(help="Kind of the controllers.")] = OURS,
    controllers: Annotated[
        int, typer.Option(min=1, help="How many; several of ours use etcd.")
    ] = 1,
    namesrv: Annotated[str, typer.Option(help="Kind of the name server.")] = OURS,
    rounds: Annotated[int, typer.Option(min=0, help="How many faults.")] = 10,
    faults: Annotated[str, typer.Option(help="Play these in turn.")] = "kill-master",
    rate: Annotated[float, typer.Option(min=0.1, help="Sends a second of each client.")] = 250.0,
    defaults: Annotated[bool, typer.Option(help="Leave the intervals at their defaults.")] = False,
    key: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for broker.conf.")] = None,
    features: Annotated[
        bool, typer.Option(help="Delays, transactions, pops and retries, too.")
    ] = False,
    java: Annotated[bool, typer.Option(help="A Java producer, too.")] = False,
    seed: Annotated[int, typer.Option(help="Of the moments of the faults.")] = SEED,
    folder: Annotated[Path | None, typer.Option(help="Leave all files here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run, and print the report."""
    names = faults.split(",")
    for name in names:
        if name not in FAULTS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(FAULTS)}")
    keys: dict[str, str] = dict(pair.split("=", 1) for pair in key or ())
    mix = Mix(tuple(brokers.split(",")), controller)
    progress = Progress(
        TextColumn("{task.description}"),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    task = progress.add_task(str(mix), total=rounds)

    def on_round(fault: str, one: Round | None) -> None:
        progress.update(task, description=fault, advance=0 if one is None else 1)
        if one is not None:
            progress.console.print(one)

    with tempfile.TemporaryDirectory(prefix="trocket-failover-") as scratch, progress:
        made = ControlledSet(
            mix,
            folder or Path(scratch),
            keys={**KEYS, **keys},
            controller_count=controllers,
            namesrv=namesrv,
            quick=not defaults,
        )
        with made:
            chosen = [names[number % len(names)] for number in range(rounds)]
            report = run(
                made,
                chosen,
                rate=rate,
                seed=seed,
                with_features=features,
                with_java=java,
                on_round=on_round,
            )
    if as_json:
        print(json.dumps(asdict(report)))
    else:
        show(report, Console())
    sys.exit(0 if report.is_good else 1)


if __name__ == "__main__":
    typer.run(main)
