"""The jobs of scenarios: cells by feature, client, broker and fault.

A job runs the scenarios of all clients on one broker with one fault. Scenarios that cannot run give
skipped cells with the reason.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from ..cpp_program import missing_for_cpp
from ..go_program import GO_MISSING, go_tool
from ..jobs import Job, OnCell, failed
from ..maven import missing_tool
from ..node_program import missing_for_node
from ..peer import Cluster
from ..peers import Peer, check_peer, open_cluster, parse_peer
from ..process import PeerError
from ..report.cells import Cell, Kind, Verdict
from ..trocket_peer import TrocketPair
from ..wire import Outgoing, WireClient
from .fault_injector import FaultInjector
from .faults import ALL_FAULTS, FAULT_SCENARIOS, Fault, FaultScenario
from .play import OnOutcome, play
from .programs import KEYS, Outcome, Playable
from .table import (
    CLIENTS,
    CPP,
    GO,
    GO_NEXT,
    GRPC_GO,
    GRPC_NODE,
    GRPC_PYTHON,
    JAVA_5,
    PYTHON,
    PYTHON_BY_GRPC,
    SCENARIOS,
    START_ORDER,
    TROCKET,
    Scenario,
)
from .verdicts import reason_to_skip, with_outcome, with_verdict

FAST_FAULTS: Mapping[str, tuple[str, ...]] = {
    Fault.KILL: (PYTHON[1],),
    Fault.RESTART: (JAVA_5,),
}
"""The faults of a fast run, and their clients."""

STOPPING_FAULTS = (Fault.RESTART, Fault.KILL, Fault.NAMESRV_GONE)

WARM_TOPIC = "interop_warm"
WARM_COUNT = 4000
"""Messages sent and pulled before the first scenario on a newly started JVM broker."""
AT_ONCE = max(2, os.cpu_count() or 1)
"""Clients that run their features concurrently on a broker in a JVM.

