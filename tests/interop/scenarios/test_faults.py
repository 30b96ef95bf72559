"""Clients that go on while a broker is killed or started again: the fast cut of the matrix.

All of it: `trocket interop run`. With TROCKET_INTEROP_PEER it is Apache's broker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import pytest

from trocket.interop.report.cells import Cell, Verdict
from trocket.interop.scenarios.faults import FAULT_SCENARIOS, Fault
from trocket.interop.scenarios.jobs import FAST_FAULTS, jobs
from trocket.interop.scenarios.table import TROCKET

from ..conftest import PEER_VARIABLE

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

Played = Callable[[str], Mapping[tuple[str, str], Cell]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The cells of one fault by client and feature; each fault happens once."""
    found: dict[str, dict[tuple[str, str], Cell]] = {}

    def of(fault: str) -> Mapping[tuple[str, str], Cell]:
        if fault not in found:
            peer = os.environ.get(PEER_VARIABLE, TROCKET)
            (job,) = jobs([peer], faults=[fault], is_fast=True)
            cells: list[Cell] = []
            job.play(job.owed, tmp_path_factory.mktemp(fault), cells.append)
            found[fault] = {(cell.client, cell.feature): cell for cell in cells}
        return found[fault]

    return of


@pytest.mark.parametrize(
    ("fault", "client", "feature"),
    [
        pytest.param(
            fault,
            client,
            scenario.name,
            id=f"{fault}-{scenario.name}-{client}",
            marks=[] if fault == Fault.KILL else [pytest.mark.matrix],
        )
        for fault, clients in FAST_FAULTS.items()
        for client in clients
        for scenario in FAULT_SCENARIOS
        if client in scenario.clients
    ],
)
def test_what_is_acknowledged_survives(
    played: Played, fault: str, client: str, feature: str
) -> None:
    cell = played(fault)[client, feature]
    assert (cell.verdict, cell.detail if cell.verdict is Verdict.FAILED else "") == (
        Verdict.PASSED,
        "",
    )
