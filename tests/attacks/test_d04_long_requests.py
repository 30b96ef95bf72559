"""The defect: requests whose work grows with their body or with a table held the loop for seconds.

What is tested is counted work: how often the broker lets others be served while it registers a
large heartbeat or writes out a large table, and what it refuses.
"""

from __future__ import annotations

import logging

import pytest
import trio
import trio.testing

from tests.broker.embedded import Broker, Client, TrioClock, embedded_broker
from tests.broker.harness import Broker as Tables
from trocket.broker.client_channel_info import GROUPS_PER_CHANNEL_MAX
from trocket.broker.consumer_group_info import SUBSCRIPTION_LINES_MAX
from trocket.broker.processors.client_manage import HEARTBEAT_STEP_GROUPS
from trocket.broker.processors.lock import QUEUES_MAX
from trocket.broker.subscription import SUBSCRIPTION_LENGTH_MAX
from trocket.namesrv import settings
from trocket.namesrv.config import NamesrvConfig
from trocket.namesrv.controller import NamesrvController
from trocket.namesrv.registration import BrokerRegistration
from trocket.namesrv.route_info_manager import TOPICS_PER_STEP, RouteInfoManager
from trocket.remoting import fastjson
from trocket.remoting.bodies import DataVersion, SubscriptionGroupConfig, TopicConfig
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RequestRefused
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.steps import STEP_ITEMS, at_once
from trocket.store.disk.memory_disk import MemoryDisk

from . import hostile_requests as hostile


