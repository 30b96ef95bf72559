"""Pops and notifications that wait, against a whole broker in memory and virtual time."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trocket.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode as Code
from trocket.remoting.response_codes import ResponseCode

from ...kit import (
    START_MS,
    Broker,
    Client,
    bodies_of,
    embedded_broker,
    put_record,
    send,
    topic_fields,
)

HAS_MESSAGE = {"hasMsg": "true", "pollingFull": "false"}
HAS_NONE = {"hasMsg": "false", "pollingFull": "false"}


def now_ms() -> int:
    return START_MS + int(trio.current_time() * 1000)


def asked(queue_id: int = -1, poll_ms: int = 15_000, **more: object) -> dict[str, str]:
    """The fields that pops and notifications have in common."""
    fields = {
        "consumerGroup": "G", "topic": "T", "queueId": queue_id, "pollTime": poll_ms,
        "bornTime": now_ms(),
    }  # fmt: skip
    return {name: str(value) for name, value in (fields | more).items()}


def pop_fields(queue_id: int = -1, poll_ms: int = 15_000, **more: object) -> dict[str, str]:
    own = {"maxMsgNums": 32, "invisibleTime": 60_000, "initMode": 0}
    return asked(queue_id, poll_ms, **(own | more))


async def connect(broker: Broker) -> Client:
    """A client; there is a topic T of four queues."""
    client = await broker.connect()
    answer = await client.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields("T", 4))
    assert answer.code == 0, answer.remark
    broker.controller.groups.update([SubscriptionGroupConfig(group_name="G")])
    return client


async def waits(client: Client, code: int, fields: dict[str, str]) -> int:
    """Send a request that must wait; return its opaque."""
    opaque = await client.send(RemotingCommand(code, fields))
    await settled(client)
    assert client.taken(opaque) is None
    return opaque


async def answered(client: Client, opaque: int) -> RemotingCommand:
    """The answer to a request, which must come within the time that it waits."""
    with trio.fail_after(20):
        return await client.answer(opaque)


async def settled(client: Client) -> None:
    """Until the broker has nothing more to do, and the client has what came."""
    await trio.testing.wait_all_tasks_blocked()
    with trio.move_on_after(0):
        while True:
            client.receive_data(await client.read())


async def polling_num(client: Client, queue_id: int = -1) -> int:
    fields = {"consumerGroup": "G", "topic": "T", "queueId": queue_id}
    answer = await client.ask(Code.POLLING_INFO, fields)
    assert answer.code == 0
    return int(answer.ext_fields["pollingNum"])


# ---- pops ------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue_id", [-1, 2])
async def test_a_pop_waits_for_a_message(queue_id: int, autojump_clock: object) -> None:
    async with embedded_broker() as broker:
        client = await connect(broker)
        opaque = await waits(client, Code.POP_MESSAGE, pop_fields(queue_id))
        assert await polling_num(client, queue_id) == 1
        await send(client, b"one", queue_id=2)
        answer = await answered(client, opaque)
        assert await polling_num(client, queue_id) == 0
    assert answer.code == 0
    assert bodies_of(answer) == [b"one"]


async def test_a_pop_is_answered_before_its_time_is_over(autojump_clock: object) -> None:
    async with embedded_broker() as broker:
        client = await connect(broker)
        begin_s = trio.current_time()
        opaque = await waits(client, Code.POP_MESSAGE, pop_fields(poll_ms=5_000))
        answer = await answered(client, opaque)
        assert 4.9 <= trio.current_time() - begin_s <= 5.0
        assert await polling_num(client) == 0
    assert answer.code == ResponseCode.POLLING_TIMEOUT
    assert answer.remark == "NO_MESSAGE_IN_QUEUE"


async def test_a_pop_without_a_place_is_told_so(autojump_clock: object) -> None:
    async with embedded_broker(pop_polling_size=1) as broker:
        client = await connect(broker)
        await waits(client, Code.POP_MESSAGE, pop_fields())
        answer = await client.ask(Code.POP_MESSAGE, pop_fields())
    assert answer.code == ResponseCode.POLLING_FULL
    assert answer.remark == "NO_MESSAGE_IN_QUEUE"


async def test_each_message_goes_to_one_of_the_waiting_pops(autojump_clock: object) -> None:
    async with embedded_broker() as broker:
        client = await connect(broker)
        first = await waits(client, Code.POP_MESSAGE, pop_fields())
        second = await waits(client, Code.POP_MESSAGE, pop_fields())
        await send(client, b"one")
        assert bodies_of(await answered(client, first)) == [b"one"]
        await settled(client)
        assert client.taken(second) is None
        await send(client, b"two", queue_id=1)
        assert bodies_of(await answered(client, second)) == [b"two"]


async def test_what_one_pop_leaves_wakes_the_next(autojump_clock: object) -> None:
    async with embedded_broker() as broker:
        client = await connect(broker)
        pops = [
            await waits(client, Code.POP_MESSAGE, pop_fields(0, maxMsgNums=1)) for _ in range(3)
        ]
        for number in range(3):
            put_record(broker, "T", "", b"%d" % number)
        await settled(client)
        answers = [await answered(client, opaque) for opaque in pops]
    assert [bodies_of(answer) for answer in answers] == [[b"0"], [b"1"], [b"2"]]


async def test_only_messages_with_its_tags_wake_a_pop(autojump_clock: object) -> None:
    async with embedded_broker() as broker:
        client = await connect(broker)
        opaque = await waits(client, Code.POP_MESSAGE, pop_fields(expType="TAG", exp="a || b"))
        await send(client, b"one", tag="c")
        await settled(client)
        assert client.taken(opaque) is None
        await send(client, b"two", tag="b")
        assert bodies_of(await answered(client, opaque)) == [b"two"]


async def test_a_pop_gets_the_messages_again_whose_offset_is_reset(
    autojump_clock: object,
) -> None:
    async with embedded_broker() as broker:
        client = await connect(broker)
        await send(client, b"one")
        popped = await client.ask(Code.POP_MESSAGE, pop_fields(0))
        assert bodies_of(popped) == [b"one"]
        opaque = await waits(client, Code.POP_MESSAGE, pop_fields(0))
        answer = await client.ask(
            Code.INVOKE_BROKER_TO_RESET_OFFSET,
            {"topic": "T", "group": "G", "timestamp": -1, "isForce": "true", "offset": 0,
             "queueId": 0},
        )  # fmt: skip
        assert answer.code == 0, answer.remark
        assert bodies_of(await answered(client, opaque)) == [b"one"]


async def test_the_waiting_pops_of_a_closed_connection_are_gone(autojump_clock: object) -> None:
    async with embedded_broker() as broker:
        client, other = await connect(broker), await broker.connect()
        await waits(other, Code.POP_MESSAGE, pop_fields())
        assert await polling_num(client) == 1
        await other.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert await polling_num(client) == 0
        opaque = await waits(client, Code.POP_MESSAGE, pop_fields())
        await send(client, b"one")
        assert bodies_of(await answered(client, opaque)) == [b"one"]


async def test_a_pop_whose_topic_is_deleted_meanwhile_is_refused(autojump_clock: object) -> None:
    async with embedded_broker() as broker:
        client = await connect(broker)
        opaque = await waits(client, Code.POP_MESSAGE, pop_fields(poll_ms=2_000))
        assert (await client.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
        answer = await answered(client, opaque)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_waiting_pop_that_fails_unexpectedly_is_answered(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*asked: object) -> object:
        raise ZeroDivisionError("by zero")

    async with embedded_broker() as broker:
        client = await connect(broker)
        opaque = await waits(client, Code.POP_MESSAGE, pop_fields())
        with monkeypatch.context() as broken:
            broken.setattr(broker.controller.store, "get_message", failing)
            await send(client, b"one")
            answer = await answered(client, opaque)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR, "ZeroDivisionError: by zero",
        )  # fmt: skip
        assert "a waiting request 200050 failed" in caplog.text
        answer = await client.ask(Code.POP_MESSAGE, pop_fields())
    assert bodies_of(answer) == [b"one"]


async def test_a_pop_that_wants_nothing_waits_without_end_of_the_loop(
    autojump_clock: object,
) -> None:
    """It leaves messages that it does not take, which must not wake it again and again."""
    async with embedded_broker() as broker:
        client = await connect(broker)
        await send(client, b"one")
        pops = [
            await waits(client, Code.POP_MESSAGE, pop_fields(0, 2_000, maxMsgNums=0))
            for _ in range(2)
        ]
        for opaque in pops:
            assert (await answered(client, opaque)).code == ResponseCode.POLLING_TIMEOUT


async def test_a_pop_by_an_expression_goes_on_until_the_end(autojump_clock: object) -> None:
    async with embedded_broker(enable_property_filter=True, max_filter_message_size=64) as broker:
        client = await connect(broker)
        opaque = await waits(client, Code.POP_MESSAGE, pop_fields(0, expType="SQL92", exp="a > 1"))
        for _ in range(40):
            put_record(broker, "T", "a\x011\x02", b"not wanted")
        put_record(broker, "T", "a\x012\x02", b"wanted")
        assert bodies_of(await answered(client, opaque)) == [b"wanted"]


async def test_what_a_pop_skips_at_the_end_of_its_time_is_gone_on_with_by_the_next(
    autojump_clock: object,
) -> None:
    async with embedded_broker(enable_property_filter=True, max_filter_message_size=64) as broker:
        client = await connect(broker)
        begin_s = trio.current_time()
        fields = pop_fields(0, 2_000, expType="SQL92", exp="a > 1")
        first = await waits(client, Code.POP_MESSAGE, fields)
        second = await waits(client, Code.POP_MESSAGE, fields | {"pollTime": "15000"})
        await trio.sleep(1.95)  # its time is over, and the end of its slot is not there yet
        for _ in range(40):
            put_record(broker, "T", "a\x011\x02", b"not wanted")
        put_record(broker, "T", "a\x012\x02", b"wanted")
        assert (await answered(client, first)).code == ResponseCode.POLLING_TIMEOUT
        assert bodies_of(await answered(client, second)) == [b"wanted"]
        assert trio.current_time() - begin_s < 3


# ---- notifications ---------------------------------------------------------------------------


@pytest.mark.parametrize("queue_id", [-1, 2])
async def test_a_notification_waits_for_a_message_and_pops_nothing(
    queue_id: int, autojump_clock: object
) -> None:
    async with embedded_broker() as broker:
        client = await connect(broker)
        opaque = await waits(client, Code.NOTIFICATION, asked(queue_id))
        assert await polling_num(client, queue_id) == 0  # of pops
        await send(client, b"one", queue_id=2)
        answer = await answered(client, opaque)
        assert (answer.code, dict(answer.ext_fields)) == (0, HAS_MESSAGE)
        again = await client.ask(Code.NOTIFICATION, asked(queue_id))
        assert dict(again.ext_fields) == HAS_MESSAGE
        popped = await client.ask(Code.POP_MESSAGE, pop_fields())
        assert bodies_of(popped) == [b"one"]
        await waits(client, Code.NOTIFICATION, asked(queue_id))


async def test_a_notification_ends_without_a_message(autojump_clock: object) -> None:
    async with embedded_broker(pop_polling_size=1) as broker:
        client = await connect(broker)
        for poll_ms in (0, -5, 1):
            answer = await client.ask(Code.NOTIFICATION, asked(poll_ms=poll_ms))
            assert (answer.code, dict(answer.ext_fields)) == (0, HAS_NONE)
        begin_s = trio.current_time()
        opaque = await waits(client, Code.NOTIFICATION, asked(poll_ms=3_000))
        full = await client.ask(Code.NOTIFICATION, asked())
        assert dict(full.ext_fields) == {"hasMsg": "false", "pollingFull": "true"}
        answer = await answered(client, opaque)
        assert (answer.code, dict(answer.ext_fields)) == (0, HAS_NONE)
        assert 2.9 <= trio.current_time() - begin_s <= 3.0


async def test_a_notification_by_tags_compares_few_messages(autojump_clock: object) -> None:
    async with embedded_broker(max_message_filter_num_for_notification=3) as broker:
        client = await connect(broker)
        by_tag = {"expType": "TAG", "exp": "a"}
        opaque = await waits(client, Code.NOTIFICATION, asked(0, **by_tag))
        for _ in range(2):
            await send(client, b"one", tag="b")
        await settled(client)
        assert client.taken(opaque) is None
        await send(client, b"two", tag="a")
        assert dict((await answered(client, opaque)).ext_fields) == HAS_MESSAGE
        # Three wait now: none of them is compared.
        answer = await client.ask(Code.NOTIFICATION, asked(0, expType="TAG", exp="c"))
        assert dict(answer.ext_fields) == HAS_MESSAGE


async def test_a_notification_by_tags_compares_all_messages_below_the_limit(
    autojump_clock: object,
) -> None:
    async with embedded_broker() as broker:
        client = await connect(broker)
        for _ in range(40):
            await send(client, b"one", tag="b")
        await send(client, b"two", tag="a")
        wanted = await client.ask(Code.NOTIFICATION, asked(0, expType="TAG", exp="a"))
        assert dict(wanted.ext_fields) == HAS_MESSAGE
        unknown = await client.ask(Code.NOTIFICATION, asked(0, 0, expType="TAG", exp="c"))
        assert dict(unknown.ext_fields) == HAS_NONE


async def test_a_notification_looks_at_a_part_of_very_many_queues(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trocket.broker.pop.pop_waiting.QUEUES_MAX", 3)
    async with embedded_broker() as broker:
        client = await connect(broker)
        await send(client, b"one")
        found = {
            (await client.ask(Code.NOTIFICATION, asked(poll_ms=0))).ext_fields["hasMsg"]
            for _ in range(200)
        }
        assert found == {"true", "false"}


async def test_a_notification_may_be_told_not_to_filter(autojump_clock: object) -> None:
    async with embedded_broker(use_message_filter_for_notification=False) as broker:
        client = await connect(broker)
        await send(client, b"one", tag="b")
        answer = await client.ask(Code.NOTIFICATION, asked(expType="TAG", exp="a"))
    assert dict(answer.ext_fields) == HAS_MESSAGE


@pytest.mark.parametrize("is_v2", [False, True])
async def test_a_retried_message_is_one_to_pop_but_not_in_order(
    is_v2: bool, autojump_clock: object
) -> None:
    async with embedded_broker(enable_retry_topic_v2=is_v2) as broker:
        client = await connect(broker)
        pop = await waits(client, Code.POP_MESSAGE, pop_fields())
        notification = await waits(client, Code.NOTIFICATION, asked())
        in_order = await waits(client, Code.NOTIFICATION, asked(0, order="true"))
        retry = broker.controller.parts.pop.services.retry_topics.name("T", "G")
        broker.controller.topics.update(
            [TopicConfig(topic_name=retry, read_queue_nums=1, write_queue_nums=1)]
        )
        put_record(broker, retry, "TAGS\1x\2ORIGIN_GROUP\1G\2", b"again")
        put_record(broker, retry, "TAGS\1x\2ORIGIN_GROUP\1G\2", b"and again")
        await settled(client)
        assert bodies_of(await answered(client, pop))[0] == b"again"
        assert client.taken(in_order) is None
        put_record(broker, retry, "TAGS\1x\2ORIGIN_GROUP\1G\2", b"more")
        assert dict((await answered(client, notification)).ext_fields) == HAS_MESSAGE


# ---- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize("code", [Code.NOTIFICATION, Code.POLLING_INFO])
async def test_what_cannot_be_popped_is_refused(code: Code) -> None:
    async with embedded_broker(auto_create_subscription_group=False) as broker:
        client = await connect(broker)
        answer = await client.ask(code, asked(topic="Unknown"))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert (answer.remark or "").startswith("topic[Unknown] not exist, apply first please!")
        answer = await client.ask(code, asked(queue_id=4))
        assert answer.code == ResponseCode.INVALID_PARAMETER
        answer = await client.ask(code, asked(queue_id=2**31 - 1))
        assert answer.code == ResponseCode.INVALID_PARAMETER
        answer = await client.ask(code, asked(consumerGroup="Unknown"))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        broker.controller.groups.update(
            [SubscriptionGroupConfig(group_name="G", consume_enable=False)]
        )
        answer = await client.ask(code, asked())
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == "subscription group no permission, G"
    async with embedded_broker(broker_permission=2) as broker:
        client = await connect(broker)
        answer = await client.ask(code, asked())
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == "the broker[127.0.0.1] peeking message is forbidden"


@pytest.mark.parametrize(
    ("name", "value"),
    [("pollTime", "9" * 30), ("queueId", str(2**31)), ("pollTime", "x")],
)
async def test_hostile_numbers_are_refused_by_name(name: str, value: str) -> None:
    async with embedded_broker() as broker:
        client = await connect(broker)
        answer = await client.ask(Code.NOTIFICATION, asked() | {name: value})
        assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER)
        assert name in (answer.remark or "")


async def test_any_negative_queue_id_stands_for_all_queues(autojump_clock: object) -> None:
    async with embedded_broker() as broker:
        client = await connect(broker)
        opaque = await waits(client, Code.NOTIFICATION, asked(-7, poll_ms=2**63 - 1))
        await send(client, b"one")
        assert dict((await answered(client, opaque)).ext_fields) == HAS_MESSAGE
        assert bodies_of(await client.ask(Code.POP_MESSAGE, pop_fields())) == [b"one"]
        await waits(client, Code.POP_MESSAGE, pop_fields(-5))
        assert [await polling_num(client, queue_id) for queue_id in (-1, -5, -7)] == [1, 1, 1]
