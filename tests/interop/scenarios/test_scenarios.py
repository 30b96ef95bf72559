"""Every messaging feature of the official clients and of ours.

What the table expects was seen with Apache's broker 5.5.0: run this with TROCKET_INTEROP_PEER.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from trocket.interop.scenarios.jobs import missing_for
from trocket.interop.scenarios.programs import Outcome
from trocket.interop.scenarios.table import ALL, JAVA_4, SCENARIOS, TROCKET, Scenario
from trocket.interop.scenarios.verdicts import reason_to_skip

from ..conftest import PEER_VARIABLE

FAST = tuple(client for client in ALL if client != JAVA_4)
"""The clients of `make test`."""

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]


@pytest.mark.parametrize(
    ("client", "scenario"),
    [
        pytest.param(
            client,
            scenario,
            id=f"{scenario.name}-{client}",
            marks=[] if client in FAST else [pytest.mark.matrix],
        )
        for scenario in SCENARIOS
        for client in scenario.clients
    ],
)
def test_a_feature_is_as_with_apache(
    outcomes: Mapping[tuple[str, str], Outcome], client: str, scenario: Scenario
) -> None:
    peer = os.environ.get(PEER_VARIABLE, TROCKET)
    reason = reason_to_skip(scenario, client, peer)
    if reason is None and os.environ.get("CI") != "true":
        reason = missing_for(client)
    if reason is not None:
        pytest.skip(reason)
    outcome = outcomes[client, scenario.name]
    assert (outcome.error, outcome.facts) == ("", scenario.facts(client, peer))