async def turns_of_others(broker: Broker, code: int, body: bytes = b"") -> int:
    """How often another task runs while the broker serves one request."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    client = await broker.connect()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        answer = await client.ask(code, {}, body)
        nursery.cancel_scope.cancel()
    assert answer.code == ResponseCode.SUCCESS
    return turns


async def test_a_heartbeat_of_many_groups_is_registered_in_steps() -> None:
    count = 20 * HEARTBEAT_STEP_GROUPS
    async with embedded_broker() as broker:
        few = await turns_of_others(broker, 34, hostile.heartbeat(b'{"groupName":"g"}'))
        many = await turns_of_others(
            broker, 34, hostile.heartbeat(hostile.joined(b'{"groupName":"g%d"}', count))
        )
        assert len(broker.controller.consumers.consumer_table) == count + 1
    assert many >= few + 15


@pytest.mark.parametrize("code", [21, 43, 201])
async def test_a_large_table_is_written_in_steps(code: int) -> None:
    async with embedded_broker() as broker:
        few = await turns_of_others(broker, code)
        count = 20 * STEP_ITEMS
        tables = broker.controller
        if code == 21:
            tables.topics.update([TopicConfig(f"t{i}") for i in range(count)])
        elif code == 201:
            tables.groups.update([SubscriptionGroupConfig(f"g{i}") for i in range(count)])
        else:
            for i in range(count):
                tables.offsets.commit_offset("g", f"t{i}", 0, i)
        assert await turns_of_others(broker, code) >= few + 15


def test_a_table_in_steps_has_all_of_its_members() -> None:
    broker = Tables()
    names = [f"t{i}" for i in range(2 * STEP_ITEMS + 1)]
    broker.topics.update([TopicConfig(name) for name in names])
    answer = broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    tree = fastjson.loads(answer.body)
    assert isinstance(tree, dict)
    assert set(names) < tree["topicConfigTable"].keys()
    assert tree["dataVersion"]["counter"] == broker.topics.data_version.counter


def test_a_heartbeat_of_too_many_groups_is_cut_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Tables()
    groups = hostile.joined(b'{"groupName":"p%d"}', GROUPS_PER_CHANNEL_MAX + 100)
    caplog.set_level(logging.WARNING)
    assert broker.ask(RequestCode.HEART_BEAT, body=hostile.heartbeat(b"", groups)).code == 0
    (record,) = caplog.records
    assert f"only the first {GROUPS_PER_CHANNEL_MAX} count" in record.getMessage()


def test_many_subscriptions_are_few_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    broker = Tables()
    caplog.set_level(logging.INFO, "trocket.broker.consumer_group_info")
    for count in (1_000, 1):
        body = hostile.heartbeat(hostile.subscriptions(count))
        assert broker.ask(RequestCode.HEART_BEAT, body=body).code == 0
    assert len(caplog.records) <= 2 * (SUBSCRIPTION_LINES_MAX + 2)


def test_too_many_queues_and_tags_are_refused() -> None:
    broker = Tables()
    assert broker.ask(RequestCode.LOCK_BATCH_MQ, body=hostile.locks(QUEUES_MAX)).code == 0
    for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        answer = broker.ask(code, body=hostile.locks(QUEUES_MAX + 1))
        assert "divide the request" in (answer.remark or "")


def test_too_long_lists_and_settings_are_refused() -> None:
    broker = Tables()
    topics = b'{"topicConfigList":[' + hostile.joined(hostile.TOPIC, 2_001) + b"]}"
    groups = b'{"groupConfigList":[' + hostile.joined(b'{"groupName":"n%d"}', 2_001) + b"]}"
    for code, body in (
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, topics),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, groups),
    ):
        answer = broker.ask(code, body=body)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "2001 at once, at most 2000 are taken: divide" in (answer.remark or "")
    with pytest.raises(RequestRefused, match="at most 32768 are read"):
        settings.change(NamesrvConfig(), b"k=v\n" * 10_000)


async def test_long_tags_are_refused() -> None:
    async with embedded_broker() as broker:
        client = await broker.connect()
        broker.controller.topics.update([TopicConfig("topic-1")])
        broker.controller.groups.update([SubscriptionGroupConfig("group-1")])
        fields = {**hostile.PULL, "subscription": hostile.many_tags()}
        answer = await client.ask(RequestCode.PULL_MESSAGE, fields)
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert f"at most {SUBSCRIPTION_LENGTH_MAX} are taken" in (answer.remark or "")


def test_a_new_topic_does_not_walk_through_all_others() -> None:
    class Names(dict[str, TopicConfig]):
        walks = 0

        def keys(self) -> object:  # type: ignore[override]
            Names.walks += 1
            return super().keys()

    broker = Tables()
    broker.topics.topic_config_table = Names(broker.topics.topic_config_table)
    before = Names.walks
    broker.topics.create_topic_in_send_message_back("%RETRY%g", queue_count=1)
    assert Names.walks == before


async def name_server(nursery: trio.Nursery) -> tuple[NamesrvController, Client]:
    controller = NamesrvController(
        NamesrvConfig(), clock=TrioClock(), disk=MemoryDisk(), listeners=[]
    )
    await nursery.start(controller.run)
    near, far = trio.testing.memory_stream_pair()
    nursery.start_soon(controller.server.serve_stream, near)
    return controller, Client(far)


@pytest.mark.parametrize("static", [False, True], ids=["plain", "with bare keys"])
async def test_a_large_registration_keeps_its_place_before_the_next_one(static: bool) -> None:
    count = 3 * TOPICS_PER_STEP
    async with trio.open_nursery() as nursery:
        controller, client = await name_server(nursery)
        whole = RemotingCommand(
            103, dict(hostile.REGISTRATION), hostile.registration(count, static=static)
        )
        one = hostile.registration(1).replace(b"new-0", b"one-more")
        one = one.replace(b'"counter":1', b'"counter":2')
        first = await client.send(whole)
        second = await client.send(RemotingCommand(103, dict(hostile.REGISTRATION), one))
        for opaque in (first, second):
            assert (await client.answer(opaque)).code == ResponseCode.SUCCESS
        topics = controller.routes.topics.topics_of_broker("b")
        assert len(topics) == count + 1
        nursery.cancel_scope.cancel()


def test_a_broker_that_goes_while_it_registers_leaves_no_topics() -> None:
    routes = RouteInfoManager()
    channel = object()
    steps = routes.register_broker_in_steps(
        BrokerRegistration(
            cluster_name="C",
            broker_addr="192.0.2.1:10911",
            broker_name="b",
            broker_id=0,
            data_version=DataVersion(),
            topics=[TopicConfig(f"t{i}") for i in range(3 * TOPICS_PER_STEP)],
        ),
        channel=channel,
        now_ms=0,
    )
    next(steps)
    assert len(routes.topics) > 0
    routes.channel_closed(channel)
    at_once(steps)
    assert len(routes.topics) == 0
