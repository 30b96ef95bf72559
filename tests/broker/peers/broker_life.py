"""The life of one broker process beside one peer: each phase is a cell of the matrix."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trocket.blocking import PushConsumer
from trocket.client import ConsumeFromWhere, FilterClass, PushConsumerOptions
from trocket.interop.ports import free_port
from trocket.interop.process import LineProcess, PeerError

from ...kit import topic_fields
from .peer_processes import (
    GET_ROUTE,
    SLAVE,
    START_TIMEOUT_S,
    UPLOADS,
    FilterServerChild,
    MasterProcess,
    PeerProcess,
    Site,
    SlaveProcess,
    filter_server,
    has_message,
    launch,
    name_server,
    reached,
    until,
    wait_booted,
)
from .process_promises import PROMISES, READS_S, Kind, Phase, Way
from .stand_in import HOST

RUNTIME_INFO, QUERY_OFFSET, COMMIT, CREATE_TOPIC = 28, 14, 15, 17
TOPIC, FILTERED = "T", "Filtered"
WANTED, UNWANTED = "wanted", b"not this one"
CONSUMED_S = 15.0
"""Until a consumer has a new message. It starts with the other filter servers of a machine."""
CLOSED_S = 8.0
SOURCE = """class Wanted:
    def match(self, message):
        return bytes(message.body).startswith(b"wanted")
