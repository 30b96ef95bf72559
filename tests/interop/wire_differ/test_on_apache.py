"""The whole catalogue on ours and on Apache's: nothing differs but what is meant to."""

from __future__ import annotations

import pytest

from trocket.interop.report.cells import Cell, Verdict
from trocket.interop.wire_differ.differ import jobs

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.matrix,
    pytest.mark.usefixtures("java"),
]


@pytest.mark.parametrize("apache", ["apache-5.5.0", "apache-4.9.7"])
def test_every_request_is_answered_as_apache_answers_it(apache, tmp_path):
    (job,) = jobs("trocket", [apache])
    cells: list[Cell] = []
    job.play(job.owed, tmp_path, cells.append)
    failed = [cell for cell in cells if cell.verdict is Verdict.FAILED]
    assert not failed, "\n\n".join(
        "\n".join((cell.feature, cell.detail, *cell.frames)) for cell in failed
    )
    assert {cell.name for cell in cells} == {cell.name for cell in job.owed}
    played = [cell for cell in cells if cell.verdict is not Verdict.SKIPPED]
    assert sum(cell.verdict is Verdict.PASSED for cell in played) > len(played) // 2
