"""Simple consumers with brokers that answer as a test says, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from trocket import (
    AccessDeniedError,
    AlreadySettledError,
    BadAnswerError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    ConsumeFromWhere,
    ExpiredReceiptError,
    FilterClass,
    Interceptor,
    ReceivedMessage,
    RouteNotFoundError,
    ServerError,
    SimpleConsumer,
)
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.receipt import Receipt
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode

from .core.pop_answers import TIME_MS, found, of_queue, record
from .scripted_broker import URL, ScriptedBrokers, refusal, scripted

POP = RequestCode.POP_MESSAGE
ACK = RequestCode.ACK_MESSAGE
BATCH = RequestCode.BATCH_ACK_MESSAGE
CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
BURY = RequestCode.CONSUMER_SEND_MSG_BACK
NOTIFICATION = RequestCode.NOTIFICATION

OK = RemotingCommand(ResponseCode.SUCCESS)
NOTHING = refusal(ResponseCode.POLLING_TIMEOUT)


def messages(*offsets: int, queue: int = 0, tags: str = "") -> RemotingCommand:
    """An answer with messages of one queue."""
    return of_queue(offsets, queue, {"TAGS": tags} if tags else None)


@asynccontextmanager
async def opened(
    brokers: ScriptedBrokers, selector: str = "*", **options: Any
) -> AsyncIterator[SimpleConsumer]:
    subscriptions = dict.fromkeys(sorted(brokers.topics), selector)
    async with SimpleConsumer(
        URL, group="g", subscriptions=subscriptions, dial=brokers.dial, **options
    ) as consumer:
        yield consumer


async def test_a_message_is_received_and_acknowledged(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as brokers, opened(brokers) as consumer:
        brokers.answer(POP, messages(7, 8))
        brokers.answer(ACK, OK)
        first, second = await consumer.receive(2, invisible_s=30.0, wait_s=5.0)
        (fields,) = brokers.fields(POP)
        assert (fields["maxMsgNums"], fields["invisibleTime"], fields["pollTime"]) == (
            "2",
            "30000",
            "5000",
        )
        assert (fields["queueId"], fields["initMode"], fields["order"]) == ("-1", "1", "false")
        assert first.receipt == Receipt.from_text(first.receipt).to_text()
        assert first.receipt == f"7 {TIME_MS} 60000 3 0 b 0 7"
        assert (first.delivery_attempt, first.first_pop_time_ms) == (1, TIME_MS)
        assert first.invisible_until_ms == TIME_MS + 60_000
        await consumer.ack(second)
        with pytest.raises(AlreadySettledError, match="ack of message"):
            await consumer.ack(second)
        with pytest.raises(AlreadySettledError, match="change_invisible of message"):
            await consumer.change_invisible(second, 10)
        with pytest.raises(AlreadySettledError, match="ack_all of message"):
            await consumer.ack_all([second])
        assert (first.is_settled, second.is_settled) == (False, True)
        (fields,) = brokers.fields(ACK)
        assert (fields["topic"], fields["queueId"], fields["offset"]) == ("T", "0", "8")
        assert fields["extraInfo"] == second.receipt
        request = brokers.requests[POP][0]
        assert request.serialize_type == 0  # JSON: the binary header has 16 bits for the code


async def test_a_lost_connection_is_made_again_until_the_time_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as brokers, opened(brokers) as consumer:
        brokers.answer(POP, None, None, messages(1))
        (message,) = await consumer.receive(wait_s=10.0)
        assert message.queue_offset == 1
        brokers.answer(POP, None)
        begun_s = trio.current_time()
        with pytest.raises(ConnectError) as caught:
            await consumer.receive(wait_s=3.0)
        assert caught.value.is_connection_lost
        assert trio.current_time() - begun_s == pytest.approx(3.0, abs=0.1)


async def test_an_answer_in_order_that_was_lost_is_asked_for_by_the_same_id(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as brokers, opened(brokers, is_orderly=True) as consumer:
        brokers.answer(POP, messages(1), None, messages(2), messages(3))
        await consumer.receive(wait_s=5.0)
        await consumer.receive(wait_s=5.0)
        with trio.move_on_after(1.0):
            brokers.answer(POP)  # no answer: the program does not wait for it
            await consumer.receive(wait_s=5.0)
        brokers.answer(POP, messages(4))
        await consumer.receive(wait_s=5.0)
        ids = [fields["attemptId"] for fields in brokers.fields(POP)]
        assert ids[1] == ids[2]
        assert ids[3] == ids[4]
        assert len(set(ids)) == 3
        assert all(fields["order"] == "true" for fields in brokers.fields(POP))


async def test_attempts_in_order_at_the_same_time_have_different_ids(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as brokers, opened(brokers, is_orderly=True) as consumer:
        brokers.answer(POP, None, NOTHING)
        await consumer.receive(wait_s=0.6)
        brokers.answer(POP)
        with trio.move_on_after(1.0):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(consumer.receive)
        ids = [fields["attemptId"] for fields in brokers.fields(POP)[-3:]]
        assert len(set(ids)) == 3


async def test_brokers_take_turns_and_one_that_is_down_is_passed_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(names=["b", "c"]) as brokers, opened(brokers) as consumer:
        brokers.answer(POP, messages(1))
        for _ in range(4):
            assert len(await consumer.receive(wait_s=0.0)) == 1
        asked = [fields["bname"] for fields in brokers.fields(POP)]
        assert asked in (["b", "c"] * 2, ["c", "b"] * 2)
    async with scripted(names=["b", "c"]) as brokers:
        brokers.down.add("c")
        async with opened(brokers) as consumer:
            brokers.answer(POP, messages(1))
            for _ in range(4):
                assert len(await consumer.receive(wait_s=0.0)) == 1
            brokers.down.add("b")
            brokers.answer(POP, None)
            with pytest.raises(ConnectError):
                await consumer.receive(wait_s=0.0)


async def test_several_brokers_are_waited_for_by_one_request_each(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(names=["b", "c"]) as brokers, opened(brokers) as consumer:
        brokers.answer(POP, NOTHING)
        begun_s = trio.current_time()
        for _ in range(3):  # the requests go on between the calls
            assert await consumer.receive(wait_s=1.0) == []
        assert trio.current_time() - begun_s == pytest.approx(3.0, abs=0.1)
        assert sorted(each["bname"] for each in brokers.fields(NOTIFICATION)) == ["b", "c"]
        assert {each["pollTime"] for each in brokers.fields(POP)} == {"0"}
    async with scripted(names=["b", "c"]) as brokers, opened(brokers) as consumer:
        has = RemotingCommand(ResponseCode.SUCCESS, {"hasMsg": "true", "pollingFull": "false"})
        brokers.answer(NOTIFICATION, has)
        brokers.answer(POP, NOTHING, NOTHING, messages(1))
        begun_s = trio.current_time()
        assert len(await consumer.receive(wait_s=10.0)) == 1
        assert trio.current_time() - begun_s < 1.0


async def test_a_broker_that_does_not_wait_is_not_asked_all_the_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as brokers, opened(brokers) as consumer:
        brokers.answer(POP, refusal(ResponseCode.POLLING_FULL))
        assert await consumer.receive(wait_s=1.0) == []
        assert len(brokers.requests[POP]) <= 21
    async with scripted(names=["b", "c"]) as brokers, opened(brokers) as consumer:
        brokers.answer(POP, NOTHING)
        brokers.answer(NOTIFICATION, refusal(ResponseCode.SYSTEM_ERROR))
        assert await consumer.receive(wait_s=1.0) == []
        assert len(brokers.requests[NOTIFICATION]) <= 6


async def test_a_broker_that_tells_of_messages_and_gives_none_is_not_asked_all_the_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked_max = 100  # a consumer without pauses would ask for ever, at the same time

    def has_messages(request: RemotingCommand) -> RemotingCommand | None:
        if len(brokers.requests[NOTIFICATION]) > asked_max:
            return None
        return RemotingCommand(ResponseCode.SUCCESS, {"hasMsg": "true", "pollingFull": "false"})

    async with scripted(names=["b", "c"]) as brokers, opened(brokers) as consumer:
        brokers.answer(POP, NOTHING)
        brokers.answer(NOTIFICATION, has_messages)
        assert await consumer.receive(wait_s=1.0) == []
        assert len(brokers.requests[NOTIFICATION]) <= 44


@pytest.mark.slow
async def test_a_consumer_can_wait_without_an_end(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted() as brokers, opened(brokers) as consumer:
        brokers.answer(POP, NOTHING, NOTHING, messages(1))
        assert len(await consumer.receive(wait_s=float("inf"))) == 1
        # A broker that is gone without a word is noticed by the end of such a wait.
        assert {fields["pollTime"] for fields in brokers.fields(POP)} == {"30000"}
    async with scripted(names=["b", "c"]) as brokers, opened(brokers) as consumer:
        brokers.answer(POP, NOTHING)
        with trio.move_on_after(1000.0) as scope:
            await consumer.receive(wait_s=float("inf"))
        assert scope.cancelled_caught


async def test_messages_with_other_tags_are_acknowledged_and_not_given_to_the_program(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The hash codes of "Aa" and "BB" are equal in Java."""
    async with scripted() as brokers, opened(brokers, "Aa") as consumer:
        brokers.answer(POP, messages(1, tags="BB"), messages(2, tags="Aa"))
        brokers.answer(ACK, OK)
        (message,) = await consumer.receive()
        assert message.queue_offset == 2
        await trio.testing.wait_all_tasks_blocked()
        assert [each["offset"] for each in brokers.fields(ACK)] == ["1"]


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        (ResponseCode.NO_PERMISSION, AccessDeniedError, "forbidden"),
        (ResponseCode.TOPIC_NOT_EXIST, RouteNotFoundError, "forbidden"),
        (ResponseCode.INVALID_PARAMETER, ServerError, r"INVALID_PARAMETER \(29\)"),
        (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ConfigurationError, r"older than RocketMQ 5\.0"),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ServerError, "GROUP_NOT_EXIST"),
    ],
)
async def test_what_a_broker_refuses_is_raised(
    autojump_clock: trio.testing.MockClock, code: int, error: type[Exception], text: str
) -> None:
    async with scripted() as brokers, opened(brokers) as consumer:
        brokers.answer(POP, refusal(code, "forbidden"))
        with pytest.raises(error, match=text):
            await consumer.receive()


