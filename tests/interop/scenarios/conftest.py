"""All scenarios are played once, at the same time, before the first test that asks for one."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from trocket.interop.peer import Cluster
from trocket.interop.process import PeerError

from ..conftest import new_cluster
from .programs import Outcome, Program, create_topics
from .table import ALL, Scenario

KEYS = {
    "enablePropertyFilter": True,
    "traceTopicEnable": True,
    "recallMessageEnable": True,
    # Apache 5.5.0 notes ends three seconds later: with a shorter time it asks about what has ended.
    "transactionTimeOut": 8000,
    "transactionCheckInterval": 3000,
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 20 * 10_000,
}


@pytest.fixture(scope="session")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], Outcome]:
    """What became of the scenarios that were collected, by client and name."""
    folder = tmp_path_factory.mktemp("scenarios")
    cluster = new_cluster(folder / "cluster", KEYS)
    try:
        cluster.start()
        return play(wanted(request.session.items), cluster, folder)
    finally:
        cluster.close()


def wanted(items: list[pytest.Item]) -> dict[str, list[Scenario]]:
    """The scenarios of each client that the tests of this session ask for."""
    found: dict[str, list[Scenario]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and "outcomes" in item.fixturenames:
            parameters = item.callspec.params
            found[parameters["client"]].append(parameters["scenario"])
    return found


def play(
    scenarios: dict[str, list[Scenario]], cluster: Cluster, folder: Path
) -> dict[tuple[str, str], Outcome]:
    """Play them; what a program did not tell has an error that says why."""
    programs: list[Program] = []
    failures: dict[str, str] = {}
    # Go comes last: what Java plays meanwhile hides a part of its build.
    for client in sorted(scenarios, key=ALL.index):
        some = scenarios[client]
        create_topics(cluster, client, some)
        names = [scenario.name for scenario in some]
        try:
            programs.append(Program(client, names, cluster, folder / client))
        except PeerError as error:
            failures[client] = str(error)
    for program in programs:
        failures[program.client] = program.finish()
    outcomes = {
        (client, scenario.name): Outcome({}, failures[client])
        for client, some in scenarios.items()
        for scenario in some
    }
    for program in programs:
        for name, outcome in program.outcomes.items():
            outcomes[program.client, name] = outcome
    return outcomes
