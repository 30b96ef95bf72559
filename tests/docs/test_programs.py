"""Every Python program of the documents runs, and prints what the page says that it prints."""

from __future__ import annotations

import ast
import importlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, Block, blocks, name, pattern
from trocket.testing import Broker

REMARK = re.compile(r"|not run: .+|pytest( .+)?|goes on|until SIGTERM|until killed|spark")
OF_A_BUSY_MACHINE = re.compile(
    r"^.*(took \d+ ms, in which no other client was served|the event loop was \d+ ms late).*\n",
    re.M,
)
"""Lines of the broker's log that depend on what else the machine does."""
FRAMEWORKS = ("django", "fastapi", "pytest_asyncio")
TIMEOUT_S = 120
"""Of one program; those of the pages take a second or two."""

WITH_PROGRAMS = [page for page in PAGES if any(each.language == "python" for each in blocks(page))]


def runs(block: Block) -> bool:
    if block.language == "sh":
        return block.remark == "run"
    # Programs of Spark run in tests/spark/test_programs.py, in the session of its tests.
    return block.language == "python" and not block.remark.startswith(("not run", "spark"))


def missing_of(block: Block) -> list[str]:
    """Frameworks that a program imports, and that are not installed; CI must have them all."""
    named = re.findall(r"^(?:from|import) (\w+)", block.text, re.MULTILINE)
    named += ["pytest_asyncio"] if "-p asyncio" in block.remark else []
    missing = [each for each in named if each in FRAMEWORKS and find_spec(each) is None]
    assert not (missing and os.environ.get("CI") == "true"), missing
    return missing


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=name)
def test_every_program_compiles_and_is_marked_as_agreed(page: Path) -> None:
    for block in blocks(page):
        if block.language != "python":
            continue
        place = f"{name(page)}:{block.line}"
        assert REMARK.fullmatch(block.remark), place
        flags = 0 if runs(block) else ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        compile(block.text, place, "exec", flags)
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trocket"):
                module = importlib.import_module(node.module or "")
                missing = [each.name for each in node.names if not hasattr(module, each.name)]
                assert missing == [], f"{place}: {node.module} has no {missing}"


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if any(map(runs, blocks(page)))], ids=name)
def test_the_programs_of_a_page_run_one_after_the_other(page: Path, tmp_path: Path) -> None:
    # For programs that have no broker of their own; what they say of 9876 is the default.
    with Broker() as broker:
        last: Block | None = None
        for block in blocks(page):
            if not runs(block):
                continue
            if missing_of(block):
                pytest.skip(f"{name(page)} needs {', '.join(missing_of(block))}")
            if block.remark == "goes on":
                assert last is not None, f"{name(page)}:{block.line}: nothing stands before it"
                block = replace(block, remark=last.remark, text=last.text + block.text)
            last = block
            place = f"{name(page)}:{block.line}"
            printed = run(block, tmp_path, broker.url, place)
            if block.output is not None:
                found = pattern(block.output).fullmatch(printed)
                assert found, f"{place} prints:\n{printed}"


def run(block: Block, folder: Path, url: str, place: str) -> str:
    """Run a block; its standard output."""
    is_test = block.remark.startswith("pytest")
    program = folder / ("test_page.py" if is_test else "program.py")
    program.write_text(block.text, encoding="utf-8")
    if block.language == "sh":
        arguments = ["sh", "-e", str(program)]
    elif is_test:
        options = ["-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:randomly"]
        if "asyncio" not in block.remark:
            options += ["-p", "no:asyncio"]
        options += [f"--rootdir={folder}", *block.remark.split()[1:]]
        arguments = [sys.executable, "-m", "pytest", *options, program.name]
    else:
        arguments = [sys.executable, "-W", "error", str(program)]
    environment = dict(os.environ, ROCKETMQ_URL=url, PYTHONUNBUFFERED="1")
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    if block.remark.startswith("until"):
        assert block.output is not None, f"{place}: nothing says what it prints"
        sent = signal.SIGTERM if block.remark == "until SIGTERM" else signal.SIGKILL
        return run_until(pattern(block.output), sent, arguments, folder, environment, place)
    done = run_to_the_end(arguments, folder, environment, place)
    assert done.returncode == 0, f"{place}:\n{done.stdout}{done.stderr}"
    errors = OF_A_BUSY_MACHINE.sub("", done.stderr)
    assert block.language == "sh" or errors == "", f"{place}:\n{errors}"
    return done.stdout


def run_to_the_end(
    arguments: list[str], folder: Path, environment: dict[str, str], place: str
) -> subprocess.CompletedProcess[str]:
    """Run a program; if it does not end, the test fails with the stacks of its threads."""
    with subprocess.Popen(
        arguments,
        cwd=folder,
        env=dict(environment, PYTHONFAULTHANDLER="1"),  # SIGABRT prints the stacks
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            printed, errors = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            printed, errors = process.communicate(timeout=TIMEOUT_S)
            pytest.fail(f"{place} did not end in {TIMEOUT_S} s:\n{printed}{errors}")
    return subprocess.CompletedProcess(arguments, process.returncode, printed, errors)


def run_until(
    wanted: re.Pattern[str],
    sent: signal.Signals,
    arguments: list[str],
    folder: Path,
    environment: dict[str, str],
    place: str,
) -> str:
    """Run a program until it has printed what it should, then send it a signal."""
    printed, is_sent = "", False
    with subprocess.Popen(
        arguments,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for line in process.stdout:
                printed += line
                if not is_sent and wanted.fullmatch(printed):
                    process.send_signal(sent)
                    is_sent = True
            errors = OF_A_BUSY_MACHINE.sub("", process.stderr.read())
            returncode = process.wait(TIMEOUT_S)
        finally:
            process.kill()
    ended = wanted.fullmatch(printed) if sent == signal.SIGKILL else (returncode, errors) == (0, "")
    assert ended, f"{place} ({returncode}):\n{printed}{errors}"
    return printed
