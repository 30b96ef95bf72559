"""With 50,000 topics a registration was one frame over 16 MiB, and a broker's routes were all lost.

No name server took the frame, at a restart neither. Answers of that size closed the connection.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest
import trio
import trio.testing

from trocket.broker.admin.group_admin import GroupAdminProcessor
from trocket.broker.replication.master_api import MasterApi
from trocket.broker.replication.replica_status import ReplicationProcessor
from trocket.broker.settings.config import BrokerConfig
from trocket.broker.tables.consumer_offset_manager import ConsumerOffsetManager, parse_offsets
from trocket.broker.tables.request_modes import MessageRequestModeManager
from trocket.broker.tables.subscription_group_manager import SubscriptionGroupManager
from trocket.common.clock import ManualClock
from trocket.common.histogram import Histogram
from trocket.common.steps import at_once
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.bodies import SubscriptionGroupConfig
from trocket.remoting.client import RemotingClient
from trocket.remoting.codec import FRAME_SIZE_MAX, RemotingCommand
from trocket.remoting.mq_version import V4_9_4
from trocket.remoting.server import RemotingServer

from ..kit import broker_client, embedded_broker, send_fields, topic_fields
from .name_servers import NameServers

CREATE_TOPIC, CREATE_TOPICS, DELETE_TOPIC = 17, 18, 215
ALL_OFFSETS, TOPIC_LIST, SEND = 43, 206, 310
TOPIC_NOT_EXIST = 17
REGISTER, REGISTER_TOPIC = 103, 217
NAMESRV = "192.0.2.1"
TOPIC_COUNT = 50_000
SPLIT_COUNT = 6_000
PER_REQUEST = 2_000
FRAME_OF_ONE_TOPIC_MAX = 1024
"""Bytes that a single topic may take to be registered."""


def topic_name(number: int) -> str:
    return f"orders-of-a-customer-{number:0>80}"


async def create_topics(client, count: int, queues: int = 16) -> None:
    for begin in range(0, count, PER_REQUEST):
        topics = [
            {"topicName": topic_name(number), "readQueueNums": queues, "writeQueueNums": queues}
            for number in range(begin, min(begin + PER_REQUEST, count))
        ]
        body = json.dumps({"topicConfigList": topics}).encode()
        assert (await client.ask(CREATE_TOPICS, {}, body)).code == 0


@pytest.mark.slow
async def test_all_of_50000_topics_have_routes_and_have_them_after_a_restart(autojump_clock):
    disk = MemoryDisk()
    wanted = {topic_name(number) for number in range(TOPIC_COUNT)}
    async with trio.open_nursery() as nursery:
        servers = NameServers(nursery)
        namesrv = await servers.start(NAMESRV)
        for is_restart in (False, True):
            async with embedded_broker(
                disk, client=servers.client(), namesrv_addr=f"{NAMESRV}:9876"
            ) as broker:
                if not is_restart:
                    await create_topics(await broker.connect(), TOPIC_COUNT)
                await trio.sleep(1)
                assert wanted <= namesrv.routes.topics.topics_of_broker("b")
            assert not namesrv.routes.topics.topics_of_broker("b")
        assert max(size for _, _, size in servers.requests) < FRAME_SIZE_MAX
        nursery.cancel_scope.cancel()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"compressed_register": True}, {"enable_split_registration": True}],
    ids=["in parts", "compressed", "in parts as RocketMQ's key says"],
)
async def test_a_change_of_many_topics_is_taken_from_every_part(autojump_clock, options):
    """A name server passes over what has the version that it knows, so each part has another."""
    wanted = {topic_name(number) for number in range(SPLIT_COUNT)}
    async with trio.open_nursery() as nursery:
        servers = NameServers(nursery)
        namesrv = await servers.start(NAMESRV)
        async with broker_client(
            client=servers.client(), namesrv_addr=f"{NAMESRV}:9876", **options
        ) as client:
            for queues in (16, 2):
                await create_topics(client, SPLIT_COUNT, queues)
                await trio.sleep(1)
                known = namesrv.routes.topics
                assert wanted <= known.topics_of_broker("b")
                counts = Counter(known.queues(topic)["b"].write_queue_nums for topic in wanted)
                assert counts == {queues: SPLIT_COUNT}
        nursery.cancel_scope.cancel()


async def test_a_new_topic_is_registered_alone_and_before_its_answer(autojump_clock):
    """The whole table goes out when its time has come, and when the name server starts anew."""
    async with trio.open_nursery() as nursery:
        servers = NameServers(nursery)
        await servers.start(NAMESRV)
        client = servers.client()
        async with broker_client(client=client, namesrv_addr=f"{NAMESRV}:9876") as admin:
            servers.requests.clear()
            assert (await admin.ask(CREATE_TOPIC, topic_fields("New", 5))).code == 0
            [(_, code, size)] = servers.requests
            assert code == REGISTER_TOPIC
            assert size < FRAME_OF_ONE_TOPIC_MAX
            queues = servers.controllers[NAMESRV].routes.topics.queues("New")["b"]
            assert queues.write_queue_nums == 5
            await trio.sleep(31)
            assert [request[1] for request in servers.requests] == [REGISTER_TOPIC, REGISTER]
            # Started anew, it would take a single topic for nothing, or for all there is.
            anew = await servers.start(NAMESRV)
            (await client.channel(f"{NAMESRV}:9876")).close()
            assert (await admin.ask(CREATE_TOPIC, topic_fields("Newer"))).code == 0
            assert {"TBW102", "New", "Newer"} <= anew.routes.topics.topics_of_broker("b")
        nursery.cancel_scope.cancel()


async def test_a_name_server_that_deletes_what_is_not_registered_loses_no_other_topic(
    autojump_clock,
):
    """With deleteTopicWithBrokerRegistration a deleted topic is gone at once, and only that."""
    async with trio.open_nursery() as nursery:
        servers = NameServers(nursery)
        namesrv = await servers.start(NAMESRV, delete_topic_with_broker_registration=True)
        options = {"namesrv_addr": f"{NAMESRV}:9876"}
        async with broker_client(client=servers.client(), **options) as admin:
            for topic in ("A", "B"):
                assert (await admin.ask(CREATE_TOPIC, topic_fields(topic))).code == 0
            assert {"TBW102", "A", "B"} <= namesrv.routes.topics.topics_of_broker("b")
            assert (await admin.ask(DELETE_TOPIC, {"topic": "A"})).code == 0
            left = namesrv.routes.topics.topics_of_broker("b")
            assert "A" not in left
            assert {"TBW102", "B"} <= left
        nursery.cancel_scope.cancel()


async def test_a_name_server_of_4_9_gets_the_new_topic_in_a_registration(autojump_clock):
    """It never answers the request for one topic; waiting for that would cost the connection."""
    bodies = []

    def register(request, channel):
        bodies.append(json.loads(request.body)["topicConfigSerializeWrapper"]["topicConfigTable"])
        answer = request.answer()
        return RemotingCommand(0, opaque=answer.opaque, flag=answer.flag, version=V4_9_4)

    async with trio.open_nursery() as nursery:
        servers = NameServers(nursery)
        namesrv = await servers.start(NAMESRV)
        namesrv.server.processors[REGISTER] = register
        namesrv.server.processors[REGISTER_TOPIC] = lambda request, channel: None
        options = {"namesrv_addr": f"{NAMESRV}:9876"}
        async with broker_client(client=servers.client(), **options) as admin:
            began_s = trio.current_time()
            for topic in ("A", "B"):
                assert (await admin.ask(CREATE_TOPIC, topic_fields(topic))).code == 0
            assert trio.current_time() == began_s
        assert "TBW102" in bodies[0]
        assert [list(body) for body in bodies[1:]] == [["A"], ["B"]]
        nursery.cancel_scope.cancel()


async def test_an_answer_larger_than_a_frame_is_refused_and_the_connection_stays(autojump_clock):
    """The peer would have closed it, and with it all that waited there."""

    def answer(request, channel):
        return request.answer(body=bytes(int(request.ext_fields["size"])))

    server = RemotingServer({TOPIC_LIST: answer})
    near, far = trio.testing.memory_stream_pair()

    async def connect(host, port):
        return near

    async with trio.open_nursery() as nursery:
        client = RemotingClient(open_stream=connect)
        await nursery.start(client.run)
        nursery.start_soon(server.serve_stream, far)
        channel = await client.channel("192.0.2.9:1")

        async def ask(size: int) -> RemotingCommand:
            return await channel.call(RemotingCommand(TOPIC_LIST, {"size": str(size)}), 5)

        refusal = await ask(FRAME_SIZE_MAX)
        assert refusal.code == 1
        assert "the answer to request 206 is too large" in refusal.remark
        assert f"the limit of {FRAME_SIZE_MAX}" in refusal.remark
        largest = await ask(FRAME_SIZE_MAX - 4096)
        assert len(largest.body) == FRAME_SIZE_MAX - 4096
        nursery.cancel_scope.cancel()


async def test_near_the_limit_the_log_warns_and_at_it_new_topics_are_refused(
    autojump_clock, caplog
):
    """The other topics keep their routes, and go on."""
    async with trio.open_nursery() as nursery:
        servers = NameServers(nursery)
        namesrv = await servers.start(NAMESRV)
        async with broker_client(
            client=servers.client(), namesrv_addr=f"{NAMESRV}:9876", topics_max=40
        ) as client:
            created = 0
            while (await client.ask(CREATE_TOPIC, topic_fields(f"T{created}"))).code == 0:
                created += 1
            remark = (await client.ask(CREATE_TOPIC, topic_fields("More"))).remark
            assert (
                "no more than 40 topics are allowed on a broker (topicsMax): 0 more fit" in remark
            )
            sent = await client.ask(SEND, send_fields("More"), b"x")
            assert sent.code == TOPIC_NOT_EXIST
            assert "this broker has 40 topics, which is its limit" in sent.remark
            assert (await client.ask(SEND, send_fields("T0"), b"x")).code == 0
            assert {f"T{number}" for number in range(created)} <= (
                namesrv.routes.topics.topics_of_broker("b")
            )
        nursery.cancel_scope.cancel()
    warned = [r.getMessage() for r in caplog.records if "more fit" in r.getMessage()]
    assert [line.partition(",")[0] for line in warned] == [
        f"there are {count} topics" for count in (32, 36, 38, 39)
    ]


async def ask_master(processors, ask):
    """A slave's question, sent over a connection to a master with these processors."""
    near, far = trio.testing.memory_stream_pair()

    async def connect(host, port):
        return near

    async with trio.open_nursery() as nursery:
        client = RemotingClient(open_stream=connect)
        await nursery.start(client.run)
        nursery.start_soon(RemotingServer(processors).serve_stream, far)
        answer = await ask(MasterApi(client, "192.0.2.9:2"))
        nursery.cancel_scope.cancel()
    return answer


