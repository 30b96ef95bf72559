"""All scenarios are played once, at the same time, before the first test that asks for one."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from trocket.interop.scenarios.play import play
from trocket.interop.scenarios.programs import KEYS, Outcome
from trocket.interop.scenarios.table import Scenario

from ..conftest import new_cluster


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
            parameters: dict[str, Any] = item.callspec.params
            found[parameters["client"]].append(parameters["scenario"])
    return found
