"""The jobs of clients that speak gRPC with trocket's broker itself, on the port of all others.

The scenarios are those before Apache's proxy (`proxy_jobs`), so the expected facts are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from .accounts import SUPER, Generation, generations_of, open_with_accounts, start_with_accounts
from .jobs import Job, OnCell, failed
from .maven import missing_tool
from .peer import Cluster
from .peers import check_peer, open_cluster, parse_peer
from .process import PeerError
from .proxy_jobs import (
    ACCOUNTS,
    GROUPS,
    GRPC_SCENARIOS,
    MESSAGE_TYPES,
    PUSH_DEAD,
    SIGNED,
    USER,
    WITH_ACCOUNTS,
    dead_letters,
)
from .report.cells import Cell, Kind, Verdict
from .scenarios.play import play
from .scenarios.programs import KEYS, Outcome, Playable, prefix
from .scenarios.table import GRPC_CLIENTS, Scenario
from .scenarios.verdicts import with_outcome
from .wire import WireClient

_BY_NAME: Final[Mapping[str, Scenario]] = {each.name: each for each in GRPC_SCENARIOS}


def jobs(brokers: Sequence[str], *, clients: Sequence[str] | None = None) -> list[Job]:
    """A job for each of trocket's brokers, and one with accounts.

    Args:
      brokers: names of `peers.PEERS`; Apache's have no gRPC of their own.
      clients: None: all.
    Raises: PeerError: a broker is unknown.
    """
    found: list[Job] = []
    for peer in map(parse_peer, brokers):
        if peer.kind != "trocket":
            continue
        chosen = [each for each in GRPC_CLIENTS if clients is None or each in clients]
        owed = tuple(_cells(peer.name, chosen, list(_BY_NAME), ""))
        if owed:
            found.append(Job(f"gRPC of {peer.name}", owed, partial(_play, peer.name)))
        if owed and Generation.ACL_2 in generations_of(peer.name):
            signed = tuple(_cells(peer.name, chosen, WITH_ACCOUNTS, SIGNED))
            name = f"gRPC of {peer.name}, with accounts"
            found.append(Job(name, signed, partial(_play_signed, peer.name)))
    return found


def _cells(broker: str, clients: Sequence[str], names: Sequence[str], end: str) -> Iterator[Cell]:
    for client in clients:
        for name in names:
            if client in _BY_NAME[name].clients:
                yield Cell(Kind.GRPC, f"{name}{end}", client, broker, Verdict.SKIPPED)


def _wanted(left: Mapping[tuple[str, str], Cell]) -> dict[str, list[Playable]]:
    """The scenarios by client."""
    wanted: dict[str, list[Playable]] = {}
    for client, name in left:
        wanted.setdefault(client, []).append(_BY_NAME[name])
    return wanted


def _play(broker: str, owed: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
    left = {(cell.client, cell.feature): cell for cell in owed}

    def run(cluster: Cluster) -> None:
        def on_outcome(client: str, scenario: Playable, outcome: Outcome) -> None:
            if scenario.name == PUSH_DEAD and not outcome.error:
                dead = dead_letters(cluster, prefix(client) + scenario.name)
                outcome = replace(outcome, facts={**outcome.facts, "dead_letters": dead})
            cell = left.pop((client, scenario.name))
            on_cell(with_outcome(cell, _BY_NAME[scenario.name], outcome))

        cluster.start()
        with WireClient(cluster.broker_address) as wire:
            for client, name in left:
                if name in GROUPS:
                    wire.create_group(prefix(client) + name, **GROUPS[name])
        play(
            _wanted(left),
            cluster,
            folder / "clients",
            on_outcome=on_outcome,
            servers=dict.fromkeys(GRPC_CLIENTS, cluster.broker_address),
            message_types=MESSAGE_TYPES,
        )

    _run(partial(open_cluster, broker, folder / "cluster", KEYS), run, broker, left, on_cell)


def _play_signed(broker: str, owed: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
    left = {(cell.client, cell.feature.removesuffix(SIGNED)): cell for cell in owed}

    def run(cluster: Cluster) -> None:
        def on_outcome(client: str, scenario: Playable, outcome: Outcome) -> None:
            cell = left.pop((client, scenario.name))
            on_cell(with_outcome(cell, _BY_NAME[scenario.name], outcome))

        start_with_accounts(cluster, ACCOUNTS)
        account = f"{USER.keys.access_key} {USER.keys.secret_key}"
        play(
            _wanted(left),
            cluster,
            folder / "clients",
            on_outcome=on_outcome,
            keys=SUPER.keys,
            environment={"INTEROP_ACCOUNT": account},
            servers=dict.fromkeys(GRPC_CLIENTS, cluster.broker_address),
            message_types=MESSAGE_TYPES,
        )

    opened = partial(open_with_accounts, broker, folder / "cluster", ACCOUNTS, KEYS)
    _run(opened, run, broker, left, on_cell)


def _run(
    opened: partial[Cluster],
    run: Callable[[Cluster], None],
    broker: str,
    left: dict[tuple[str, str], Cell],
    on_cell: OnCell,
) -> None:
    """Run on a new cluster; what could not run is skipped with the reason, or failed."""
    reason = check_peer(broker) or missing_tool()
    if reason is not None:
        for cell in left.values():
            on_cell(replace(cell, detail=reason))
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