def offsets_of_many_groups() -> ConsumerOffsetManager:
    """Of 100,000 groups: more than 16 MiB of JSON."""
    offsets = ConsumerOffsetManager(clock=ManualClock(), save=lambda *_: None)
    for number in range(100_000):
        for queue_id in range(4):
            offsets.put_offset(f"{topic_name(number)}@{number:0>60}", queue_id, number + queue_id)
    return offsets


def replication_processor(offsets: ConsumerOffsetManager) -> ReplicationProcessor:
    return ReplicationProcessor(
        offsets=offsets,
        delay_offsets=None,
        timers=None,
        request_modes=MessageRequestModeManager(save=lambda name, text: None),
        status=None,
        clock=ManualClock(),
    )


@pytest.mark.slow
async def test_a_slave_has_all_offsets_of_a_table_larger_than_a_frame(autojump_clock):
    offsets = offsets_of_many_groups()
    assert len(at_once(offsets.to_body())) > FRAME_SIZE_MAX
    processors = replication_processor(offsets).processors
    text = await ask_master(processors, lambda master: master.consumer_offsets())
    table, _, version = parse_offsets(text)
    assert table == offsets.offset_table
    assert version == offsets.data_version


@pytest.mark.slow
async def test_offsets_that_come_and_go_between_two_pages_hide_no_others(autojump_clock):
    """A page begins behind a key, not at an index."""
    offsets = offsets_of_many_groups()
    known = dict(offsets.offset_table)
    process = replication_processor(offsets).processors[ALL_OFFSETS]
    asked = []

    def change_and_answer(request, channel):
        answer = process(request, channel)
        asked.append(None)
        for key in list(offsets.offset_table)[:100]:
            del offsets.offset_table[key]
        offsets.put_offset(f"{topic_name(len(asked))}-new@g", 0, 1)
        return answer

    text = await ask_master(
        {ALL_OFFSETS: change_and_answer}, lambda master: master.consumer_offsets()
    )
    table, _, _ = parse_offsets(text)
    assert len(asked) > 10
    for key in known.keys() & offsets.offset_table.keys():
        assert table[key] == known[key]


@pytest.mark.slow
async def test_pages_of_large_groups_fit_a_frame(autojump_clock):
    """2,000 groups of a page may have more than 16 MiB."""
    groups = SubscriptionGroupManager(BrokerConfig(), clock=ManualClock(), save=lambda *_: None)
    for number in range(40):
        name = f"g{number}"
        groups.subscription_group_table[name] = SubscriptionGroupConfig(
            group_name=name, attributes={"filler": "x" * 1024 * 1024}
        )
    processors = GroupAdminProcessor(
        groups=groups, offsets=None, on_deleted=lambda group: None, times_ms=Histogram()
    ).processors
    wrapper = await ask_master(processors, lambda master: master.groups())
    assert wrapper.subscription_group_table == groups.subscription_group_table
