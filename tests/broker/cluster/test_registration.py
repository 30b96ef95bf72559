"""A slave's name servers, which tell it of its master."""

from __future__ import annotations

import logging

import pytest
import trio

from trocket.broker.cluster.registration import MASTER_UNKNOWN_PERIOD_S, Registrar
from trocket.broker.cluster.registration_answer import Master
from trocket.broker.cluster.registration_request import BrokerIdentity
from trocket.broker.settings.config import BrokerConfig
from trocket.broker.tables.topic_config_manager import TopicConfigManager
from trocket.common.clock import ManualClock
from trocket.remoting.client import RemotingClient
from trocket.remoting.errors import RequestRefused
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.server import RemotingServer
from trocket.remoting.turn import Turn

REGISTER, DATA_VERSION = 103, 322
A, B = "192.0.2.8", "192.0.2.9"
OLD, NEW = Master("192.0.2.1:1", "192.0.2.1:2"), Master("192.0.2.2:1", "192.0.2.2:2")


class Namesrvs:
    """Name servers that answer registrations with what the test says."""

    def __init__(self, nursery: trio.Nursery, broker_id: int = 1, **options: object) -> None:
        self.masters: dict[str, Master | None] = {A: None, B: None}
        self.heard: list[Master | None] = []
        self.asked: list[tuple[float, int]] = []
        self.refusal: RequestRefused | None = None
        self._nursery = nursery
        config = BrokerConfig(broker_id=broker_id, namesrv_addr=f"{A}:1;{B}:1", **options)
        self.client = RemotingClient(open_stream=self._connect)
        topics = TopicConfigManager(config, clock=ManualClock(), save=lambda *_: None)
        identity = BrokerIdentity(config, "h:1", "h:2")
        self.registrar = Registrar(config, self.client, topics, lambda: identity, self.heard.append)

    async def _connect(self, host: str, port: int) -> trio.abc.Stream:
        near, far = trio.testing.memory_stream_pair()

        def register(request, channel):
            self.asked.append((trio.current_time(), request.code))
            if self.refusal is not None:
                raise self.refusal
            master = self.masters[host]
            fields = {} if master is None else {"masterAddr": master[0], "haServerAddr": master[1]}
            return request.answer(ext_fields=fields)

        def same(request, channel):
            self.asked.append((trio.current_time(), request.code))
            return request.answer(ext_fields={"changed": "false"})

        server = RemotingServer({REGISTER: register, DATA_VERSION: same}, turn=Turn())
        self._nursery.start_soon(server.serve_stream, near)
        return far


async def test_the_first_name_server_that_knows_a_master_counts(autojump_clock):
    """One that was started again knows none for a while."""
    async with trio.open_nursery() as nursery:
        made = Namesrvs(nursery)
        await nursery.start(made.client.run)
        await nursery.start(made.registrar.run)
        for answered, counts in (
            ({A: None, B: None}, None),
            ({A: None, B: OLD}, OLD),
            ({A: NEW, B: OLD}, NEW),
            ({A: None, B: OLD}, OLD),
            ({A: None, B: None}, None),
        ):
            made.masters = answered
            await made.registrar.register_all()
            assert made.heard[-1] == counts
        nursery.cancel_scope.cancel()


async def test_a_name_server_that_does_not_answer_is_believed_what_it_said_last(autojump_clock):
    async with trio.open_nursery() as nursery:
        made = Namesrvs(nursery)
        await nursery.start(made.client.run)
        await nursery.start(made.registrar.run)
        made.masters = {A: NEW, B: None}
        await made.registrar.register_all()
        made.masters.pop(A)  # it fails now
        await made.registrar.register_all()
        assert made.heard[-1] == NEW
        nursery.cancel_scope.cancel()


async def test_a_slave_that_knows_no_master_asks_more_often(autojump_clock):
    async with trio.open_nursery() as nursery:
        made = Namesrvs(nursery, register_name_server_period=60_000)
        await nursery.start(made.client.run)
        await nursery.start(made.registrar.run)
        await trio.sleep(3 * MASTER_UNKNOWN_PERIOD_S + 1)
        made.masters[B] = OLD
        await trio.sleep(200)
        times = [round(moment_s) for moment_s, _ in made.asked[::2]]
        assert times == [0, 10, 20, 30, 40, 100, 160, 220]
        nursery.cancel_scope.cancel()


async def test_a_slave_registers_where_a_master_would_ask_first(autojump_clock):
    codes = {}
    for broker_id in (0, 1):
        async with trio.open_nursery() as nursery:
            made = Namesrvs(nursery, broker_id, force_register=False)
            await nursery.start(made.client.run)
            await nursery.start(made.registrar.run)
            await made.registrar.register_all()
            codes[broker_id] = [code for _, code in made.asked]
            nursery.cancel_scope.cancel()
    assert codes == {0: [REGISTER] * 2 + [DATA_VERSION] * 2, 1: [REGISTER] * 4}


@pytest.mark.parametrize(
    ("refusal", "advice"),
    [
        (
            RequestRefused(ResponseCode.NO_PERMISSION, "no such user: b"),
            "innerClientAuthenticationCredentials",
        ),
        (RequestRefused(ResponseCode.SYSTEM_ERROR, "crc32 not match"), "The name server's log"),
    ],
)
async def test_a_refused_registration_is_logged_with_the_name_servers_reason(
    autojump_clock, caplog: pytest.LogCaptureFixture, refusal: RequestRefused, advice: str
) -> None:
    async with trio.open_nursery() as nursery:
        made = Namesrvs(nursery, broker_id=0)
        made.refusal = refusal
        with caplog.at_level(logging.WARNING, logger="trocket.broker"):
            await nursery.start(made.client.run)
            await nursery.start(made.registrar.run)
        (first, second) = (record.getMessage() for record in caplog.records)
        assert "refuses this broker's registration" in first
        assert refusal.remark in first
        assert advice in first
        assert "Check that it runs" not in first
        assert refusal.remark in second
        assert made.registrar.refusals == {f"{host}:1": str(refusal) for host in (A, B)}
        made.refusal = None
        await made.registrar.register_all()
        assert made.registrar.refusals == {}
        nursery.cancel_scope.cancel()
