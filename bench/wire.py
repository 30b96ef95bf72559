"""Rate and cost of sends and transactions to a broker over loopback.

The broker runs in its own process with its real store (async flush); this process is the load
generator: plain sockets, prepared frames, one send per burst of answers. Cases: 1, 64 and 1024
requests in flight on one connection, and 64 connections with one in flight each. The workload
"sends" are SEND_MESSAGE_V2 of 128 bytes, "transactions" half messages of 2,048 bytes as in the
official benchmark, each committed when it is answered; a transaction counts as one message.

    python -m trocket.bench.wire --pin
    python -m trocket.bench.wire --pin --against apache-5.5.0 --json
    python -m trocket.bench.wire --pin --beside ../before    # another checkout, with its .venv
    python -m trocket.bench.wire --pin --workload transactions
    python -m trocket.bench.wire --pin --tls    # each case without and with TLS
    python -m trocket.bench.wire --pin --tls --against apache-5.5.0   # of trocket, then of Apache
    python -m trocket.bench.wire --pin --acl    # without accounts, and signed sends with accounts
    python -m trocket.bench.wire --pin --acl --against apache-5.5.0   # of trocket, then of Apache

`--beside` runs both brokers and alternates between them, so that a slow minute of the machine
affects both; the result is the ratio of each round. `--tls` and `--acl` alternate in the same way
between sends without and with it. With them a broker in a JVM is loaded for 15 s in each way
before it is measured: with new code each message costs it a multiple.
"""

from __future__ import annotations

import json
import os
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from trocket.bench import kit
from trocket.bench.frames import BODY, JSON_TYPE, ROCKETMQ_TYPE, SendTemplate
from trocket.bench.load import CASES, FIRST_TIMEOUT_S, Case, InFlight, Load, Requests, Tally
from trocket.bench.signed_frames import SignedSends, create_account, guarded_keys
from trocket.bench.transaction_frames import GROUP, TransactionTemplate
from trocket.common.terminal import table
from trocket.interop.accounts import SUPER
from trocket.interop.peer import Cluster
from trocket.interop.tls_files import PERMISSIVE, ClientTls, ServerTls, make_files
from trocket.interop.trocket_peer import TrocketBroker, TrocketCluster
from trocket.interop.usage import cpu_seconds
from trocket.interop.wire import WireClient

JVM_WARM_UP_S = 15.0
"""Load on a broker in a JVM in each way before its costs are measured."""
TOPIC = "WireBench"
QUEUE_COUNT = 4
SERIALIZE_TYPES = {"rocketmq": ROCKETMQ_TYPE, "json": JSON_TYPE}
"""Values of --header."""

Side = TypeVar("Side")

BROKER_HEAP = ("-Xms2g", "-Xmx2g")


@dataclass(frozen=True)
class CaseResult:
    """The figures of one case; the generator's CPU shows whether it was the bottleneck."""

    case: str
    messages: int
    refused: int
    messages_per_s: float
    broker_cpu_us: float
    p50_us: float
    p99_us: float
    max_us: float
    generator_cpu_share: float
    resident_mb: float


def load_of(
    addresses: Sequence[tuple[str, int]], case: Case, requests: Requests, **options: Any
) -> Load:
    """The load of a case on brokers.

    Args:
      options: see `Load`.
    """
    tally = Tally()
    return Load(case.name, addresses, InFlight.of_case(requests, case, tally), tally, **options)


