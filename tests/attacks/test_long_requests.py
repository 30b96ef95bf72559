"""The defect: requests whose work grows with their body or with a table held the loop for seconds.

What is tested is counted work: how often the broker lets others be served while it registers a
large heartbeat or writes out a large table, and what it refuses.
"""

from __future__ import annotations

import logging
from typing import TypeVar

import pytest
import trio
import trio.testing

from tests.broker.harness import BrokerTables, FakeChannel
from tests.kit import Broker, Client, TrioClock, embedded_broker, send_fields
from trocket.broker.clients.client_channel_info import GROUPS_PER_CHANNEL_MAX, LEAVING_LINES_MAX
from trocket.broker.clients.client_manage import HEARTBEAT_STEP_GROUPS
from trocket.broker.clients.consumer_group_info import SUBSCRIPTION_LINES_MAX
from trocket.broker.clients.lock import QUEUES_MAX
from trocket.broker.filters.subscription import SUBSCRIPTION_LENGTH_MAX
from trocket.broker.settings.config import BrokerConfig
from trocket.broker.tables.subscription_group_manager import SubscriptionGroupManager
from trocket.broker.tables.topic_config_manager import TopicConfigManager
from trocket.common.clock import ManualClock
from trocket.common.config import ConfigError
from trocket.common.live_config import LiveConfig
from trocket.common.steps import STEP_ITEMS, Steps, at_once
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.state_file import StateFile
from trocket.namesrv.config import NamesrvConfig, known_keys
from trocket.namesrv.controller import NamesrvController
from trocket.namesrv.registration import BrokerRegistration
from trocket.namesrv.route_info_manager import RouteInfoManager
from trocket.namesrv.topic_table import TOPICS_PER_STEP
from trocket.remoting import fastjson
from trocket.remoting.bodies import (
    DataVersion,
    HeartbeatData,
    RegisterBrokerBody,
    SubscriptionGroupConfig,
    TopicConfig,
)
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RemoteProtocolError
from trocket.remoting.message_batch import BATCH_COUNT_MAX
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode

from ..kit import broker_and_client
from . import hostile_requests as hostile

T = TypeVar("T")


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


async def turns_of_a_short_request(broker: Broker, code: int, body: bytes = b"") -> int:
    """The fewest turns of several requests: one alone may wait for a thread or for the socket."""
    return min([await turns_of_others(broker, code, body) for _ in range(5)])


@pytest.mark.slow
async def test_a_heartbeat_of_many_groups_is_registered_in_steps() -> None:
    count = 20 * HEARTBEAT_STEP_GROUPS
    async with embedded_broker() as broker:
        few = await turns_of_a_short_request(broker, 34, hostile.heartbeat(b'{"groupName":"g"}'))
        many = await turns_of_others(
            broker, 34, hostile.heartbeat(hostile.joined(b'{"groupName":"g%d"}', count))
        )
        assert len(broker.controller.consumers.consumer_table) == count + 1
    assert many >= few + 15


@pytest.mark.slow
@pytest.mark.parametrize("code", [21, 43, 201])
async def test_a_large_table_is_written_in_steps(code: int) -> None:
    async with embedded_broker() as broker:
        few = await turns_of_a_short_request(broker, code)
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


