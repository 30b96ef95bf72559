"""The lines of seven everyday tasks in four clients, and a run of each program.

    python -m trocket.bench.seven_tasks                    # the table of lines
    python -m trocket.bench.seven_tasks --client trocket   # run its programs, with a broker of here
    KAFKA=127.0.0.1:9092 python -m trocket.bench.seven_tasks --client aiokafka --python PYTHON
    NATS=nats://127.0.0.1:4222 python -m trocket.bench.seven_tasks --client nats.py --python PYTHON

The programs are those of docs/reference/seven_tasks.md. PYTHON is an interpreter that has the
client; its server is running, and a Kafka has no groups of an earlier run. The line count of a
program leaves out imports, comments and empty lines. A consumer is started first, then the client's
own program sends; what the consumer should print then has 30 s.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from trocket.testing import Broker

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "seven_tasks.md"
CLIENTS = ("trocket", "aiokafka", "nats.py", "FastStream")
TASKS = ("send", "loop", "handler", "batches", "delay", "service", "test", "mock")
PROGRAM = re.compile(r"^### (\S+): (\w+)\n.*?^```python\n(.*?)^```", re.M | re.S)
JOIN_S = 5.0
"""Time in which a consumer joins its group before a message is sent."""
WAIT_S = 30.0
EXPECTED = {
    "loop": r"received order 7\n",
    "handler": r"attempt 1 order 7\n(?s:.*)attempt 2 order 7\n",
    "batches": r"batch \[.*'order 7'.*\]\n",
    "service": r"received order 7\n",
}
"""What a consumer prints."""
NATS_STREAM = """
import asyncio, contextlib, os, sys, nats
from nats.js.api import StreamConfig

async def main():
    async with await nats.connect(os.environ["NATS"]) as client:
        stream = client.jetstream()
        with contextlib.suppress(nats.js.errors.NotFoundError):
            await stream.delete_stream("shop")
        config = StreamConfig(name="shop", subjects=["orders"])
        if sys.argv[1] == "delay":
            config.subjects.append("schedules.>")
            config.allow_msg_schedules = True
        await stream.add_stream(config)

asyncio.run(main())
"""
"""Makes the stream anew. FastStream declares its stream again, without schedules, which the server
refuses for one that has them; so the stream has them for the delayed message only."""


@dataclass(frozen=True)
class Run:
    """A program that was run; `problem` is empty if it did what it should."""

    task: str
    lines: int
    seconds: float
    problem: str


def programs(page: str) -> dict[tuple[str, str], str]:
    """The programs of the page, by client and task."""
    return {(client, task): text for client, task, text in PROGRAM.findall(page)}


def lines(program: str) -> int:
    """Count the lines without imports, comments and empty lines."""
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


@contextmanager
def started(python: str, folder: Path, text: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a program in the background; yields it and the file of what it prints."""
    program, printed = folder / "consumer.py", folder / "printed.txt"
    program.write_text(text, encoding="utf-8")
    with (
        printed.open("wb") as output,
        (folder / "errors.txt").open("wb") as errors,
        subprocess.Popen(
            [python, "-u", program.name], cwd=folder, stdout=output, stderr=errors
        ) as process,
    ):
        try:
            yield process, printed
        finally:
            process.kill()


def prints(process: subprocess.Popen[bytes], printed: Path, wanted: str) -> bool:
    """Whether a program prints what is wanted within WAIT_S."""
    ends = time.monotonic() + WAIT_S
    while time.monotonic() < ends and process.poll() is None:
        if re.search(wanted, printed.read_text(encoding="utf-8")):
            return True
        time.sleep(0.05)
    return False


