"""400 and 401: a broker assigns queues, of all brokers that the name servers know."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.bodies import MessageRequestMode
from trocket.remoting.codec import RemotingCommand

from ...attacks.name_servers import NameServers
from ...kit import Broker, broker_and_client, broker_client, topic_fields
from ...kit.client import Client
from ..harness import consumer, heartbeat, subscription

QUERY, SET_MODE, ALL_MODES, HEARTBEAT = 400, 401, 402, 34
CREATE_TOPIC, DELETE_TOPIC, CREATE_GROUP, DELETE_GROUP = 17, 215, 200, 207
HOST = "192.0.2.1"
POP_FROM_ALL = [("T", "b", -1, "POP")]


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[tuple[NameServers, Broker, Client]]:
    """A name server, a broker with topic T of four queues, and client c1 of group G."""
    async with trio.open_nursery() as nursery:
        servers = NameServers(nursery)
        await servers.start(HOST)
        address = f"{HOST}:9876"
        async with broker_and_client(client=servers.client(), namesrv_addr=address, **options) as (
            broker,
            client,
        ):
            await create(client, "T")
            await beat(client, "c1")
            yield servers, broker, client
        nursery.cancel_scope.cancel()


async def create(client: Client, topic: str) -> None:
    assert (await client.ask(CREATE_TOPIC, topic_fields(topic, 4))).code == 0


async def beat(client: Client, client_id: str) -> None:
    body = heartbeat(client_id, consumer("G", subscription("T"))).to_body()
    assert (await client.ask(HEARTBEAT, {}, body)).code == 0


def body_of(**more: object) -> bytes:
    asked = {"topic": "T", "consumerGroup": "G", "clientId": "c1", "strategyName": "AVG",
             "messageModel": "CLUSTERING"}  # fmt: skip
    return json.dumps(asked | more).encode()


async def assigned(client: Client, **more: object) -> list[tuple[str, str, int, str]] | None:
    """The queues of an answer with their mode; None: the client keeps what it has."""
    answer = await client.ask(QUERY, {}, body_of(**more))
    assert (answer.code, answer.remark) == (0, None)
    tree = json.loads(answer.body)
    if not tree:
        return None
    return [
        (queue["topic"], queue["brokerName"], queue["queueId"], each["mode"])
        for each in tree["messageQueueAssignments"]
        for queue in [each["messageQueue"]]
    ]


async def set_mode(client: Client, **more: object) -> RemotingCommand:
    asked = {"topic": "T", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 0}
    return await client.ask(SET_MODE, {}, json.dumps(asked | more).encode())


def pulled(*queue_ids: int) -> list[tuple[str, str, int, str]]:
    return [("T", "b", queue_id, "PULL") for queue_id in queue_ids]


async def test_queues_are_divided_among_the_clients(autojump_clock) -> None:
    async with running() as (_, broker, client):
        assert await assigned(client) == pulled(0, 1, 2, 3)
        other = await broker.connect()
        await beat(other, "c2")
        assert await assigned(client) == pulled(0, 1)
        assert await assigned(other, clientId="c2") == pulled(2, 3)
        assert await assigned(client, strategyName="AVG_BY_CIRCLE") == pulled(0, 2)
        assert await assigned(client, clientId="gone") == []


async def test_a_mode_is_set_saved_and_used(autojump_clock) -> None:
    disk = MemoryDisk()
    async with running(disk=disk) as (_, _, client):
        answer = await set_mode(client, popShareQueueNum=0)
        assert (answer.code, answer.remark, answer.body) == (0, None, b"")
        assert b'"popShareQueueNum":0' in bytes(
            disk.contents["/store/config/messageRequestMode.json"]
        )
        assert await assigned(client) == POP_FROM_ALL
    async with running(disk=disk) as (_, _, client):
        assert await assigned(client) == POP_FROM_ALL
        tree = json.loads((await client.ask(ALL_MODES, {})).body)
        assert tree == {
            "messageRequestModeMap": {
                "T": {
                    "G": {"topic": "T", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 0}
                }
            }
        }


async def test_a_mode_ends_with_its_topic_and_with_its_group(autojump_clock) -> None:
    async with running() as (_, _, client):
        await create(client, "U")
        for topic in ("T", "U"):
            assert (await set_mode(client, topic=topic)).code == 0
        await client.ask(DELETE_TOPIC, {"topic": "U"})
        tree = json.loads((await client.ask(ALL_MODES, {})).body)
        assert tree["messageRequestModeMap"].keys() == {"T"}
        await client.ask(DELETE_GROUP, {"groupName": "G"})
        assert (await client.ask(ALL_MODES, {})).body == b'{"messageRequestModeMap":{}}'


@pytest.mark.parametrize(
    ("wrong", "code", "remark"),
    [
        ({"topic": "%RETRY%G"}, 16, "retry topic is not allowed to set mode"),
        ({"topic": "none"}, 17, "topic[none] not exist"),
        ({"consumerGroup": "none"}, 26, "subscription group does not exist"),
        ({"topic": None}, 1, "the body has no topic"),
        ({"topic": "", "consumerGroup": ""}, 1, "the body has no topic and no consumerGroup"),
    ],
)
async def test_a_mode_for_nothing_is_refused(autojump_clock, wrong, code, remark) -> None:
    async with running(auto_create_subscription_group=False) as (_, _, client):
        await client.ask(CREATE_GROUP, {}, b'{"groupName":"G"}')
        answer = await set_mode(client, **wrong)
        assert (answer.code, answer.remark) == (code, remark)
        assert (await client.ask(ALL_MODES, {})).body == b'{"messageRequestModeMap":{}}'


@pytest.mark.parametrize("code", [QUERY, SET_MODE])
@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"topic":1}', b'{"topic":"T","mode":"X","messageModel":"Y"}']
)
async def test_a_body_that_cannot_be_read_is_refused(autojump_clock, code, body) -> None:
    async with running() as (_, _, client):
        answer = await client.ask(code, {}, body)
        assert (answer.code, str(code) in answer.remark) == (1, True)


async def test_a_number_that_is_no_int_is_refused(autojump_clock) -> None:
    async with running() as (_, _, client):
        for number in (2**31, -(2**63)):
            answer = await set_mode(client, popShareQueueNum=number)
            assert answer.code in (1, 29)
            assert "popShareQueueNum" in answer.remark


async def test_what_cannot_be_assigned_stays_with_the_client(autojump_clock) -> None:
    async with running() as (_, _, client):
        assert await assigned(client, topic="none") is None
        assert await assigned(client, consumerGroup="nobody") is None
        assert await assigned(client, strategyName="CONSISTENT_HASH") is None
        assert await assigned(client, strategyName=None) is None
        assert await assigned(client, clientId=None) is None
        assert await assigned(client, messageModel="LITE_SELECTIVE") is None


async def test_without_a_name_server_clients_keep_what_they_have(autojump_clock) -> None:
    async with broker_client() as client:
        await create(client, "T")
        await beat(client, "c1")
        assert await assigned(client) is None


async def test_assignments_go_on_while_the_name_server_hangs(autojump_clock) -> None:
    async with running() as (servers, _, client):
        assert await assigned(client) == pulled(0, 1, 2, 3)
        servers.hung.add(HOST)
        await trio.sleep(100)
        began_s = trio.current_time()
        assert await assigned(client) == pulled(0, 1, 2, 3)
        assert trio.current_time() == began_s
        assert await assigned(client, topic="%RETRY%G") is None
        assert trio.current_time() - began_s == pytest.approx(3)


async def test_defaults_come_from_the_configuration(autojump_clock) -> None:
    defaults = {"default_message_request_mode": MessageRequestMode.POP}
    async with running(default_pop_share_queue_num=1, **defaults) as (_, broker, client):
        assert await assigned(client) == POP_FROM_ALL
        for number in (2, 3, 4):
            await beat(await broker.connect(), f"c{number}")
        assert await assigned(client) == [("T", "b", queue_id, "POP") for queue_id in (0, 1)]
        assert await assigned(client, topic="%RETRY%G") == [("%RETRY%G", "b", 0, "PULL")]
        broker.controller.config.server_load_balancer_enable = False
        assert await assigned(client) == [("T", "b", queue_id, "POP") for queue_id in range(4)]


async def test_broadcasting_clients_get_all_queues(autojump_clock) -> None:
    async with running() as (_, broker, client):
        await beat(await broker.connect(), "c2")
        assert await assigned(client, messageModel="BROADCASTING") == pulled(0, 1, 2, 3)
