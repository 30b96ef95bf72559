"""The commands as processes of their own, with a folder and free ports each, or as calls."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trocket.cli.main import main
from trocket.testing import Broker

END_TIMEOUT_S = 30.0
"""For a process to start or end; only a broken one takes so long."""

TRIES = 5
"""Of completions."""


class Command:
    """One running `trocket` command."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trocket.cli.main", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | (environment or {}),
        )

    def first_line(self) -> str:
        """What it says first; pytest's own time limit ends a process that says nothing."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            pytest.fail(f"it ended: {self.end()}")
        return line

    def ready(self) -> dict[str, Any]:
        """The facts that `up --json` tells."""
        facts = json.loads(self.first_line())
        assert facts["ready"] is True
        return dict(facts)

    def end(self, number: signal.Signals | None = None) -> tuple[int, str, str]:
        """Exit status, standard output and error, after a signal if one is given."""
        return self.end_within(END_TIMEOUT_S, number)

    def end_within(
        self, timeout_s: float, number: signal.Signals | None = None
    ) -> tuple[int, str, str]:
        """`end` for what may take longer."""
        if number is not None:
            self.process.send_signal(number)
        out, error = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out, error


@pytest.fixture
def start() -> Iterator[Callable[..., Command]]:
    """Starts commands; those still running are killed at the end."""
    commands: list[Command] = []

    def start(*arguments: str, environment: dict[str, str] | None = None) -> Command:
        commands.append(Command(*arguments, environment=environment))
        return commands[-1]

    yield start
    for command in commands:
        if command.process.poll() is None:
            command.process.kill()
        command.process.communicate()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A data folder that does not exist yet."""
    return tmp_path / "home"


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.status == 0, self.err
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        assert self.status == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def rows(self) -> list[list[str]]:
        assert self.status == 0, self.err
        return [line.split("\t") for line in self.out.splitlines()]


Run = Callable[..., Ended]


@pytest.fixture
def run(
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    slow_turns_unlogged: None,
) -> Run:
    """Runs a command in this process, by ROCKETMQ_URL, with some standard input."""
    monkeypatch.setenv("ROCKETMQ_URL", broker.url)
    # On a busy machine names take longer to look up than a person should wait.
    monkeypatch.setattr("trocket.cli.missing.TIMEOUT_S", END_TIMEOUT_S)

    def run(*words: str, stdin: str = "") -> Ended:
        capfdbinary.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        status = main(words)
        sys.stdout.flush()
        captured = capfdbinary.readouterr()
        return Ended(status, captured.out.decode(), captured.err.decode())

    return run


def completions(*words: str, environment: dict[str, str] | None = None) -> list[str]:
    """What the shell offers for the last word."""
    environment = {
        **(environment or os.environ),
        "_TROCKET_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["trocket", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-m", "trocket.cli.main"],
        env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


def are_completed(
    expected: list[str], *words: str, environment: dict[str, str] | None = None
) -> bool:
    """Whether the shell offers these names of a cluster for the last word.

    On a busy machine a completion may take longer than its second, and offer nothing.
    """
    return any(completions(*words, environment=environment) == expected for _ in range(TRIES))
