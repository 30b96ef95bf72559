"""The lines of seven everyday tasks, as the page states them."""

from __future__ import annotations

import re

import pytest

from trocket.bench.seven_tasks import CLIENTS, PAGE, TASKS, lines, programs, table

TEXT = PAGE.read_text(encoding="utf-8")
BEYOND_THE_BEST = 2


def stated() -> list[list[str]]:
    """The cells of the page's table."""
    part = TEXT.partition("| lines |")[2].partition("\n\n")[0]
    return [re.split(r" *\| *", line)[2:6] for line in part.splitlines()[2:]]


def test_imports_comments_and_empty_lines_are_not_counted() -> None:
    program = "import a\nfrom b import (\n    c,\n)\n\n# why\nx = 1  # counted\nif x:\n    pass\n"
    assert lines(program) == 3


def test_the_page_states_the_lines_of_its_programs() -> None:
    counted = [row[1:] for row in table(programs(TEXT))]
    assert stated() == [[cell.replace("-", "–") for cell in row] for row in counted]  # noqa: RUF001


@pytest.mark.parametrize("task", TASKS)
def test_a_program_is_hardly_longer_than_the_best_of_its_peers(task: str) -> None:
    counts = {of: lines(text) for (of, what), text in programs(TEXT).items() if what == task}
    own = counts.pop("trocket")
    assert own <= min(counts.values()) + BEYOND_THE_BEST


def test_every_program_of_the_page_belongs_to_a_client_and_a_task() -> None:
    found = programs(TEXT)
    assert len(found) == TEXT.count("```python\n") == 29
    assert {of for of, _ in found} == set(CLIENTS)
    assert {task for _, task in found} == set(TASKS)
