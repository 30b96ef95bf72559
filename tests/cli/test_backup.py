"""Backups as docs/backup.md has them: copied while the broker is stopped, and while it runs."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.live_copies import copy_running
from trocket import Message
from trocket.blocking import Producer
from trocket.cli.main import main

from .conftest import Command

pytestmark = pytest.mark.slow

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0")
Start = Callable[..., Command]


def bodies(store: Path, out: Path) -> set[str]:
    """The bodies of the messages of the topic T in a stopped broker's store."""
    assert main(["store", "export", str(store), "--topic", "T", "-o", str(out)]) == 0
    return {json.loads(line)["body"] for line in out.read_text("utf-8").splitlines()}


def restored(start: Start, copy: Path) -> None:
    """Start a broker on a copy, send to it, and stop it; its store is whole then."""
    command = start("up", "--home", str(copy), *FREE_PORTS, "--json")
    with Producer(command.ready()["namesrv"]) as producer:
        producer.send(Message("T", b"after"))
    status, _, error = command.end(signal.SIGTERM)
    assert status == 0
    assert "Traceback" not in error
    assert main(["store", "fsck", str(copy / "store")]) == 0


def test_a_copy_of_a_stopped_broker_has_all_of_it(start: Start, home: Path, tmp_path: Path) -> None:
    command = start("up", "--home", str(home), *FREE_PORTS, "--json")
    with Producer(command.ready()["namesrv"]) as producer:
        for number in range(100):
            producer.send(Message("T", b"%d" % number))
    assert command.end(signal.SIGTERM)[0] == 0
    copy = tmp_path / "copy"
    copy_running(home, copy)
    assert main(["store", "fsck", str(copy / "store")]) == 0
    restored(start, copy)
    found = bodies(copy / "store", tmp_path / "out.jsonl")
    assert found == {*map(str, range(100)), "after"}


def test_a_copy_of_a_running_broker_with_the_log_last_has_all_that_was_acknowledged_before(
    start: Start, home: Path, tmp_path: Path
) -> None:
    command = start("up", "--home", str(home), *FREE_PORTS, "--json")
    url, copy = command.ready()["namesrv"], tmp_path / "copy"
    acknowledged: list[str] = []
    enough, done = threading.Event(), threading.Event()

    def send() -> None:
        with Producer(url) as producer:
            while not done.is_set():
                text = str(len(acknowledged))
                producer.send(Message("T", text.encode(), keys=(text,)))
                acknowledged.append(text)
                if len(acknowledged) == 500:
                    enough.set()

    sender = threading.Thread(target=send)
    sender.start()
    try:
        assert enough.wait(60)
        before = set(acknowledged)
        copy_running(home, copy, "commitlog", "lock")
        copy_running(home / "store" / "commitlog", copy / "store" / "commitlog")
    finally:
        done.set()
        sender.join()
    assert command.end(signal.SIGTERM)[0] == 0
    restored(start, copy)
    found = bodies(copy / "store", tmp_path / "out.jsonl")
    assert before | {"after"} <= found
    assert found <= {*acknowledged, "after"} | {str(len(acknowledged))}