"""
OPTIONS = PushConsumerOptions(
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, route_refresh_s=0.5
)


@contextmanager
def within(limit_s: float, what: str) -> Iterator[None]:
    """Fail when a block takes longer."""
    began_s = time.monotonic()
    yield
    took_s = time.monotonic() - began_s
    assert took_s <= limit_s, f"{what} took {took_s:.1f} s, and may take {limit_s} s"


class BrokerLife:
    """Goes through all phases of one kind of peer and one way to misbehave.

    Args:
      folder: for all its files.
      good_namesrv_port: of a name server for brokers whose peer is another.

    Attributes:
      failures: by phase, why the promise was broken; a phase that is missing kept it.
    """

    def __init__(self, folder: Path, kind: Kind, way: Way, good_namesrv_port: int) -> None:
        folder.mkdir()
        self.failures: dict[Phase, Exception] = {}
        self._kind, self._way, self._promise = kind, way, PROMISES[kind]
        self._is_slave = kind is Kind.MASTER
        port = free_port() if kind is Kind.NAME_SERVER else good_namesrv_port
        self._site = Site(folder, f"{kind.name}-{way.name}".lower().replace("_", "-"), port)
        self._health_port = free_port()
        self._peer = self._make_peer()
        self._broker: LineProcess | None = None
        self._watcher: Watcher | None = None

    def _make_peer(self) -> PeerProcess:
        site = self._site
        match self._kind:
            case Kind.NAME_SERVER:
                return name_server(site)
            case Kind.MASTER:
                return MasterProcess(site)
            case Kind.FILTER_SERVER:
                return filter_server(site, self._way)
        return SlaveProcess(site)

    def _keys(self) -> dict[str, object]:
        role: dict[str, object] = {"brokerRole": "ASYNC_MASTER", "brokerId": 0}
        if self._is_slave:
            role = dict(SLAVE)
        elif self._kind is Kind.SLAVE_OF_SYNC_MASTER:
            role["brokerRole"] = "SYNC_MASTER"
        elif self._kind is Kind.FILTER_SERVER:
            role |= UPLOADS
            role["filterServerNums"] = int(isinstance(self._peer, FilterServerChild))
        role |= {
            "metricsExporterType": "PROM", "metricsPromExporterHost": HOST,
            "metricsPromExporterPort": self._health_port,
        }  # fmt: skip
        return self._site.keys("store", self._site.port, **role)

    def play(self) -> None:
        """Go through the phases; after one that fails the next ones go on as far as they can."""
        try:
            self._prepare()
            phases = {
                Phase.SERVE: self._serve,
                Phase.STOP: self._stop,
                Phase.START: self._start,
                Phase.RETURN: self._return,
            }
            if self._kind is Kind.MASTER:
                phases[Phase.ROLE_CHANGE] = self._change_role
            for phase, run in phases.items():
                try:
                    run()
                except (AssertionError, OSError, PeerError, TimeoutError) as error:
                    self.failures[phase] = error
        finally:
            for each in (self._watcher, self._peer):
                if each is not None:
                    each.close()
            if self._broker is not None:
                self._broker.kill()

    # Phases

    def _prepare(self) -> None:
        """Start both in good order; both have the same message."""
        if self._kind in (Kind.NAME_SERVER, Kind.MASTER):
            self._peer.start()
        self._launch()
        assert self._broker is not None
        wait_booted(self._broker)
        if self._kind not in (Kind.NAME_SERVER, Kind.MASTER):
            self._peer.start()
        self._send("seed")
        if self._kind is Kind.FILTER_SERVER:
            self._send_filtered("seed")
        self._until_peer_has("seed", START_TIMEOUT_S)

    def _serve(self) -> None:
        self._peer.misbehave(self._way)
        self._check("serve")
        self._peer.wait_met()
        self._check("serves")

    def _stop(self) -> None:
        broker, self._broker = self._broker, None
        assert broker is not None
        with within(self._promise.stops_s, "the stop"):
            assert broker.stop(timeout_s=START_TIMEOUT_S) == 0

    def _start(self) -> None:
        self._launch()
        with (
            reached(self._site.port, timeout_s=self._promise.serves_s) as client,
            within(READS_S, "the first answer"),
        ):
            assert client.ask(RUNTIME_INFO, {})[0]["code"] == 0
        self._peer.subject_is_starting()
        self._check("start")

    def _return(self) -> None:
        self._peer.behave()
        self._send("later")
        if self._kind is Kind.FILTER_SERVER:
            self._send_filtered("later")
        self._until_peer_has("later", self._promise.returns_s)

    def _change_role(self) -> None:
        self._peer.misbehave(self._way)
        self._stop()
        self._is_slave = False
        self._start()

    # What is checked

    def _launch(self) -> None:
        self._broker = launch(self._site.folder, "broker", "broker", self._keys())

    def _check(self, name: str) -> None:
        """A client gets what the broker can do without the peer."""
        with reached(self._site.port, timeout_s=READS_S) as client:
            if not self._is_slave:
                with within(self._promise.answers_s, "a send"):
                    code = client.send(TOPIC, 0, name.encode())[0]
                    assert code in self._promise.send_codes, code
                with within(self._promise.makes_s, "a new topic"):
                    assert client.ask(CREATE_TOPIC, text_of(topic_fields(name)))[0]["code"] == 0
            with within(READS_S, "reads"):
                wanted = {b"seed"} if self._is_slave else {b"seed", name.encode()}
                assert wanted <= set(client.pull_all(TOPIC, 0)[1].values())
            of_group = {"consumerGroup": "CG", "topic": TOPIC, "queueId": "0"}
            with within(READS_S, "offsets and figures"):
                assert client.ask(COMMIT, of_group | {"commitOffset": "1"})[0]["code"] == 0
                found = client.ask(QUERY_OFFSET, of_group)[0]
                assert found["extFields"]["offset"] == "1"
                assert client.ask(RUNTIME_INFO, {})[0]["code"] == 0
        with within(READS_S, "metrics and health"):
            assert http_status(self._health_port, "/metrics") == 200
            assert http_status(self._health_port, "/health/live") == 200
        if self._kind is Kind.FILTER_SERVER:
            self._check_consumer(name)

    def _check_consumer(self, name: str) -> None:
        """A consumer with a filter class gets its other topic, and closes."""
        if self._watcher is None:
            self._watcher = Watcher(self._site)
        self._watcher.take(TOPIC, name.encode(), CONSUMED_S)
        watcher, self._watcher = self._watcher, None
        with within(CLOSED_S, "closing a consumer"):
            watcher.close()

    def _send(self, body: str) -> None:
        port = self._peer.port if isinstance(self._peer, MasterProcess) else self._site.port
        if isinstance(self._peer, MasterProcess) and not self._is_slave:
            port = self._site.port
        with reached(port, timeout_s=START_TIMEOUT_S) as client:
            assert client.send(TOPIC, 0, body.encode())[0] in self._promise.send_codes

    def _send_filtered(self, name: str) -> None:
        with reached(self._site.port, timeout_s=START_TIMEOUT_S) as client:
            for body in (UNWANTED, f"{WANTED} {name}".encode()):
                assert client.send(FILTERED, 0, body)[0] == 0

    def _until_peer_has(self, body: str, limit_s: float) -> None:
        match self._kind:
            case Kind.NAME_SERVER:
                until("the route is known", self._has_route, timeout_s=limit_s)
            case Kind.FILTER_SERVER:
                if self._watcher is None:
                    self._watcher = Watcher(self._site)
                self._watcher.take(FILTERED, f"{WANTED} {body}".encode(), limit_s)
            case _:
                port = self._site.port
                if not self._is_slave:
                    assert isinstance(self._peer, SlaveProcess)
                    port = self._peer.port
                until(
                    f"the slave has {body}",
                    lambda: has_message(port, TOPIC, body.encode()),
                    timeout_s=limit_s,
                )

    def _has_route(self) -> bool:
        with reached(self._site.namesrv_port, timeout_s=READS_S, answer_s=READS_S) as client:
            return bool(client.ask(GET_ROUTE, {"topic": TOPIC})[0]["code"] == 0)


class Watcher:
    """A consumer of an ordinary topic and of one with a filter class."""

    def __init__(self, site: Site) -> None:
        self._consumer = PushConsumer(
            f"rocketmq://{HOST}:{site.namesrv_port}",
            group=f"CG-{site.broker_name}",
            subscriptions={
                TOPIC: "*",
                FILTERED: FilterClass("Wanted", SOURCE, language="python"),
            },
            **OPTIONS,
        ).open()

    def take(self, topic: str, body: bytes, limit_s: float) -> None:
        """Acknowledge messages until one has this topic and body. Raises: AssertionError."""
        end_s = time.monotonic() + limit_s
        while (left_s := end_s - time.monotonic()) > 0:
            message = self._consumer.receive(timeout_s=left_s)
            if message is not None:
                message.ack()
                assert message.body != UNWANTED
                if (message.topic, message.body) == (topic, body):
                    return
        raise AssertionError(f"no {body!r} of {topic} within {limit_s} s")

    def close(self) -> None:
        self._consumer.close()


def text_of(fields: dict[str, object]) -> dict[str, str]:
    """Fields as the wire has them."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in fields.items()
    }


def http_status(port: int, path: str) -> int:
    """The status of an answer by HTTP."""
    connection = http.client.HTTPConnection(HOST, port, timeout=START_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()
