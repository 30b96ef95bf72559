"""The jobs of features with access control: cells by feature, generation, client and broker.

The clients sign with an account that may use their topics and groups. The scenario `refused` adds
accounts that may not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ..accounts import (
    SUPER,
    Account,
    Accounts,
    Generation,
    Grant,
    generations_of,
    open_with_accounts,
    start_with_accounts,
)
from ..jobs import Job, OnCell, failed
from ..peers import check_peer
from ..process import PeerError
from ..report.cells import Cell, Kind, Verdict
from ..wire import Keys
from .jobs import missing_for, rounds_on
from .play import play
from .programs import KEYS, Outcome, Playable, prefix
from .table import (
    APACHE_4,
    CLIENTS,
    CPP,
    GO,
    JAVA,
    JAVA_5,
    LEFT_OUT,
    SCENARIOS,
    TROCKET,
    WITH_JAVA_42,
    Scenario,
)
from .verdicts import reason_to_skip, with_outcome, with_verdict

_ABLE: Final = Keys("interop-able", "the-secret-of-able")
WEAK: Final = Account(Keys("interop-weak", "the-secret-of-weak"))
NAMES: Final = (
    "send_sync",
    "send_async",
    "send_oneway",
    "send_batch",
    "push_concurrent",
    "push_orderly",
    "group_goes_on",
    "pull_queue",
    "pull_subscribed",
    "later_retry",
    "later_level",
    "transaction",
    "query",
    "request_reply",
    "trace",
)
"""The scenarios that clients play with an account."""
FAST: Final = ("python-asyncio",)
"""The clients of a fast run."""
CLIENTS_WITH_ACCOUNTS: Final = tuple(client for client in CLIENTS if client != CPP)

_RIGHTS: Final = ("Pub", "Sub", "Get")
ABLE: Final[Mapping[Generation, Account]] = MappingProxyType(
    {
        # ACL 1.0 has no patterns: a right for many names is one for all.
        Generation.ACL_1: Account(_ABLE, (Grant("Topic:*", _RIGHTS), Grant("Group:*", _RIGHTS))),
        Generation.ACL_2: Account(
            _ABLE,
            (
                *(
                    Grant(f"{kind}{prefix(client)}*", _RIGHTS)
                    for client in CLIENTS_WITH_ACCOUNTS
                    for kind in ("Topic:", "Topic:%DLQ%", "Group:")
                ),
                Grant("Topic:RMQ_SYS_TRACE_TOPIC", _RIGHTS),
            ),
        ),
    }
)
"""The account of the clients: it may use the topics and groups of the scenarios, no others."""

_NO_RIGHT = (
    "User:interop-weak has no permission to access Topic:<topic> from 127.0.0.1,"
    " no matched policies."
)
_JAVA_ERROR = "org.apache.rocketmq.acl.common.AclException: "
_REFUSALS_2: Mapping[str, Any] = {
    "no_account": [16, "username cannot be null."],
    "unknown": [16, "User:interop-unknown is not found."],
    "other_secret": [16, "check signature failed."],
    "send": [16, _NO_RIGHT],
    "batch": [16, _NO_RIGHT],
    "delayed": [16, _NO_RIGHT],
    "pull": [16, _NO_RIGHT],
    "end_offset": [16, _NO_RIGHT],
    "received": ["last"],
}
_NO_RIGHT_1 = [1, f"{_JAVA_ERROR}No default permission for topic:<topic>"]
_REFUSALS_1: Mapping[str, Any] = {
    "no_account": [1, f"{_JAVA_ERROR}No accessKey is configured"],
    "unknown": [1, f"{_JAVA_ERROR}No acl config for interop-unknown"],
    "other_secret": [1, f"{_JAVA_ERROR}Check signature failed for accessKey=interop-able"],
    "send": _NO_RIGHT_1,
    "batch": "passed",
    "delayed": _NO_RIGHT_1,
    "pull": _NO_RIGHT_1,
    "end_offset": "passed",
    "received": ["last"],
}
REFUSED: Final[Mapping[Generation, Scenario]] = MappingProxyType(
    {
        Generation.ACL_1: Scenario(
            "refused",
            _REFUSALS_1,
            clients=WITH_JAVA_42,
            differs={
                # This client cannot ask for offsets.
                GO: {"end_offset": LEFT_OUT},
                f"on {TROCKET}": {"batch": _NO_RIGHT_1, "end_offset": _NO_RIGHT_1},
                f"{GO} on {TROCKET}": {"end_offset": LEFT_OUT},
            },
            quirk="docs/quirks.md: every request code needs something",
        ),
        Generation.ACL_2: Scenario(
            "refused",
            _REFUSALS_2,
            clients=WITH_JAVA_42,
            differs={GO: {"end_offset": LEFT_OUT}},
        ),
    }
)

NOT_ON: Final[Mapping[Generation, Mapping[str, tuple[str, ...]]]] = MappingProxyType(
    {
        # These clients sign the field `_UNIQUE_KEY_QUERY`, and the brokers of 4.9 leave it out
        # when they check the signature: each look-up by key is refused.
        Generation.ACL_1: {"query": tuple(f"{client} on {APACHE_4}" for client in JAVA)},
        # This client names the topic of half messages where it ends a checked transaction, and
        # the broker wants a right for that.
        Generation.ACL_2: {"transaction": (f"{JAVA_5} on apache-5.5.0",)},
    }
)
"""What Apache's clients cannot do on Apache's brokers with accounts, but on ours; see
`Scenario.not_on`."""

Table = Mapping[tuple[str, str], Scenario]
"""By client and feature."""


def jobs(
    brokers: Sequence[str], *, clients: Sequence[str] | None = None, is_fast: bool = False
) -> list[Job]:
    """A job for each broker and each generation that it has.

    Args:
      brokers: names of `peers.PEERS`, or other versions; external clusters have no job.
      clients: of `table.CLIENTS`; None: all but the C++ client's wheel.
      is_fast: only with the clients in `FAST`.
    Raises: PeerError: a broker is unknown.
    """
    wanted = [
        client
        for client in CLIENTS_WITH_ACCOUNTS
        if (clients is None or client in clients) and (not is_fast or client in FAST)
    ]
    return [
        _job(broker, generation, wanted)
        for broker in brokers
        for generation in generations_of(broker)
        if wanted
    ]


def scenarios_of(generation: Generation) -> list[Scenario]:
    """The scenarios that clients play with an account of a generation."""
    found = [one for one in SCENARIOS if one.name in NAMES]
    more = NOT_ON[generation]
    found = [replace(one, not_on=(*one.not_on, *more.get(one.name, ()))) for one in found]
    return [*found, REFUSED[generation]]


def _job(broker: str, generation: Generation, clients: Sequence[str]) -> Job:
    table: dict[tuple[str, str], Scenario] = {}
    owed = []
    for scenario in scenarios_of(generation):
        feature = f"{scenario.name} with {generation}"
        for client in clients:
            table[client, feature] = scenario
            owed.append(Cell(Kind.ACCOUNTS, feature, client, broker, Verdict.SKIPPED))
    name = f"accounts on {broker}, {generation}"
    return Job(name, tuple(owed), partial(_play, broker, generation, table))


def _play(
    broker: str,
    generation: Generation,
    table: Table,
    owed: Sequence[Cell],
    folder: Path,
    on_cell: OnCell,
) -> None:
    peer_reason = check_peer(broker)
    missing = {client: missing_for(client) for client in {cell.client for cell in owed}}
    wanted: dict[str, list[Playable]] = {}
    cells: dict[tuple[str, str], Cell] = {}
    for cell in owed:
        scenario = table[cell.client, cell.feature]
        reason = reason_to_skip(scenario, cell.client, broker)
        reason = reason or peer_reason or missing[cell.client]
        if reason is not None:
            on_cell(with_verdict(cell, Verdict.SKIPPED, reason))
        else:
            wanted.setdefault(cell.client, []).append(scenario)
            cells[cell.client, scenario.name] = cell

    def on_outcome(client: str, scenario: Playable, outcome: Outcome) -> None:
        cell = cells.pop((client, scenario.name))
        if generation is Generation.ACL_1:
            outcome = replace(outcome, facts=_without_kind(outcome.facts))
        on_cell(with_outcome(cell, table[client, cell.feature], outcome))

    accounts = Accounts(generation, (ABLE[generation], WEAK))
    environment = {
        "INTEROP_ACCOUNT": f"{_ABLE.access_key} {_ABLE.secret_key}",
        "INTEROP_WEAK_ACCOUNT": f"{WEAK.keys.access_key} {WEAK.keys.secret_key}",
    }
    try:
        if not wanted:
            return
        cluster = open_with_accounts(broker, folder / "cluster", accounts, KEYS)
        try:
            start_with_accounts(cluster, accounts)
            for some in rounds_on(broker, wanted):
                play(
                    some,
                    cluster,
                    folder,
                    on_outcome=on_outcome,
                    keys=SUPER.keys,
                    environment=environment,
                )
        finally:
            cluster.close()
    except PeerError as error:
        # What was not played has a verdict, too, or a run could look complete.
        for cell in failed(list(cells.values()), str(error)):
            on_cell(cell)


def _without_kind(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts in which a refused pull names its topic: Apache's names that or the group.

    It takes the first of a Java HashMap, and both have the same name.
    """
    pull = facts.get("pull")
    if not isinstance(pull, list):
        return dict(facts)
    texts = [each.replace("group:", "topic:") if isinstance(each, str) else each for each in pull]
    return {**facts, "pull": texts}
