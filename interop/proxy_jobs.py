"""The jobs of Apache's proxy: its clients before each broker, with groups that do not exist yet.

A job starts a name server, a broker and the proxy in cluster mode, and runs the clients by turns:
those that speak gRPC first, then those of the remoting protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from .accounts import (
    SUPER,
    Generation,
    generations_of,
    open_with_accounts,
    start_with_accounts,
)
from .apache import version_numbers
from .apache_proxy import VERSION, ApacheProxy
from .jobs import Job, OnCell, failed
from .maven import missing_tool
from .peer import Cluster
from .peers import check_peer, open_cluster, parse_peer
from .process import PeerError
from .report.cells import Cell, Kind, Verdict
from .scenarios.dead_letters import dead_letters
from .scenarios.grpc_table import (
    ACCOUNT_VARIABLE,
    ACCOUNTS,
    GROUPS,
    GRPC_SCENARIOS,
    MESSAGE_TYPES,
    PUSH_DEAD,
    SIGNED,
    WITH_ACCOUNTS,
)
from .scenarios.jobs import missing_for, warm_up
from .scenarios.play import play
from .scenarios.programs import KEYS, Outcome, Playable, prefix
from .scenarios.table import (
    GRPC_CLIENTS,
    JAVA_4,
    JAVA_5,
    PYTHON,
    SCENARIOS,
    TROCKET,
    Scenario,
)
from .scenarios.verdicts import reason_to_skip, with_outcome
from .wire import WireClient

# The scenarios of clients behind Apache's proxy, and the facts expected before every broker.
#
# Clients of the remoting protocol do what they do without a proxy (`scenarios.table`), but for what
# its remoting port does not serve. Those that speak gRPC have the scenarios of
# `scenarios.grpc_table`.

REMOTING_CLIENTS: Final = (JAVA_5, JAVA_4, *PYTHON)
PROXY_CLIENTS: Final = (*GRPC_CLIENTS, *REMOTING_CLIENTS)

_NO_ASSIGNMENTS: Final = "the proxy's remoting port serves no assignments (400, 401)"
_POPS_ARE_PULLS: Final = "the proxy's remoting port reads a pop as a pull, and fails"
NOT_SERVED: Final[Mapping[str, str]] = {
    "send_vip": "the proxy has no second port",
    "send_auto_created": "the proxy refuses messages for a topic that no broker has",
    "request_reply": "the proxy's remoting port serves no replies (324, 325)",
    "transaction": "the proxy's remoting port drops the end of a transaction that is no answer to a"
    " check; a gRPC producer's arrives",
    "trace": "before Apache's broker, too, some records of a consumer do not arrive",
    "query": "the proxy's remoting port serves no queries (12, 33)",
    "pop_receive": _POPS_ARE_PULLS,
    "pop_in_order": _POPS_ARE_PULLS,
    **{
        scenario.name: _NO_ASSIGNMENTS
        for scenario in SCENARIOS
        if scenario.name.startswith("pop_") and JAVA_5 in scenario.clients
    },
}
"""Why a scenario cannot run through the proxy. Source: RemotingProtocolServer of 5.5.0, and runs
before Apache's broker."""

PROXY_SCENARIOS: Final = (
    *GRPC_SCENARIOS,
    *(scenario for scenario in SCENARIOS if set(scenario.clients) & set(REMOTING_CLIENTS)),
)


BROKERS_SINCE: Final = (5, 0)
"""Brokers that pop, which a proxy needs."""
ROUNDS: Final = (*((client,) for client in GRPC_CLIENTS), (JAVA_5,), (JAVA_4,), PYTHON)
"""The clients that run together. The proxy's JVM is cold at first, and fails sends of several that
begin at once."""
_BY_NAME: Final[Mapping[str, Scenario]] = {each.name: each for each in PROXY_SCENARIOS}


def jobs(brokers: Sequence[str], *, clients: Sequence[str] | None = None) -> list[Job]:
    """A job for each broker that the proxy can stand in front of.

    Args:
      brokers: names of `peers.PEERS`; external ones and those without pops are left out.
      clients: of `PROXY_CLIENTS`; None: all.
    Raises: PeerError: a broker is unknown.
    """
    found = []
    for peer in map(parse_peer, brokers):
        is_old = peer.kind != "trocket" and version_numbers(peer.version or "0") < BROKERS_SINCE
        if is_old or peer.kind not in ("trocket", "apache"):
            continue
        name = f"Apache's proxy {VERSION} before {peer.name}"
        owed = tuple(_cells(peer.name, clients))
        if owed:
            found.append(Job(name, owed, partial(_play, peer.name)))
        signed = tuple(_signed_cells(peer.name, clients))
        if signed:
            found.append(Job(f"{name}, with accounts", signed, partial(_play_signed, peer.name)))
    return found


