"""The lines of seven everyday tasks, as the page states them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/reference/seven_tasks.md"
TEXT = PAGE.read_text(encoding="utf-8")
CLIENTS = ("trocket", "aiokafka", "nats.py", "FastStream")
TASKS = ("send", "loop", "handler", "batches", "delay", "service", "test", "mock")
PROGRAM = re.compile(r"^### (\S+): (\w+)\n.*?^```python\n(.*?)^```", re.M | re.S)
PROGRAMS = {(client, task): text for client, task, text in PROGRAM.findall(TEXT)}
BEYOND_THE_BEST = 2


def lines(program: str) -> int:
    """The number of lines without imports, comments and empty lines."""
    imports = {
        number
        for node in ast.parse(program).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return sum(
        1
        for number, line in enumerate(program.splitlines(), 1)
        if number not in imports and line.strip() and not line.strip().startswith("#")
    )


def stated() -> list[list[str]]:
    """The cells of the page's table."""
    part = TEXT.partition("| lines |")[2].partition("\n\n")[0]
    return [re.split(r" *\| *", line)[2:6] for line in part.splitlines()[2:]]


def test_imports_comments_and_empty_lines_are_not_counted() -> None:
    program = "import a\nfrom b import (\n    c,\n)\n\n# why\nx = 1  # counted\nif x:\n    pass\n"
    assert lines(program) == 3


def test_the_page_states_the_lines_of_its_programs() -> None:
    def cell(client: str, task: str) -> str:
        program = PROGRAMS.get((client, task))
        return "–" if program is None else str(lines(program))  # noqa: RUF001

    assert stated() == [[cell(client, task) for client in CLIENTS] for task in TASKS]


@pytest.mark.parametrize("task", TASKS)
def test_a_program_is_hardly_longer_than_the_best_of_its_peers(task: str) -> None:
    counts = {of: lines(text) for (of, what), text in PROGRAMS.items() if what == task}
    own = counts.pop("trocket")
    assert own <= min(counts.values()) + BEYOND_THE_BEST


def test_every_program_of_the_page_belongs_to_a_client_and_a_task() -> None:
    assert len(PROGRAMS) == TEXT.count("```python\n") == 29
    assert {of for of, _ in PROGRAMS} == set(CLIENTS)
    assert {task for _, task in PROGRAMS} == set(TASKS)
