"""The jobs of `trocket proxy`: clients that speak gRPC, through it, before each broker.

The scenarios are those of `scenarios.grpc_table`, so the expected facts are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from .accounts import SUPER, Generation, generations_of, open_with_accounts, start_with_accounts
from .apache import version_numbers
from .jobs import Job, OnCell, failed
from .maven import missing_tool
from .peer import Cluster
from .peers import check_peer, open_cluster, parse_peer
from .process import PeerError
from .proxy_jobs import BROKERS_SINCE
from .report.cells import Cell, Kind, Verdict
from .scenarios.dead_letters import dead_letters
from .scenarios.grpc_table import (
    ACCOUNT_VARIABLE,
    ACCOUNTS,
    GROUPS,
    GRPC_BY_NAME,
    MESSAGE_TYPES,
    PUSH_DEAD,
    SIGNED,
    WITH_ACCOUNTS,
)
from .scenarios.jobs import missing_for, warm_up
from .scenarios.play import play
from .scenarios.programs import KEYS, Outcome, Playable, prefix
from .scenarios.table import GRPC_CLIENTS, TROCKET
from .scenarios.verdicts import with_outcome
from .trocket_proxy import TrocketProxy
from .wire import WireClient

_Left = dict[tuple[str, str], Cell]


def jobs(brokers: Sequence[str], *, clients: Sequence[str] | None = None) -> list[Job]:
    """A job for each broker that pops, and one with accounts where it has those of ACL 2.0.

    Args:
      brokers: names of `peers.PEERS`.
      clients: None: all.
    Raises: PeerError: a broker is unknown.
    """
    chosen = [each for each in GRPC_CLIENTS if clients is None or each in clients]
    found: list[Job] = []
    for peer in map(parse_peer, brokers):
        is_old = peer.kind != "trocket" and version_numbers(peer.version or "0") < BROKERS_SINCE
        if is_old or peer.kind not in ("trocket", "apache"):
            continue
        name = f"trocket proxy before {peer.name}"
        owed = tuple(_cells(peer.name, chosen, list(GRPC_BY_NAME), ""))
        if owed:
            found.append(Job(name, owed, partial(_play, peer.name)))
        if owed and Generation.ACL_2 in generations_of(peer.name):
            signed = tuple(_cells(peer.name, chosen, WITH_ACCOUNTS, SIGNED))
            found.append(Job(f"{name}{SIGNED}", signed, partial(_play_signed, peer.name)))
    return found


def _cells(broker: str, clients: Sequence[str], names: Sequence[str], end: str) -> Iterator[Cell]:
    for client in clients:
        for name in names:
            if client in GRPC_BY_NAME[name].clients:
                yield Cell(Kind.OWN_PROXY, f"{name}{end}", client, broker, Verdict.SKIPPED)


def _wanted(left: Mapping[tuple[str, str], Cell]) -> dict[str, list[Playable]]:
    """The scenarios by client."""
    wanted: dict[str, list[Playable]] = {}
    for client, name in left:
        wanted.setdefault(client, []).append(GRPC_BY_NAME[name])
    return wanted


def _play(broker: str, owed: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
    left = {(cell.client, cell.feature): cell for cell in owed}

    def run(cluster: Cluster) -> None:
        def on_outcome(client: str, scenario: Playable, outcome: Outcome) -> None:
            if scenario.name == PUSH_DEAD and not outcome.error:
                dead = dead_letters(cluster, prefix(client) + scenario.name)
                outcome = replace(outcome, facts={**outcome.facts, "dead_letters": dead})
            cell = left.pop((client, scenario.name))
            on_cell(with_outcome(cell, GRPC_BY_NAME[scenario.name], outcome))

        cluster.start()
        if broker != TROCKET:
            warm_up(cluster)
        with WireClient(cluster.broker_address) as wire:
            for client, name in left:
                if name in GROUPS:
                    wire.create_group(prefix(client) + name, **GROUPS[name])
        proxy = TrocketProxy(cluster, folder / "proxy")
        try:
            proxy.start()
            play(
                _wanted(left),
                cluster,
                folder / "clients",
                on_outcome=on_outcome,
                servers=dict.fromkeys(GRPC_CLIENTS, proxy.grpc_address),
                message_types=MESSAGE_TYPES,
            )
            proxy.stop()
        finally:
            proxy.close()

    _run(partial(open_cluster, broker, folder / "cluster", KEYS), run, broker, left, on_cell)


def _play_signed(broker: str, owed: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
    left = {(cell.client, cell.feature.removesuffix(SIGNED)): cell for cell in owed}

    def run(cluster: Cluster) -> None:
        def on_outcome(client: str, scenario: Playable, outcome: Outcome) -> None:
            cell = left.pop((client, scenario.name))
            on_cell(with_outcome(cell, GRPC_BY_NAME[scenario.name], outcome))

        start_with_accounts(cluster, ACCOUNTS)
        proxy = TrocketProxy(cluster, folder / "proxy", account=SUPER.keys)
        try:
            proxy.start()
            play(
                _wanted(left),
                cluster,
                folder / "clients",
                on_outcome=on_outcome,
                keys=SUPER.keys,
                environment=ACCOUNT_VARIABLE,
                servers=dict.fromkeys(GRPC_CLIENTS, proxy.grpc_address),
                message_types=MESSAGE_TYPES,
            )
            proxy.stop()
        finally:
            proxy.close()

    opened = partial(open_with_accounts, broker, folder / "cluster", ACCOUNTS, KEYS)
    _run(opened, run, broker, left, on_cell)


def _run(
    opened: Callable[[], Cluster],
    run: Callable[[Cluster], None],
    broker: str,
    left: _Left,
    on_cell: OnCell,
) -> None:
    """Run on a new cluster; what could not run is skipped with the reason, or failed."""
    reason = check_peer(broker) or missing_tool()
    for key, cell in list(left.items()):
        why = reason or missing_for(cell.client)
        if why is not None:
            on_cell(replace(left.pop(key), detail=why))
    if not left:
        return
    try:
        cluster = opened()
        try:
            run(cluster)
        finally:
            cluster.close()
    except PeerError as error:
        for cell in failed(list(left.values()), str(error)):
            on_cell(cell)
