"""Real clients and requests with access control: ours as Apache's, with the same accounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from trocket.interop.accounts import Generation
from trocket.interop.jobs import Job
from trocket.interop.mqadmin_accounts import jobs as mqadmin_jobs
from trocket.interop.report.cells import Cell, Verdict
from trocket.interop.scenarios import account_jobs
from trocket.interop.scenarios.table import JAVA_5, PYTHON
from trocket.interop.wire_differ.differ import accounts_jobs

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

FAST_CLIENTS = (JAVA_5, PYTHON[0])
FAST_FEATURES = ("send_sync", "send_batch", "pull_queue", "query", "transaction", "refused")


def played(job: Job, folder: Path) -> list[Cell]:
    """The cells of a job. None of them failed."""
    cells: list[Cell] = []
    job.play(job.owed, folder, cells.append)
    failed = [cell for cell in cells if cell.verdict is Verdict.FAILED]
    assert not failed, "\n\n".join(
        "\n".join((cell.name, cell.detail, *cell.frames)) for cell in failed
    )
    assert {cell.name for cell in cells} == {cell.name for cell in job.owed}
    return cells


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("apache", "generation"),
    [
        ("apache-5.5.0", Generation.ACL_2),
        pytest.param("apache-4.9.7", Generation.ACL_1, marks=pytest.mark.matrix),
    ],
)
def test_every_refusal_is_that_of_apache(apache, generation, tmp_path):
    (job,) = accounts_jobs("trocket", [apache])
    assert job.name.endswith(generation)
    cells = played(job, tmp_path)
    assert sum(cell.verdict is Verdict.PASSED for cell in cells) > len(cells) // 2


@pytest.mark.parametrize(
    "generation", [Generation.ACL_2, pytest.param(Generation.ACL_1, marks=pytest.mark.matrix)]
)
def test_clients_use_their_rights_and_see_refusals(generation, tmp_path):
    job = next(
        job
        for job in account_jobs.jobs(["trocket"], clients=FAST_CLIENTS)
        if job.name.endswith(generation)
    )
    chosen = job.selected(lambda cell: cell.feature.split()[0] in FAST_FEATURES)
    assert chosen is not None
    cells = played(chosen, tmp_path)
    assert len(cells) == len(FAST_CLIENTS) * len(FAST_FEATURES)
    assert Verdict.SKIPPED not in {cell.verdict for cell in cells}


@pytest.mark.parametrize(
    "generation", [Generation.ACL_2, pytest.param(Generation.ACL_1, marks=pytest.mark.matrix)]
)
def test_mqadmin_administers_with_an_account(generation, tmp_path):
    job = next(job for job in mqadmin_jobs(["trocket"]) if job.name.endswith(generation))
    assert {cell.verdict for cell in played(job, tmp_path)} == {Verdict.PASSED}


@pytest.mark.matrix
@pytest.mark.parametrize("broker", ["apache-5.5.0", "apache-4.9.7"])
def test_the_same_holds_with_apache_s_brokers(broker, tmp_path):
    (job,) = account_jobs.jobs([broker])
    played(job, tmp_path / "clients")
    (job,) = mqadmin_jobs([broker])
    played(job, tmp_path / "mqadmin")
