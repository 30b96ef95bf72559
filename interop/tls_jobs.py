"""The jobs of TLS: clients and mqadmin by TLS on each broker, with the same files for all.

A job makes the files by `trocket tls init`, starts a name server and a broker with them, and runs
the clients by turns in the ways that the servers allow. The broker connects to its name server by
TLS, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from .apache import ApacheCluster
from .jobs import Job, OnCell, failed
from .mqadmin import AdminJvm
from .mqadmin_outline import failure
from .peer import Cluster
from .peers import PATIENT, Peer, check_peer, parse_peer
from .process import PeerError
from .report.cells import Cell, Kind, Verdict
from .scenarios.jobs import missing_for
from .scenarios.play import play
from .scenarios.programs import Outcome, Playable
from .scenarios.table import (
    APACHES_4,
    CPP,
    GO,
    GO_NEXT,
    SCENARIOS,
    TLS_CLIENTS,
    Scenario,
    same_broker,
)
from .scenarios.verdicts import reason_to_skip, with_outcome
from .tls_files import ENFORCING, PERMISSIVE, ClientTls, ServerTls, make_files
from .trocket_peer import TrocketPair

ADMIN_TOPIC: Final = "tls_by_mqadmin"
BUSY: Final = "send_sync"
"""The scenario in which a client sends and consumes."""
ASKING: Final = "query"
"""The scenario in which a client uses its administration."""
ASKING_OF: Final = {GO: "admin", GO_NEXT: "admin"}
"""The same of clients that cannot query messages."""

NO_TLS: Final = {
    GO: f"this client has no TLS: no option of its version 2.1.2 turns it on ({GO_NEXT} has one)",
    CPP: "this client has no TLS",
}


CANNOT: Final = {
    (GO_NEXT, "one way"): "this client cannot check the server's certificate: it trusts any",
    (GO_NEXT, "mutual"): "this client cannot show a certificate: WithTls is its only setting",
}
"""Clients and ways for which they have no setting."""

QUERY_BREAKS_OFF: Final = (
    "by TLS this broker breaks off the answer to QUERY_MESSAGE (FileRegionEncoder of 4.x counts the"
    " buffer's capacity as written), and the connection is of no use then"
)


@dataclass(frozen=True)
class Way:
    """One way in which a client connects.

    Attributes:
      name: in the features of cells: "mutual".
      client: its TLS by the folder of the files; None: it uses none.
    """

    name: str
    client: Callable[[Path], ClientTls | None]


@dataclass(frozen=True)
class Servers:
    """The settings of servers, and the ways in which clients connect to them.

    Attributes:
      mode: tls.server.mode.
      client_auth: tls.server.need.client.auth.
    """

    mode: str
    client_auth: str
    ways: tuple[Way, ...]

    @property
    def name(self) -> str:
        """For the job's name: "enforcing, require"."""
        return f"{self.mode}, client's certificate {self.client_auth}"


ALL: Final = (
    Servers(
        ENFORCING,
        "none",
        (
            Way("one way", partial(ClientTls, shows_certificate=False)),
            Way("one way, unverified", partial(ClientTls, shows_certificate=False, verifies=False)),
        ),
    ),
    Servers(ENFORCING, "require", (Way("mutual", ClientTls),)),
    Servers(
        PERMISSIVE,
        "optional",
        (Way("permissive, plain", lambda folder: None), Way("permissive, by TLS", ClientTls)),
    ),
)


def jobs(
    brokers: Sequence[str], tools: Sequence[str], *, clients: Sequence[str] | None = None
) -> list[Job]:
    """A job for each broker and each setting of its servers.

    Args:
      brokers: names of `peers.PEERS`.
      tools: versions of mqadmin.
      clients: of `table.TLS_CLIENTS`, or "mqadmin-5.5.0"; None: all.
    Raises: PeerError: a broker is unknown.
    """
    found = []
    for peer in map(parse_peer, brokers):
        if peer.kind not in ("trocket", "apache"):
            continue  # their files would have to be brought to another machine, or into an image
        for servers in ALL:
            owed = tuple(_cells(peer, servers, tools, clients))
            if owed:
                found.append(
                    Job(f"TLS on {peer.name}, {servers.name}", owed, partial(_play, peer, servers))
                )
    return found


def _cells(
    peer: Peer, servers: Servers, tools: Sequence[str], clients: Sequence[str] | None
) -> Iterator[Cell]:
    def is_wanted(client: str) -> bool:
        return clients is None or client in clients

    for way in servers.ways:
        for asked in (False, True):
            for client in filter(is_wanted, TLS_CLIENTS):
                name = ASKING_OF.get(client, ASKING) if asked else BUSY
                yield Cell(Kind.TLS, f"{name}, {way.name}", client, peer.name, Verdict.SKIPPED)
        for version in tools:
            if is_wanted(f"mqadmin-{version}"):
                feature = f"administration, {way.name}"
                yield Cell(Kind.TLS, feature, f"mqadmin-{version}", peer.name, Verdict.SKIPPED)


