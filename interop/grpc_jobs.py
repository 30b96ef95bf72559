"""The jobs of clients that speak gRPC: on trocket's port, and on Apache's broker with its proxy.

Each job starts a cluster, and runs the clients in one way: plain, by TLS, through a port that the
server does not know, or with accounts. The server is trocket's broker itself, on the port of all
others, or Apache's broker with the proxy in its process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from .accounts import (
    SUPER,
    Generation,
    acl_2_keys,
    create_accounts,
    generations_of,
    open_with_accounts,
)
from .apache import version_numbers
from .apache_local_proxy import ApacheLocalProxy, proxy_keys_with_tls
from .apache_proxy import ApacheProxy, keys_with_accounts
from .jobs import Job, OnCell, failed
from .peer import Cluster
from .peers import PATIENT, Peer, check_peer, open_cluster, parse_peer
from .process import PeerError
from .relay import Relay
from .report.cells import Cell, Kind, Verdict
from .scenarios.dead_letters import dead_letters
from .scenarios.grpc_table import (
    ACCOUNT_VARIABLE,
    ACCOUNTS,
    GROUP_NAMES,
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
from .scenarios.table import GRPC_CLIENTS, GRPC_JAVA, TROCKET
from .scenarios.verdicts import with_outcome
from .tls_files import PERMISSIVE, ClientTls, ServerTls, make_files
from .trocket_peer import TrocketPair
from .wire import WireClient

PROXY_SINCE: Final = (5, 5)
"""Apache's versions whose proxy has all that the scenarios need, such as priorities."""
PASSED_BY: Final = "a client connected to the server's own port, not to the one that it was given"


@dataclass(frozen=True)
class Way:
    """One way in which clients reach a server.

    Attributes:
      end: of the features of its cells: ", by TLS".
      names: of its scenarios; those with accounts are a few.
      has_tls: with the files of `trocket tls init`, on a port that takes plain connections, too.
      is_relayed: the clients are given the port of a relay, which the server does not know.
      has_accounts: the clients sign, and the broker checks it.
    """

    end: str
    names: tuple[str, ...] = tuple(GRPC_BY_NAME)
    has_tls: bool = False
    is_relayed: bool = False
    has_accounts: bool = False


WAYS: Final = (
    Way(""),
    Way(", by TLS", has_tls=True),
    Way(", by another port", is_relayed=True),
    Way(SIGNED, WITH_ACCOUNTS, has_accounts=True),
)


def jobs(brokers: Sequence[str], *, clients: Sequence[str] | None = None) -> list[Job]:
    """A job for each way and each broker that serves gRPC.

    Args:
      brokers: names of `peers.PEERS`.
      clients: None: all.
    Raises: PeerError: a broker is unknown.
    """
    chosen = [each for each in GRPC_CLIENTS if clients is None or each in clients]
    found: list[Job] = []
    for peer in filter(_serves_grpc, map(parse_peer, brokers)):
        for way in WAYS:
            if way.has_accounts and Generation.ACL_2 not in generations_of(peer.name):
                continue
            owed = tuple(
                Cell(Kind.GRPC, f"{name}{way.end}", client, peer.name, Verdict.SKIPPED)
                for client in chosen
                for name in way.names
                if client in GRPC_BY_NAME[name].clients
            )
            if owed:
                name = f"gRPC of {peer.name}{way.end}"
                found.append(Job(name, owed, partial(_play, peer, way)))
    return found


def _serves_grpc(peer: Peer) -> bool:
    if peer.kind == "apache":
        return version_numbers(peer.version) >= PROXY_SINCE
    return peer.kind == "trocket"