def measure(
    cluster: Cluster,
    case: Case,
    template: Requests,
    *,
    warm_up_s: float,
    seconds: float,
    spin: bool = False,
    tls: ssl.SSLContext | None = None,
) -> CaseResult:
    """Run one case against a running cluster.

    Args:
      spin, tls: see `Load`.

    Raises: PeerError, OSError, BadAnswerError: the broker ended or refused.
    """
    broker = cluster.pids[0]
    address = kit.socket_address(cluster.broker_address)
    with load_of([address], case, template, spin=spin, tls=tls) as load:
        load.run(warm_up_s, timeout_s=FIRST_TIMEOUT_S)
        cpu_start_s, own_start_s, start_s = (
            cpu_seconds(broker),
            time.process_time(),
            time.perf_counter(),
        )
        answered = load.run(seconds)
        took_s = time.perf_counter() - start_s
        cpu_s = cpu_seconds(broker) - cpu_start_s
        own_share = (time.process_time() - own_start_s) / took_s
    latencies_us = kit.percentiles(load.tally.latencies_s, 1e6)
    return CaseResult(
        case=case.name if tls is None else f"{case.name}, TLS",
        messages=answered,
        refused=load.tally.refused,
        messages_per_s=answered / took_s,
        broker_cpu_us=cpu_s / answered * 1e6,
        p50_us=latencies_us.p50,
        p99_us=latencies_us.p99,
        max_us=latencies_us.most,
        generator_cpu_share=own_share,
        resident_mb=kit.resident_mb(broker),
    )


