"""Every messaging feature of the official clients: Java 5.5.0 and 4.9.7, and Go.

What the table expects was seen with Apache's broker 5.5.0: run this with TROCKET_INTEROP_PEER.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from ..conftest import PEER_VARIABLE
from ..go_program import go_tool
from .programs import Outcome
from .table import GO, SCENARIOS, TROCKET, Scenario

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]


@pytest.mark.parametrize(
    ("client", "scenario"),
    [
        pytest.param(client, scenario, id=f"{scenario.name}-{client}")
        for scenario in SCENARIOS
        for client in scenario.clients
    ],
)
def test_a_feature_is_as_with_apache(
    outcomes: Mapping[tuple[str, str], Outcome], client: str, scenario: Scenario
) -> None:
    if client == GO and go_tool() is None and os.environ.get("CI") != "true":
        pytest.skip("no go in PATH (Go 1.19 or newer is needed)")
    outcome = outcomes[client, scenario.name]
    peer = os.environ.get(PEER_VARIABLE, TROCKET)
    assert (outcome.error, outcome.facts) == ("", scenario.facts(client, peer))
