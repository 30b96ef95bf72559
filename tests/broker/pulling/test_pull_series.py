"""Pulls that a broker recognises by their bytes: nothing is believed that a check would refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio.testing

from trocket.broker.controller import BrokerController
from trocket.broker.pulling.pull_checks import PullChecks
from trocket.broker.settings.config import BrokerConfig
from trocket.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.headers import PullMessageRequestHeader, decode
from trocket.remoting.response_codes import ResponseCode

from ...kit import (
    Client,
    bodies_of,
    broker_and_client,
    broker_client,
    heartbeat,
    pull_fields,
    send_fields,
    subscribed,
)

SEND, PULL, HEARTBEAT, UNREGISTER = 310, 11, 34, 35


async def pull(client: Client, **fields: object) -> RemotingCommand:
    """A pull with a binary header."""
    return await client.ask(PULL, pull_fields(**fields), serialize_type=1)


def tagged(expression: str, version: int, model: str = "CLUSTERING") -> bytes:
    subscription = subscribed("T", expression, subVersion=version, codeSet=[1])
    return heartbeat("CG", subscription, client_id="c1", messageModel=model)


def change_topic(**settings: int) -> Callable[[BrokerController], object]:
    return lambda broker: broker.topics.update([TopicConfig(topic_name="T", **settings)])


def change_group(**settings: bool) -> Callable[[BrokerController], object]:
    group = SubscriptionGroupConfig(group_name="CG", **settings)
    return lambda broker: broker.groups.update([group])


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (change_topic(read_queue_nums=1), 29, "queueId[1] is illegal"),
        (change_topic(perm=2), ResponseCode.NO_PERMISSION, "the topic[T] pulling"),
        (lambda broker: broker.topics.delete(["T"]), ResponseCode.TOPIC_NOT_EXIST, "topic[T] not"),
        (change_group(consume_enable=False), ResponseCode.NO_PERMISSION, "group no permission, CG"),
        (
            lambda broker: broker.groups.set_readable("CG", "T", readable=False),
            ResponseCode.NO_PERMISSION,
            "the consumer group[CG] is forbidden for topic[T]",
        ),
    ],
    ids=["queues", "permission", "topic", "group", "forbidden"],
)
async def test_a_change_of_topic_or_group_counts_from_the_next_pull_on(
    change: Callable[[BrokerController], object], code: int, words: str
) -> None:
    async with broker_and_client() as (broker, client):
        await client.ask(SEND, send_fields(e=1), b"one")
        for _ in range(2):
            assert bodies_of(await pull(client, queueId=1)) == [b"one"]
        change(broker.controller)
        await trio.testing.wait_all_tasks_blocked()
        answer = await pull(client, queueId=1)
    assert answer.code == code
    assert words in (answer.remark or "")


async def test_new_flags_of_topic_and_group_are_in_the_next_answer() -> None:
    async with broker_and_client() as (broker, client):
        await client.ask(SEND, send_fields(), b"one")
        flags = []
        for group_flag, topic_flag in ((0, 0), (5, 0), (5, 3)):
            broker.controller.groups.update(
                [SubscriptionGroupConfig(group_name="CG", group_sys_flag=group_flag)]
            )
            broker.controller.topics.update(
                [TopicConfig(topic_name="T", topic_sys_flag=topic_flag)]
            )
            await trio.testing.wait_all_tasks_blocked()
            fields = (await pull(client)).ext_fields
            flags.append((fields["groupSysFlag"], fields["topicSysFlag"]))
    assert flags == [("0", "0"), ("5", "0"), ("5", "3")]


async def test_each_pull_is_compared_with_the_groups_subscription() -> None:
    async with broker_client() as client:
        await client.ask(SEND, send_fields(), b"one")
        codes = []
        for body in (tagged("*", 5), tagged("*", 6), tagged("A", 7)):
            await client.ask(HEARTBEAT, {}, body)
            for version in (5, 7):
                answer = await pull(client, sysFlag=0, subVersion=version)
                codes.append(answer.code)
        await client.ask(UNREGISTER, {"clientID": "c1", "consumerGroup": "CG"})
        codes.append((await pull(client, sysFlag=0, subVersion=5)).code)
    not_latest = ResponseCode.SUBSCRIPTION_NOT_LATEST
    found, none = ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY
    assert codes == [
        found, not_latest, found, not_latest, none, none, ResponseCode.SUBSCRIPTION_NOT_EXIST
    ]  # fmt: skip


async def test_a_group_that_may_no_longer_broadcast_is_refused() -> None:
    async with broker_and_client() as (broker, client):
        await client.ask(SEND, send_fields(), b"one")
        await client.ask(HEARTBEAT, {}, tagged("*", 5, "BROADCASTING"))
        first = await pull(client, sysFlag=0)
        change_group(consume_broadcast_enable=False)(broker.controller)
        second = await pull(client, sysFlag=0)
    assert bodies_of(first) == [b"one"]
    assert (second.code, second.ext_fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "4")


async def test_another_broker_of_the_process_makes_its_own_checks() -> None:
    async with broker_and_client() as (broker, client):
        await client.ask(SEND, send_fields(), b"one")
        for _ in range(2):
            assert (await pull(client)).code == ResponseCode.SUCCESS
        tables = broker.controller
        ours, theirs = (
            PullChecks(
                BrokerConfig(broker_permission=permission),
                topics=tables.topics,
                groups=tables.groups,
                consumers=tables.consumers,
                filters=None,
            )
            for permission in (6, 2)
        )
        texts = {name: str(value) for name, value in pull_fields().items()}
        pulls = ours.check(decode(PullMessageRequestHeader, texts), "127.0.0.1:1")
        assert ours.is_current(pulls)
        assert not theirs.is_current(pulls)
    async with broker_client(broker_permission=2) as client:
        assert (await pull(client)).code == ResponseCode.NO_PERMISSION


async def test_the_offsets_of_a_system_group_are_not_committed() -> None:
    async with broker_and_client() as (broker, client):
        await client.ask(SEND, send_fields(), b"one")
        group = "CID_RMQ_SYS_TRANS"
        codes = [
            (await pull(client, consumerGroup=group, sysFlag=sys_flag, commitOffset=offset)).code
            for sys_flag, offset in ((4, 0), (4, 1), (5, 0), (5, 1), (5, -1))
        ]
        assert broker.controller.offsets.query_offset(group, "T", 0) == -1
    refused = ResponseCode.NO_PERMISSION
    assert codes == [0, 0, refused, refused, 0]


async def test_a_recognised_pull_commits_its_own_offset_and_asks_for_its_own_queue() -> None:
    async with broker_and_client() as (broker, client):
        for number in range(8):
            await client.ask(SEND, send_fields(e=number % 4), b"%d" % number)
        for queue_id in (0, 1, 3):
            answer = await pull(client, queueId=queue_id, queueOffset=1, commitOffset=1, sysFlag=5)
            assert bodies_of(answer) == [b"%d" % (queue_id + 4)]
        await pull(client, queueId=2, queueOffset=2, commitOffset=3, sysFlag=5)
        offsets = broker.controller.offsets
        assert offsets.offset_table == {"T@CG": {0: 1, 1: 1, 3: 1}}
        assert offsets.pull_offset_table == {"T@CG": {0: 2, 1: 2, 3: 2, 2: 2}}
