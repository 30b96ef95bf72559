"""`trocket up --test-clock` in this process, and its control port as a test uses it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from trocket.cli.up import test_clock
from trocket.cli.up.command import new_up
from trocket.cli.up.config import read_one
from trocket.cli.up.flags import PROGRAM
from trocket.common.command_line import parse_usual
from trocket.testing.loop_thread import LoopThread

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0")
TIMEOUT_S = 30.0


class Refused(Exception):
    """An answer with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Controlled:
    """The facts of a ready broker, and requests to its control port."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.namesrv: str = facts["namesrv"]
        self.broker: str = facts["broker"]
        self.url = f"rocketmq://{self.namesrv}"
        self.control: str = facts["control"]

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """One request. Raises: Refused."""
        data = None if body is None else json.dumps(body).encode()
        return self.send(method, path, data)

    def send(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """The same with any bytes."""
        request = urllib.request.Request(
            self.control + path, data, {"Content-Type": "application/json", **(headers or {})}
        )
        request.method = method
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, json.load(error)["error"]) from error
        assert isinstance(found, dict)
        return found

    def advance(self, milliseconds: int) -> int:
        """Advance the clock; returns the broker's time."""
        return int(self.ask("POST", "/advance", {"ms": milliseconds})["now_ms"])

    def fault(self, kind: str, code: int | None = None, **more: object) -> int:
        """Inject a fault; returns its number."""
        return int(self.ask("POST", "/faults", {"kind": kind, "code": code, **more})["id"])

    def hits(self, number: int) -> int:
        """The hits of a fault."""
        faults = self.ask("GET", "/faults")["faults"]
        return int(next(each["hits"] for each in faults if each["id"] == number))


@contextmanager
def controlled(folder: Path, *words: str) -> Iterator[Controlled]:
    """Run `trocket up --test-clock` with these flags in another thread."""
    ready = folder / "ready.json"
    given = ("--test-clock", "--json", "--ready-file", str(ready), *FREE_PORTS, *words)
    options = parse_usual(PROGRAM, given)
    assert options is not None, given
    with test_clock.folder_of(options):
        up = new_up(options, read_one(options))
        loop = LoopThread("trocket-up")

        async def main(*, task_status: trio.TaskStatus[None]) -> None:
            stop = trio.CancelScope()

            async def run_until_stop() -> None:
                with trio.CancelScope(shield=True):
                    await up.run(stop)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_until_stop)
                try:
                    while not ready.exists():  # noqa: ASYNC110 - a file has no event
                        await trio.sleep(0.005)
                    task_status.started()
                    await trio.sleep_forever()
                finally:
                    stop.cancel()

        loop.start(main)
        try:
            yield Controlled(json.loads(ready.read_text()))
        finally:
            loop.close()
