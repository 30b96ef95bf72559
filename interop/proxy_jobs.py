"""The jobs of Apache's proxy: its clients before each broker, with groups that do not exist yet.

A job starts a name server, a broker and the proxy in cluster mode, and runs the clients by turns:
those that speak gRPC first, then those of the remoting protocol.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from .accounts import (
    SUPER,
    Account,
    Accounts,
    Generation,
    Grant,
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
from .scenarios.broker_view import stored_bodies
from .scenarios.jobs import missing_for, warm_up
from .scenarios.play import play
from .scenarios.programs import KEYS, Outcome, Playable, prefix
from .scenarios.table import (
    FOUR_QUEUES,
    GRPC_CLIENTS,
    GRPC_JAVA,
    JAVA_4,
    JAVA_5,
    OWN_TOPIC,
    PYTHON,
    SCENARIOS,
    TROCKET,
    Scenario,
)
from .scenarios.verdicts import reason_to_skip, with_outcome
from .wire import Keys, WireClient

# The scenarios of clients behind Apache's proxy, and the facts expected before every broker.
#
# Clients of the remoting protocol do what they do without a proxy (`scenarios.table`), but for what
# its remoting port does not serve. Those that speak gRPC have scenarios of their own, in
# interop/clients/java/grpc/GrpcScenarios.java.

REMOTING_CLIENTS: Final = (JAVA_5, JAVA_4, *PYTHON)
PROXY_CLIENTS: Final = (*GRPC_CLIENTS, *REMOTING_CLIENTS)

PUSH_DEAD: Final = "grpc_push_dead"


IN_PYTHON: Final = (
    "grpc_simple",
    "grpc_push",
    "grpc_push_retry",
    "grpc_fifo",
    "grpc_delay",
    "grpc_recall",
    "grpc_transaction",
    "grpc_filters",
)
"""Scenarios of the client for Python, too."""


def _grpc(
    name: str, expected: Mapping[str, Any], topics: Mapping[str, int] = FOUR_QUEUES
) -> Scenario:
    clients = GRPC_CLIENTS if name in IN_PYTHON else (GRPC_JAVA,)
    return Scenario(name, expected, clients=clients, topics=topics)


GRPC_SCENARIOS: Final = (
    _grpc(
        "grpc_simple",
        {
            "first": ["one", 1, "a", ["k1", "k2"], {"colour": "red"}],
            "again": ["one", 2],
            "same_id": True,
            "after_ack": 0,
        },
    ),
    _grpc(
        "grpc_simple_in_pages",
        {"received": [str(number) for number in range(10, 50)], "another_group": 40},
    ),
    _grpc("grpc_push", {"received": [[str(number), 1] for number in range(8)]}),
    _grpc("grpc_push_retry", {"received": [["again", 1], ["again", 2], ["again", 3]]}),
    _grpc(PUSH_DEAD, {"received": [["dead", 1], ["dead", 2]], "more": 0, "dead_letters": ["dead"]}),
    _grpc("grpc_fifo", {"received": [[str(number), 1] for number in range(6)]}),
    _grpc(
        "grpc_forward",
        {"received": [["one", 1, "a", ["k"], {"colour": "red"}]] * 2, "after_ack": 0},
        {"{}": 4, "{}_next": 4},
    ),
    _grpc("grpc_delay", {"received": ["late"], "early": False, "timestamp": True}),
    _grpc("grpc_recall", {"same_id": True, "received": ["kept"]}),
    _grpc(
        "grpc_transaction",
        {"received": ["asked", "committed"], "checked": ["asked", "asked in vain"]},
    ),
    _grpc("grpc_priority", {"received": [[str(priority), priority] for priority in (3, 2, 1, 0)]}),
    _grpc("grpc_filters", {"by_tag": ["a", "c"], "by_sql": ["b"]}),
    _grpc(
        "grpc_refused",
        {
            "unknown_topic": "IllegalStateException",
            "wrong_type": "IllegalArgumentException",
            "acked": "done",
            "acked_again": "done",
            "too_short": "BadRequestException",
            "bad_filter": "InternalErrorException",
            "bad_handle": "BadRequestException",
        },
        topics=OWN_TOPIC,
    ),
)

MESSAGE_TYPES: Final[Mapping[str, str]] = {
    "later_level": "DELAY",
    "later_timer": "DELAY",
    "later_recall": "DELAY",
    "grpc_fifo": "FIFO",
    "grpc_delay": "DELAY",
    "grpc_recall": "DELAY",
    "grpc_transaction": "TRANSACTION",
    "grpc_priority": "PRIORITY",
}
"""Types of the topics, by scenario: the proxy refuses messages of another type. Without one a topic
is for plain messages."""

GROUPS: Final[Mapping[str, Mapping[str, object]]] = {
    "grpc_fifo": {"consumeMessageOrderly": True},
    PUSH_DEAD: {"retryMaxTimes": 1},
}
"""Settings of the groups that exist before, by scenario. Of all others the proxy asks first."""

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

WITH_ACCOUNTS: Final = ("grpc_simple", "grpc_push", "grpc_filters", "grpc_transaction")
"""Scenarios that also run with ACL 2.0, by a user with the rights."""

PROXY_SCENARIOS: Final = (
    *GRPC_SCENARIOS,
    *(scenario for scenario in SCENARIOS if set(scenario.clients) & set(REMOTING_CLIENTS)),
)


BROKERS_SINCE: Final = (5, 0)
"""Brokers that pop, which a proxy needs."""
ROUNDS: Final = (*((client,) for client in GRPC_CLIENTS), (JAVA_5,), (JAVA_4,), PYTHON)
"""The clients that run together. The proxy's JVM is cold at first, and fails sends of several that
begin at once."""
DEAD_LETTERS_TIMEOUT_S: Final = 20.0
SIGNED: Final = ", with accounts"
"""The end of the features of cells with access control."""
USER: Final = Account(
    Keys("interop-user", "the-secret-of-user"),
    (Grant("Topic:*", ("Pub", "Sub")), Grant("Group:*", ("Sub",))),
)
ACCOUNTS: Final = Accounts(Generation.ACL_2, (USER,))
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
    has_accounts = Generation.ACL_2 in generations_of(broker)
    if has_accounts and (clients is None or GRPC_JAVA in clients):
        for name in WITH_ACCOUNTS:
            feature = f"{name}{SIGNED}"
            yield Cell(Kind.PROXY, feature, GRPC_JAVA, broker, Verdict.SKIPPED)


def reason_not_to_run(cell: Cell) -> str | None:
    """Why a cell cannot run; None: it can."""
    scenario = _BY_NAME[cell.feature]
    return (
        NOT_SERVED.get(scenario.name)
        or reason_to_skip(scenario, cell.client, cell.broker)
        or (missing_tool() if cell.client == GRPC_JAVA else missing_for(cell.client))
    )


def _play(broker: str, owed: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
    reason = check_peer(broker) or missing_tool()
    left: dict[tuple[str, str], Cell] = {}
    for cell in owed:
        why = reason or reason_not_to_run(cell)
        if why is not None:
            on_cell(replace(cell, detail=why))
        else:
            left[cell.client, cell.feature] = cell
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
    """Run the gRPC client as a user of the broker that may send and receive."""
    reason = check_peer(broker) or missing_tool()
    if reason is not None:
        for cell in owed:
            on_cell(replace(cell, detail=reason))
        return
    left = {cell.feature.removesuffix(SIGNED): cell for cell in owed}

    def on_outcome(client: str, scenario: Playable, outcome: Outcome) -> None:
        on_cell(with_outcome(left.pop(scenario.name), _BY_NAME[scenario.name], outcome))

    try:
        cluster = open_with_accounts(broker, folder / "cluster", ACCOUNTS, KEYS)
        proxy = ApacheProxy(cluster, folder / "proxy", account=SUPER.keys)
        try:
            start_with_accounts(cluster, ACCOUNTS)
            proxy.start()
            # The cluster, not the proxy: the harness looks routes up without an account.
            play(
                {GRPC_JAVA: [_BY_NAME[name] for name in left]},
                cluster,
                folder / "clients",
                on_outcome=on_outcome,
                keys=SUPER.keys,
                environment={"INTEROP_ACCOUNT": f"{USER.keys.access_key} {USER.keys.secret_key}"},
                servers={GRPC_JAVA: proxy.grpc_address},
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
            wanted: dict[str, list[Playable]] = {}
            for client, name in left:
                if client in some:
                    wanted.setdefault(client, []).append(_BY_NAME[name])
            play(
                wanted,
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


def dead_letters(cluster: Cluster, group: str) -> list[str]:
    """The bodies in a group's dead letter topic, as soon as there are any, or none in time.

    Raises: PeerError: the broker does not answer.
    """
    topic = f"%DLQ%{group}"
    deadline_s = time.monotonic() + DEAD_LETTERS_TIMEOUT_S
    pause = threading.Event()
    with WireClient(cluster.broker_address) as wire:
        while True:
            if topic in wire.topics():
                found = stored_bodies(wire, topic, 1)
                if found:
                    return found
            if time.monotonic() > deadline_s:
                return []
            pause.wait(0.5)
