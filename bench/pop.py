"""Rate and cost of popping and acknowledging, and how soon a lost acknowledgement is made good.

Beside each other in one run: trocket, and Apache's broker with its merging of check points in
memory (enablePopBufferMerge) off, as it is by default, and on. Each is a process with its real
store (asynchronous flush); only the one that is measured runs, the others are stopped by a signal.
Connections pop 32 messages of 128 bytes from eight queues and acknowledge them, with 32 pipelined
requests or with one. Each consumer group pops all messages; then the next one does.

What was popped and acknowledged costs a broker more when its records come due, at the end of the
invisible time. So each case waits for that, and counts the CPU that exceeds an idle broker's.

The last case pops and does not acknowledge: the time from the end of the invisible time until the
message comes again.

    python -m trocket.bench.pop --pin
    python -m trocket.bench.pop --pin --json
    python -m trocket.bench.pop --side trocket --case "8 connections" --rounds 1

Such runs differ by a fifth from one to the next. `--beside` runs our broker and that of another
checkout at once, and gives each of them the load for a window by turns, so that the ratio of their
CPU has an error of one in a hundred:

    python -m trocket.bench.pop --pin --beside ../before --seconds 1 --rounds 20 --invisible 60
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer
from rich.console import Console
from rich.progress import Progress

from trocket.bench import kit
from trocket.bench.frames import SendTemplate
from trocket.bench.load import fill
from trocket.bench.pop_delay import measure_delays
from trocket.bench.pop_load import BROKER, CASES, QUEUE_COUNT, TOPIC, Case, Groups, load_of
from trocket.bench.wire import BROKER_HEAP, JVM_WARM_UP_S, checkout_command, pin_to_cores
from trocket.interop.apache import ApacheCluster, broker_conf_text
from trocket.interop.peer import Cluster
from trocket.interop.trocket_peer import COMMAND, FREE_METRICS_PORT, TrocketCluster
from trocket.interop.usage import cpu_seconds
from trocket.interop.wire import WireClient

WARM_UP_S: Final = 2.0
AFTER_S: Final = 6.0
"""After the invisible time the last check points are through."""
IDLE_S: Final = 4.0
REDELIVERY: Final = "redelivery"
"""The case without acknowledgements."""
APACHE: Final = "apache-5.5.0"

Advance: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """The figures of one case on one broker in one round.

    Attributes:
      cpu_us: the broker's, per message, while it was loaded.
      later_cpu_us: the same afterwards, for what came due, without that of an idle broker.
      pop_p50_ms, pop_p99_ms: latency of a pop that found messages.
      empty: pops that found none, because of other connections.
      refused: pops and acknowledgements that the broker refused as busy.
      generator_cpu_share: shows whether the generator was the bottleneck.
    """

    side: str
    case: str
    messages: int
    messages_per_s: float
    cpu_us: float
    later_cpu_us: float
    pop_p50_ms: float
    pop_p99_ms: float
    empty: int
    refused: int
    generator_cpu_share: float

    @property
    def whole_cpu_us(self) -> float:
        """The broker's CPU per message, with that of what came due."""
        return self.cpu_us + self.later_cpu_us


@dataclass(frozen=True)
class Redelivery:
    """Delays after the invisible time on one broker in one round, in seconds."""

    side: str
    messages: int
    least_s: float
    p50_s: float
    most_s: float


@dataclass(frozen=True)
class Ratio:
    """A side by another one.

    Attributes:
      rate, least_rate, most_rate: of messages per second: the median of the rounds, and the ends.
      cpu: of the CPU per message, with that of what came due later.
    """

    case: str
    side: str
    beside: str
    rate: float
    least_rate: float
    most_rate: float
    cpu: float


