"""Push consumers in pop mode with brokers that answer as a test says, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from trocket import (
    AllocateMessageQueueConsistentHash,
    AlreadySettledError,
    ConfigurationError,
    ConsumeFromWhere,
    FilterClass,
    MessageModel,
    MessageQueue,
    PushConsumer,
    PushedMessage,
    RebalanceListener,
    RetryLater,
)
from trocket.client.pushing.pop_results import retry_delay_s
from trocket.remoting.bodies.pop import (
    MessageQueueAssignment,
    MessageRequestMode,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.receipt import Receipt
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode

from .core.pop_answers import TIME_MS, found, of_queue, record
from .outages import BROKERS, member_of, two_brokers
from .scripted_broker import URL, ScriptedBrokers, refusal, scripted

POP = RequestCode.POP_MESSAGE
ACK = RequestCode.ACK_MESSAGE
BATCH = RequestCode.BATCH_ACK_MESSAGE
CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
ASSIGNMENT = RequestCode.QUERY_ASSIGNMENT
SEND_BACK = RequestCode.CONSUMER_SEND_MSG_BACK

OK = RemotingCommand(ResponseCode.SUCCESS)
QUEUE = MessageQueue("T", "b", -1)


class Pops:
    """Answers pops with ever new messages.

    Attributes:
      left: number of messages that are still to come.
      tries: the number of tries that they have.
    """

    def __init__(self, left: int, tries: int = 0) -> None:
        self.left = left
        self.tries = tries
        self._next = 0

    def __call__(self, request: RemotingCommand) -> RemotingCommand | None:
        count = min(self.left, int(request.ext_fields["maxMsgNums"]))
        if not count:
            return None
        offsets = range(self._next, self._next + count)
        self._next += count
        self.left -= count
        return of_queue(offsets, tries=self.tries)


def change(request: RemotingCommand) -> RemotingCommand:
    """The answer to a change of an invisible time."""
    fields = {
        "popTime": str(TIME_MS + 1),
        "invisibleTime": request.ext_fields["invisibleTime"],
        "reviveQid": "5",
    }
    return RemotingCommand(ResponseCode.SUCCESS, fields)


def assignments(
    popped: Sequence[MessageQueue] = (), pulled: Sequence[MessageQueue] = ()
) -> Callable[[RemotingCommand], RemotingCommand]:
    """Answers with these queues for the topic T, and with none for others."""

    def answer(request: RemotingCommand) -> RemotingCommand:
        asked = QueryAssignmentRequestBody.from_body(request.body)
        both = ((popped, MessageRequestMode.POP), (pulled, MessageRequestMode.PULL))
        made = [
            MessageQueueAssignment(message_queue=queue, mode=mode)
            for queues, mode in both
            for queue in queues
            if queue.topic == asked.topic
        ]
        body = QueryAssignmentResponseBody(message_queue_assignments=made).to_body()
        return RemotingCommand(ResponseCode.SUCCESS, body=body)

    return answer


UNKNOWN = RemotingCommand(ResponseCode.SUCCESS, body=QueryAssignmentResponseBody().to_body())
"""The answer of a broker that does not know the queues yet."""


@asynccontextmanager
async def opened(
    pops: Callable[[RemotingCommand], RemotingCommand | None], **options: Any
) -> AsyncIterator[tuple[ScriptedBrokers, PushConsumer]]:
    async with scripted() as brokers:
        brokers.answer(ASSIGNMENT, assignments([QUEUE]))
        brokers.answer(POP, pops)
        brokers.answer(BATCH, OK)
        brokers.answer(ACK, OK)
        brokers.answer(CHANGE, change)
        brokers.answer(SEND_BACK, OK)
        async with PushConsumer(
            URL,
            group="g",
            subscriptions={"T": "*"},
            mode="pop",
            dial=brokers.dial,
            **options,
        ) as consumer:
            yield brokers, consumer


async def settle_all() -> None:
    await trio.testing.wait_all_tasks_blocked(0.01)


async def test_messages_come_by_pops_and_are_acknowledged_together(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened(Pops(3)) as (brokers, consumer):
        taken = [await consumer.receive() for _ in range(3)]
        fields = brokers.fields(POP)[0]
        assert {name: fields[name] for name in ("queueId", "maxMsgNums", "invisibleTime")} == {
            "queueId": "-1",
            "maxMsgNums": "32",
            "invisibleTime": "60000",
        }
        assert (fields["pollTime"], fields["order"]) == ("15000", "false")
        assert consumer.queues == [QUEUE]
        assert taken[0].queue == MessageQueue("T", "b", 0)
        assert taken[0].receipt == f"0 {TIME_MS} 60000 3 0 b 0 0"
        assert (taken[0].delivery_attempt, taken[0].first_pop_time_ms) == (1, TIME_MS)
        for message in taken:
            message.ack()
            with pytest.raises(AlreadySettledError):
                message.ack()
        await settle_all()
        assert (len(brokers.requests[BATCH]), len(brokers.requests[ACK])) == (1, 0)


@pytest.mark.slow
async def test_it_stops_at_the_threshold_until_messages_are_settled_or_late(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pops = Pops(1000)
    async with opened(pops, pop_threshold_for_queue=64) as (_, consumer):
        first = await consumer.receive()
        await settle_all()
        assert 1000 - pops.left == 64
        first.ack()
        await settle_all()
        assert 1000 - pops.left == 96  # 63 and 32
        await trio.sleep(61.0)
        assert 1000 - pops.left == 96 + 64
        # Those whose time is over are not delivered.
        assert (await consumer.receive()).queue_offset == 96


async def test_a_paused_topic_is_not_popped(autojump_clock: trio.testing.MockClock) -> None:
    pops = Pops(0)
    async with opened(pops, suspend_s=1.0) as (brokers, consumer):
        await settle_all()
        consumer.pause(["T"])
        brokers.answer(POP, refusal(ResponseCode.POLLING_TIMEOUT))
        await trio.sleep(20.0)
        count = len(brokers.requests[POP])
        await trio.sleep(60.0)
        assert len(brokers.requests[POP]) == count
        brokers.answer(POP, Pops(1))
        consumer.resume(["T"])
        assert (await consumer.receive()).queue_offset == 0


@pytest.mark.parametrize(
    ("delay_level", "tries", "seconds"),
    [(0, 0, 10), (0, 3, 120), (0, 40, 7200), (1, 5, 1), (18, 0, 7200), (99, 0, 7200)],
)
def test_the_delay_of_a_retry(delay_level: int, tries: int, seconds: int) -> None:
    assert retry_delay_s(delay_level, tries) == seconds


async def test_a_message_that_fails_becomes_invisible_for_longer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def fail(message: PushedMessage) -> None:
        raise {0: ValueError("handler"), 1: RetryLater(2)}[message.queue_offset]

    async with opened(Pops(2)) as (brokers, consumer), trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, fail)
        await settle_all()
        asked = {each["offset"]: each["invisibleTime"] for each in brokers.fields(CHANGE)}
        assert asked == {"0": "10000", "1": "5000"}
        assert brokers.fields(CHANGE)[0].get("suspend") is None
        consumer.stop()


async def test_a_message_that_fails_too_often_is_a_dead_letter(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened(Pops(1, tries=2), max_reconsume_times=2) as (brokers, consumer):
        message = await consumer.receive()
        await message.retry()
        await settle_all()
        (fields,) = brokers.fields(SEND_BACK)
        assert (fields["delayLevel"], fields["offset"], fields["group"]) == ("-1", "0", "g")
        assert [each["offset"] for each in brokers.fields(ACK)] == ["0"]
        assert not brokers.requests[CHANGE]
    # Where the broker does not take it, it is delivered again.
    async with opened(Pops(1, tries=2), max_reconsume_times=2) as (brokers, consumer):
        brokers.answer(SEND_BACK, refusal(ResponseCode.SYSTEM_ERROR))
        message = await consumer.receive()
        await message.retry()
        await settle_all()
        assert (len(brokers.requests[CHANGE]), len(brokers.requests[ACK])) == (1, 0)
    # One that ended its consumers each time.
    async with opened(Pops(1, tries=3), max_reconsume_times=2) as (brokers, consumer):
        await settle_all()
        assert (len(brokers.requests[SEND_BACK]), len(brokers.requests[ACK])) == (1, 1)


async def test_a_late_message_is_acknowledged_and_not_retried(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(Pops(2)) as (brokers, consumer):
        one, two = await consumer.receive(), await consumer.receive()
        await trio.sleep(61.0)
        assert one.is_revoked
        one.ack()
        await two.retry()
        await settle_all()
        assert len(brokers.requests[ACK]) == 1
        assert not brokers.requests[CHANGE]
        assert "after its invisible time" in caplog.text


@pytest.mark.slow
async def test_the_time_of_a_message_that_is_handled_can_be_extended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened(Pops(2), pop_extend=True) as (brokers, consumer):
        message = await consumer.receive()
        await trio.sleep(200.0)
        asked = brokers.fields(CHANGE)
        # The other message was not given to the program: it is not kept from others.
        assert {each["offset"] for each in asked} == {"0"}
        assert {(each["invisibleTime"], each["suspend"]) for each in asked} == {("60000", "true")}
        assert not message.is_revoked
        assert message.receipt == f"0 {TIME_MS + 1} 60000 5 0 b 0 0"
        message.ack()
        await settle_all()
        assert brokers.fields(ACK)[-1]["extraInfo"] == message.receipt


async def test_an_acknowledgement_waits_for_the_new_receipt(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened(Pops(1), pop_extend=True) as (brokers, consumer):
        message = await consumer.receive()
        brokers.answer(CHANGE, None)  # the broker is away for some seconds
        await trio.sleep(46.0)  # more than half of the time is over
        assert len(brokers.requests[CHANGE]) >= 1
        message.ack()
        await settle_all()
        assert not brokers.requests[ACK]
        brokers.answer(CHANGE, change)
        await trio.sleep(2.0)
        assert [each["extraInfo"] for each in brokers.fields(ACK)] == [message.receipt]
        assert Receipt.from_text(message.receipt or "").revive_queue_id == 5


async def test_a_handler_keeps_its_message_after_stop(
    autojump_clock: trio.testing.MockClock,
) -> None:
    was_revoked = []

    async def slow(message: PushedMessage) -> None:
        consumer.stop(timeout_s=300.0)
        await trio.sleep(200.0)
        was_revoked.append(message.is_revoked)

    async with opened(Pops(1), pop_extend=True) as (brokers, consumer):
        await consumer.run(slow)
    assert was_revoked == [False]
    assert len(brokers.requests[ACK]) == 1


async def test_a_message_is_given_back_by_its_new_receipt(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened(Pops(1), pop_extend=True) as (brokers, consumer):
        message = await consumer.receive()
        brokers.answer(CHANGE, None)  # the broker is away for some seconds
        await trio.sleep(46.0)
        assert brokers.requests[CHANGE]
        brokers.answer(CHANGE, change)
    assert message.receipt == f"0 {TIME_MS + 1} 60000 5 0 b 0 0"
    given = [each for each in brokers.fields(CHANGE) if each["invisibleTime"] == "1000"]
    assert [each["extraInfo"] for each in given] == [message.receipt]


async def test_a_closed_consumer_gives_back_what_it_did_not_handle(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened(Pops(3)) as (brokers, consumer):
        message = await consumer.receive()
        message.ack()
    assert [each["offset"] for each in brokers.fields(ACK)] == ["0"]
    given = {
        each["offset"]: (each["invisibleTime"], each["suspend"]) for each in brokers.fields(CHANGE)
    }
    assert given == {"1": ("1000", "true"), "2": ("1000", "true")}


async def test_queues_come_and_go_as_the_brokers_say(
    autojump_clock: trio.testing.MockClock,
) -> None:
    changes: list[tuple[str, Sequence[MessageQueue]]] = []

    class Listener(RebalanceListener):
        def on_assign(self, queues: Sequence[MessageQueue]) -> None:
            changes.append(("assign", list(queues)))

        def on_revoke(self, queues: Sequence[MessageQueue]) -> None:
            changes.append(("revoke", list(queues)))

    async with opened(Pops(1), listener=Listener()) as (brokers, consumer):
        message = await consumer.receive()
        brokers.answer(ASSIGNMENT, UNKNOWN)
        assert not await consumer.rebalance()
        assert consumer.queues == [QUEUE]
        brokers.answer(ASSIGNMENT, assignments())
        assert await consumer.rebalance()
        assert consumer.queues == []
        await trio.sleep(16.0)
        count = len(brokers.requests[POP])
        await trio.sleep(30.0)
        assert len(brokers.requests[POP]) == count
        # What was popped before is still this consumer's.
        assert not message.is_revoked
        message.ack()
        await settle_all()
        assert len(brokers.requests[ACK]) == 1
        single = MessageQueue("T", "b", 2)
        brokers.answer(ASSIGNMENT, assignments([single]))
        assert await consumer.rebalance()
        await settle_all()
        assert brokers.fields(POP)[-1]["queueId"] == "2"
    assert changes == [("assign", [QUEUE]), ("revoke", [QUEUE]), ("assign", [single])]


async def test_a_consumer_that_is_to_pull_says_how_to_change_that(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(Pops(0)) as (brokers, consumer):
        brokers.answer(ASSIGNMENT, assignments(pulled=[MessageQueue("T", "b", 0)]))
        await consumer.rebalance()
    assert "`trocket pop mode g T pop`" in caplog.text


async def test_queues_of_another_topic_are_not_taken(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def foreign(request: RemotingCommand) -> RemotingCommand:
        made = [MessageQueueAssignment(message_queue=MessageQueue("U", "b", -1))]
        body = QueryAssignmentResponseBody(message_queue_assignments=made).to_body()
        return RemotingCommand(ResponseCode.SUCCESS, body=body)

    async with opened(Pops(0)) as (brokers, consumer):
        await settle_all()
        brokers.answer(ASSIGNMENT, foreign)
        assert not await consumer.rebalance()
        assert consumer.queues == [QUEUE]


async def test_a_broker_that_does_not_wait_is_not_asked_all_the_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked: list[RemotingCommand] = []

    def nothing(request: RemotingCommand) -> RemotingCommand | None:
        asked.append(request)
        # A consumer without pauses would ask for ever, at the same time.
        return None if len(asked) > 100 else refusal(ResponseCode.PULL_NOT_FOUND)

    async with opened(nothing):
        await trio.sleep(1.0)
        assert 2 <= len(asked) <= 21


async def test_a_failed_pop_is_logged_and_made_again(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(Pops(1)) as (brokers, consumer):
        brokers.answer(POP, refusal(ResponseCode.NO_PERMISSION, "forbidden"), Pops(1))
        await trio.sleep(30.0)
        brokers.answer(POP, refusal(ResponseCode.POLLING_FULL))
        await trio.sleep(60.0)
        assert len(brokers.requests[POP]) < 40
        brokers.answer(POP, found([record("T", 0, 1)], "0 0 1", "0 0 2"), Pops(1))
        assert (await consumer.receive()).queue_offset == 0
        assert "forbidden" in caplog.text
        assert "no receipt" in caplog.text


async def test_an_old_broker_is_named_at_the_start(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as brokers:
        brokers.answer(ASSIGNMENT, refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
        with pytest.raises(ConfigurationError, match=r"older than RocketMQ 5\.0"):
            async with PushConsumer(
                URL, group="g", subscriptions={"T": "*"}, mode="pop", dial=brokers.dial
            ):
                pass


@pytest.mark.parametrize(
    "options",
    [
        {"is_orderly": True},
        {"message_model": MessageModel.BROADCASTING},
        {"strategy": AllocateMessageQueueConsistentHash()},
        {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_TIMESTAMP},
        {"pop_invisible_s": 4.0},
        {"pop_invisible_s": 301.0},
        {"pop_batch_size": 33},
        {"mode": "push"},
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        PushConsumer(URL, group="g", subscriptions={"T": "*"}, **{"mode": "pop", **options})


def test_a_filter_class_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="FilterClass"):
        PushConsumer(URL, group="g", subscriptions={"T": FilterClass("a.B")}, mode="pop")


class BatchesOf:
    """Answers the first pops at each broker with full batches, and holds the others."""

    def __init__(self, batch_count: int, size: int) -> None:
        self._left: dict[str, int] = dict.fromkeys(BROKERS, batch_count)
        self._size = size

    def __call__(self, request: RemotingCommand) -> RemotingCommand | None:
        name = request.ext_fields["bname"]
        if not self._left[name]:
            return None
        self._left[name] -= 1
        first = self._left[name] * self._size
        return of_queue(range(first, first + self._size))


async def test_closing_gives_back_the_messages_of_one_broker_while_the_other_one_hangs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.answer(POP, BatchesOf(2, 32))
        brokers.answer(CHANGE, change)
        async with member_of(brokers, mode="pop"):
            await trio.sleep(1.0)
            brokers.hanging.add("a")
        assert brokers.log.count(("b", CHANGE)) == 64
        assert ("b", RequestCode.UNREGISTER_CLIENT) in brokers.log


@pytest.mark.slow
async def test_the_time_of_messages_of_one_broker_is_extended_while_the_other_one_hangs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.answer(POP, BatchesOf(1, 1))
        brokers.answer(CHANGE, change)
        async with member_of(brokers, mode="pop", pop_extend=True, pop_invisible_s=10.0) as member:
            messages = [await member.receive(), await member.receive()]
            brokers.hanging.add("a")
            for _ in range(200):
                await trio.sleep(1.0)
                assert not any(m.is_revoked for m in messages if m.queue.broker_name == "b")


async def test_a_message_of_a_handler_is_given_back_when_run_is_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def handle(message: PushedMessage) -> None:
        await trio.sleep_forever()

    async with opened(Pops(1), pop_extend=True) as (brokers, consumer):
        with trio.move_on_after(5.0):
            await consumer.run(handle)
        await settle_all()
        assert [each["invisibleTime"] for each in brokers.fields(CHANGE)] == ["1000"]
