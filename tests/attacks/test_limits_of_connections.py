"""One client cannot take the connections, waiting requests and memory for answers of all others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
import trio.testing

from trocket.broker.settings.config import BrokerConfig
from trocket.broker.settings.config_checks import read_broker_config
from trocket.common.config import ConfigError, parse_properties
from trocket.common.connection_policy import ConnectionPolicy
from trocket.disk.memory_disk import MemoryDisk
from trocket.filtersrv.config import FiltersrvConfig, read_filtersrv_config
from trocket.filtersrv.controller import FiltersrvController
from trocket.namesrv.config import NamesrvConfig, read_namesrv_config
from trocket.namesrv.controller import NamesrvController
from trocket.remoting.address_limits import AddressLimits
from trocket.remoting.channel import BACKLOG_PIECE_SIZE, Channel, Deferred
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.connection import CROWDED_FIRST_FRAME_S, ConnectionLimits
from trocket.remoting.refusals import LOG_INTERVAL_S, Refusals
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.server import RemotingServer
from trocket.store.config import MessageStoreConfig

from ..kit import TrioClock, embedded_broker, send_fields
from ..kit.client import Client

ECHO, LATER = 900, 901
STRANGER, HONEST = "198.51.100.7", "192.0.2.2"


class Server:
    """A server of two requests, and its connections on memory streams."""

    def __init__(self, nursery: trio.Nursery, policy: ConnectionPolicy) -> None:
        self.gate = trio.Event()
        self.server = RemotingServer(
            {ECHO: self._echo, LATER: self._later}, limits=ConnectionLimits(policy=policy)
        )
        self._nursery = nursery

    def _echo(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return request.answer(body=request.body)

    def _later(self, request: RemotingCommand, channel: Channel) -> Deferred:
        async def wait() -> RemotingCommand:
            await self.gate.wait()
            return request.answer(0)

        return Deferred(wait)

    async def connect(self, host: str = STRANGER, *, lockstep: bool = False) -> Client:
        make = trio.testing.lockstep_stream_pair if lockstep else trio.testing.memory_stream_pair
        near, far = make()
        self._nursery.start_soon(self.server.serve_stream, near, f"{host}:1")
        await trio.testing.wait_all_tasks_blocked()
        return Client(far)


@asynccontextmanager
async def serving(**policy: object) -> AsyncIterator[Server]:
    async with trio.open_nursery() as nursery:
        server = Server(nursery, ConnectionPolicy(**policy))  # type: ignore[arg-type]
        await nursery.start(server.server.serve, [])
        yield server
        nursery.cancel_scope.cancel()


async def is_served(client: Client) -> bool:
    try:
        return (await client.ask(ECHO, {}, b"x")).body == b"x"
    except (trio.EndOfChannel, trio.BrokenResourceError):
        return False


@pytest.mark.parametrize("host", [STRANGER, "[2001:db8::%x]", "[::ffff:198.51.100.7]"])
async def test_one_address_has_its_share_of_connections(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(connections_per_address_max=3) as server:
        clients = [await server.connect(host % n if "%" in host else host) for n in range(1, 6)]
        assert [await is_served(client) for client in clients] == [True] * 3 + [False] * 2
        assert await is_served(await server.connect(HONEST))
        assert server.server.refusals.counts == {"connectionsPerAddressMax": 2}
        await clients[0].stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert await is_served(await server.connect(STRANGER if "%" not in host else host % 9))
    (line,) = [line for line in caplog.messages if "connectionsPerAddressMax" in line]
    assert "the connection is refused, because 3 of this address are open" in line


async def test_addresses_that_are_exempt_have_only_the_limit_of_all() -> None:
    async with serving(
        connections_max=6, connections_per_address_max=1, limit_exempt_addresses="198.51.100.0/24"
    ) as server:
        clients = [await server.connect() for _ in range(7)]
        assert [await is_served(client) for client in clients] == [True] * 6 + [False]
        assert server.server.refusals.counts == {"connectionsMax": 1}


async def test_in_a_crowd_connections_that_say_nothing_give_way(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(connections_max=10, limit_exempt_addresses="0.0.0.0/0") as server:
        honest = await server.connect(HONEST)
        assert await is_served(honest)
        silent = [await server.connect() for _ in range(9)]
        assert not await is_served(await server.connect(HONEST))
        began_s = trio.current_time()
        for client in silent:
            with pytest.raises(trio.EndOfChannel):
                await client.read()
        assert trio.current_time() - began_s <= CROWDED_FIRST_FRAME_S + 2
        assert await is_served(honest)
        assert await is_served(await server.connect(HONEST))


async def test_silent_connections_stay_where_there_is_room(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(connections_max=100) as server:
        silent = await server.connect()
        await trio.sleep(60)
        assert await is_served(silent)


async def test_requests_in_flight_are_limited_by_connection() -> None:
    async with serving(requests_in_flight_max=2) as server:
        client, honest = await server.connect(), await server.connect(HONEST)
        for _ in range(2):
            await client.send(RemotingCommand(LATER))
        refused = await client.ask(LATER, {})
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert refused.remark == (
            "[OVERLOAD]system busy, start flow control for a while: 2 requests of this connection "
            "wait for their answers, which is the limit requestsInFlightMax"
        )
        assert await is_served(client)
        assert await is_served(honest)


async def test_requests_in_flight_are_limited_by_address_also_after_a_close() -> None:
    async with serving(requests_in_flight_per_address_max=2) as server:
        first, second = await server.connect(), await server.connect()
        await first.send(RemotingCommand(LATER))
        await second.send(RemotingCommand(LATER))
        for client in (first, second, await server.connect()):
            refused = await client.ask(LATER, {})
            assert refused.code == ResponseCode.SYSTEM_BUSY
            assert "requestsInFlightPerAddressMax" in (refused.remark or "")
        honest = await server.connect(HONEST)
        await honest.send(RemotingCommand(LATER))
        await first.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        await second.send(RemotingCommand(LATER))
        await trio.testing.wait_all_tasks_blocked()
        server.gate.set()
        assert [len(await answers(client)) for client in (second, honest)] == [2, 1]


async def answers(client: Client) -> list[RemotingCommand]:
    await trio.testing.wait_all_tasks_blocked()
    client.receive_data(await client.read())
    return client.unasked


async def test_who_does_not_read_its_answers_is_closed_in_time(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when it goes on to send, and has less than the high water mark to read."""
    async with serving(unread_answers_timeout_seconds=60) as server, trio.open_nursery() as nursery:
        client = await server.connect(lockstep=True)

        @nursery.start_soon
        async def _() -> None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while True:
                    await client.send(RemotingCommand(ECHO, body=bytes(1000)))
                    await trio.sleep(5)

        await trio.sleep(55)
        assert server.server.channels
        await trio.sleep(10)
        assert not server.server.channels
        assert server.server.refusals.counts == {"unreadAnswersTimeoutSeconds": 1}
    assert "has not read its answers for 61 s" in caplog.text
    assert "which is the limit unreadAnswersTimeoutSeconds" in caplog.text


