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
    python -m trocket.bench.wire --pin --tls                 # each case without and with TLS
    python -m trocket.bench.wire --pin --tls --against apache-5.5.0     # with the same files
    python -m trocket.bench.wire --pin --acl    # signed sends to a broker with accounts
    python -m trocket.bench.wire --pin --acl --against apache-5.5.0

`--beside` runs both brokers and alternates between them, so that a slow minute of the machine
affects both; the result is the ratio of each round.
"""

from __future__ import annotations

import json
import os
import select
import socket
import ssl
import statistics
import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.console import Console
from rich.table import Table

from trocket.bench import kit
from trocket.bench.frames import (
    JSON_TYPE,
    OPAQUE_FIRST,
    ROCKETMQ_TYPE,
    SendTemplate,
    Taken,
)
from trocket.bench.signed_frames import SignedSends, create_account, guarded_broker, guarded_keys
from trocket.bench.transaction_frames import GROUP, TransactionTemplate
from trocket.common.terminal import table
from trocket.interop.peer import Cluster
from trocket.interop.tls_files import PERMISSIVE, ClientTls, ServerTls, make_files
from trocket.interop.trocket_peer import TrocketCluster
from trocket.interop.usage import cpu_seconds

RECEIVE_SIZE_BYTES = 1 << 18
ANSWER_TIMEOUT_S = 10.0
TOPIC = "WireBench"
QUEUE_COUNT = 4
RING = 1 << 20
"""Requests whose send time is kept, by opaque; far more than are ever in flight."""

BROKER_HEAP = ("-Xms2g", "-Xmx2g")


@dataclass(frozen=True)
class Case:
    """A number of connections, each with a number of requests in flight."""

    name: str
    connections: int
    in_flight: int


CASES = (
    Case("1 in flight", 1, 1),
    Case("64 in flight", 1, 64),
    Case("1024 in flight", 1, 1024),
    Case("64 connections", 64, 1),
)


class Requests(Protocol):
    """The requests of a workload, such as `SendTemplate`."""

    @property
    def opaque_next(self) -> int:
        """The opaque of the next request."""

    def next_frames(self, count: int) -> bytearray:
        """`count` requests with consecutive opaques."""

    def take(self, incoming: bytearray) -> Taken:
        """Remove the complete answers from the start of `incoming`. Raises: BadAnswerError."""


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


class _Connection:
    """A closed loop: as many requests go out as answers came in."""

    def __init__(
        self, address: tuple[str, int], template: Requests, tls: ssl.SSLContext | None = None
    ) -> None:
        self.socket = socket.create_connection(address, timeout=ANSWER_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=address[0])
        self.socket.setblocking(False)
        self._template = template
        self._incoming = bytearray()
        self._outgoing = bytearray()

    def prepare(self, count: int) -> None:
        """Append `count` new requests to the unsent ones."""
        self._outgoing += self._template.next_frames(count)

    def send(self) -> bool:
        """Send the prepared requests; return whether the kernel accepted all of them."""
        try:
            while self._outgoing:
                del self._outgoing[: self.socket.send(self._outgoing)]
        except (BlockingIOError, ssl.SSLWantWriteError):
            return False
        return True

    def receive(self) -> tuple[list[int], int]:
        """Receive answers; the requests that follow them become unsent.

        Returns: as `take_answers`.
        Raises: ConnectionError, BadAnswerError.
        """
        try:
            data = self.socket.recv(RECEIVE_SIZE_BYTES)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._incoming += data
            while isinstance(self.socket, ssl.SSLSocket):  # a record at a time
                self._incoming += self.socket.recv(RECEIVE_SIZE_BYTES)
        except ssl.SSLWantReadError:
            pass
        opaques, refused, frames = self._template.take(self._incoming)
        self._outgoing += frames
        return opaques, refused


class Load:
    """All connections of one case, on one epoll, and the latencies of the measured time.

    Args:
      addresses: brokers, to which the connections are distributed in turn.
      spin, tls: see `measure`.
    """

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        case: Case,
        template: Requests,
        *,
        spin: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._template = template
        self._spin = spin
        self._in_flight = case.in_flight
        self._epoll = select.epoll()
        self._connections = {}
        for number in range(case.connections):
            connection = _Connection(addresses[number % len(addresses)], template, tls)
            self._connections[connection.socket.fileno()] = connection
            self._epoll.register(connection.socket, select.EPOLLIN)
        self._left_s = array("d", bytes(8 * RING))
        self.latencies_s = array("d")
        self.refused = 0

    def start(self) -> None:
        """Fill every connection up to its number in flight."""
        for number, connection in self._connections.items():
            self._send(number, connection, self._in_flight)

    def _send(self, number: int, connection: _Connection, count: int) -> None:
        first = self._template.opaque_next - OPAQUE_FIRST
        connection.prepare(count)
        now_s = time.perf_counter()
        left_s = self._left_s
        for opaque in range(first, first + count):
            left_s[opaque % RING] = now_s
        if not connection.send():
            self._epoll.modify(number, select.EPOLLIN | select.EPOLLOUT)

    def run(self, seconds: float) -> int:
        """Send for `seconds`, and return the number of successes.

        Their latencies are in `latencies_s`, the number refused as busy in `refused`.

        Raises: TimeoutError: no answer for 10 s. ConnectionError. BadAnswerError.
        """
        del self.latencies_s[:]
        self.refused = 0
        answered = 0
        left_s, latencies = self._left_s, self.latencies_s
        end_s = time.perf_counter() + seconds
        poll = self._epoll.poll
        while True:
            events = poll(0) if self._spin else poll(ANSWER_TIMEOUT_S)
            if not events:
                if time.perf_counter() < end_s + ANSWER_TIMEOUT_S and self._spin:
                    continue
                raise TimeoutError(f"no answer in {ANSWER_TIMEOUT_S} s")
            for number, event in events:
                connection = self._connections[number]
                if event & select.EPOLLOUT and connection.send():
                    self._epoll.modify(number, select.EPOLLIN)
                if event & ~select.EPOLLOUT:
                    opaques, refused = connection.receive()
                    now_s = time.perf_counter()
                    for opaque in opaques:
                        latencies.append(now_s - left_s[(opaque - OPAQUE_FIRST) % RING])
                    answered += len(opaques)
                    self.refused += refused
                    if opaques or refused:
                        self._send(number, connection, len(opaques) + refused)
            if time.perf_counter() >= end_s:
                return answered

    def close(self) -> None:
        """Close everything, answered or not."""
        self._epoll.close()
        for connection in self._connections.values():
            connection.socket.close()


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
      spin: poll for answers without sleeping. On a separate core, the generator then adds nothing
        to the latency; waking it for each answer takes as long as the broker's work on a virtual
        machine.
      tls: of the connections; None: they are plain.

    Raises: PeerError, OSError, BadAnswerError: the broker ended or refused.
    """
    broker = cluster.pids[0]
    load = Load([kit.socket_address(cluster.broker_address)], case, template, spin=spin, tls=tls)
    try:
        load.start()
        load.run(warm_up_s)
        cpu_start_s, own_start_s, start_s = (
            cpu_seconds(broker),
            time.process_time(),
            time.perf_counter(),
        )
        answered = load.run(seconds)
        took_s = time.perf_counter() - start_s
        cpu_s = cpu_seconds(broker) - cpu_start_s
        own_share = (time.process_time() - own_start_s) / took_s
    finally:
        load.close()
    ordered = array("d", sorted(load.latencies_s))
    return CaseResult(
        case=case.name if tls is None else f"{case.name}, TLS",
        messages=answered,
        refused=load.refused,
        messages_per_s=answered / took_s,
        broker_cpu_us=cpu_s / answered * 1e6,
        p50_us=kit.percentile(ordered, 0.50) * 1e6,
        p99_us=kit.percentile(ordered, 0.99) * 1e6,
        max_us=ordered[-1] * 1e6,
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
    clusters: tuple[Cluster, Cluster],
    run: Callable[[Cluster, Case], CaseResult],
    rounds: int,
    cases: Sequence[Case] = CASES,
) -> list[tuple[CaseResult, CaseResult]]:
    """Measure two running clusters by turns, the first to begin changing with each round."""
    pairs = []
    for number in range(rounds):
        for case in cases:
            order = clusters if number % 2 == 0 else clusters[::-1]
            outcomes = {id(cluster): run(cluster, case) for cluster in order}
            pairs.append((outcomes[id(clusters[0])], outcomes[id(clusters[1])]))
    return pairs


