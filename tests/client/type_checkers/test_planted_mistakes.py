"""mypy and pyright, both strict, find the mistakes that are planted in programs, and no others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent, indent

import pytest

from .test_verifytypes import copy_client

TIMEOUT_S = 600.0

HEAD = """
from collections.abc import Callable
from dataclasses import dataclass

from trocket import blocking
from trocket import (
    Admin, Message, Producer, PushConsumer, PushedMessage, ReceivedMessage, SendResult,
    SimpleConsumer, TransactionProducer, TransactionState,
)

@dataclass
class Order:
    number: int

def to_bytes(order: Order) -> bytes:
    return str(order.number).encode()

def to_order(body: bytes) -> Order:
    return Order(int(body))

async def take(message: PushedMessage[Order]) -> None:
    print(message.value.number)

def work(message: blocking.PushedMessage[Order]) -> None:
    print(message.value.number)

def decide(message: ReceivedMessage) -> TransactionState:
    return TransactionState.COMMIT
"""

IN_GROUP = '"h:1", group="g", subscriptions={"t": "*"}'
SENDS = 'async with Producer("h:1", serializer=to_bytes) as p:\n    '
SENDS_PLAIN = 'async with Producer("h:1") as p:\n    '
SENDS_BLOCKING = 'with blocking.Producer("h:1", serializer=to_bytes) as p:\n    '
TAKES = f"async with PushConsumer({IN_GROUP}, deserializer=to_order) as c:\n    "
TAKES_PLAIN = f"async with PushConsumer({IN_GROUP}) as c:\n    "
TAKES_BLOCKING = f"with blocking.PushConsumer({IN_GROUP}, deserializer=to_order) as c:\n    "
POPS = f"async with SimpleConsumer({IN_GROUP}) as c:\n    "

RIGHT = {
    "an order": SENDS + 'result: SendResult = await p.send(Message("t", Order(1)))',
    "bytes beside a serializer": SENDS + 'await p.send(Message("t", b"1"))',
    "a batch of orders": SENDS
    + 'await p.send_batch([Message("t", Order(1)), Message("t", Order(2))])',
    "a string": SENDS_PLAIN + 'await p.send(Message("t", "text", tags="a", keys=["k"]))',
    "a view": SENDS_PLAIN + 'await p.send(Message("t", memoryview(b"1")))',
    "an order in a thread": SENDS_BLOCKING + 'p.send_soon(Message("t", Order(1))).result()',
    "a value": TAKES + "async for m in c:\n        number: int = m.value.number",
    "a value without a deserializer": TAKES_PLAIN
    + "async for m in c:\n        body: bytes = m.value",
    "a value in a thread": TAKES_BLOCKING + "for m in c:\n        number: int = m.value.number",
    "a handler": TAKES + "await c.run(take, concurrency=4)",
    "a handler in a thread": TAKES_BLOCKING + "c.run(work)",
    "names without brackets": dedent(
        """\
        def old(a: PushConsumer, b: Producer, message: PushedMessage) -> Callable[[], None]:
            print(a, b, message.body)
            return message.ack"""
    ),
    "a check": 'TransactionProducer("h:1", group="g", check=decide, serializer=to_bytes)',
    "an administrator": 'async with Admin("h:1") as a:\n    print(a)',
    "pops": POPS + "for m in await c.receive(16):\n        await c.ack(m)",
}
"""Programs without a mistake, by what they show."""

WRONG = {
    "an order without a serializer": SENDS_PLAIN + 'await p.send(Message("t", Order(1)))',
    "what the serializer does not take": SENDS + 'await p.send(Message("t", 7))',
    "one of a batch": SENDS
    + 'await p.send_batch([Message("t", Order(1)), Message("t", {"a": 1})])',
    "an order sent soon without a serializer": SENDS_PLAIN
    + 'await p.send_soon(Message("t", Order(1)))',
    "a oneway dict": SENDS_PLAIN + 'await p.send_oneway(Message("t", {"a": 1}))',
    "topic and body": SENDS_PLAIN + 'await p.send("t", b"1")',
    "a topic alone": SENDS_PLAIN + 'await p.send("t")',
    "a list": SENDS_PLAIN + 'await p.send([Message("t", b"1")])',
    "a send without await": SENDS_PLAIN + 'offset: int = p.send(Message("t", b"1")).queue_offset',
    "a number as a key": 'Message("t", b"1", keys=7)',
    "a list of tags": 'Message("t", b"1", tags=["a"])',
    "numbers as properties": 'Message("t", b"1", properties={"a": 1})',
    "a delay of text": 'Message("t", b"1", delay_s="3")',
    "a misspelled field": 'Message("t", b"1", delay_seconds=3)',
    "no body": 'Message("t")',
    "no group": 'PushConsumer("h:1", subscriptions={"t": "*"})',
    "a list of topics": 'PushConsumer("h:1", group="g", subscriptions=["t"])',
    "a misspelled option": 'Producer("h:1", retry_time=3)',
    "an option of another object": 'Producer("h:1", is_orderly=True)',
    "a number as a group": 'Producer("h:1", group=3)',
    "a plain with": 'with Producer("h:1") as p:\n    print(p)',
    "an async with": 'async with blocking.Producer("h:1") as p:\n    print(p)',
    "an attribute of no order": TAKES + "async for m in c:\n        print(m.value.name)",
    "a value of another type": TAKES + "async for m in c:\n        text: str = m.value",
    "the bytes as an order": TAKES_PLAIN + "async for m in c:\n        print(m.value.number)",
    "a handler of something else": TAKES_PLAIN + "await c.run(take)",
    "a handler of two": TAKES
    + "def two(message: PushedMessage[Order], db: str) -> None: ...\n    await c.run(two)",
    "a value in a thread that is none": TAKES_BLOCKING + "for m in c:\n        text: str = m.value",
    "a handler that is None": TAKES + "await c.run(None)",
    "a for without async": TAKES + "for m in c:\n        print(m)",
    "a deserializer of text": f'PushConsumer({IN_GROUP}, deserializer=lambda s: int(s, "x"))',
    "a check that decides nothing": dedent(
        """\
        def no_check(message: ReceivedMessage) -> bool:
            return True
        TransactionProducer("h:1", group="g", check=no_check)"""
    ),
    "a write to a received message": TAKES + 'async for m in c:\n        m.body = b"2"',
    "a receive without await": POPS + "for m in c.receive():\n        print(m)",
    "a URL that is a list": 'Producer(["h:1"])',
    "an admin of no URL": "Admin(9876)",
    "an acknowledgement that is awaited": TAKES + "async for m in c:\n        await m.ack()",
}
"""Programs with one mistake each, by what it is."""


def written(folder: Path, name: str, programs: Iterable[str]) -> tuple[Path, list[range]]:
    """A module with a function for each program, and the lines of each."""
    lines = HEAD.splitlines()
    places = []
    for number, program in enumerate(programs):
        lines += ["", f"async def program_{number}() -> None:"]
        body = indent(program, "    ").splitlines()
        places.append(range(len(lines) + 1, len(lines) + len(body) + 1))
        lines += body
    path = folder / f"{name}.py"
    path.write_text("\n".join(lines) + "\n")
    return path, places


def run(folder: Path, *command: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(folder), "MYPYPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.stdout or done.stderr


def of_mypy(folder: Path, paths: list[Path]) -> dict[str, dict[int, str]]:
    """mypy's errors by file and line."""
    names = [path.name for path in paths]
    printed = run(folder, "mypy", "--strict", "--config-file=", "--no-error-summary", *names)
    errors: dict[str, dict[int, str]] = {name: {} for name in names}
    for name, line, text in re.findall(r"^([\w/.]+):(\d+): error: (.*)$", printed, re.MULTILINE):
        errors.setdefault(name, {})[int(line)] = text
    return errors


