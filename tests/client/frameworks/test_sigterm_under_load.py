"""SIGTERM while handlers take 0 to 20 s: the service ends in time, and loses no message."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.matrix import first_of
from trocket.blocking import PushConsumer
from trocket.client.options.push_options import CLOSE_TIMEOUT_S
from trocket.interop.process import LineProcess
from trocket.testing import Broker

PROGRAM = Path(__file__).with_name("loaded_service.py")
KINDS = ("async", "thread", "blocking")
QUEUES = 4
LOAD_S = 4.0
START_TIMEOUT_S = 30.0
KILLED_S = 30.0
"""Kubernetes kills a container then (terminationGracePeriodSeconds)."""
SLACK_S = 3.0
"""For the end of Python and the scheduling of three services on a busy machine."""
QUIET_S = 3.0

pytestmark = pytest.mark.slow


@dataclass
class Service:
    """A running service, and the numbers that it printed by word."""

    kind: str
    topic: str
    group: str
    process: LineProcess
    printed: dict[str, set[str]]
    took_s: float = 0.0
    code: int | None = None


def start(kind: str, broker: Broker, group: str, folder: Path, limit_s: float) -> Service:
    topic = f"T_{kind}_{group}"
    broker.create_topic(topic, queues=QUEUES)
    printed: dict[str, set[str]] = {"confirmed": set(), "handled": set()}

    def on_line(line: str) -> None:
        word, _, number = line.partition(" ")
        printed[word].add(number)

    command = [sys.executable, str(PROGRAM), kind, broker.url, topic, f"{kind}-{group}"]
    command.append(str(limit_s))
    process = LineProcess(command, folder=folder, name=kind, on_line=on_line)
    return Service(kind, topic, f"{kind}-{group}", process, printed)


@pytest.fixture(params=first_of([6.0, CLOSE_TIMEOUT_S]))
def limit_s(request: pytest.FixtureRequest) -> float:
    """The option `close_timeout_s` of the services: the default, and a shorter one."""
    return float(request.param)


@pytest.fixture
def services(broker: Broker, group: str, tmp_path: Path, limit_s: float) -> Iterator[list[Service]]:
    """All three, started together and ended by SIGTERM together."""
    started = [start(kind, broker, group, tmp_path, limit_s) for kind in KINDS]
    try:
        for each in started:
            each.process.wait(
                lambda each=each: each.printed["handled"] or None,
                timeout_s=START_TIMEOUT_S,
                what="a handled message",
            )
        threading.Event().wait(LOAD_S)

        def stop(service: Service) -> None:
            begin_s = time.monotonic()
            service.code = service.process.stop(timeout_s=KILLED_S)
            service.took_s = time.monotonic() - begin_s

        stoppers = [threading.Thread(target=stop, args=(each,)) for each in started]
        for stopper in stoppers:
            stopper.start()
        for stopper in stoppers:
            stopper.join()
        yield started
    finally:
        for each in started:
            each.process.kill()


def received_again(broker: Broker, service: Service) -> set[str]:
    """The numbers that the next member of the group gets."""
    found: set[str] = set()
    with PushConsumer(
        broker.url, group=service.group, subscriptions={service.topic: "*"}
    ) as consumer:
        while message := consumer.receive(timeout_s=QUIET_S):
            found.add(message.text.partition(" ")[0])
            message.ack()
    return found


def test_nothing_is_lost_and_the_service_ends_in_time(
    broker: Broker, services: list[Service], limit_s: float
) -> None:
    assert limit_s + SLACK_S < KILLED_S
    for service in services:
        handled, confirmed = service.printed["handled"], service.printed["confirmed"]
        assert service.code == 0, (service.kind, service.process.tail())
        assert service.took_s < limit_s + SLACK_S
        stored = {each.text.partition(" ")[0] for each in broker.messages(service.topic)}
        assert confirmed <= stored
        again = received_again(broker, service)
        assert stored <= handled | again, service.kind
        print(
            f"{service.kind}: {len(stored)} stored, {len(handled)} handled,"
            f" {len(handled & again)} of them again, ended after {service.took_s:.1f} s"
        )
        errors = (service.process.folder / f"{service.kind}.err").read_text()
        assert "Traceback" not in errors
        assert "never awaited" not in errors