def report_ratios(pairs: list[tuple[CaseResult, CaseResult]], title: str) -> Table:
    """Ours by theirs: the median of the rounds, and the least and the greatest."""
    rows = []
    for name in dict.fromkeys(ours.case for ours, _ in pairs):
        both = [(ours, theirs) for ours, theirs in pairs if ours.case == name]
        cpu = [ours.broker_cpu_us / theirs.broker_cpu_us for ours, theirs in both]
        rate = [ours.messages_per_s / theirs.messages_per_s for ours, theirs in both]
        cells = [
            f"{statistics.median(outcome.broker_cpu_us for outcome in side):.1f}"
            for side in zip(*both, strict=True)
        ]
        for ratios in (cpu, rate):
            cells += [f"{of(ratios):.3f}" for of in (statistics.median, min, max)]
        rows.append([name, *cells])
    columns = ("case", "CPU µs", "beside", "ratio", "least", "most", "rate ratio", "least", "most")
    return table(columns, rows, title=title)


def servers_tls(folder: Path) -> ServerTls:
    """TLS beside plain connections, with new files in a folder."""
    make_files(folder, "none")
    return ServerTls(folder, PERMISSIVE)


def runs_of(
    cases: Sequence[Case], rounds: int, tls: ServerTls | None
) -> list[tuple[Case, ssl.SSLContext | None]]:
    """The cases to run on one cluster: with TLS each one without and with it, in each round."""
    if tls is None:
        return [(case, None) for case in cases]
    context = ClientTls(tls.folder).context
    return [(case, each) for _ in range(rounds) for case in cases for each in (None, context)]


