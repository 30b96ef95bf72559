"""The catalogue of gRPC on ours and on Apache's proxy: only what is meant to differ does."""

from __future__ import annotations

from pathlib import Path

import pytest

from trocket.interop.grpc_differ.differ import jobs
from trocket.interop.report.cells import Cell, Verdict

pytestmark = [
    pytest.mark.interop,
    pytest.mark.matrix,
    pytest.mark.slow,
    pytest.mark.usefixtures("java"),
]


def test_every_call_is_answered_as_the_proxy_answers_it(tmp_path: Path) -> None:
    (job,) = jobs(["trocket"], ["apache-5.5.0"])
    cells: list[Cell] = []
    job.play(job.owed, tmp_path, cells.append)
    failed = [cell for cell in cells if cell.verdict is Verdict.FAILED]
    assert not failed, "\n\n".join(
        "\n".join((cell.feature, cell.detail, *cell.frames)) for cell in failed
    )
    assert {cell.name for cell in cells} == {cell.name for cell in job.owed}
    assert sum(cell.verdict is Verdict.PASSED for cell in cells) > len(cells) // 2