class Runner:
    """Runs the programs of one client.

    Args:
      python: an interpreter that has the client.
      texts: its programs, by task.
      receiver: a program that receives the delayed message.
    """

    def __init__(self, python: str, texts: dict[str, str], receiver: str) -> None:
        self._python = python
        self._texts = texts
        self._receiver = receiver

    def run(self, task: str) -> str:
        """Run the program of a task; what went wrong, or ""."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if task in ("test", "mock"):
                return self._tested(folder, task)
            if task == "send":
                return self._sent(folder, task, r"stored \d+\n")
            if task == "delay":
                return self._delayed(folder)
            return self._consumed(folder, task)

    def _tested(self, folder: Path, task: str) -> str:
        (folder / "test_page.py").write_text(self._texts[task], encoding="utf-8")
        done = self._call(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_page.py")
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def _sent(self, folder: Path, task: str, wanted: str) -> str:
        (folder / "sender.py").write_text(self._texts[task], encoding="utf-8")
        done = self._call(folder, "sender.py")
        is_right = done.returncode == 0 and re.fullmatch(wanted, done.stdout)
        return "" if is_right else done.stdout + done.stderr

    def _delayed(self, folder: Path) -> str:
        with started(self._python, folder, self._receiver) as (process, printed):
            time.sleep(JOIN_S)
            problem = self._sent(folder, "delay", "scheduled\n")
            begun = time.monotonic()
            if problem or not prints(process, printed, "received order 7, late\n"):
                return problem or "not received"
            took_s = time.monotonic() - begun
            return "" if took_s > 1 else f"received after {took_s:.1f} s"

    def _consumed(self, folder: Path, task: str) -> str:
        with started(self._python, folder, self._texts[task]) as (process, printed):
            time.sleep(JOIN_S)
            problem = self._sent(folder, "send", r"stored \d+\n")
            if problem or not prints(process, printed, EXPECTED[task]):
                return problem or (folder / "errors.txt").read_text() or "not received"
            if task != "service":
                return ""
            process.send_signal(signal.SIGTERM)
            try:
                status = process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                return f"it goes on {WAIT_S:g} s after SIGTERM"
            return "" if status == 0 else f"status {status} after SIGTERM"

    def _call(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._python, *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * WAIT_S,
        )


def table(texts: dict[tuple[str, str], str]) -> list[list[str]]:
    """One row for each task: the lines of each client, or a dash."""

    def cell(client: str, task: str) -> str:
        return str(lines(texts[client, task])) if (client, task) in texts else "-"

    return [[task, *(cell(client, task) for client in CLIENTS)] for task in TASKS]


def runs(client: str, python: str, texts: dict[tuple[str, str], str]) -> Iterator[Run]:
    """Run all programs of a client, each with an empty topic or stream, except Kafka's."""
    mine = {task: text for (of, task), text in texts.items() if of == client}
    # FastStream's handler cannot be started beside a stream with schedules.
    receiver = texts["nats.py" if client == "FastStream" else client, "loop"]
    runner = Runner(python, mine, receiver)
    for task in TASKS:
        if task in mine:
            if "NATS" in os.environ:
                subprocess.run([python, "-c", NATS_STREAM, task], check=True, timeout=WAIT_S)
            with Broker() as broker:
                os.environ["ROCKETMQ_URL"] = broker.url
                begun = time.monotonic()
                problem = runner.run(task)
            yield Run(task, lines(mine[task]), time.monotonic() - begun, problem)


def main(
    client: Annotated[str, typer.Option(help="trocket, aiokafka, nats.py or FastStream.")] = "",
    python: Annotated[str, typer.Option(help="An interpreter that has it.")] = sys.executable,
) -> None:
    """Count the lines of the programs, or run those of a client."""
    texts = programs(PAGE.read_text(encoding="utf-8"))
    if not client:
        for row in [["task", *CLIENTS], *table(texts)]:
            print("\t".join(row))
        return
    failed = False
    for each in runs(client, python, texts):
        failed = failed or bool(each.problem)
        print(f"{each.task}\t{each.lines}\t{each.seconds:.1f} s\t{each.problem or 'ok'}")
    raise typer.Exit(int(failed))


if __name__ == "__main__":
    typer.run(main)