def requests_of(workload: str, serialize_type: int) -> Requests:
    """The requests of a workload: "sends", "signed sends" or "transactions"."""
    if workload == "signed sends":
        return SignedSends(TOPIC, QUEUE_COUNT, "broker-a", serialize_type)
    in_transaction = workload == "transactions"
    template = SendTemplate.for_topic(
        TOPIC,
        queue_count=QUEUE_COUNT,
        body=bytes(48 + number % 10 for number in range(2048 if in_transaction else 128)),
        born_timestamp_ms=time.time_ns() // 1_000_000,
        broker="broker-a",
        serialize_type=serialize_type,
        group=GROUP if in_transaction else "benchmark_producer",
        in_transaction=in_transaction,
    )
    return TransactionTemplate(template, TOPIC, "broker-a") if in_transaction else template


def cluster_of(
    peer: str, folder: Path, *, acl: bool = False, tls: ServerTls | None = None
) -> Cluster:
    """A stopped cluster by its name; `acl`: with accounts of ACL 2.0, and without TLS."""
    if not acl:
        return kit.make_cluster(peer, folder, tls=tls, broker_java=BROKER_HEAP)
    if peer == "trocket":
        return guarded_broker(folder)
    return kit.make_cluster(peer, folder, broker_java=BROKER_HEAP, broker_keys=guarded_keys())