def _play(peer: Peer, way: Way, owed: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
    """Run on a new cluster; what could not run is skipped with the reason, or failed."""
    reason = check_peer(peer.name)
    missing = {client: missing_for(client) for client in {cell.client for cell in owed}}
    left: dict[tuple[str, str], Cell] = {}
    for cell in owed:
        why = reason or missing[cell.client]
        if why is None:
            left[cell.client, cell.feature.removesuffix(way.end)] = cell
        else:
            on_cell(replace(cell, detail=why))
    if not left:
        return
    try:
        if way.has_tls:
            make_files(folder / "tls", "none")
        cluster = _opened(peer, way, folder)
        try:
            _play_on(cluster, way, left, folder, on_cell)
        finally:
            cluster.close()
    except PeerError as error:
        for cell in failed(list(left.values()), str(error)):
            on_cell(cell)


def _opened(peer: Peer, way: Way, folder: Path) -> Cluster:
    """A stopped cluster that can be reached in this way. Raises: PeerError."""
    place = folder / "cluster"
    if peer.kind == "apache" and not way.is_relayed:
        proxy_keys: dict[str, object] = {}
        broker_keys = {**PATIENT, **KEYS}
        if way.has_tls:
            proxy_keys |= proxy_keys_with_tls(folder / "tls")
        if way.has_accounts:
            proxy_keys |= keys_with_accounts(SUPER.keys)
            broker_keys |= acl_2_keys(SUPER.keys)
        return ApacheLocalProxy(
            peer.version,
            place,
            broker_keys=broker_keys,
            proxy_keys=proxy_keys,
            is_measured=False,
        )
    if way.has_tls:
        tls = ServerTls(folder / "tls", PERMISSIVE)
        return TrocketPair(place, broker_keys={**KEYS, **tls.keys}, namesrv_keys=tls.keys)
    if way.has_accounts:
        return open_with_accounts(peer.name, place, ACCOUNTS, KEYS)
    return open_cluster(peer.name, place, KEYS)


def _play_on(
    cluster: Cluster,
    way: Way,
    left: dict[tuple[str, str], Cell],
    folder: Path,
    on_cell: OnCell,
) -> None:
    """Start a cluster, and run the cells that are left; each that is done is removed.

    Raises: PeerError: the cluster does not start, or refuses a topic or a group.
    """
    with contextlib.ExitStack() as stack:
        cluster.start()
        keys = SUPER.keys if way.has_accounts else None
        is_apaches = cluster.label != TROCKET
        server, pids = _served(cluster, folder, stack)
        address = server
        if way.is_relayed:
            address = stack.enter_context(Relay(server)).address
        if is_apaches and keys is None:
            warm_up(cluster)
        with WireClient(cluster.broker_address, keys=keys) as wire:
            if keys is not None:
                create_accounts(wire, ACCOUNTS.table)
            for client, name in left:
                # Apache's broker creates none for its own proxy.
                for group in GROUP_NAMES.get(name, ("{}",)):
                    if is_apaches or name in GROUPS:
                        group = group.format(prefix(client) + name)
                        wire.create_group(group, **GROUPS.get(name, {}))

        def on_outcome(client: str, scenario: Playable, outcome: Outcome) -> None:
            if way.is_relayed and not outcome.error and _is_passed_by(server, pids):
                outcome = replace(outcome, error=PASSED_BY)
            if scenario.name == PUSH_DEAD and not outcome.error:
                dead = dead_letters(cluster, prefix(client) + scenario.name)
                outcome = replace(outcome, facts={**outcome.facts, "dead_letters": dead})
            cell = left.pop((client, scenario.name))
            on_cell(with_outcome(cell, GRPC_BY_NAME[scenario.name], outcome))

        tls = ClientTls(folder / "tls") if way.has_tls else None
        for some in _rounds(left, is_apaches=is_apaches):
            play(
                some,
                cluster,
                folder / "clients",
                on_outcome=on_outcome,
                tls=tls,
                keys=keys,
                environment=_environment(way, tls),
                servers=dict.fromkeys(GRPC_CLIENTS, address),
                message_types=MESSAGE_TYPES,
            )


def _served(cluster: Cluster, folder: Path, stack: contextlib.ExitStack) -> tuple[str, list[int]]:
    """HOST:PORT that serves gRPC for a started cluster, and the processes of the servers.

    Apache's proxy in the broker's process answers with its own port, whatever its keys say
    (LocalTopicRouteService); one before the broker can answer with that of the request.
    """
    if isinstance(cluster, ApacheLocalProxy):
        return cluster.grpc_address, cluster.pids
    if cluster.label == TROCKET:
        return cluster.broker_address, cluster.pids
    proxy = ApacheProxy(cluster, folder / "proxy", keys={"useEndpointPortFromRequest": True})
    stack.callback(proxy.close)
    proxy.start()
    return proxy.grpc_address, proxy.pids


def _environment(way: Way, tls: ClientTls | None) -> dict[str, str]:
    """Further variables of the clients' programs."""
    found = dict(ACCOUNT_VARIABLE) if way.has_accounts else {}
    if tls is not None:
        # Both libraries, grpcio and grpc-js, read it; the clients have no setting for it.
        found["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = str(tls.folder / "client" / "ca.crt")
    return found


def _rounds(
    left: Mapping[tuple[str, str], Cell], *, is_apaches: bool
) -> Iterator[Mapping[str, Sequence[Playable]]]:
    """The scenarios by client, of the clients to run together.

    The JVM of Apache's is cold at first, and fails sends of several clients that begin at once.
    """
    wanted: dict[str, list[Playable]] = {}
    for client, name in left:
        wanted.setdefault(client, []).append(GRPC_BY_NAME[name])
    first = [client for client in wanted if is_apaches and client == GRPC_JAVA]
    rest = [client for client in wanted if client not in first]
    for clients in (first, rest):
        if clients:
            yield {client: wanted[client] for client in clients}


def _is_passed_by(server: str, pids: Sequence[int]) -> bool:
    """Whether a process that is neither the harness nor a server is connected to the server."""
    port = int(server.rpartition(":")[2])
    ours = {os.getpid(), *pids}
    return any(
        each.raddr and each.raddr[1] == port and each.pid is not None and each.pid not in ours
        for each in psutil.net_connections("tcp")
    )
