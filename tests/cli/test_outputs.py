"""Full and closed outputs, and pipes without a reader, for all commands that print."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trocket import Message
from trocket.blocking import Producer
from trocket.testing import Broker

TROCKET = (sys.executable, "-m", "trocket.cli.main")

COMMANDS = [
    "--help",
    "--version",
    "topic --help",
    "keys",
    "keys --json",
    "broker -p",
    "namesrv -p",
    "broker --help",
    "up --memory --namesrv-port 0 --broker-port 0 --metrics-port 0",
    "send T x",
    "send T x --json",
    "consume T",
    "consume T --raw",
    "consume T --json",
    "consume T --group g --limit 1",
    "message --topic T --since 1d",
    "topic list",
    "topic list --json",
    "topic show T",
    "topic stats T",
    "group list",
    "group show g",
    "lag",
    "lag g",
    "lag g --watch --interval 0.1",
    "top --interval 0.1",
    "top --once --interval 0.1",
    "top --interval 0.1 --json",
    "offset show T",
    "cluster list",
    "broker info broker-a",
    "broker config broker-a",
    "broker stats",
    "namesrv config",
    "doctor",
    "doctor --json",
    "bench --count 10",
]


QUICK = {"--help", "keys", "consume T --raw", "topic list --json", "lag g --watch --interval 0.1"}
"""Those that show the kinds: text, a table, bytes, JSON, without end."""
USUAL = QUICK | {
    "broker -p",
    "up --memory --namesrv-port 0 --broker-port 0 --metrics-port 0",
    "send T x",
    "consume T --group g --limit 1",
    "message --topic T --since 1d",
    "top --interval 0.1",
    "top --interval 0.1 --json",
    "doctor",
    "bench --count 10",
}
"""Those that print in a way of their own: a server, a receipt, messages one by one, a report."""


@pytest.fixture(scope="module")
def broker(broker: Broker) -> Broker:
    broker.create_topic("T", 1)
    broker.create_group("g")
    with Producer(broker.url) as producer:
        for _ in range(3):
            producer.send(Message("T", "x" * 4_000))
    return broker


def ended(broker: Broker, folder: Path, words: str, redirection: str) -> tuple[int, str]:
    """Exit status, and standard error without a server's warnings."""
    done = subprocess.run(
        ["bash", "-c", f'"$@" {redirection}', "bash", *TROCKET, *words.split()],
        env={**os.environ, "ROCKETMQ_URL": broker.url, "XDG_CONFIG_HOME": str(folder)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    lines = done.stderr.splitlines(keepends=True)
    return done.returncode, "".join(line for line in lines if " warning" not in line.lower())


def _marks(words: str) -> Iterator[pytest.MarkDecorator]:
    if words not in QUICK:
        yield pytest.mark.slow
    if words not in USUAL:  # two interpreters for each, which print as the others do
        yield pytest.mark.matrix


@pytest.mark.parametrize(
    "words",
    [pytest.param(each, marks=list(_marks(each))) for each in COMMANDS],
)
def test_an_output_that_fails_ends_a_command_with_one_line_and_status_1(
    words: str, broker: Broker, tmp_path: Path
) -> None:
    for redirection, reason in (
        (">/dev/full", "cannot write to standard output: No space left on device"),
        (">&-", "cannot write to standard output: it is closed"),
    ):
        status, error = ended(broker, tmp_path, words, redirection)
        assert (status, error.count("\n")) == (1, 1), error
        assert reason in error


@pytest.mark.slow
@pytest.mark.parametrize("words", ["keys", "consume T --follow --from begin", "top --interval 0.1"])
def test_a_pipe_without_a_reader_ends_a_command_in_silence(
    words: str, broker: Broker, tmp_path: Path
) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as pipe:
        done = subprocess.run(
            [*TROCKET, *words.split()],
            env={**os.environ, "ROCKETMQ_URL": broker.url, "XDG_CONFIG_HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.slow
@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
@pytest.mark.parametrize(
    ("words", "status"),
    [("topic list", 0), ("topic lst", 2), ("consume Nosuch", 1), ("broker -p", 0)],
)
def test_an_error_that_cannot_be_printed_keeps_its_status(
    words: str, status: int, redirection: str, broker: Broker, tmp_path: Path
) -> None:
    assert ended(broker, tmp_path, words, f"{redirection} >/dev/null")[0] == status


@pytest.mark.slow
def test_a_command_without_standard_input_runs(broker: Broker, tmp_path: Path) -> None:
    assert ended(broker, tmp_path, "topic list", "<&- >/dev/null")[0] == 0
