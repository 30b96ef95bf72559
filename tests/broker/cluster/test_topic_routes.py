"""broker/cluster/topic_routes.py: routes of topics, from name servers that may be gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from trocket.broker.cluster import topic_routes
from trocket.broker.cluster.topic_routes import TopicRoutes
from trocket.broker.settings.config import BrokerConfig
from trocket.remoting.bodies import QueueData, TopicRouteData
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RemotingTimeoutError, RequestRefused

A, B = "192.0.2.1:9876", "192.0.2.2:9876"
INTERVAL_S = 30
TOPIC_NOT_EXIST = 17


class NameServers:
    """What the name servers know, and how often they were asked."""

    def __init__(self) -> None:
        self.queue_counts: dict[str, int] = {}
        self.silent: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        self.broken = False

    async def call(self, address: str, command: RemotingCommand, timeout_s: float) -> Any:
        topic = command.ext_fields["topic"]
        self.asked.append((address, topic))
        if address in self.silent:
            await trio.sleep(timeout_s)
            raise RemotingTimeoutError(address, command.code, timeout_s)
        await trio.sleep(0.01)
        if self.broken:
            return command.answer(body=b"[]")
        count = self.queue_counts.get(topic)
        if count is None:
            return command.answer(code=TOPIC_NOT_EXIST, remark="no route")
        data = QueueData(broker_name="b", read_queue_nums=count, write_queue_nums=1, perm=6)
        unreadable = QueueData(broker_name="c", read_queue_nums=9, write_queue_nums=9, perm=2)
        return command.answer(body=TopicRouteData(queue_datas=[data, unreadable]).to_body())


@asynccontextmanager
async def routes_of(servers: NameServers, *addresses: str) -> AsyncIterator[TopicRoutes]:
    config = BrokerConfig(namesrv_addr=";".join(addresses))
    routes = TopicRoutes(config, servers)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(routes.run)
        yield routes
        nursery.cancel_scope.cancel()


def ids(queues: topic_routes.Queues | None) -> list[int]:
    assert queues is not None
    return [queue.queue_id for queue in queues]


async def test_a_topic_is_asked_for_once_and_again_at_each_interval(autojump_clock) -> None:
    servers = NameServers()
    servers.queue_counts["T"] = 2
    async with routes_of(servers, A) as routes:
        assert routes.known("T") is None
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(routes.queues, "T")
        assert (ids(routes.known("T")), servers.asked) == ([0, 1], [(A, "T")])
        servers.queue_counts["T"] = 3
        assert ids(await routes.queues("T")) == [0, 1]
        await trio.sleep(INTERVAL_S + 1)
        assert (ids(routes.known("T")), len(servers.asked)) == ([0, 1, 2], 2)


async def test_what_was_known_stays_while_no_name_server_answers(autojump_clock) -> None:
    servers = NameServers()
    servers.queue_counts["T"] = 2
    async with routes_of(servers, A, B) as routes:
        await routes.queues("T")
        servers.silent = {A, B}
        await trio.sleep(10 * INTERVAL_S)
        assert ids(routes.known("T")) == [0, 1]
        servers.silent, servers.broken = set(), True
        await trio.sleep(2 * INTERVAL_S)
        assert ids(routes.known("T")) == [0, 1]


async def test_the_next_name_server_is_asked_when_one_is_gone_or_does_not_know(
    autojump_clock,
) -> None:
    servers = NameServers()
    servers.queue_counts["T"] = 2
    servers.silent = {A}
    async with routes_of(servers, A, B) as routes:
        began_s = trio.current_time()
        assert ids(await routes.queues("T")) == [0, 1]
        assert trio.current_time() - began_s < 3
        assert servers.asked == [(A, "T"), (B, "T")]


async def test_a_topic_that_nobody_knows_is_not_kept(autojump_clock) -> None:
    servers = NameServers()
    async with routes_of(servers, A) as routes:
        assert await routes.queues("T") is None
        servers.queue_counts["T"] = 1
        assert ids(await routes.queues("T")) == [0]
        del servers.queue_counts["T"]
        await trio.sleep(INTERVAL_S + 1)
        assert routes.known("T") is None


async def test_a_topic_without_readable_queues_is_asked_for_each_time(autojump_clock) -> None:
    servers = NameServers()
    servers.queue_counts["T"] = 0
    async with routes_of(servers, A) as routes:
        assert await routes.queues("T") == ()
        servers.queue_counts["T"] = 1
        assert ids(await routes.queues("T")) == [0]


async def test_topics_that_no_client_needs_are_dropped(autojump_clock, monkeypatch) -> None:
    monkeypatch.setattr(topic_routes, "TOPICS_MAX", 2)
    servers = NameServers()
    servers.queue_counts = dict.fromkeys(["T", "U", "V"], 1)
    async with routes_of(servers, A) as routes:
        for topic in ("T", "U", "T", "V"):
            await routes.queues(topic)
        assert [routes.known(topic) is not None for topic in "TUV"] == [True, False, True]
        for _ in range(30):
            await trio.sleep(INTERVAL_S)
            assert routes.known("T") is not None
        assert routes.known("V") is None
        assert sum(topic == "V" for _, topic in servers.asked) < 25


async def test_the_number_of_topics_that_are_asked_for_is_limited(
    autojump_clock, monkeypatch
) -> None:
    monkeypatch.setattr(topic_routes, "REQUESTS_MAX", 3)
    servers = NameServers()
    servers.silent = {A}
    async with routes_of(servers, A) as routes, trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(routes.queues, f"T{number}")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RequestRefused, match="3 topics are being requested"):
            await routes.queues("T")
        await trio.sleep(4)
        assert await routes.queues("T") is None
