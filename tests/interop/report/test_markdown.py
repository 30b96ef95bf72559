"""docs/compatibility.md of a run."""

from __future__ import annotations

from trocket.interop.report.cells import Cell, Kind, Run, Verdict
from trocket.interop.report.markdown import to_markdown

from .sample import sample_run


def cell(feature: str, client: str, broker: str, verdict: Verdict, fault: str = "none") -> Cell:
    detail = "" if verdict is Verdict.PASSED else f"the reason of {verdict}"
    return Cell(Kind.SCENARIO, feature, client, broker, verdict, fault, detail)


def page(*cells: Cell) -> list[str]:
    run = Run("2026-11-22T03:00:00Z", 61.0, {"java": "17", "go": "1.26"}, cells)
    return to_markdown(run).splitlines()


def test_a_feature_is_a_row_with_ours_by_client_and_apaches_beside() -> None:
    lines = page(
        cell("send_sync", "java", "trocket", Verdict.PASSED),
        cell("send_sync", "java", "trocket", Verdict.FAILED, "kill"),
        cell("send_sync", "go", "trocket", Verdict.PASSED),
        cell("send_sync", "java", "apache-5.5.0", Verdict.PASSED),
        cell("send_sync", "go", "apache-5.5.0", Verdict.SKIPPED),
        cell("pull", "go", "trocket", Verdict.QUIRK),
    )
    assert "| feature | java | go | on apache-5.5.0 |" in lines
    assert "| send_sync | ✓ 1 ✗ 1 | ✓ | ✓ 1 \N{EN DASH} 1 |" in lines
    assert "| pull |  | ≈ |  |" in lines


def test_a_group_of_features_is_one_row() -> None:
    lines = page(
        cell("PULL_MESSAGE 11: unknown topic", "wire", "trocket", Verdict.PASSED),
        cell("PULL_MESSAGE 11: no queue", "wire", "trocket", Verdict.QUIRK),
    )
    assert "| PULL_MESSAGE 11 | ✓ 1 ≈ 1 |" in lines


def test_it_names_versions_counts_and_reasons() -> None:
    lines = page(
        cell("a", "go", "trocket", Verdict.QUIRK),
        cell("b", "go", "trocket", Verdict.QUIRK, "kill"),
        cell("c", "go", "trocket", Verdict.PASSED),
    )
    plain = [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
    assert "3 cells, 2026-11-22, 1 min 01 s. java 17, go 1.26." in plain
    assert "| all | 1 | 2 | 0 | 0 |" in lines
    assert "- the reason of quirk: a (go on trocket); b (go on trocket, kill)" in lines
    assert "## Failures" not in lines


def test_a_table_stays_a_table_whatever_the_cells_say() -> None:
    hostile = cell("a|b\n<b>_c_", "go", "trocket", Verdict.PASSED)
    assert "| a\\|b \\<b\\>\\_c\\_ | ✓ |" in page(hostile)
    lines = to_markdown(sample_run()).splitlines()
    assert not [line for line in lines if "<script" in line.replace("\\<script", "")]
    tables = [line for line in lines if line.startswith("| ")]
    assert len(tables) > 60
    assert all(line.endswith(" |") for line in tables)
