"""Routes are asked for again soon while a set of brokers has no master."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import trio

from trocket.client.connection.route_table import RouteTable
from trocket.remoting.bodies import TopicRouteData
from trocket.remoting.bodies.route import BrokerData, QueueData
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.headers import GetRouteInfoRequestHeader

TOPIC = "Orders"
REFRESH_S = 30.0


class NameServer:
    """Answers with the addresses of a set, by broker id; notes when it is asked."""

    def __init__(self, addresses: dict[int, str]) -> None:
        self.addresses = addresses
        self.asked_s: list[float] = []

    async def request(
        self, code: int, header: GetRouteInfoRequestHeader, timeout_s: float
    ) -> RemotingCommand:
        self.asked_s.append(trio.current_time())
        route = TopicRouteData(
            queue_datas=[QueueData("broker-a", 4, 4, 6, 0)],
            broker_datas=[BrokerData("DefaultCluster", "broker-a", dict(self.addresses))],
        )
        return RemotingCommand(0, body=route.to_body())


class Unmoved:
    """A listener of routes that does nothing."""

    def wanted_topics(self) -> Iterable[str]:
        return [TOPIC]

    def on_route_changed(self, topic: str) -> None:
        pass

    def on_brokers_changed(self) -> None:
        pass


@asynccontextmanager
async def routes_of(server: NameServer) -> AsyncIterator[RouteTable]:
    routes = RouteTable(
        ["192.0.2.1:9876"], server.request, Unmoved(), REFRESH_S, 3.0, trio.current_time
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(routes.run)
        yield routes
        nursery.cancel_scope.cancel()


async def test_a_master_that_is_elected_is_found_within_seconds(autojump_clock) -> None:
    server = NameServer({0: "192.0.2.2:10911", 2: "192.0.2.3:10911"})
    async with routes_of(server) as routes:
        await routes.route(TOPIC)
        del server.addresses[0]  # it is lost, and its connection with it
        routes.refresh_soon()
        await trio.sleep(3)
        server.addresses = {0: "192.0.2.3:10911"}
        await trio.sleep(5)
        assert routes.master_address("broker-a") == "192.0.2.3:10911"


async def test_a_set_that_stays_without_a_master_is_asked_for_less_and_less(
    autojump_clock,
) -> None:
    server = NameServer({2: "192.0.2.3:10911"})
    async with routes_of(server) as routes:
        await routes.route(TOPIC)
        routes.refresh_soon()
        await trio.sleep(1000)
        pauses_s = [b - a for a, b in zip(server.asked_s, server.asked_s[1:], strict=False)]
    assert pauses_s == sorted(pauses_s)
    assert len(server.asked_s) < 1000 / REFRESH_S + 8
    assert pauses_s[-1] >= REFRESH_S


async def test_with_its_master_a_route_is_refreshed_at_the_usual_interval(autojump_clock) -> None:
    server = NameServer({0: "192.0.2.2:10911", 2: "192.0.2.3:10911"})
    async with routes_of(server):
        await trio.sleep(10 * (REFRESH_S + 1) + 1)
    assert len(server.asked_s) == 10