async def test_a_broker_that_does_not_know_the_group_gets_a_heartbeat_first(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as brokers, opened(brokers) as consumer:
        brokers.answer(POP, refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST), messages(1))
        before = brokers.heartbeats
        assert len(await consumer.receive()) == 1
        assert brokers.heartbeats > before


async def test_an_answer_that_breaks_the_protocol_is_an_error(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as brokers, opened(brokers) as consumer:
        brokers.answer(POP, found([record("T", 0, 1)], "0 0 1", "0 0 2"))
        with pytest.raises(BadAnswerError, match="no receipt"):
            await consumer.receive()


async def test_an_acknowledgement_is_sent_again_and_an_old_receipt_is_named(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as brokers, opened(brokers) as consumer:
        brokers.answer(POP, messages(1, 2))
        one, two = await consumer.receive()
        brokers.answer(ACK, None, refusal(ResponseCode.SYSTEM_BUSY), OK)
        await consumer.ack(one)
        assert len(brokers.requests[ACK]) == 3
        for code in (ResponseCode.NO_MESSAGE, ResponseCode.MESSAGE_ILLEGAL):
            brokers.answer(ACK, refusal(code, "offset is illegal"))
            with pytest.raises(ExpiredReceiptError, match=r"offset is illegal.*offset 2"):
                await consumer.ack(two)
        brokers.answer(ACK, None)
        begun_s = trio.current_time()
        with pytest.raises(ConnectError):
            await consumer.ack(two)
        assert 9.0 < trio.current_time() - begun_s <= 10.0
        assert not two.is_settled


async def test_a_batch_is_one_request_and_single_ones_where_the_broker_has_no_batches(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as brokers, opened(brokers) as consumer:
        brokers.answer(POP, messages(*range(32)))
        brokers.answer(BATCH, OK)
        found_ = await consumer.receive(32)
        await consumer.ack_all(found_)
        assert len(brokers.requests[BATCH]) == 1
        brokers.answer(BATCH, refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
        brokers.answer(ACK, OK)
        for _ in range(2):
            again = await consumer.receive(32)
            await consumer.ack_all(again)
            assert all(each.is_settled for each in again)
        assert len(brokers.requests[BATCH]) == 2  # it is not asked a second time
        assert len(brokers.requests[ACK]) == 64

        def refuse_seven(request: RemotingCommand) -> RemotingCommand:
            if request.ext_fields["offset"] == "7":
                return refusal(ResponseCode.NO_MESSAGE)
            return RemotingCommand(ResponseCode.SUCCESS)

        brokers.answer(ACK, refuse_seven)
        again = await consumer.receive(32)
        with pytest.raises(ExpiredReceiptError, match="offset 7"):
            await consumer.ack_all(again)
        assert [each.queue_offset for each in again if not each.is_settled] == [7]


async def test_a_changed_invisible_time_changes_the_receipt(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as brokers, opened(brokers) as consumer:
        brokers.answer(POP, messages(5, 6))
        _, message = await consumer.receive()
        fields = {"popTime": str(TIME_MS + 9), "invisibleTime": "2000", "reviveQid": "4"}
        brokers.answer(CHANGE, RemotingCommand(ResponseCode.SUCCESS, fields))
        old = message.receipt
        await consumer.change_invisible(message, 2.0)
        (asked,) = brokers.fields(CHANGE)
        assert (asked["extraInfo"], asked["invisibleTime"]) == (old, "2000")
        assert message.receipt == f"6 {TIME_MS + 9} 2000 4 0 b 0 6"
        assert message.invisible_until_ms == TIME_MS + 2009


async def test_a_dead_letter_is_buried_before_it_is_acknowledged(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as brokers, opened(brokers) as consumer:
        brokers.answer(POP, messages(5, 6))
        refused, message = await consumer.receive()
        brokers.answer(BURY, refusal(ResponseCode.SYSTEM_ERROR))
        with pytest.raises(ServerError):
            await consumer.dead_letter(refused)
        assert not refused.is_settled
        assert brokers.fields(ACK) == []  # it is delivered again
        brokers.answer(BURY, OK)
        brokers.answer(ACK, OK)
        await consumer.dead_letter(message)
        asked = brokers.fields(BURY)[-1]
        assert (asked["group"], asked["originTopic"], asked["delayLevel"]) == ("g", "T", "-1")
        (fields,) = brokers.fields(ACK)
        assert fields["offset"] == "6"
        with pytest.raises(AlreadySettledError, match="dead_letter of message"):
            await consumer.dead_letter(message)


async def test_an_iteration_acknowledges_and_leaves_out_what_is_late(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Recorder(Interceptor):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def before_consume(self, message: ReceivedMessage) -> None:
            self.seen.append(f"before {message.queue_offset}")

        def after_consume(self, message: ReceivedMessage, error: Exception | None) -> None:
            self.seen.append(f"after {message.queue_offset} {error}")

    recorder = Recorder()
    async with (
        scripted() as brokers,
        opened(brokers, interceptors=[recorder]) as consumer,
    ):
        brokers.answer(POP, messages(1, 2, 3), messages(4))
        brokers.answer(ACK, OK)
        seen = []
        async for message in consumer:
            seen.append(message.queue_offset)
            if message.queue_offset == 2:
                await trio.sleep(61.0)  # longer than the others are invisible
            if message.queue_offset == 4:
                break
        assert seen == [1, 2, 4]
        assert [each["offset"] for each in brokers.fields(ACK)] == ["1", "2"]
        assert [each for each in recorder.seen if each.startswith("after")] == [
            "after 1 None",
            "after 2 None",
        ]


async def test_subscriptions_change_while_it_is_open(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(topics=["T", "U"]) as brokers:
        async with SimpleConsumer(URL, group="g", dial=brokers.dial) as consumer:
            with pytest.raises(ConfigurationError, match="no topic"):
                await consumer.receive()
            consumer.subscribe("T", "a || b")
            assert consumer.subscriptions == {"T": "a || b"}
            brokers.answer(POP, NOTHING)
            assert await consumer.receive(wait_s=0.0) == []
            consumer.subscribe("U")
            consumer.unsubscribe("T")
            assert await consumer.receive(wait_s=0.0) == []
            assert [each["topic"] for each in brokers.fields(POP)] == ["T", "U"]
            with pytest.raises(ConfigurationError, match="does not subscribe"):
                consumer.unsubscribe("T")
            consumer.subscribe("V")
            with pytest.raises(RouteNotFoundError, match="V"):
                await consumer.receive()
        with pytest.raises(ClosedError):
            await consumer.receive()


async def test_arguments_are_checked(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted() as brokers, opened(brokers) as consumer:
        for wrong in (
            {"max_messages": 0},
            {"max_messages": 33},
            {"invisible_s": 0.0},
            {"invisible_s": 0.0001},
            {"invisible_s": 3 * 24 * 3600 + 1},
            {"wait_s": -1.0},
            {"wait_s": float("nan")},
        ):
            with pytest.raises(ConfigurationError, match=next(iter(wrong))):
                await consumer.receive(**wrong)
        brokers.answer(POP, messages(1))
        (message,) = await consumer.receive()
        with pytest.raises(ConfigurationError, match="seconds"):
            await consumer.change_invisible(message, -1.0)
    with pytest.raises(ConfigurationError, match="CONSUME_FROM_TIMESTAMP"):
        SimpleConsumer(URL, group="g", consume_from_where=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)
    with pytest.raises(ConfigurationError, match="FilterClass"):
        SimpleConsumer(URL, group="g", subscriptions={"T": FilterClass("a.B")})  # type: ignore[dict-item]
