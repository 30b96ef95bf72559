"""The scenarios as a part of the matrix: feature by client by broker by fault.

A job plays all scenarios of all clients on one broker with one fault. What cannot be played gives
its cells as skipped, with the reason.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from ..cpp_program import missing_for_cpp
from ..go_program import go_tool
from ..jobs import Job, Tell, failed
from ..maven import missing_tool
from ..peer import Cluster
from ..peers import Peer, check_peer, open_cluster, parse_peer
from ..process import PeerError
from ..report.cells import Cell, Kind, Verdict
from ..trocket_peer import TrocketPair
from ..wire import Outgoing, WireClient
from .faults import ALL_FAULTS, FAULT_SCENARIOS, Fault, FaultScenario
from .happening import Happening
from .play import OnOutcome, play
from .programs import KEYS, Outcome, Playable
from .table import CLIENTS, CPP, GO, JAVA_5, PYTHON, SCENARIOS, TROCKET, Scenario
from .verdicts import judged, reason_to_skip, with_verdict

FAST_FAULTS: Mapping[str, tuple[str, ...]] = {
    Fault.KILL: (PYTHON[1],),
    Fault.RESTART: (JAVA_5,),
}
"""In the fast cut: the faults and who meets them."""

TOUCHING_BROKERS = (Fault.RESTART, Fault.KILL, Fault.NAMESRV_GONE)

WARM_TOPIC = "interop_warm"
WARM_COUNT = 4000
"""Messages that are sent and pulled before the first scenario on a broker that has just started."""
AT_ONCE = max(2, os.cpu_count() or 1)
"""Clients that play their features at the same time on a broker in a JVM.

With all at once its first sends take more than clients wait (3 s), so they send again, and features
fail that are not broken. Under a fault all are needed at once, and its scenarios bear repeats.
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
    """A job for each broker and fault, and one for each broker's features without any.

    Args:
      brokers: names of `peers.PEERS`, other versions, URLs.
      clients: of `table.CLIENTS`; None: all.
      faults: of `faults.ALL_FAULTS`.
      is_fast: of the faults only those of `FAST_FAULTS`, each with a client or two.
    Raises: ValueError: there is no such client or fault; PeerError: there is no such broker.
    """
    wanted = CLIENTS if clients is None else tuple(clients)
    for name in wanted:
        if name not in CLIENTS:
            raise ValueError(f"there is no client {name!r}; there are {', '.join(CLIENTS)}")
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
                # Apart: all at once are more than a small machine does in their time.
                found.append(_job(broker, fault, some, SCENARIOS))
            if some:
                found.append(_job(broker, fault, some, FAULT_SCENARIOS))
    return found


def missing_for(client: str) -> str | None:
    """Why a client cannot run here, or None."""
    if client in PYTHON:
        return None
    if client == GO:
        return None if go_tool() else "no go in PATH (Go 1.19 or newer is needed)"
    return missing_for_cpp() if client == CPP else missing_tool()


def open_apart(peer: Peer, fault: str, folder: Path) -> Cluster:
    """A stopped cluster to which a fault can happen. Raises: PeerError: as `open_cluster`."""
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
    tell: Tell,
) -> None:
    nobody = _cannot_happen(peer, fault) or check_peer(peer.name)
    missing = {client: missing_for(client) for client in {cell.client for cell in owed}}
    wanted: dict[str, list[Playable]] = {}
    cells: dict[tuple[str, str], Cell] = {}
    for cell in owed:
        scenario = table[cell.client, cell.feature]
        why = reason_to_skip(scenario, cell.client, cell.broker) or nobody or missing[cell.client]
        if why is not None:
            tell(with_verdict(cell, Verdict.SKIPPED, why))
        else:
            wanted.setdefault(cell.client, []).append(scenario)
            cells[cell.client, cell.feature] = cell

    def on_outcome(client: str, scenario: Playable, outcome: Outcome) -> None:
        cell = cells.pop((client, scenario.name))
        tell(judged(cell, table[client, scenario.name], outcome))

    try:
        if wanted:
            _play_on(peer, fault, wanted, folder, on_outcome)
    except PeerError as error:
        for cell in failed(list(cells.values()), str(error)):
            tell(cell)


def _play_on(
    peer: Peer,
    fault: str,
    wanted: Mapping[str, Sequence[Playable]],
    folder: Path,
    on_outcome: OnOutcome,
) -> None:
    """Raises: PeerError: the cluster does not start."""
    cluster = open_apart(peer, fault, folder / "cluster")
    # On somebody else's cluster an earlier run has left its topics.
    mark = f"run{random.SystemRandom().getrandbits(32):08x}_" if peer.kind == "external" else ""
    is_jvm = peer.kind in ("apache", "docker")
    try:
        cluster.start()
        if is_jvm:
            _warm_up(cluster)
        with Happening(fault, cluster) as happening:
            for some in _rounds(wanted, AT_ONCE if is_jvm else len(wanted)):
                play(some, cluster, folder, happening=happening, on_outcome=on_outcome, mark=mark)
    finally:
        cluster.close()


def _rounds(
    wanted: Mapping[str, Sequence[Playable]], at_once: int
) -> Iterator[Mapping[str, Sequence[Playable]]]:
    """What is played together: all that meets a fault, else so many clients at a time."""
    clients = sorted(wanted, key=CLIENTS.index)
    if any(isinstance(one, FaultScenario) for some in wanted.values() for one in some):
        at_once = len(clients)
    for begin in range(0, len(clients), at_once):
        yield {client: wanted[client] for client in clients[begin : begin + at_once]}


def _warm_up(cluster: Cluster) -> None:
    """Let the JVM compile what every message passes."""
    message = Outgoing(WARM_TOPIC, 0, bytes(100), "KEYS\x01k\x02TAGS\x01t\x02")
    with WireClient(cluster.broker_address) as wire:
        wire.create_topic(WARM_TOPIC, queue_count=1)
        wire.send_all(itertools.repeat(message, WARM_COUNT), together=16)
        for _ in wire.pull_all(WARM_TOPIC, WARM_TOPIC, 0):
            pass


def _cannot_happen(peer: Peer, fault: str) -> str | None:
    if peer.kind == "external" and fault in TOUCHING_BROKERS:
        return f"{peer.name} is not ours to stop"
    if peer.kind == "docker" and fault == Fault.NAMESRV_GONE:
        return f"{peer.name} cannot lose its name server alone"
    return None