def _cells(broker: str, clients: Sequence[str] | None) -> Iterator[Cell]:
    for scenario in PROXY_SCENARIOS:
        for client in PROXY_CLIENTS:
            if client in scenario.clients and (clients is None or client in clients):
                yield Cell(Kind.PROXY, scenario.name, client, broker, Verdict.SKIPPED)


def _signed_cells(broker: str, clients: Sequence[str] | None) -> Iterator[Cell]:
    if Generation.ACL_2 not in generations_of(broker):
        return
    for client in GRPC_CLIENTS:
        if clients is None or client in clients:
            for name in WITH_ACCOUNTS:
                yield Cell(Kind.PROXY, f"{name}{SIGNED}", client, broker, Verdict.SKIPPED)


def reason_not_to_run(cell: Cell) -> str | None:
    """Why a cell cannot run; None: it can."""
    scenario = _BY_NAME[cell.feature.removesuffix(SIGNED)]
    return (
        NOT_SERVED.get(scenario.name)
        or reason_to_skip(scenario, cell.client, cell.broker)
        or missing_for(cell.client)
    )


def _wanted(left: Mapping[tuple[str, str], Cell], some: Sequence[str]) -> dict[str, list[Playable]]:
    """The scenarios that are left of some clients."""
    wanted: dict[str, list[Playable]] = {}
    for client, name in left:
        if client in some:
            wanted.setdefault(client, []).append(_BY_NAME[name])
    return wanted


def _left(broker: str, owed: Sequence[Cell], on_cell: OnCell) -> dict[tuple[str, str], Cell]:
    """The cells that can run, by client and scenario; the others are reported as skipped."""
    reason = check_peer(broker) or missing_tool()
    left: dict[tuple[str, str], Cell] = {}
    for cell in owed:
        why = reason or reason_not_to_run(cell)
        if why is not None:
            on_cell(replace(cell, detail=why))
        else:
            left[cell.client, cell.feature.removesuffix(SIGNED)] = cell
    return left


def _play(broker: str, owed: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
    left = _left(broker, owed, on_cell)
    if not left:
        return
    try:
        cluster = open_cluster(broker, folder / "cluster", KEYS)
        try:
            cluster.start()
            if broker != TROCKET:
                warm_up(cluster)
            _play_before(cluster, folder, left, on_cell)
        finally:
            cluster.close()
    except PeerError as error:
        for cell in failed(list(left.values()), str(error)):
            on_cell(cell)


def _play_signed(broker: str, owed: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
    """Run the gRPC clients as a user of the broker that may send and receive."""
    left = _left(broker, owed, on_cell)
    if not left:
        return

    def on_outcome(client: str, scenario: Playable, outcome: Outcome) -> None:
        cell = left.pop((client, scenario.name))
        on_cell(with_outcome(cell, _BY_NAME[scenario.name], outcome))

    try:
        cluster = open_with_accounts(broker, folder / "cluster", ACCOUNTS, KEYS)
        proxy = ApacheProxy(cluster, folder / "proxy", account=SUPER.keys)
        try:
            start_with_accounts(cluster, ACCOUNTS)
            proxy.start()
            # The cluster, not the proxy: the harness looks routes up without an account.
            for some in ROUNDS:
                play(
                    _wanted(left, some),
                    cluster,
                    folder / "clients",
                    on_outcome=on_outcome,
                    keys=SUPER.keys,
                    environment=ACCOUNT_VARIABLE,
                    servers=dict.fromkeys(GRPC_CLIENTS, proxy.grpc_address),
                    message_types=MESSAGE_TYPES,
                )
        finally:
            proxy.close()
            cluster.close()
    except PeerError as error:
        for cell in failed(list(left.values()), str(error)):
            on_cell(cell)


def _play_before(
    cluster: Cluster, folder: Path, left: dict[tuple[str, str], Cell], on_cell: OnCell
) -> None:
    """Run the cells that are left, and remove each that is done. Raises: PeerError."""

    def on_outcome(client: str, scenario: Playable, outcome: Outcome) -> None:
        if scenario.name == PUSH_DEAD and not outcome.error:
            dead = dead_letters(cluster, prefix(client) + scenario.name)
            outcome = replace(outcome, facts={**outcome.facts, "dead_letters": dead})
        cell = left.pop((client, scenario.name))
        on_cell(with_outcome(cell, _BY_NAME[scenario.name], outcome))

    proxy = ApacheProxy(cluster, folder / "proxy")
    try:
        proxy.start()
        _create_groups(cluster, left)
        for some in ROUNDS:
            play(
                _wanted(left, some),
                proxy,
                folder / "clients",
                on_outcome=on_outcome,
                servers=dict.fromkeys(GRPC_CLIENTS, proxy.grpc_address),
                message_types=MESSAGE_TYPES,
            )
    finally:
        proxy.close()


def _create_groups(cluster: Cluster, wanted: Mapping[tuple[str, str], Cell]) -> None:
    with WireClient(cluster.broker_address) as wire:
        for client, name in wanted:
            if name in GROUPS:
                wire.create_group(prefix(client) + name, **GROUPS[name])
