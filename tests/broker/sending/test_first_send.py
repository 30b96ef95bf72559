"""Sends that create their topic: answered when the name servers know it, or have had their time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from trocket.remoting.codec import RemotingCommand

from ...attacks.name_servers import NameServers
from ...kit import Broker, embedded_broker, pull_fields, send_fields
from ...kit.client import Client

SEND, PULL = 310, 11
SEND_TIMEOUT_S = 3
"""How long the official clients wait for the answer to a send."""

GOOD, SLOW = "192.0.2.1", "192.0.2.2"


@asynccontextmanager
async def running(*hosts: str) -> AsyncIterator[tuple[NameServers, Broker, Client]]:
    """Name servers on these hosts, a broker that registers with all of them, and its client."""
    async with trio.open_nursery() as nursery:
        servers = NameServers(nursery)
        for host in hosts:
            await servers.start(host)
        addresses = ";".join(f"{host}:9876" for host in hosts)
        async with embedded_broker(client=servers.client(), namesrv_addr=addresses) as broker:
            yield servers, broker, await broker.connect()
        nursery.cancel_scope.cancel()


async def answered_after_s(client: Client, topic: str) -> float:
    began_s = trio.current_time()
    with trio.fail_after(SEND_TIMEOUT_S):
        assert (await client.ask(SEND, send_fields(topic), b"x")).code == 0
    return trio.current_time() - began_s


async def test_every_name_server_knows_the_topic_when_its_first_send_is_answered(autojump_clock):
    async with running(GOOD, SLOW) as (servers, _, client):
        servers.delays_s[SLOW] = 0.5
        assert await answered_after_s(client, "New") == pytest.approx(0.5)
        assert all("New" in servers.controllers[host].routes.topics for host in (GOOD, SLOW))
        assert await answered_after_s(client, "New") == 0


async def test_sends_into_a_new_topic_keep_their_order(autojump_clock):
    """Those that come while the name server is asked, and those that come later, too."""
    async with running(SLOW) as (servers, _, client):
        servers.delays_s[SLOW] = 0.5
        opaques = []
        for number in range(10):
            fields = {name: str(value) for name, value in send_fields("New").items()}
            opaques.append(await client.send(RemotingCommand(SEND, fields, b"%d" % number)))
            await trio.sleep(0.1)
        answers = [await client.answer(opaque) for opaque in opaques]
        assert [answer.ext_fields["queueOffset"] for answer in answers] == list("0123456789")


async def test_a_name_server_that_hangs_does_not_cost_a_send_its_answer(autojump_clock):
    async with running(GOOD, SLOW) as (servers, _, client):
        servers.hung.add(SLOW)
        assert await answered_after_s(client, "First") < 1.01
        assert await answered_after_s(client, "Second") == 0
        known = servers.controllers[GOOD].routes.topics
        assert "First" in known
        assert "Second" in known


async def test_the_only_name_server_hangs_and_a_send_is_answered(autojump_clock):
    async with running(SLOW) as (servers, _, client):
        servers.hung.add(SLOW)
        assert await answered_after_s(client, "New") < SEND_TIMEOUT_S


async def test_a_topic_that_is_being_registered_can_be_read(autojump_clock):
    """A name server that has heard of it may send consumers before the others have answered."""
    async with running(GOOD, SLOW) as (servers, broker, client):
        servers.delays_s[SLOW] = 0.5
        fields = {name: str(value) for name, value in send_fields("New").items()}
        opaque = await client.send(RemotingCommand(SEND, fields, b"x"))
        await trio.sleep(0.1)
        assert "New" in servers.controllers[GOOD].routes.topics
        assert not client.unasked
        consumer = await broker.connect()
        texts = {name: str(value) for name, value in pull_fields("New").items()}
        pulled = await consumer.send(RemotingCommand(PULL, texts))
        assert (await client.answer(opaque)).code == 0
        assert (await consumer.answer(pulled)).code == 0


async def test_a_broker_without_name_servers_answers_at_once(autojump_clock):
    async with embedded_broker() as broker:
        assert await answered_after_s(await broker.connect(), "New") == 0