def all_steps(steps: Steps[T]) -> tuple[int, T]:
    """How many times the steps yield, and what they return."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        count += 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["topics.json", "subscriptionGroup.json"])
def test_a_large_table_is_saved_in_steps_and_as_it_was_when_the_save_began(name: str) -> None:
    put_off: list[StateFile] = []
    saved: dict[str, bytes] = {}
    tables = {"config": BrokerConfig(), "clock": ManualClock(), "save_later": put_off.append}
    topics = TopicConfigManager(save=saved.__setitem__, **tables)
    groups = SubscriptionGroupManager(save=saved.__setitem__, **tables)
    count = 20 * STEP_ITEMS
    if name == "topics.json":
        topics.update([TopicConfig(f"n{i}") for i in range(count)])
    else:
        groups.update([SubscriptionGroupConfig(f"n{i}") for i in range(count)])
    (file,) = put_off
    before = at_once(file.begin_save())
    steps = file.begin_save()
    next(steps)
    done: list[str] = []
    file.when_saved(lambda _: done.append("what was there"))
    if name == "topics.json":
        topics.delete(["n1"])
        topics.update([TopicConfig("n2", perm=2), TopicConfig("later")])
    else:
        groups.delete("n1")
        groups.update([SubscriptionGroupConfig("n2", retry_max_times=1)])
    file.when_saved(lambda _: done.append("the changes"))
    left, text = all_steps(steps)
    assert left >= 19
    assert text == before
    file.end_save(None)
    assert done == ["what was there"]
    text = at_once(file.begin_save())
    assert b'"n1"' not in text
    file.end_save(None)
    assert done == ["what was there", "the changes"]


def test_a_table_in_steps_has_all_of_its_members() -> None:
    broker = BrokerTables()
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
    broker = BrokerTables()
    groups = hostile.joined(b'{"groupName":"p%d"}', GROUPS_PER_CHANNEL_MAX + 100)
    caplog.set_level(logging.WARNING)
    assert broker.ask(RequestCode.HEART_BEAT, body=hostile.heartbeat(b"", groups)).code == 0
    (record,) = caplog.records
    assert f"only the first {GROUPS_PER_CHANNEL_MAX} are registered" in record.getMessage()


def test_many_subscriptions_are_few_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    broker = BrokerTables()
    caplog.set_level(logging.INFO, "trocket.broker.clients.consumer_group_info")
    for count in (1_000, 1):
        body = hostile.heartbeat(hostile.subscriptions(count))
        assert broker.ask(RequestCode.HEART_BEAT, body=body).code == 0
    assert len(caplog.records) <= 2 * (SUBSCRIPTION_LINES_MAX + 2)


def test_many_groups_that_leave_are_few_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    broker = BrokerTables()
    channel = FakeChannel()
    body = hostile.heartbeat(
        hostile.joined(b'{"groupName":"g%d"}', 1_000), hostile.joined(b'{"groupName":"p%d"}', 1_000)
    )
    assert broker.ask(RequestCode.HEART_BEAT, body=body, channel=channel).code == 0
    caplog.set_level(logging.INFO, "trocket.broker")
    broker.consumers.channel_closed(channel)
    broker.producers.channel_closed(channel)
    assert len(caplog.messages) == 2 * (LEAVING_LINES_MAX + 1)
    assert not broker.consumers.consumer_table
    assert not broker.producers.group_table
    assert broker.consumers.size_of(channel) == broker.producers.size_of(channel) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        hostile.heartbeat(hostile.joined(b'{"groupName":"g%d"}', 20_000)),
        hostile.heartbeat(b"", hostile.joined(b'{"groupName":"p%d"}', 20_000)),
        hostile.heartbeat(hostile.subscriptions(7_000)),
    ],
    ids=["consumers", "producers", "subscriptions"],
)
def test_a_long_heartbeat_is_read_in_steps(body: bytes) -> None:
    count, data = all_steps(HeartbeatData.from_request_in_steps(body))
    assert data == HeartbeatData.from_request(body)
    assert count >= 6
    for broken in (
        body[:-1],
        body.replace(b'"c"', b'"\xff"', 1),
        body[:-2] + b',{"groupName":1}]}',
    ):
        errors = []
        for read in (
            HeartbeatData.from_request,
            lambda body: at_once(HeartbeatData.from_request_in_steps(body)),
        ):
            with pytest.raises(RemoteProtocolError) as raised:
                read(broken)
            errors.append(str(raised.value))
        assert errors[0] == errors[1]


def test_a_long_registration_is_read_in_steps() -> None:
    body = hostile.registration(5_000)
    count, data = all_steps(RegisterBrokerBody.from_body_in_steps(body))
    assert data == RegisterBrokerBody.from_body(body)
    assert count >= 5
    for text, other in ((b'"perm":6', b'"perm":"6"'), (b'"order":false', b'"order":null')):
        tolerant = body.replace(text, other, 1)
        assert all_steps(RegisterBrokerBody.from_body_in_steps(tolerant))[1] == data
    with pytest.raises(RemoteProtocolError):
        at_once(RegisterBrokerBody.from_body_in_steps(body.replace(b'"perm":6', b'"perm":[]', 1)))


async def test_a_batch_has_a_greatest_number_of_messages() -> None:
    async with broker_and_client() as (broker, client):
        fields = send_fields(m="true")
        body = hostile.EMPTY_MESSAGE * (BATCH_COUNT_MAX + 1)
        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, fields, body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "divide the batch" in (answer.remark or "")
        assert broker.controller.store.max_offset("T", 0) == 0
        small = hostile.EMPTY_MESSAGE * 100
        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, fields, small)
        assert answer.code == ResponseCode.SUCCESS
        assert broker.controller.store.max_offset("T", 0) == 100


def test_too_many_queues_and_tags_are_refused() -> None:
    broker = BrokerTables()
    assert broker.ask(RequestCode.LOCK_BATCH_MQ, body=hostile.locks(QUEUES_MAX)).code == 0
    for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        answer = broker.ask(code, body=hostile.locks(QUEUES_MAX + 1))
        assert "divide the request" in (answer.remark or "")


def test_too_long_lists_and_settings_are_refused() -> None:
    broker = BrokerTables()
    topics = b'{"topicConfigList":[' + hostile.joined(hostile.TOPIC, 2_001) + b"]}"
    groups = b'{"groupConfigList":[' + hostile.joined(b'{"groupName":"n%d"}', 2_001) + b"]}"
    for code, body in (
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, topics),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, groups),
    ):
        answer = broker.ask(code, body=body)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "the request has 2001 items, the limit is 2000: divide" in (answer.remark or "")
    live = LiveConfig((NamesrvConfig(),), known_keys, server="the name server")
    with pytest.raises(ConfigError, match="the limit is 32768"):
        live.plan(b"k=v\n" * 10_000)


async def test_long_tags_are_refused() -> None:
    async with broker_and_client() as (broker, client):
        broker.controller.topics.update([TopicConfig("topic-1")])
        broker.controller.groups.update([SubscriptionGroupConfig("group-1")])
        fields = {**hostile.PULL, "subscription": hostile.many_tags()}
        answer = await client.ask(RequestCode.PULL_MESSAGE, fields)
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert f"the limit is {SUBSCRIPTION_LENGTH_MAX}" in (answer.remark or "")


def test_a_new_topic_does_not_walk_through_all_others() -> None:
    class Names(dict[str, TopicConfig]):
        walks = 0

        def keys(self) -> object:  # type: ignore[override]
            Names.walks += 1
            return super().keys()

    broker = BrokerTables()
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


@pytest.mark.slow
@pytest.mark.parametrize("code", [205, 327])
async def test_the_permission_of_many_topics_is_changed_in_steps(code: int) -> None:
    async with trio.open_nursery() as nursery:
        controller, client = await name_server(nursery)
        hostile.fill_name_server(controller)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        nursery.start_soon(others)
        answer = await client.ask(code, {"brokerName": "filled"})
        assert hostile.TOPICS in map(int, answer.ext_fields.values())
        assert turns >= hostile.TOPICS // TOPICS_PER_STEP
        perm = 4 if code == 205 else 6
        assert controller.routes.topics.queues("topic-1")["filled"].perm == perm
        nursery.cancel_scope.cancel()


@pytest.mark.slow
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
