"""The blocking door while servers are away: opening, sending and closing."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from trocket.blocking import Admin, Producer, PullConsumer, PushConsumer, SimpleConsumer
from trocket.client import (
    ClientError,
    ConnectError,
    ConnectionChange,
    ConnectionEvent,
    Interceptor,
    Message,
    SendStatus,
    UndeliveredError,
)
from trocket.testing import Broker

from .support import DEADLINE_S

AT_ONCE_S = 2.0
"""More than what fails without a wait takes on a busy machine, and less than any wait."""


def send(url: str, **options: Any) -> None:
    with Producer(url, **options) as producer:
        assert producer.send(Message("T", "x")).status is SendStatus.SEND_OK


def send_soon(url: str, **options: Any) -> None:
    with Producer(url, **options) as producer:
        assert producer.send_soon(Message("T", "x")).result().status is SendStatus.SEND_OK


def consume(url: str, **options: Any) -> None:
    with PushConsumer(url, group="g", subscriptions={"T": "*"}, **options):
        pass


def queues(url: str, **options: Any) -> None:
    with PullConsumer(url, group="g", **options) as consumer:
        assert consumer.queues("TBW102")


def receive(url: str, **options: Any) -> None:
    with SimpleConsumer(url, group="g", subscriptions={"TBW102": "*"}, **options) as consumer:
        consumer.receive(wait_s=5.0)


def administer(url: str, **options: Any) -> None:
    with Admin(url, **options) as admin:
        admin.create_topic("T", 1)


STARTS = [send, send_soon, consume, queues, administer]


@pytest.fixture
def port() -> int:
    """A port at which nothing listens yet."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number: int = taken.getsockname()[1]
        return number


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
def test_a_service_may_start_before_its_servers(port: int, start: Callable[..., None]) -> None:
    is_refused = Event()

    def note(event: ConnectionEvent) -> None:
        if event.change is ConnectionChange.LOST:
            is_refused.set()

    url = f"127.0.0.1:{port}"
    options = {"on_connection": note, "wait_for_broker_s": DEADLINE_S}
    with ThreadPoolExecutor() as pool:
        started = pool.submit(start, url, **options)
        assert is_refused.wait(DEADLINE_S)
        with Broker(namesrv_port=port):
            started.result(DEADLINE_S)


@pytest.mark.parametrize("start", [*STARTS, receive])
def test_a_client_that_does_not_wait_fails_at_once(port: int, start: Callable[..., None]) -> None:
    begun_s = time.monotonic()
    with pytest.raises(ConnectError, match=f"127.0.0.1:{port}: cannot connect: connection refused"):
        start(f"127.0.0.1:{port}", wait_for_broker_s=0)
    assert time.monotonic() - begun_s < AT_ONCE_S


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"linger_s": 0.01}, {"interceptors": [Interceptor()]}],
    ids=["alone", "in batches", "intercepted"],
)
def test_messages_that_wait_for_one_route_are_given_up_together(
    port: int, options: dict[str, Any]
) -> None:
    begun_s = time.monotonic()
    url = f"127.0.0.1:{port}"
    producer = Producer(url, wait_for_broker_s=0.5, **options).open()
    for _ in range(100):
        producer.send_soon(Message("T", "x"))
    with pytest.raises(UndeliveredError, match=r"100 messages.*no name server answered"):
        producer.close()
    assert time.monotonic() - begun_s < 0.5 + AT_ONCE_S


@pytest.mark.slow
def test_sending_and_closing_end_in_time_while_all_servers_hang() -> None:
    with Broker() as broker:
        broker.create_topic("T", queues=1)
        begun_s = time.monotonic()
        with Producer(broker.url, timeout_s=1.0) as producer:
            producer.send(Message("T", "x"))
            broker.faults.swallow(times=None)
            broker.faults.swallow(times=None, namesrv=True)
            for topic in ("T", "Other"):
                with pytest.raises(ClientError, match=r"127\.0\.0\.1:\d+.* did not answer"):
                    producer.send(Message(topic, "x"))
        # Two sends of one second, and up to three for leaving.
        assert time.monotonic() - begun_s < 5.0 + AT_ONCE_S
        broker.faults.clear()
