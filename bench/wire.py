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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
from trocket.interop.wire import Keys, WireClient

JVM_WARM_UP_S = 15.0
"""Load on a broker in a JVM in each way before its costs are measured."""
TOPIC = "WireBench"
QUEUE_COUNT = 4
SERIALIZE_TYPES = {"rocketmq": ROCKETMQ_TYPE, "json": JSON_TYPE}
"""Values of --header."""

AnySide = TypeVar("AnySide")

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


@dataclass(frozen=True)
class Side:
    """What is measured by turns with another one: a broker, and how it is spoken to."""

    cluster: Cluster
    requests: Requests
    tls: ssl.SSLContext | None = None

    @property
    def keys(self) -> Keys | None:
        """The keys of the administrator, if the broker has accounts."""
        return SUPER.keys if isinstance(self.requests, SignedSends) else None

    def load(self, case: Case, *, spin: bool = False) -> Load:
        """The load of a case on it."""
        address = kit.socket_address(self.cluster.broker_address)
        return load_of([address], case, self.requests, spin=spin, tls=self.tls)


def measure(
    side: Side, case: Case, *, warm_up_s: float, seconds: float, spin: bool = False
) -> CaseResult:
    """Run one case against a running broker.

    Args:
      spin: see `Load`.

    Raises: PeerError, OSError, BadAnswerError: the broker ended or refused.
    """
    broker = side.cluster.pids[0]
    with side.load(case, spin=spin) as load:
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
        case=case.name,
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


def checkout_command(checkout: Path) -> tuple[str, ...]:
    """The command `trocket` of another checkout, in its virtual environment.

    Raises: typer.BadParameter: there is none.
    """
    python = checkout.absolute() / ".venv/bin/python"
    if not python.exists():
        raise typer.BadParameter(f"--beside: {python} is missing; `make run` there makes it")
    return (str(python), "-m", "trocket.cli.main")


def checkout_cluster(checkout: Path, folder: Path) -> TrocketCluster:
    """The stopped cluster of another checkout. Raises: as `checkout_command`."""
    return TrocketCluster(folder, command=checkout_command(checkout), options=())


def compare(
    sides: Sequence[AnySide],
    run: Callable[[AnySide, Case], CaseResult],
    rounds: int,
    cases: Sequence[Case] = CASES,
) -> list[tuple[CaseResult, CaseResult]]:
    """Measure two sides by turns; each round begins with the other."""
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


def sides_of(
    peer: str, folder: Path, requests: Requests, *, acl: bool, tls: bool, header: str
) -> list[Side]:
    """The sides of one peer, on stopped brokers: with accounts of ACL 2.0 or with TLS, and without.

    A broker with accounts is another process than the one without; TLS is beside plain connections,
    with new files. Without both there is one side.
    """
    if acl:
        signed = SignedSends(TOPIC, QUEUE_COUNT, "broker-a", SERIALIZE_TYPES[header])
        with_accounts = alone(peer, folder / "accounts", guarded_keys())
        return [Side(with_accounts, signed), Side(alone(peer, folder / "plain"), requests)]
    server = None
    if tls:
        make_files(folder / "tls", "none")
        server = ServerTls(folder / "tls", PERMISSIVE)
    cluster = kit.make_cluster(peer, folder / "cluster", tls=server, broker_java=BROKER_HEAP)
    plain = Side(cluster, requests)
    if server is None:
        return [plain]
    return [Side(cluster, requests, ClientTls(server.folder).context), plain]


def alone(peer: str, folder: Path, keys: Mapping[str, object] | None = None) -> Cluster:
    """A stopped broker with keys of broker.conf; trocket's has no name server."""
    if peer == "trocket":
        return TrocketBroker(folder, store=folder / "store", broker_keys=keys)
    return kit.make_cluster(peer, folder, broker_java=BROKER_HEAP, broker_keys=keys)


@contextmanager
def started(sides: Sequence[Side], *, pin: bool, warm: bool) -> Iterator[None]:
    """Start the brokers of the sides for a `with` block.

    Args:
      warm: load them first, until a JVM has compiled what each message runs through.
    Raises: as `measure`.
    """
    clusters = list(dict.fromkeys(side.cluster for side in sides))
    with ExitStack() as stack:
        for cluster in clusters:
            stack.enter_context(kit.running(cluster))
        for side in sides:
            # Before the load: with the first send the broker would tell the name server of it.
            with WireClient(side.cluster.broker_address, keys=side.keys) as wire:
                wire.create_topic(TOPIC, queue_count=QUEUE_COUNT)
            if side.keys is not None:
                create_account(side.cluster, TOPIC)
        if pin:
            stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
            pin_to_cores(*(cluster.pids[0] for cluster in clusters))
        for side in sides if warm else ():
            with side.load(CASES[1]) as load:
                load.run(JVM_WARM_UP_S, timeout_s=FIRST_TIMEOUT_S)
        yield


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
    requests = requests_of(workload, SERIALIZE_TYPES[header])

    def run(side: Side, case: Case) -> CaseResult:
        spin = pin and len(os.sched_getaffinity(0)) < (os.cpu_count() or 1)
        return measure(side, case, warm_up_s=warm_up, seconds=seconds, spin=spin)

    facts = {
        "workload": workload,
        "against": against,
        "header": header,
        "pinned": pin,
        "acl": acl,
        "seconds": seconds,
    }
    for peer in dict.fromkeys(("trocket", against)) if tls or acl else (against,):
        with tempfile.TemporaryDirectory(prefix="trocket-bench-") as name:
            folder = Path(name)
            sides = sides_of(peer, folder, requests, acl=acl, tls=tls, header=header)
            if beside is not None:
                sides.append(Side(checkout_cluster(beside, folder / "beside"), requests))
            warm = len(sides) > 1 and peer != "trocket"
            with started(sides, pin=pin, warm=warm):
                if len(sides) == 1:
                    outcomes = [run(sides[0], one) for one in cases]
                    title = f"{workload}, {peer}, {header} header, {seconds:g} s each"
                    kit.show(outcomes, COLUMNS, as_json=json_, title=title, facts=facts)
                    continue
                pairs = compare(sides, run, rounds, cases)
        if json_:
            print(json.dumps([[asdict(one) for one in pair] for pair in pairs], indent=2))
        else:
            what = ", with accounts, beside: without" * acl + ", with TLS, beside: without" * tls
            title = f"{peer}{what}, {rounds} rounds of {seconds:g} s"
            Console().print(report_ratios(pairs, title))


if __name__ == "__main__":
    typer.run(main)