def check_options(header: str, workload: str, *, acl: bool, tls: bool, is_beside: bool) -> None:
    """Raises: typer.BadParameter: an option has a wrong value, or two contradict each other."""
    if header not in ("rocketmq", "json"):
        raise typer.BadParameter("--header is rocketmq or json")
    if workload not in ("sends", "transactions"):
        raise typer.BadParameter("--workload is sends or transactions")
    if acl and (workload != "sends" or is_beside):
        raise typer.BadParameter("--acl is for sends, without --beside")
    if tls and (acl or is_beside):
        raise typer.BadParameter("--tls is for one checkout without accounts")


def main(
    seconds: Annotated[float, typer.Option(help="Measure each case for this time.")] = 5.0,
    warm_up: Annotated[float, typer.Option(help="Warm up for this time.")] = 2.0,
    header: Annotated[str, typer.Option(help="Use rocketmq or json headers.")] = "rocketmq",
    against: Annotated[str, typer.Option(help="Measure trocket or apache-VERSION.")] = "trocket",
    pin: Annotated[
        bool, typer.Option(help="Pin the broker to one core, the generator to the others.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    beside: Annotated[Path | None, typer.Option(help="Alternate with this checkout.")] = None,
    rounds: Annotated[
        int, typer.Option(help="With --beside or --tls, repeat this often.", min=1)
    ] = 5,
    workload: Annotated[str, typer.Option(help="Send sends or transactions.")] = "sends",
    acl: Annotated[
        bool, typer.Option("--acl", help="Sign sends to a broker with accounts of ACL 2.0.")
    ] = False,
    case: Annotated[list[str] | None, typer.Option(help="Run only these cases.")] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Run each case without and with TLS, by turns.")
    ] = False,
) -> None:
    """Send messages or transactions to a broker process, and print rates and CPU."""
    check_options(header, workload, acl=acl, tls=tls, is_beside=beside is not None)
    cases = [*kit.chosen(case, {one.name: one for one in CASES}, "--case").values()]
    serialize_type = ROCKETMQ_TYPE if header == "rocketmq" else JSON_TYPE
    template = requests_of("signed sends" if acl else workload, serialize_type)

    def run(cluster: Cluster, case: Case, tls: ssl.SSLContext | None = None) -> CaseResult:
        spin = pin and len(os.sched_getaffinity(0)) < (os.cpu_count() or 1)
        times = {"warm_up_s": warm_up, "seconds": seconds}
        return measure(cluster, case, template, **times, spin=spin, tls=tls)

    pairs: list[tuple[CaseResult, CaseResult]] = []
    outcomes: list[CaseResult] = []
    with tempfile.TemporaryDirectory(prefix="trocket-bench-") as folder:
        secure = servers_tls(Path(folder, "tls")) if tls else None
        first = cluster_of(against, Path(folder, "first"), acl=acl, tls=secure)
        clusters = (
            (first,)
            if beside is None
            else (first, checkout_cluster(beside, Path(folder, "beside")))
        )
        with ExitStack() as stack:
            for cluster in clusters:
                stack.enter_context(kit.running(cluster))
            if acl:
                create_account(first, TOPIC)
            if pin:
                pin_to_cores(*(cluster.pids[0] for cluster in clusters))
            if len(clusters) == 2:
                pairs = compare(clusters, run, rounds, cases)
            else:
                outcomes = [run(first, one, each) for one, each in runs_of(cases, rounds, secure)]
    if beside is not None:
        if json_:
            print(json.dumps([[asdict(one) for one in pair] for pair in pairs], indent=2))
        else:
            Console().print(report_ratios(pairs, f"{rounds} rounds of {seconds:g} s"))
        return
    facts = {
        "workload": workload,
        "against": against,
        "header": header,
        "pinned": pin,
        "acl": acl,
        "seconds": seconds,
    }
    title = f"{workload}, {against}, {header} header, {seconds:g} s each"
    kit.show(outcomes, COLUMNS, as_json=json_, title=title, facts=facts)


if __name__ == "__main__":
    typer.run(main)
