"""SIGTERM under load: what was confirmed is there, and what was not handled is not acknowledged."""

from __future__ import annotations

import http.client
import os
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from trocket.blocking import PushConsumer
from trocket.interop.process import LineProcess
from trocket.testing import Broker

PROGRAM = Path(__file__).with_name("service.py")
DEADLINE_S = 30.0
END_S = 25.0
"""Time to end: 10 s for requests (uvicorn), 5 s for the tasks of each client, and a margin."""
BEFORE = 20
"""Messages that are confirmed, and handled, before SIGTERM."""
POSTERS = 4
WORDS = ("port", "loop", "confirmed", "handled")

pytestmark = pytest.mark.slow


class Service:
    """A running service, and what it has printed: bodies by word."""

    def __init__(self, host: str, folder: Path, *arguments: str) -> None:
        self.printed: dict[str, list[str]] = {each: [] for each in WORDS}
        self.process = LineProcess(
            [sys.executable, str(PROGRAM), host, *arguments],
            folder=folder,
            name="service",
            on_line=self._on_line,
        )

    def _on_line(self, line: str) -> None:
        word, _, body = line.partition(" ")
        self.printed[word].append(body)

    def wait_for(self, word: str, count: int) -> None:
        """Wait until it has printed a word so often."""

        def ready() -> bool | None:
            return len(self.printed[word]) >= count or None

        self.process.wait(ready, timeout_s=DEADLINE_S, what=f"{count} times {word}")

    def errors(self) -> str:
        """What it wrote to stderr."""
        return (self.process.folder / "service.err").read_text()


@pytest.fixture
def stopped_later() -> Iterator[list[Service]]:
    services: list[Service] = []
    yield services
    for each in services:
        each.process.kill()


def check(service: Service, broker: Broker, topic: str, group: str, confirmed: set[str]) -> None:
    """The promises to the users of a service that has ended."""
    stored = [message.text for message in broker.messages(topic)]
    assert len(confirmed) >= BEFORE
    assert confirmed <= set(stored)
    handled = set(service.printed["handled"])
    acknowledged = stored[: len(stored) - broker.lag(group, topic)]
    assert set(acknowledged) <= handled, "it has acknowledged what it did not handle"
    with PushConsumer(broker.url, group=group, subscriptions={topic: "*"}) as consumer:
        missing = set(stored) - handled
        while missing:
            message = consumer.receive(timeout_s=DEADLINE_S)
            assert message is not None, missing
            missing.discard(message.text)
            message.ack()
    errors = service.errors()
    assert "Traceback" not in errors
    assert "never awaited" not in errors


@pytest.mark.parametrize("host", ["asyncio", "uvloop", "trio", "anyio", "threads"])
def test_a_service_ends_cleanly(
    host: str,
    broker: Broker,
    topic: str,
    group: str,
    tmp_path: Path,
    stopped_later: list[Service],
) -> None:
    service = Service(host, tmp_path, broker.url, topic, group)
    stopped_later.append(service)
    service.wait_for("confirmed", BEFORE)
    service.wait_for("handled", BEFORE)
    assert service.process.stop(timeout_s=END_S) == 0, service.errors()
    check(service, broker, topic, group, set(service.printed["confirmed"]))


def test_fastapi_under_uvicorn_ends_cleanly(
    broker: Broker, topic: str, group: str, tmp_path: Path, stopped_later: list[Service]
) -> None:
    # With `uvicorn[standard]`, which has uvloop and httptools.
    needed = ("fastapi", "uvicorn", "uvloop", "httptools")
    missing = [each for each in needed if find_spec(each) is None]
    if missing and os.environ.get("CI") != "true":
        pytest.skip(f"needs {', '.join(missing)}")
    service = Service("uvicorn", tmp_path, broker.url, topic, group)
    stopped_later.append(service)
    service.wait_for("port", 1)
    port = int(service.printed["port"][0])
    answered: list[str] = []

    def post(poster: int) -> None:
        """Post orders until the server is gone."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
        number = 0
        try:
            while True:
                body = f"{poster}-{number}"
                connection.request("POST", f"/orders/{body}")
                response = connection.getresponse()
                response.read()
                if response.status == 200:
                    answered.append(body)
                number += 1
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()

    posters = [threading.Thread(target=post, args=(number,)) for number in range(POSTERS)]
    for poster in posters:
        poster.start()
    # The last requests may not be answered.
    service.wait_for("handled", BEFORE + POSTERS)
    assert service.process.stop(timeout_s=END_S) == 0, service.errors()
    for poster in posters:
        poster.join(DEADLINE_S)
    assert service.printed["loop"] == ["uvloop"]
    check(service, broker, topic, group, set(answered))