@dataclass
class Side:
    """A running broker.

    Attributes:
      idle_share: CPU of the idle broker, in cores.
    """

    name: str
    cluster: Cluster
    idle_share: float = 0.0
    runs: int = 0

    @property
    def pid(self) -> int:
        """The broker's process."""
        return self.cluster.pids[0]

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Let its processes run during the block."""
        self.wake()
        try:
            yield
        finally:
            for pid in self.cluster.pids:
                os.kill(pid, signal.SIGSTOP)

    def wake(self) -> None:
        """Let its processes run."""
        for pid in self.cluster.pids:
            os.kill(pid, signal.SIGCONT)

    def new_name(self) -> str:
        """A name for groups that no run had before."""
        self.runs += 1
        return f"PopBenchGroup{self.runs}"


def _trocket(folder: Path, *, merges: bool, checkout: Path | None = None) -> Cluster:
    """Ours; of another checkout, if that is given."""
    folder.mkdir(parents=True)
    conf = folder / "broker.conf"
    keys = {"brokerName": BROKER, "enablePopBufferMerge": merges}  # receipts have the name
    conf.write_text(broker_conf_text(keys), encoding="utf-8")
    command = COMMAND if checkout is None else checkout_command(checkout)
    return TrocketCluster(folder, command=command, options=(*FREE_METRICS_PORT, "-c", str(conf)))


def _apache(folder: Path, *, merges: bool) -> Cluster:
    return ApacheCluster(
        APACHE.removeprefix("apache-"), folder, is_measured=True, broker_java=BROKER_HEAP,
        broker_keys={"enablePopBufferMerge": merges},
    )  # fmt: skip


SIDES: Final[dict[str, Callable[[Path], Cluster]]] = {
    "trocket": lambda folder: _trocket(folder, merges=True),
    "trocket, unmerged": lambda folder: _trocket(folder, merges=False),
    APACHE: lambda folder: _apache(folder, merges=False),
    f"{APACHE}, merged": lambda folder: _apache(folder, merges=True),
}
"""Stopped brokers by name."""

USUAL_SIDES: Final = ["trocket", APACHE, f"{APACHE}, merged"]


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
      names: of the brokers, in `SIDES`.
      cases: None: redelivery.
      seconds, rounds, messages, invisible_ms, delayed, pin: as the options of `main`.
    """

    names: Sequence[str]
    cases: Sequence[Case | None]
    seconds: float
    rounds: int
    messages: int
    invisible_ms: int
    delayed: int
    pin: bool


def measure(side: Side, case: Case, plan: Plan) -> Outcome:
    """Run one case on a running broker.

    Raises: PeerError, OSError, BadAnswerError: the broker ended or refused.
    """
    groups = Groups(plan.messages, side.new_name())
    address = kit.socket_address(side.cluster.broker_address)
    with load_of(address, case, groups, invisible_ms=plan.invisible_ms) as load:
        warm = load.run(WARM_UP_S)
        cpu_s, own_s, start_s = cpu_seconds(side.pid), time.process_time(), time.perf_counter()
        count = load.run(plan.seconds)
        took_s = time.perf_counter() - start_s
        loaded_cpu_s = cpu_seconds(side.pid) - cpu_s
        own_share = (time.process_time() - own_s) / took_s
    latencies_ms = kit.percentiles(load.tally.latencies_s, 1e3)
    after_s, before_s = plan.invisible_ms / 1000 + AFTER_S, cpu_seconds(side.pid)
    time.sleep(after_s)
    later_cpu_s = cpu_seconds(side.pid) - before_s - side.idle_share * after_s
    return Outcome(
        side=side.name,
        case=case.name,
        messages=count,
        messages_per_s=count / took_s,
        cpu_us=loaded_cpu_s / count * 1e6,
        later_cpu_us=later_cpu_s / (warm + count) * 1e6,
        pop_p50_ms=latencies_ms.p50,
        pop_p99_ms=latencies_ms.p99,
        empty=load.tally.empty,
        refused=load.tally.refused,
        generator_cpu_share=own_share,
    )