With all at once its first sends take longer than clients wait (3 s): they send again, and features
fail that work. Under a fault all run at once, because its scenarios tolerate duplicates.
"""

Table = Mapping[tuple[str, str], Scenario | FaultScenario]
"""By client and name."""


def jobs(
    brokers: Sequence[str],
    *,
    clients: Sequence[str] | None = None,
    faults: Sequence[str] = ALL_FAULTS,
    is_fast: bool = False,
) -> list[Job]:
    """A job for each broker and fault, and one for each broker's features without a fault.

    Args:
      brokers: names of `peers.PEERS`, other versions, URLs.
      clients: of `table.START_ORDER`; None: all. Those with cells of TLS or the proxy alone get no
        job.
      faults: of `faults.ALL_FAULTS`.
      is_fast: restrict faults to those of `FAST_FAULTS` and their clients.
    Raises: ValueError: a client or fault is unknown; PeerError: a broker is unknown.
    """
    for name in clients or ():
        if name not in START_ORDER:
            raise ValueError(f"there is no client {name!r}; there are {', '.join(START_ORDER)}")
    wanted = tuple(name for name in CLIENTS if clients is None or name in clients)
    for name in faults:
        if name not in ALL_FAULTS:
            raise ValueError(f"there is no fault {name!r}; there are {', '.join(ALL_FAULTS)}")
    found = []
    for broker in brokers:
        for fault in faults:
            some = wanted
            if is_fast and fault != Fault.NONE:
                some = tuple(name for name in wanted if name in FAST_FAULTS.get(fault, ()))
            if some and fault == Fault.NONE:
                # A separate job: a small machine cannot run both at once within the timeouts.
                found.append(_job(broker, fault, some, SCENARIOS))
            if some:
                found.append(_job(broker, fault, some, FAULT_SCENARIOS))
    return found


def missing_for(client: str) -> str | None:
    """Why a client cannot run here, or None."""
    if client in (*PYTHON, *PYTHON_BY_GRPC, GRPC_PYTHON):
        return None
    if client in (GO, GO_NEXT, GRPC_GO):
        return None if go_tool() else GO_MISSING
    if client == GRPC_NODE:
        return missing_for_node()
    return missing_for_cpp() if client == CPP else missing_tool()


def open_apart(peer: Peer, fault: str, folder: Path) -> Cluster:
    """A stopped cluster that supports the fault. Raises: PeerError: as `open_cluster`."""
    if peer.name == TROCKET and fault != Fault.NONE:
        return TrocketPair(folder, broker_keys=KEYS)
    return open_cluster(peer.name, folder, KEYS)


def _job(
    broker: str,
    fault: str,
    clients: Sequence[str],
    scenarios: Sequence[Scenario | FaultScenario],
) -> Job:
    peer = parse_peer(broker)
    table: dict[tuple[str, str], Scenario | FaultScenario] = {}
    owed = []
    for scenario in scenarios:
        for client in clients:
            table[client, scenario.name] = scenario
            owed.append(
                Cell(Kind.SCENARIO, scenario.name, client, broker, Verdict.SKIPPED, fault=fault)
            )
    name = f"scenarios on {broker}"
    if scenarios is FAULT_SCENARIOS:
        name += ", on and on" if fault == Fault.NONE else f", {fault}"
    return Job(name, tuple(owed), partial(_play, peer, fault, table))


def _play(
    peer: Peer,
    fault: str,
    table: Table,
    owed: Sequence[Cell],
    folder: Path,
    on_cell: OnCell,
) -> None:
    peer_reason = _unsupported(peer, fault) or check_peer(peer.name)
    missing = {client: missing_for(client) for client in {cell.client for cell in owed}}
    wanted: dict[str, list[Playable]] = {}
    cells: dict[tuple[str, str], Cell] = {}
    for cell in owed:
        scenario = table[cell.client, cell.feature]
        reason = reason_to_skip(scenario, cell.client, cell.broker)
        reason = reason or peer_reason or missing[cell.client]
        if reason is not None:
            on_cell(with_verdict(cell, Verdict.SKIPPED, reason))
        else:
            wanted.setdefault(cell.client, []).append(scenario)
            cells[cell.client, cell.feature] = cell

    def on_outcome(client: str, scenario: Playable, outcome: Outcome) -> None:
        cell = cells.pop((client, scenario.name))
        on_cell(with_outcome(cell, table[client, scenario.name], outcome))

    try:
        if wanted:
            _play_on(peer, fault, wanted, folder, on_outcome)
    except PeerError as error:
        for cell in failed(list(cells.values()), str(error)):
            on_cell(cell)


def _play_on(
    peer: Peer,
    fault: str,
    wanted: Mapping[str, Sequence[Playable]],
    folder: Path,
    on_outcome: OnOutcome,
) -> None:
    """Raises: PeerError: the cluster does not start."""
    cluster = open_apart(peer, fault, folder / "cluster")
    # An external cluster may have the topics of an earlier run.
    mark = f"run{random.SystemRandom().getrandbits(32):08x}_" if peer.kind == "external" else ""
    is_jvm = peer.kind in ("apache", "docker")
    try:
        cluster.start()
        if is_jvm:
            warm_up(cluster)
        with FaultInjector(fault, cluster) as injector:
            for some in rounds_on(peer.name, wanted):
                play(some, cluster, folder, injector=injector, on_outcome=on_outcome, mark=mark)
    finally:
        cluster.close()


def rounds_on(
    broker: str, wanted: Mapping[str, Sequence[Playable]]
) -> Iterator[Mapping[str, Sequence[Playable]]]:
    """The clients to run together: all, but `AT_ONCE` for features on a broker in a JVM."""
    at_once = AT_ONCE if parse_peer(broker).kind in ("apache", "docker") else len(wanted)
    clients = sorted(wanted, key=CLIENTS.index)
    if any(isinstance(one, FaultScenario) for some in wanted.values() for one in some):
        at_once = len(clients)
    for begin in range(0, len(clients), at_once):
        yield {client: wanted[client] for client in clients[begin : begin + at_once]}


def warm_up(cluster: Cluster) -> None:
    """Send and pull until the broker's JVM has compiled what every message runs through."""
    message = Outgoing(WARM_TOPIC, 0, bytes(100), "KEYS\x01k\x02TAGS\x01t\x02")
    with WireClient(cluster.broker_address) as wire:
        wire.create_topic(WARM_TOPIC, queue_count=1)
        wire.send_all(itertools.repeat(message, WARM_COUNT), together=16)
        for _ in wire.pull_all(WARM_TOPIC, WARM_TOPIC, 0):
            pass


def _unsupported(peer: Peer, fault: str) -> str | None:
    if peer.kind == "external" and fault in STOPPING_FAULTS:
        return f"the harness does not run {peer.name} and cannot stop it"
    if peer.kind == "docker" and fault == Fault.NAMESRV_GONE:
        return f"the name server of {peer.name} cannot be stopped alone"
    return None