def pin_to_cores(*brokers: int) -> None:
    """Give the brokers the machine's last usable core and this process the others.

    With one usable core all stay on it.
    """
    cores = sorted(os.sched_getaffinity(0))
    for broker in brokers:
        for thread in Path(f"/proc/{broker}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {cores[-1]})
    os.sched_setaffinity(0, set(cores[:-1]) or set(cores))


COLUMNS: kit.Columns[CaseResult] = {
    "case": lambda one: one.case,
    "msg/s": lambda one: kit.short(one.messages_per_s),
    "CPU µs": lambda one: kit.short(one.broker_cpu_us),
    "p50 µs": lambda one: kit.short(one.p50_us),
    "p99 µs": lambda one: kit.short(one.p99_us),
    "max µs": lambda one: kit.short(one.max_us),
    "load": lambda one: f"{one.generator_cpu_share:.0%}",
    "RSS MB": lambda one: f"{one.resident_mb:.0f}",
    "busy": lambda one: str(one.refused),
}
"""CPU µs is the broker's per message."""


def checkout_cluster(checkout: Path, folder: Path) -> TrocketCluster:
    """The stopped cluster of another checkout, run by its virtual environment.

    Raises: typer.BadParameter: there is none.
    """
    python = checkout.absolute() / ".venv/bin/python"
    if not python.exists():
        raise typer.BadParameter(f"--beside: {python} is missing; `make run` there makes it")
    return TrocketCluster(folder, command=(str(python), "-m", "trocket.cli.main"), options=())


def compare(
    sides: tuple[Side, Side],
    run: Callable[[Side, Case], CaseResult],
    rounds: int,
    cases: Sequence[Case] = CASES,
) -> list[tuple[CaseResult, CaseResult]]:
    """Measure two running brokers, or two ways, by turns; each round begins with the other."""
    pairs = []
    for order in kit.by_turns(sides, rounds):
        for case in cases:
            outcomes = {id(side): run(side, case) for side in order}
            pairs.append((outcomes[id(sides[0])], outcomes[id(sides[1])]))
    return pairs


def report_ratios(pairs: list[tuple[CaseResult, CaseResult]], title: str) -> Table:
    """Ours by theirs: medians of the rounds; of ratios also the least and the greatest."""
    rows = []
    for name in dict.fromkeys(ours.case for ours, _ in pairs):
        sides = [*zip(*(pair for pair in pairs if pair[0].case == name), strict=True)]
        cpu, rate = (
            [[getattr(one, figure) for one in side] for side in sides]
            for figure in ("broker_cpu_us", "messages_per_s")
        )
        cells = [f"{statistics.median(side):.1f}" for side in cpu]
        ratios = [kit.spread_of(kit.round_ratios(*both)) for both in (cpu, rate)]
        rows.append([name, *cells, *map(kit.spread_text, ratios)])
    return table(("case", "CPU µs", "beside", "ratio", "rate ratio"), rows, title=title)


def requests_of(workload: str, serialize_type: int) -> Requests:
    """The requests of a workload: "sends" or "transactions"."""
    in_transaction = workload == "transactions"
    template = SendTemplate.for_topic(
        TOPIC,
        queue_count=QUEUE_COUNT,
        body=(BODY * 16) if in_transaction else BODY,
        serialize_type=serialize_type,
        group=GROUP if in_transaction else "benchmark_producer",
        in_transaction=in_transaction,
    )
    return TransactionTemplate(template, TOPIC, "broker-a") if in_transaction else template


@dataclass(frozen=True)
class Cost:
    """A case on one broker without and with TLS or accounts: medians of the rounds.

    Attributes:
      broker: "trocket" or "apache-5.5.0".
      case: its name, such as "64 in flight".
      rounds: the number of rounds.
      plain_cpu_us, added_cpu_us: the broker's CPU per message, without and with it.
      least_us, most_us: the least and the greatest difference of a round.
      plain_per_s, added_per_s: messages per second, without and with it.
    """

    broker: str
    case: str
    rounds: int
    plain_cpu_us: float
    added_cpu_us: float
    least_us: float
    most_us: float
    plain_per_s: float
    added_per_s: float


def cost_of(broker: str, case: str, pairs: Sequence[tuple[CaseResult, CaseResult]]) -> Cost:
    """The cost by the figures of each round, without and with it; there must be one or more."""
    more = [one.broker_cpu_us - plain.broker_cpu_us for plain, one in pairs]
    plains, others = zip(*pairs, strict=True)
    return Cost(
        broker=broker,
        case=case,
        rounds=len(pairs),
        plain_cpu_us=statistics.median(each.broker_cpu_us for each in plains),
        added_cpu_us=statistics.median(each.broker_cpu_us for each in others),
        least_us=min(more),
        most_us=max(more),
        plain_per_s=statistics.median(each.messages_per_s for each in plains),
        added_per_s=statistics.median(each.messages_per_s for each in others),
    )


COST_COLUMNS: kit.Columns[Cost] = {
    "broker": lambda one: one.broker,
    "case": lambda one: one.case,
    "plain: CPU µs": lambda one: kit.short(one.plain_cpu_us),
    "with it": lambda one: kit.short(one.added_cpu_us),
    "ratio": lambda one: f"{one.added_cpu_us / one.plain_cpu_us:.2f}",
    "more µs": lambda one: f"{kit.short(one.least_us)} to {kit.short(one.most_us)}",
    "plain: msg/s": lambda one: kit.short(one.plain_per_s),
    "with it ": lambda one: kit.short(one.added_per_s),
}
"""CPU µs is the broker's per message; "more µs" has the least and the greatest of the rounds."""


@dataclass(frozen=True)
class Way:
    """One of the two ways whose costs are compared: without TLS or accounts, and with it."""

    cluster: Cluster
    requests: Requests
    tls: ssl.SSLContext | None = None


def ways_of(peer: str, folder: Path, *, acl: bool, header: str) -> tuple[Way, Way]:
    """The ways without and with accounts of ACL 2.0 (`acl`) or TLS, on stopped brokers.

    A broker with accounts is another process than the one without; TLS is beside plain
    connections, with new files.
    """
    serialize_type = SERIALIZE_TYPES[header]
    plain = requests_of("sends", serialize_type)
    if acl:
        without = alone(peer, folder / "plain")
        with_accounts = alone(peer, folder / "accounts", guarded_keys())
        signed = SignedSends(TOPIC, QUEUE_COUNT, "broker-a", serialize_type)
        return Way(without, plain), Way(with_accounts, signed)
    make_files(folder / "tls", "none")
    tls = ServerTls(folder / "tls", PERMISSIVE)
    cluster = kit.make_cluster(peer, folder / "cluster", tls=tls, broker_java=BROKER_HEAP)
    return Way(cluster, plain), Way(cluster, plain, ClientTls(tls.folder).context)


def alone(peer: str, folder: Path, keys: Mapping[str, object] | None = None) -> Cluster:
    """A stopped broker with keys of broker.conf; trocket's has no name server."""
    if peer == "trocket":
        return TrocketBroker(folder, store=folder / "store", broker_keys=keys)
    return kit.make_cluster(peer, folder, broker_java=BROKER_HEAP, broker_keys=keys)


def costs_on(
    peer: str,
    ways: tuple[Way, Way],
    run: Callable[[Way, Case], CaseResult],
    *,
    pin: bool,
    rounds: int,
    cases: Sequence[Case],
) -> list[Cost]:
    """Start the brokers of the ways, warm JVMs up, and measure the ways by turns.

    Args:
      run: measures one case.

    Raises: as `measure`.
    """
    clusters = list(dict.fromkeys(way.cluster for way in ways))
    with ExitStack() as stack:
        for cluster in clusters:
            stack.enter_context(kit.running(cluster))
        # Made before the load: the broker tells the name server of a topic in the first send.
        for way in ways:
            has_accounts = isinstance(way.requests, SignedSends)
            keys = SUPER.keys if has_accounts else None
            with WireClient(way.cluster.broker_address, keys=keys) as wire:
                wire.create_topic(TOPIC, queue_count=QUEUE_COUNT)
            if has_accounts:
                create_account(way.cluster, TOPIC)
        if pin:
            stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
            pin_to_cores(*(cluster.pids[0] for cluster in clusters))
        if peer != "trocket":
            for way in ways:
                warm_up(way)
        pairs = compare(ways, run, rounds, cases)
    by_case: dict[str, list[tuple[CaseResult, CaseResult]]] = {}
    for pair in pairs:
        by_case.setdefault(pair[0].case, []).append(pair)
    return [cost_of(peer, name, found) for name, found in by_case.items()]


def costs_of(
    peers: Iterable[str],
    run: Callable[[Way, Case], CaseResult],
    *,
    acl: bool,
    header: str,
    **times: Any,
) -> list[Cost]:
    """The costs on each of some brokers, one after the other, so that only one runs.

    Args:
      acl: of accounts; False: of TLS.
      times: see `costs_on`.
    """
    costs: list[Cost] = []
    with tempfile.TemporaryDirectory(prefix="trocket-bench-") as folder:
        for peer in peers:
            ways = ways_of(peer, Path(folder, peer), acl=acl, header=header)
            costs += costs_on(peer, ways, run, **times)
    return costs


def warm_up(way: Way) -> None:
    """Load a broker in a JVM until it has compiled what each message runs through."""
    address = kit.socket_address(way.cluster.broker_address)
    with load_of([address], CASES[1], way.requests, tls=way.tls) as load:
        load.run(JVM_WARM_UP_S, timeout_s=FIRST_TIMEOUT_S)


def check_options(header: str, workload: str, *, acl: bool, tls: bool, is_beside: bool) -> None:
    """Raises: typer.BadParameter: an option has a wrong value, or two contradict each other."""
    if header not in SERIALIZE_TYPES:
        raise typer.BadParameter("--header is rocketmq or json")
    if workload not in ("sends", "transactions"):
        raise typer.BadParameter("--workload is sends or transactions")
    if (acl or tls) and (workload != "sends" or is_beside):
        raise typer.BadParameter("--acl and --tls are for sends, without --beside")
    if tls and acl:
        raise typer.BadParameter("--tls and --acl are measured one at a time")


def results_of(
    against: str,
    beside: Path | None,
    run: Callable[[Cluster, Case], CaseResult],
    *,
    pin: bool,
    rounds: int,
    cases: Sequence[Case],
) -> tuple[list[tuple[CaseResult, CaseResult]], list[CaseResult]]:
    """The pairs of the rounds beside another checkout, or the results on one broker."""
    pairs: list[tuple[CaseResult, CaseResult]] = []
    outcomes: list[CaseResult] = []
    with tempfile.TemporaryDirectory(prefix="trocket-bench-") as folder:
        first = kit.make_cluster(against, Path(folder, "first"), broker_java=BROKER_HEAP)
        clusters = (
            (first,)
            if beside is None
            else (first, checkout_cluster(beside, Path(folder, "beside")))
        )
        with ExitStack() as stack:
            for cluster in clusters:
                stack.enter_context(kit.running(cluster))
            if pin:
                pin_to_cores(*(cluster.pids[0] for cluster in clusters))
            if len(clusters) == 2:
                pairs = compare(clusters, run, rounds, cases)
            else:
                outcomes = [run(first, one) for one in cases]
    return pairs, outcomes


def main(
    seconds: Annotated[float, typer.Option(help="Measure each case for this time.")] = 5.0,
    warm_up: Annotated[float, typer.Option(help="Warm up for this time.")] = 2.0,
    header: Annotated[str, typer.Option(help="Use rocketmq or json headers.")] = "rocketmq",
    against: Annotated[
        str, typer.Option(help="Measure trocket or apache-VERSION; with --tls or --acl both.")
    ] = "trocket",
    pin: Annotated[
        bool, typer.Option(help="Pin the broker to one core, the generator to the others.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    beside: Annotated[Path | None, typer.Option(help="Alternate with this checkout.")] = None,
    rounds: Annotated[
        int, typer.Option(help="With --beside, --tls or --acl, repeat this often.", min=1)
    ] = 5,
    workload: Annotated[str, typer.Option(help="Send sends or transactions.")] = "sends",
    acl: Annotated[
        bool, typer.Option("--acl", help="Run each case without and with accounts, by turns.")
    ] = False,
    case: Annotated[list[str] | None, typer.Option(help="Run only these cases.")] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Run each case without and with TLS, by turns.")
    ] = False,
) -> None:
    """Send messages or transactions to a broker process, and print rates and CPU."""
    check_options(header, workload, acl=acl, tls=tls, is_beside=beside is not None)
    cases = [*kit.chosen(case, {one.name: one for one in CASES}, "--case").values()]
    template = requests_of(workload, SERIALIZE_TYPES[header])

    def run_way(way: Way, case: Case) -> CaseResult:
        spin = pin and len(os.sched_getaffinity(0)) < (os.cpu_count() or 1)
        times = {"warm_up_s": warm_up, "seconds": seconds}
        return measure(way.cluster, case, way.requests, **times, spin=spin, tls=way.tls)

    def run(cluster: Cluster, case: Case) -> CaseResult:
        return run_way(Way(cluster, template), case)

    facts = {
        "workload": workload,
        "against": against,
        "header": header,
        "pinned": pin,
        "acl": acl,
        "seconds": seconds,
    }
    if tls or acl:
        costs = costs_of(
            dict.fromkeys(("trocket", against)), run_way, acl=acl, header=header,
            pin=pin, rounds=rounds, cases=cases,
        )  # fmt: skip
        title = f"with it: with {'accounts' if acl else 'TLS'}; {rounds} rounds of {seconds:g} s"
        kit.show(costs, COST_COLUMNS, as_json=json_, title=title, facts={**facts, "tls": tls})
        return
    pairs, outcomes = results_of(against, beside, run, pin=pin, rounds=rounds, cases=cases)
    if beside is not None:
        if json_:
            print(json.dumps([[asdict(one) for one in pair] for pair in pairs], indent=2))
        else:
            Console().print(report_ratios(pairs, f"{rounds} rounds of {seconds:g} s"))
        return
    title = f"{workload}, {against}, {header} header, {seconds:g} s each"
    kit.show(outcomes, COLUMNS, as_json=json_, title=title, facts=facts)


if __name__ == "__main__":
    typer.run(main)