@dataclass(frozen=True)
class Comparison:
    """The CPU of our broker and of another checkout's, in windows by turns.

    Attributes:
      cpu_us, beside_cpu_us: medians of the windows, per message.
      ratio, error: the mean of the windows' ratios, and its standard error.
    """

    case: str
    cpu_us: float
    beside_cpu_us: float
    ratio: float
    error: float


def compare(case: Case, sides: Sequence[Side], plan: Plan) -> Comparison:
    """Give both brokers the load by turns. Raises: as `measure`."""
    with ExitStack() as stack:
        loads = []
        for side in sides:
            address = kit.socket_address(side.cluster.broker_address)
            groups = Groups(plan.messages, side.new_name())
            load = load_of(address, case, groups, invisible_ms=plan.invisible_ms)
            loads.append(stack.enter_context(load))
        for load in loads:
            load.run(WARM_UP_S)
        found: tuple[list[float], list[float]] = ([], [])
        for order in kit.by_turns(range(len(sides)), plan.rounds):
            for number in order:
                before_s = cpu_seconds(sides[number].pid)
                count = loads[number].run(plan.seconds)
                used_s = cpu_seconds(sides[number].pid) - before_s
                found[number].append(used_s / count * 1e6)
    ratios_ = [ours / theirs for ours, theirs in zip(*found, strict=True)]
    error = statistics.stdev(ratios_) / len(ratios_) ** 0.5 if len(ratios_) > 1 else 0.0
    ours_us, theirs_us = map(statistics.median, found)
    return Comparison(case.name, ours_us, theirs_us, statistics.mean(ratios_), error)


def run_beside(checkout: Path, plan: Plan) -> list[Comparison]:
    """Compare all cases with another checkout. Raises: as `measure`."""
    with tempfile.TemporaryDirectory(prefix="trocket-bench-") as folder, ExitStack() as stack:
        sides = []
        for number, path in enumerate((None, checkout)):
            cluster = _trocket(Path(folder, str(number)), merges=True, checkout=path)
            sides.append(Side(str(path or "trocket"), stack.enter_context(kit.running(cluster))))
        if plan.pin:
            pin_to_cores(*(side.pid for side in sides))
        for side in sides:
            fill_topic(side, plan)
        return [compare(case, sides, plan) for case in plan.cases if case is not None]


def measure_redelivery(side: Side, messages: int) -> Redelivery:
    """Run the case without acknowledgements. Raises: as `measure_delays`."""
    delays_s = measure_delays(side.cluster.broker_address, group=side.new_name(), messages=messages)
    return Redelivery(side.name, messages, delays_s[0], statistics.median(delays_s), delays_s[-1])


def fill_topic(side: Side, plan: Plan) -> None:
    """Create the topic and fill it. Raises: as `measure`."""
    with WireClient(side.cluster.broker_address) as wire:
        wire.create_topic(TOPIC, queue_count=QUEUE_COUNT)
    address = kit.socket_address(side.cluster.broker_address)
    fill(address, SendTemplate.for_topic(TOPIC, queue_count=QUEUE_COUNT), plan.messages)


def prepare(side: Side, plan: Plan) -> None:
    """Fill the topic, load a broker in a JVM until its code is compiled, and measure it idle.

    Raises: as `measure`.
    """
    address = kit.socket_address(side.cluster.broker_address)
    fill_topic(side, plan)
    for case in filter(None, plan.cases):
        groups = Groups(plan.messages, side.new_name())
        with load_of(address, case, groups, invisible_ms=plan.invisible_ms) as load:
            load.run(JVM_WARM_UP_S if side.name.startswith("apache") else WARM_UP_S)
    time.sleep(plan.invisible_ms / 1000 + AFTER_S)
    before_s = cpu_seconds(side.pid)
    time.sleep(IDLE_S)
    side.idle_share = (cpu_seconds(side.pid) - before_s) / IDLE_S