def of_pyright(folder: Path, paths: list[Path]) -> dict[str, dict[int, str]]:
    """pyright's errors by file and line."""
    config = {"typeCheckingMode": "strict", "include": [path.name for path in paths]}
    # An unused result or variable is no mistake here, and programs stand alone.
    quiet = ("reportUnusedVariable", "reportUnusedExpression", "reportUnusedFunction")
    (folder / "pyrightconfig.json").write_text(json.dumps(config | dict.fromkeys(quiet, "none")))
    report = json.loads(run(folder, "basedpyright", "--outputjson"))
    errors: dict[str, dict[int, str]] = {path.name: {} for path in paths}
    for each in report["generalDiagnostics"]:
        if each["severity"] == "error":
            line = each["range"]["start"]["line"] + 1
            errors[Path(each["file"]).name][line] = each["message"]
    return errors


@pytest.mark.slow
@pytest.mark.parametrize("checker", [of_mypy, of_pyright])
def test_a_strict_checker_finds_each_planted_mistake_and_no_other(tmp_path, checker):
    copy_client(tmp_path)
    right, right_places = written(tmp_path, "right", RIGHT.values())
    wrong, wrong_places = written(tmp_path, "wrong", WRONG.values())
    errors = checker(tmp_path, [right, wrong])
    assert set(errors) == {right.name, wrong.name}, errors
    refused = {
        name: [errors[right.name][line] for line in place if line in errors[right.name]]
        for name, place in zip(RIGHT, right_places, strict=True)
    }
    assert refused == {name: [] for name in RIGHT}
    overlooked = [
        name
        for name, place in zip(WRONG, wrong_places, strict=True)
        if not any(line in errors[wrong.name] for line in place)
    ]
    assert overlooked == []
    assert not errors[right.name]
