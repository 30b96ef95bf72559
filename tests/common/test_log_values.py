"""Log lines of the servers: each value has a name, by which JSON lines have it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import trocket
from trocket.common.log_lines import MEMBERS

ROOT = Path(trocket.__file__).parent
SERVERS = ("broker", "common", "filtersrv", "namesrv", "remoting", "store")
LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "log"}
HOW = 'logger.info("topic %(topic)s is deleted", {"topic": topic})'


def calls() -> Iterator[tuple[str, list[ast.expr]]]:
    """Where each line is logged, and what follows its level."""
    for folder in SERVERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in LEVELS
                    and ast.unparse(node.func.value).endswith("logger")
                ):
                    place = f"{path.relative_to(ROOT)}:{node.lineno}"
                    yield place, node.args[1:] if node.func.attr == "log" else node.args


@pytest.mark.slow
def test_each_value_of_a_line_has_a_name() -> None:
    unnamed = [
        place
        for place, arguments in calls()
        if len(arguments) > 2 or (len(arguments) == 2 and not isinstance(arguments[1], ast.Dict))
    ]
    assert unnamed == [], f"write {HOW}"


@pytest.mark.slow
def test_no_name_is_one_of_those_that_every_line_has() -> None:
    taken = [
        place
        for place, (_, *values) in calls()
        for value in values
        if isinstance(value, ast.Dict)
        and any(isinstance(key, ast.Constant) and key.value in MEMBERS for key in value.keys)
    ]
    assert taken == []


@pytest.mark.slow
def test_each_name_is_in_the_text_and_the_other_way_round() -> None:
    for place, (text, *values) in calls():
        if not (isinstance(text, ast.Constant) and values and isinstance(values[0], ast.Dict)):
            continue
        names = [ast.literal_eval(key) for key in values[0].keys if key is not None]
        members = dict.fromkeys(names, 0)

        class Used(dict[str, int]):
            asked: set[str]

            def __getitem__(self, name: str) -> int:
                self.asked.add(name)
                return super().__getitem__(name)

        used = Used(members)
        used.asked = set()
        assert str(text.value) % used, place
        assert used.asked == members.keys(), place