def _play(
    peer: Peer, servers: Servers, owed: Sequence[Cell], folder: Path, on_cell: OnCell
) -> None:
    reason = check_peer(peer.name)
    left = {cell.name: cell for cell in owed}

    def report(cell: Cell) -> None:
        left.pop(cell.name)
        on_cell(cell)

    for cell in owed:
        why = reason or reason_not_to_run(cell)
        if why is not None:
            report(replace(cell, detail=why))
    if not left:
        return
    files = folder / "tls"
    make_files(files, servers.client_auth)
    cluster = open_secure(peer, ServerTls(files, servers.mode), folder / "cluster")
    try:
        cluster.start()
        for way in servers.ways:
            mine = [cell for cell in left.values() if cell.feature.endswith(f", {way.name}")]
            _play_clients(way, mine, cluster, files, folder / "clients", report)
            for cell in mine:
                if cell.client.startswith("mqadmin"):
                    report(_administered(cell, way, cluster, files, folder / "mqadmin"))
    except PeerError as error:
        for cell in failed(list(left.values()), str(error)):
            report(cell)
    finally:
        cluster.close()


def reason_not_to_run(cell: Cell) -> str | None:
    """Why a cell cannot run; None: it can."""
    if cell.client.startswith("mqadmin"):
        return None
    scenario = _scenario(cell)
    no_tls = None
    if not cell.feature.endswith(", plain"):
        way = cell.feature.partition(", ")[2]
        no_tls = NO_TLS.get(cell.client) or CANNOT.get((cell.client, way))
        if scenario.name == ASKING and same_broker(cell.broker) in APACHES_4:
            no_tls = no_tls or QUERY_BREAKS_OFF
    return no_tls or reason_to_skip(scenario, cell.client, cell.broker) or missing_for(cell.client)


_BY_NAME: Final[Mapping[str, Scenario]] = {each.name: each for each in SCENARIOS}


def _scenario(cell: Cell) -> Scenario:
    return _BY_NAME[cell.feature.partition(",")[0]]


def open_secure(peer: Peer, tls: ServerTls, folder: Path) -> ApacheCluster | TrocketPair:
    """A stopped cluster whose servers speak TLS. Raises: PeerError: the jars are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    if peer.kind == "apache":
        return ApacheCluster(peer.version, folder, broker_keys=dict(PATIENT), tls=tls)
    return TrocketPair(folder, broker_keys=tls.keys, namesrv_keys=tls.keys, context=tls.context)


def _play_clients(
    way: Way,
    cells: Sequence[Cell],
    cluster: Cluster,
    files: Path,
    folder: Path,
    report: OnCell,
) -> None:
    wanted: dict[str, list[Playable]] = {}
    mine: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        if not cell.client.startswith("mqadmin"):
            scenario = _scenario(cell)
            wanted.setdefault(cell.client, []).append(scenario)
            mine[cell.client, scenario.name] = cell

    def on_outcome(client: str, scenario: Playable, outcome: Outcome) -> None:
        report(with_outcome(mine[client, scenario.name], _BY_NAME[scenario.name], outcome))

    # A pair at a time: a JVM's first handshake takes a second of a small machine.
    clients = list(wanted)
    mark = "".join(each for each in way.name if each.isalpha()) + "_"
    for begin in range(0, len(clients), 2):
        some = {client: wanted[client] for client in clients[begin : begin + 2]}
        play(
            some,
            cluster,
            folder / way.name,
            on_outcome=on_outcome,
            mark=mark,
            tls=way.client(files),
        )


def _administered(cell: Cell, way: Way, cluster: Cluster, files: Path, folder: Path) -> Cell:
    """The cell of mqadmin: it makes a topic, asks the broker, and shows the topic's route."""
    version = cell.client.removeprefix("mqadmin-")
    topic = ADMIN_TOPIC + version.replace(".", "")
    tls = way.client(files)
    options = () if tls is None else tls.java_options
    commands = (
        (["updateTopic", "-b", cluster.broker_address, "-t", topic], "success"),
        (["brokerStatus", "-b", cluster.broker_address], "brokerVersion"),
        (["topicRoute", "-t", topic], "broker-a"),
    )
    began_s = time.monotonic()
    place = folder / f"{version}-{way.name}"
    place.mkdir(parents=True, exist_ok=True)
    admin = AdminJvm(version, place, options=options)
    try:
        for words, text in commands:
            printed, is_whole = admin.play([*words, "-n", cluster.namesrv_address])
            if failure(printed) or text not in printed or not is_whole:
                detail = f"$ mqadmin {' '.join(words)}\n{printed}"
                return replace(cell, verdict=Verdict.FAILED, detail=detail)
    except PeerError as error:
        return replace(cell, verdict=Verdict.FAILED, detail=str(error))
    finally:
        admin.close()
    return replace(cell, verdict=Verdict.PASSED, seconds=time.monotonic() - began_s)
