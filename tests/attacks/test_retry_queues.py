"""A group's retryQueueNums was taken as it came, and a retry topic had 2**31 - 1 queues.

All consumers of the group got that route, and a send to queue 2**31 - 2 was acknowledged.
"""

from __future__ import annotations

import pytest
import trio

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.bodies import (
    CreateTopicListRequestBody,
    LockBatchRequestBody,
    MessageQueue,
    RegisterBrokerBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.number_fields import QUEUE_COUNT_MAX
from trocket.remoting.response_codes import ResponseCode

from ..kit import (
    TrioClock,
    broker_and_client,
    broker_client,
    embedded_broker,
    heartbeat,
    pull_fields,
    send_fields,
)
from ..namesrv.harness import Harness

INT32_MAX = 2**31 - 1
UPDATE_GROUP, UPDATE_GROUPS, UPDATE_TOPICS = 200, 225, 18
HEARTBEAT, LOCK, PULL, SEND, SEND_BACK = 34, 41, 11, 310, 36


@pytest.mark.parametrize(
    ("attribute", "asked", "used"),
    [
        ("retry_queue_nums", INT32_MAX, QUEUE_COUNT_MAX),
        ("retry_queue_nums", QUEUE_COUNT_MAX + 1, QUEUE_COUNT_MAX),
        ("retry_queue_nums", -1, 0),
        ("retry_max_times", -2, -1),
        ("group_sys_flag", -1, INT32_MAX),
        ("broker_id", -1, 0),
        ("which_broker_when_consume_slowly", -1, 0),
        ("consume_timeout_minute", -1, 0),
    ],
)
async def test_a_number_of_a_group_outside_of_its_range_becomes_the_nearest_with_a_warning(
    autojump_clock, caplog, attribute, asked, used
):
    async with broker_and_client() as (broker, client):
        odd = SubscriptionGroupConfig(group_name="CG", **{attribute: asked})
        listed = SubscriptionGroupConfig(group_name="listed", **{attribute: asked})
        for code, body in (
            (UPDATE_GROUP, odd),
            (UPDATE_GROUPS, SubscriptionGroupList(group_config_list=[listed])),
        ):
            answer = await client.ask(code, {}, body.to_body())
            assert (answer.code, answer.remark) == (0, None)
        table = broker.controller.groups.subscription_group_table
        assert {getattr(table[name], attribute) for name in ("CG", "listed")} == {used}
    (said,) = [each.message for each in caplog.records if "of group 'CG' to" in each.message]
    assert f"to {asked}, " in said
    assert f": {used} is used instead" in said


@pytest.mark.parametrize(
    ("attribute", "asked", "used"),
    [
        ("read_queue_nums", 0, 1),
        ("read_queue_nums", -4, 1),
        ("write_queue_nums", INT32_MAX, QUEUE_COUNT_MAX),
        ("write_queue_nums", -4, 0),
        ("perm", 8, 0),
        ("perm", 15, 7),
        ("perm", -1, 7),
        ("topic_sys_flag", 4, 0),
        ("topic_sys_flag", -1, 3),
    ],
)
async def test_a_number_of_a_topic_outside_of_its_range_becomes_the_nearest_with_a_warning(
    autojump_clock, caplog, attribute, asked, used
):
    """Of permissions and flags the known bits stay, which Apache's broker looks at, too."""
    async with broker_and_client() as (broker, client):
        topics = [TopicConfig(topic_name="A"), TopicConfig(topic_name="B", **{attribute: asked})]
        body = CreateTopicListRequestBody(topic_config_list=topics).to_body()
        assert (await client.ask(UPDATE_TOPICS, {}, body)).code == 0
        assert getattr(broker.controller.topics.select("B"), attribute) == used
        assert getattr(broker.controller.topics.select("A"), attribute) != asked
    (said,) = [each.message for each in caplog.records if "of topic 'B' to" in each.message]
    assert f"to {asked}, " in said
    assert f": {used} is used instead" in said


async def test_a_lock_of_a_negative_queue_is_refused(autojump_clock):
    async with broker_client() as client:
        queues = [MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", -1)]
        body = LockBatchRequestBody(consumer_group="CG", client_id="c", mq_set=queues)
        answer = await client.ask(LOCK, {}, body.to_body())
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "mqSet[1].queueId is -1" in answer.remark


async def test_an_old_table_with_too_many_retry_queues_is_mended_at_the_start(
    autojump_clock, caplog
):
    disk, clock = MemoryDisk(), TrioClock()
    async with broker_client(disk, clock=clock) as client:
        body = SubscriptionGroupConfig(group_name="CG", retry_queue_nums=3).to_body()
        assert (await client.ask(UPDATE_GROUP, {}, body)).code == 0
    for path in list(disk.contents):
        if "subscriptionGroup.json" in path:
            text, _checksum = bytes(disk.contents[path]).rstrip(b"\n").rsplit(b"\n", 1)
            disk.contents[path] = bytearray(
                text.replace(b'"retryQueueNums":3', b'"retryQueueNums":%d' % INT32_MAX)
            )
    async with embedded_broker(disk, clock=clock) as broker:
        said = f"the retryQueueNums of group 'CG' is {INT32_MAX}"
        assert [each for each in caplog.records if said in each.message]
        client = await broker.connect()
        await client.ask(HEARTBEAT, {}, heartbeat("CG"))
        topic = broker.controller.topics.select("%RETRY%CG")
        assert (topic.read_queue_nums, topic.write_queue_nums) == (QUEUE_COUNT_MAX,) * 2


@pytest.mark.parametrize("first", [0, 1])
async def test_what_is_sent_back_goes_to_a_queue_that_the_retry_topic_has(autojump_clock, first):
    """The topic was made when the group asked for fewer queues, or for none."""
    async with broker_and_client(message_delay_level="1s 1s 1s 1s") as (broker, client):
        group = SubscriptionGroupConfig(group_name="CG", retry_queue_nums=first)
        assert (await client.ask(UPDATE_GROUP, {}, group.to_body())).code == 0
        await client.ask(HEARTBEAT, {}, heartbeat("CG"))
        group.retry_queue_nums = 64
        assert (await client.ask(UPDATE_GROUP, {}, group.to_body())).code == 0
        await client.ask(SEND, send_fields(), b"x")
        for _ in range(8):
            fields = {"offset": 0, "group": "CG", "delayLevel": 1, "originTopic": "T"}
            assert (await client.ask(SEND_BACK, fields)).code == 0
        topic = broker.controller.topics.select("%RETRY%CG")
        assert topic.read_queue_nums == 1
        await trio.sleep(5)
        pulled = await client.ask(PULL, pull_fields("%RETRY%CG", 0, sysFlag=4))
        assert len(decode_messages(pulled.body)) == 8


def register(namesrv: Harness, *topics: TopicConfig, broker_id: int = 0) -> RemotingCommand:
    wrapper = TopicConfigSerializeWrapper(
        topic_config_table={topic.topic_name: topic for topic in topics}
    )
    return namesrv.ask(
        103,
        RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).to_body(),
        brokerName="b",
        brokerAddr="192.0.2.1:10911",
        clusterName="C",
        brokerId=broker_id,
        haServerAddr="192.0.2.1:10912",
    )


def test_a_broker_that_registers_too_many_queues_has_no_route_for_that_topic(caplog):
    """Clients make an object for each queue of a route: a false broker would end them."""
    namesrv = Harness()
    answer = register(
        namesrv,
        TopicConfig(topic_name="Good"),
        TopicConfig(topic_name="Many", read_queue_nums=INT32_MAX),
        TopicConfig(topic_name="Few", write_queue_nums=-1),
        TopicConfig(topic_name="Odd", perm=16),
        TopicConfig(topic_name="Priority", perm=15),
    )
    assert answer.code == 0
    assert namesrv.routes.topics.topics() == ["Good", "Priority"]
    assert (
        "topic 'Many' of broker b is not registered: the member readQueueNums is 2147483647"
        in caplog.text
    )


@pytest.mark.parametrize("broker_id", [-1, -(2**63)])
def test_a_broker_with_a_negative_id_is_refused(broker_id):
    namesrv = Harness()
    answer = register(namesrv, TopicConfig(topic_name="Good"), broker_id=broker_id)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark.startswith(f"the custom field <brokerId> is {broker_id}, and a broker id")
    assert namesrv.routes.cluster_info().broker_addr_table == {}