async def test_who_reads_slowly_is_served(autojump_clock: trio.testing.MockClock) -> None:
    async with serving(unread_answers_timeout_seconds=20) as server:
        client = await server.connect(lockstep=True)
        await client.send(RemotingCommand(ECHO, body=bytes(8 * BACKLOG_PIECE_SIZE)))
        for _ in range(8):
            await trio.sleep(13)
            await client.stream.receive_some(BACKLOG_PIECE_SIZE)
        assert server.server.channels


def test_a_flood_is_one_line_in_ten_seconds_for_each_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 0.0
    refusals = Refusals(lambda: now_s)
    for _ in range(1_000):
        refusals.note("aMax", "192.0.2.7:1", "refused, because 3 are open")
        refusals.note("bMax", "192.0.2.7:1", "refused")
    now_s = LOG_INTERVAL_S
    refusals.note("aMax", "192.0.2.8:1", "refused, because 3 are open")
    more = "999 more refusals since the last such line"
    assert caplog.messages == [
        "192.0.2.7:1: refused, because 3 are open, which is the limit aMax",
        "192.0.2.7:1: refused, which is the limit bMax",
        f"192.0.2.8:1: refused, because 3 are open, which is the limit aMax ({more})",
    ]
    assert refusals.counts == {"aMax": 1_001, "bMax": 1_000}


async def test_every_server_has_the_limits_of_its_configuration(autojump_clock) -> None:
    keys = {"connections_per_address_max": 1}
    async with embedded_broker(**keys) as broker:
        assert broker.controller.server is not None
        servers = [broker.controller.server]
        filters = FiltersrvConfig(connect_which_broker="127.0.0.1:1", **keys)
        servers.append(FiltersrvController(filters, {}).server)
        namesrv = NamesrvController(NamesrvConfig(**keys), clock=TrioClock(), disk=MemoryDisk())
        servers.append(namesrv.server)
        async with trio.open_nursery() as nursery:
            for server in servers:
                for _ in range(2):
                    near, _ = trio.testing.memory_stream_pair()
                    nursery.start_soon(server.serve_stream, near, f"{STRANGER}:1")
                await trio.testing.wait_all_tasks_blocked()
                assert server.refusals.counts == {"connectionsPerAddressMax": 1}
            nursery.cancel_scope.cancel()


def test_a_wrong_list_of_exempt_addresses_is_refused_at_the_start() -> None:
    entries = parse_properties("limitExemptAddresses=10.0.0.0/8;here\nconnectWhichBroker=h:1")
    with pytest.raises(ConfigError, match="limitExemptAddresses: 'here'"):
        read_broker_config(entries[:1], BrokerConfig(), MessageStoreConfig())
    with pytest.raises(ConfigError, match="limitExemptAddresses: 'here'"):
        read_namesrv_config(entries[:1], NamesrvConfig())
    with pytest.raises(ConfigError, match="limitExemptAddresses: 'here'"):
        read_filtersrv_config(entries)


async def test_an_error_at_the_admission_of_a_connection_costs_that_connection_only(
    monkeypatch, caplog
):
    def fail(self: AddressLimits, address: str) -> None:
        raise RuntimeError("of the admission")

    async with embedded_broker() as broker:
        with monkeypatch.context() as patch:
            patch.setattr(AddressLimits, "admit", fail)
            refused = await broker.connect()
            with pytest.raises((trio.EndOfChannel, trio.BrokenResourceError)):
                await refused.ask(310, send_fields())
        assert "of the admission" in caplog.text
        client = await broker.connect()
        assert (await client.ask(310, send_fields(), b"1")).code == 0