COLUMNS: kit.Columns[Outcome] = {
    "case": lambda one: one.case,
    "broker": lambda one: one.side,
    "msg/s": lambda one: kit.short(one.messages_per_s),
    "CPU µs": lambda one: f"{one.cpu_us:.2f}",
    "later µs": lambda one: f"{one.later_cpu_us:.2f}",
    "pop p50 ms": lambda one: f"{one.pop_p50_ms:.2f}",
    "pop p99 ms": lambda one: f"{one.pop_p99_ms:.2f}",
    "empty": lambda one: str(one.empty),
    "busy": lambda one: str(one.refused),
    "load": lambda one: f"{one.generator_cpu_share:.0%}",
}
"""Medians of the rounds; CPU µs is the broker's per message, under load and afterwards."""

REDELIVERY_COLUMNS: kit.Columns[Redelivery] = {
    "broker": lambda one: one.side,
    "messages": lambda one: str(one.messages),
    "least s": lambda one: f"{one.least_s:.2f}",
    "p50 s": lambda one: f"{one.p50_s:.2f}",
    "most s": lambda one: f"{one.most_s:.2f}",
}

COMPARISON_COLUMNS: kit.Columns[Comparison] = {
    "case": lambda one: one.case,
    "CPU µs": lambda one: f"{one.cpu_us:.2f}",
    "beside": lambda one: f"{one.beside_cpu_us:.2f}",
    "ratio": lambda one: f"{one.ratio:.3f} ± {one.error:.3f}",
}

RATIO_COLUMNS: kit.Columns[Ratio] = {
    "case": lambda one: one.case,
    "broker": lambda one: one.side,
    "beside": lambda one: one.beside,
    "rate ratio": lambda one: f"{one.rate:.2f}",
    "least": lambda one: f"{one.least_rate:.2f}",
    "most": lambda one: f"{one.most_rate:.2f}",
    "CPU ratio": lambda one: f"{one.cpu:.2f}",
}
"""Medians of the rounds' ratios; CPU with what came due afterwards."""


def _rounds(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], list[Outcome]]:
    """The outcomes of each case and side, in the order of the rounds."""
    by_key: dict[tuple[str, str], list[Outcome]] = {}
    for one in outcomes:
        by_key.setdefault((one.case, one.side), []).append(one)
    return by_key


def ratios(outcomes: Sequence[Outcome], first: str) -> list[Ratio]:
    """The first side by each other one, case by case."""
    by_key = _rounds(outcomes)
    found = []
    for (case, side), theirs in by_key.items():
        ours = by_key.get((case, first), [])
        if side == first or not ours:
            continue
        pairs = (
            ([one.messages_per_s for one in ours], [one.messages_per_s for one in theirs]),
            ([one.whole_cpu_us for one in ours], [one.whole_cpu_us for one in theirs]),
        )
        rate, cpu = (kit.spread_of(kit.round_ratios(*pair)) for pair in pairs)
        found.append(Ratio(case, first, side, *rate, cpu.median))
    return found


