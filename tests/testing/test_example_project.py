"""The project that users copy: 50 tests, and all pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2] / "examples" / "pytest_project"
TUTORIAL = PROJECT.parents[1] / "docs" / "tutorials" / "testing.md"
IS_INSTALLED = any(
    point.value == "trocket.pytest_plugin" for point in entry_points(group="pytest11")
)


@pytest.mark.slow
def test_its_fifty_tests_pass() -> None:
    plugin = [] if IS_INSTALLED else ["-p", "trocket.pytest_plugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin],
        cwd=PROJECT,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=300,  # a busy machine takes a minute
        check=False,
    )
    assert "50 passed" in done.stdout, done.stdout


def test_its_client_is_used_in_one_file() -> None:
    users = [
        path.relative_to(PROJECT).as_posix()
        for path in PROJECT.rglob("*.py")
        if re.search(r"trocket\.client", path.read_text(encoding="utf-8"))
    ]
    assert users == ["shop/messaging.py"]


def test_the_python_of_the_tutorial_compiles() -> None:
    blocks = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) > 5
    for block in blocks:
        compile(block, str(TUTORIAL), "exec", flags=ast_with_await())


def ast_with_await() -> int:
    """`await` and `async with` at the top, as documents have them."""
    import ast

    return ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@pytest.mark.slow
def test_the_first_and_the_virtual_test_of_the_tutorial_pass(pytester: pytest.Pytester) -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (first,) = [block for block in blocks if "def test_an_order_arrives" in block]
    (later,) = [block for block in blocks if "def test_the_bill" in block]
    (virtual,) = [block for block in blocks if "def test_in_virtual_time" in block]
    pytester.makepyfile(test_first=first + later, test_virtual=virtual)
    plugin = [] if IS_INSTALLED else ["-p", "trocket.pytest_plugin"]
    pytester.makeini("[pytest]\n")
    result = pytester.runpytest_inprocess("test_first.py", *plugin)
    result.assert_outcomes(passed=2)
    pytester.makeini("[pytest]\ntrio_mode = true\n")
    result = pytester.runpytest_inprocess("test_virtual.py", *plugin)
    result.assert_outcomes(passed=1)


pytest_plugins = ["pytester"]
