"""Pulls and long polling, against a whole broker in memory and virtual time."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trocket.broker.filters.subscription import tags_codes_of
from trocket.broker.waiting.pull_request_hold import CHECK_INTERVAL_S
from trocket.common.java_hash import java_hash_code
from trocket.disk.errors import StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.bodies import SubscriptionGroupConfig
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.response_codes import ResponseCode

from ...kit import (
    Broker,
    Client,
    bodies_of,
    broker_and_client,
    broker_client,
    embedded_broker,
    heartbeat,
    pull_fields,
    send,
    subscribed,
)

SEND, PULL, SEARCH_OFFSET = 310, 11, 29


async def hold(client: Client, **fields: object) -> int:
    texts = {name: str(value) for name, value in pull_fields(**fields).items()}
    opaque = await client.send(RemotingCommand(PULL, texts))
    await trio.testing.wait_all_tasks_blocked()
    return opaque


def held(broker: Broker) -> int:
    return broker.controller.pulls.hold_service.count


@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_a_pull_answers_the_stored_records_and_where_to_go_on(serialize_type: int) -> None:
    async with broker_client() as client:
        await send(client, b"one", b"two", b"three")
        answer = await client.ask(PULL, pull_fields(queueOffset=1), serialize_type=serialize_type)
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert answer.serialize_type == serialize_type
    assert bodies_of(answer) == [b"two", b"three"]
    assert dict(answer.ext_fields) == {
        "nextBeginOffset": "3",
        "minOffset": "0",
        "maxOffset": "3",
        "suggestWhichBrokerId": "0",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


async def test_a_lite_pull_is_a_pull_unless_it_is_forbidden() -> None:
    async with broker_client() as client:
        await send(client, b"one")
        assert bodies_of(await client.ask(361, pull_fields())) == [b"one"]
    async with broker_client(lite_pull_message_enable=False) as client:
        await send(client, b"one")
        answer = await client.ask(361, pull_fields())
        assert answer.code == 16
        assert answer.remark == "the broker[127.0.0.1] for lite pull consumer is forbidden"
        assert bodies_of(await client.ask(PULL, pull_fields())) == [b"one"]


async def test_a_groups_sys_flag_is_in_the_answer() -> None:
    async with embedded_broker() as broker:
        broker.controller.groups.update(
            [SubscriptionGroupConfig(group_name="CG", group_sys_flag=5)]
        )
        client = await broker.connect()
        await send(client, b"one")
        answer = await client.ask(PULL, pull_fields())
    assert answer.ext_fields["groupSysFlag"] == "5"
    assert bodies_of(answer) == [b"one"]


async def test_at_most_as_many_messages_and_bytes_as_asked_for() -> None:
    async with broker_client() as client:
        await send(client, *[b"x" * 100] * 40)
        by_count = await client.ask(PULL, pull_fields(maxMsgNums=3))
        capped = await client.ask(PULL, pull_fields(maxMsgNums=1000))
        by_size = await client.ask(PULL, pull_fields(maxMsgBytes=len(by_count.body)))
    assert len(bodies_of(by_count)) == 3
    assert len(bodies_of(capped)) == 32
    assert 1 <= len(bodies_of(by_size)) <= 3


async def test_a_held_pull_is_answered_when_a_message_comes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker() as broker:
        consumer, producer = await broker.connect(), await broker.connect()
        await send(producer, b"zero")
        opaque = await hold(consumer, queueOffset=1)
        assert held(broker) == 1
        start_s = trio.current_time()
        await send(producer, b"one")
        answer = await consumer.answer(opaque)
        assert trio.current_time() == start_s
        assert held(broker) == 0
    assert bodies_of(answer) == [b"one"]


async def test_a_held_pull_is_answered_when_its_time_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with broker_and_client() as (broker, client):
        await send(client, b"zero")
        start_s = trio.current_time()
        opaque = await hold(client, queueOffset=1, suspendTimeoutMillis=15_000)
        answer = await client.answer(opaque)
        assert 15 <= trio.current_time() - start_s <= 15 + CHECK_INTERVAL_S
        assert held(broker) == 0
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert answer.remark == "OFFSET_OVERFLOW_ONE"
    assert answer.ext_fields["nextBeginOffset"] == "1"


async def test_a_pull_with_a_short_time_out_is_answered_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with broker_client() as client:
        await send(client, b"zero")
        for rest_s in (0, CHECK_INTERVAL_S - 1.5, CHECK_INTERVAL_S - 0.5):
            await trio.sleep(rest_s)
            start_s = trio.current_time()
            await client.answer(await hold(client, queueOffset=1, suspendTimeoutMillis=1_000))
            assert 1 <= trio.current_time() - start_s <= 2.5


async def test_without_long_polling_a_pull_is_held_for_the_short_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with broker_client(long_polling_enable=False) as client:
        await send(client, b"zero")
        start_s = trio.current_time()
        await client.answer(await hold(client, queueOffset=1))
        assert 1 <= trio.current_time() - start_s <= 2.5


async def test_a_pull_without_the_suspend_bit_is_answered_at_once() -> None:
    async with broker_client() as client:
        await send(client, b"zero")
        answer = await client.ask(PULL, pull_fields(queueOffset=1, sysFlag=4))
    assert answer.code == ResponseCode.PULL_NOT_FOUND


async def test_messages_of_other_tags_do_not_wake_a_held_pull_but_move_it_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker() as broker:
        consumer, producer = await broker.connect(), await broker.connect()
        await send(producer, b"zero", tag="A")
        opaque = await hold(consumer, queueOffset=1, subscription="A || C")
        await send(producer, b"b1", b"b2", tag="B")
        assert held(broker) == 1
        await send(producer, b"c", tag="C")
        answer = await consumer.answer(opaque)
    assert bodies_of(answer) == [b"c"]
    assert answer.ext_fields["nextBeginOffset"] == "4"


async def test_a_held_pull_of_other_tags_gets_the_next_offset_when_it_times_out(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker() as broker:
        consumer, producer = await broker.connect(), await broker.connect()
        await send(producer, b"zero", tag="A")
        opaque = await hold(consumer, queueOffset=1, subscription="A")
        await send(producer, b"b1", b"b2", tag="B")
        answer = await consumer.answer(opaque)
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert answer.ext_fields["nextBeginOffset"] == "3"


async def test_a_pull_of_a_closed_connection_is_forgotten(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker() as broker:
        consumer, producer = await broker.connect(), await broker.connect()
        await send(producer, b"zero")
        await hold(consumer, queueOffset=1)
        await consumer.stream.aclose()
        await trio.sleep(CHECK_INTERVAL_S + 1)
        assert held(broker) == 0


async def test_a_held_pull_whose_queue_cannot_be_read_fails_alone(
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with embedded_broker() as broker:
        consumer, producer = await broker.connect(), await broker.connect()
        await send(producer, b"zero")
        opaque = await hold(consumer, queueOffset=1)

        def unreadable(*_: object) -> None:
            raise StoreIOError("/store/commitlog/0", "Input/output error")

        with monkeypatch.context() as broken:
            broken.setattr(broker.controller.store, "get_message", unreadable)
            await send(producer, b"one")
            answer = await consumer.answer(opaque)
        again = await consumer.ask(PULL, pull_fields(queueOffset=1))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "Input/output error" in (answer.remark or "")
    assert bodies_of(again) == [b"one"]


async def test_a_damaged_message_is_refused_in_words_and_all_else_is_served() -> None:
    disk = MemoryDisk()
    async with embedded_broker(disk) as broker:
        await send(await broker.connect(), b"zero", b"one", b"two")
    log = disk.contents[f"/store/commitlog/{0:020d}"]
    log[log.index(b"one")] ^= 1
    async with broker_client(disk) as client:
        before = await client.ask(PULL, pull_fields())
        damaged = await client.ask(PULL, pull_fields(queueOffset=1))
        after = await client.ask(PULL, pull_fields(queueOffset=2))
        by_time = await client.ask(SEARCH_OFFSET, {"topic": "T", "queueId": 0, "timestamp": 0})
        held = await hold(client, queueOffset=3)
        await send(client, b"three")
        woken = await client.answer(held)
    assert bodies_of(before) == [b"zero"]
    assert before.ext_fields["nextBeginOffset"] == "1"
    assert damaged.code == ResponseCode.SYSTEM_ERROR
    assert "message 1 of queue 0 of topic T cannot be served" in (damaged.remark or "")
    assert "CRC of the body" in (damaged.remark or "")
    assert bodies_of(after) == [b"two"]
    assert by_time.ext_fields["offset"] == "0"
    assert bodies_of(woken) == [b"three"]


async def test_several_pulls_on_one_queue_are_all_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker() as broker:
        consumers = [await broker.connect() for _ in range(3)]
        producer = await broker.connect()
        await send(producer, b"zero")
        opaques = [await hold(client, queueOffset=1) for client in consumers]
        other = await hold(consumers[0], queueId=1, queueOffset=0)
        await send(producer, b"one")
        answers = [await c.answer(o) for c, o in zip(consumers, opaques, strict=True)]
        assert held(broker) == 1
        assert (await consumers[0].answer(other)).code == ResponseCode.PULL_NOT_FOUND
    assert [bodies_of(answer) for answer in answers] == [[b"one"]] * 3


async def test_the_commit_bit_stores_the_consumer_offset() -> None:
    async with broker_and_client() as (broker, client):
        await send(client, b"zero")
        await client.ask(PULL, pull_fields(sysFlag=4 | 1, commitOffset=1))
        assert broker.controller.offsets.query_offset("CG", "T", 0) == 1
        await client.ask(PULL, pull_fields(sysFlag=4, commitOffset=9))
        assert broker.controller.offsets.query_offset("CG", "T", 0) == 1


@pytest.mark.parametrize(
    ("offset", "code", "status", "next_offset"),
    [
        (3, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", "3"),
        (9, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", "3"),
        (-2, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", "0"),
    ],
)
async def test_an_offset_outside_the_queue_is_corrected(
    offset: int, code: int, status: str, next_offset: str
) -> None:
    async with broker_client() as client:
        await send(client, b"zero", b"one", b"two")
        answer = await client.ask(PULL, pull_fields(queueOffset=offset, sysFlag=4))
    assert (answer.code, answer.remark) == (code, status)
    assert answer.ext_fields["nextBeginOffset"] == next_offset


async def test_an_empty_queue_asked_for_a_later_offset_is_an_offset_moved() -> None:
    async with broker_client() as client:
        await send(client, b"zero")
        answer = await client.ask(PULL, pull_fields(queueId=3, queueOffset=5, sysFlag=6))
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert answer.ext_fields["nextBeginOffset"] == "0"


REFUSED = [
    pytest.param({"topic": "N"}, ResponseCode.TOPIC_NOT_EXIST, "topic[N] not exist", id="topic"),
    pytest.param({"queueId": 4}, 29, "queueId[4] is illegal", id="queue id"),
    pytest.param({"queueId": -1}, 29, "<queueId> is -1", id="negative queue id"),
    pytest.param({"queueId": "x"}, 1, "x", id="queue id is no number"),
    pytest.param({"consumerGroup": "a/b"}, 26, "does not exist", id="group name"),
    pytest.param({"expressionType": "SQL92"}, 1, "by SQL92", id="sql"),
    pytest.param({"sysFlag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST, "group info", id="unknown"),
]


@pytest.mark.parametrize(("change", "code", "words"), REFUSED)
async def test_a_bad_pull_is_refused_in_words(
    change: dict[str, object], code: int, words: str
) -> None:
    async with broker_client() as client:
        await send(client, b"zero")
        answer = await client.ask(PULL, pull_fields() | change)
        good = await client.ask(PULL, pull_fields())
    assert answer.code == code
    assert words in (answer.remark or "")
    assert bodies_of(good) == [b"zero"]


async def test_a_group_that_may_not_consume_is_refused() -> None:
    async with embedded_broker() as broker:
        broker.controller.groups.update(
            [SubscriptionGroupConfig(group_name="CG", consume_enable=False)]
        )
        client = await broker.connect()
        await send(client, b"zero")
        answer = await client.ask(PULL, pull_fields())
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.ext_fields == {"forbiddenType": "2"}  # Apache's GROUP_FORBIDDEN


@pytest.mark.parametrize("sys_flag", [0, 4], ids=["registered", "with its subscription"])
async def test_a_group_that_is_forbidden_a_topic_is_refused_until_it_is_allowed(
    sys_flag: int,
) -> None:
    fields = {"group": "CG", "topic": "T"}
    async with broker_client() as client:
        await send(client, b"zero")
        assert (await client.ask(34, {}, tagged("*", 0))).code == 0
        assert (await client.ask(353, fields | {"readable": "false"})).code == 0
        answer = await client.ask(PULL, pull_fields(sysFlag=sys_flag))
        other = await client.ask(PULL, pull_fields(consumerGroup="Other"))
        assert (await client.ask(353, fields | {"readable": "true"})).code == 0
        allowed = await client.ask(PULL, pull_fields(sysFlag=sys_flag))
    remark = "the consumer group[CG] is forbidden for topic[T]"
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, remark)
    assert answer.ext_fields == {"forbiddenType": "5"}  # Apache's SUBSCRIPTION_FORBIDDEN
    assert bodies_of(other) == bodies_of(allowed) == [b"zero"]


async def test_without_read_permission_nothing_is_pulled() -> None:
    async with broker_client(broker_permission=2) as client:
        await send(client, b"zero")
        answer = await client.ask(PULL, pull_fields())
    assert answer.code == ResponseCode.NO_PERMISSION


def tagged(expression: str, version: int) -> bytes:
    """A heartbeat of group CG, subscribed to the tags of an expression."""
    tags = expression.split("||")
    subscription = subscribed("T", expression, subVersion=version, tagsSet=tags)
    return heartbeat("CG", subscription | {"codeSet": [java_hash_code(tag) for tag in tags]})


async def test_a_heartbeats_subscription_filters_and_must_be_the_latest() -> None:
    async with broker_client() as client:
        await send(client, b"a", tag="A")
        await send(client, b"b", tag="B")
        await client.ask(34, {}, tagged("B", 5))
        answer = await client.ask(PULL, pull_fields(sysFlag=0, subVersion=5))
        stale = await client.ask(PULL, pull_fields(sysFlag=0, subVersion=6))
        other = await client.ask(PULL, pull_fields("BenchmarkTest", sysFlag=0, subVersion=0))
    assert bodies_of(answer) == [b"b"]
    assert stale.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert other.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


def test_a_tag_expression_becomes_its_hash_codes() -> None:
    assert tags_codes_of("*") is None
    assert tags_codes_of("") is None
    assert tags_codes_of("TagA") == {2598919}
    assert tags_codes_of(" TagA||TagB || ") == {2598919, 2598920}