def medians(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """One outcome of each case and side, with the median of each figure."""
    found = []
    for rounds in _rounds(outcomes).values():
        figures = {
            name: statistics.median(getattr(one, name) for one in rounds)
            for name, value in asdict(rounds[0]).items()
            if not isinstance(value, str)
        }
        found.append(replace(rounds[0], **figures))
    return found


def start(plan: Plan, folder: Path, stack: ExitStack, advance: Advance) -> list[Side]:
    """Start and prepare all brokers, which then wait, stopped by a signal.

    Args:
      stack: closes them.
      advance: called with what is done next.

    Raises: as `prepare`.
    """
    sides = []
    for number, name in enumerate(plan.names):
        advance(f"starting {name}")
        side = Side(name, stack.enter_context(kit.running(SIDES[name](folder / str(number)))))
        stack.callback(side.wake)
        if plan.pin:
            pin_to_cores(side.pid)
        with side.awake():
            prepare(side, plan)
        sides.append(side)
    return sides


def run(plan: Plan) -> tuple[list[Outcome], list[Redelivery]]:
    """Measure all brokers by turns, with the progress on standard error.

    Raises: as `measure` and `measure_redelivery`.
    """
    outcomes: list[Outcome] = []
    delays: list[Redelivery] = []
    with (
        tempfile.TemporaryDirectory(prefix="trocket-bench-") as folder,
        Progress(console=Console(stderr=True)) as progress,
        ExitStack() as stack,
    ):
        steps = len(plan.names) * (1 + plan.rounds * len(plan.cases))
        task = progress.add_task("", total=steps, completed=-1)

        def advance(text: str) -> None:
            progress.update(task, advance=1, description=text)

        sides = start(plan, Path(folder), stack, advance)
        for order in kit.by_turns(sides, plan.rounds):
            for case in plan.cases:
                for side in order:
                    advance(f"{REDELIVERY if case is None else case.name}, {side.name}")
                    with side.awake():
                        if case is None:
                            delays.append(measure_redelivery(side, plan.delayed))
                        else:
                            outcomes.append(measure(side, case, plan))
        advance("done")
    return outcomes, delays


def main(
    side: Annotated[
        list[str] | None, typer.Option(help="Run only these brokers; the first is ours in ratios.")
    ] = None,
    case: Annotated[list[str] | None, typer.Option(help="Run only these cases.")] = None,
    seconds: Annotated[float, typer.Option(help="Measure each case for this time.")] = 10.0,
    rounds: Annotated[int, typer.Option(help="Repeat this often.", min=1)] = 3,
    messages: Annotated[int, typer.Option(help="Messages in the topic.", min=1000)] = 300_000,
    invisible: Annotated[float, typer.Option(help="Invisible time in seconds.", min=1)] = 10.0,
    delayed: Annotated[
        int, typer.Option(help="Messages without acknowledgement in each round.", min=1)
    ] = 24,
    pin: Annotated[
        bool, typer.Option(help="Pin the brokers to one core, the generator to the others.")
    ] = False,
    beside: Annotated[
        Path | None, typer.Option(help="Alternate with this checkout, in windows of --seconds.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Pop and acknowledge on broker processes by turns, and print rates, CPU and delays."""
    names = [*kit.chosen(side or USUAL_SIDES, SIDES, "--side")]
    known: dict[str, Case | None] = {one.name: one for one in CASES} | {REDELIVERY: None}
    cases = [*kit.chosen(case, known, "--case").values()]
    invisible_ms = int(invisible * 1000)
    plan = Plan(
        names=names,
        cases=cases,
        seconds=seconds,
        rounds=rounds,
        messages=messages,
        invisible_ms=invisible_ms,
        delayed=delayed,
        pin=pin,
    )
    if beside is not None:
        found = run_beside(beside, plan)
        if json_:
            print(json.dumps([asdict(one) for one in found], indent=2))
        else:
            Console(width=160).print(kit.table(COMPARISON_COLUMNS, found, f"beside {beside}"))
        return
    outcomes, delays = run(plan)
    by_round = ratios(outcomes, names[0])
    if json_:
        facts = {"seconds": seconds, "rounds": rounds, "invisible_s": invisible, "pinned": pin}
        report = {
            "cases": [asdict(one) for one in outcomes],
            "ratios": [asdict(one) for one in by_round],
            REDELIVERY: [asdict(one) for one in delays],
        }
        print(json.dumps(facts | report, indent=2))
        return
    console = Console(width=160)
    if outcomes:
        title = f"medians of {rounds} rounds of {seconds:g} s, invisible for {invisible:g} s"
        console.print(kit.table(COLUMNS, medians(outcomes), title))
    if by_round:
        console.print(kit.table(RATIO_COLUMNS, by_round, "ratios of each round"))
    if delays:
        console.print(kit.table(REDELIVERY_COLUMNS, delays, "after the end of the invisible time"))


if __name__ == "__main__":
    typer.run(main)
