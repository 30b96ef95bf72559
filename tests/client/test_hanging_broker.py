"""One of two brokers hangs: what a consumer does at the other one, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from trocket import (
    Admin,
    ClientError,
    ConnectError,
    ConsumeFromWhere,
    PushConsumer,
    PushedMessage,
    RequestTimeoutError,
    SimpleConsumer,
    Sql,
)
from trocket.client.options.push_options import LEAVE_TIMEOUT_S, LOCK_S
from trocket.remoting.bodies import (
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
)
from trocket.remoting.bodies.pop import (
    MessageQueueAssignment,
    MessageRequestMode,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode

from .core.pop_answers import of_queue, record
from .scripted_broker import URL, ScriptedBrokers, refusal, scripted

# The first in the alphabet hangs: members that asked one broker would all ask this one.
HANGING, HEALTHY = "a", "b"
SOON_S = 5.0

OK = RemotingCommand(ResponseCode.SUCCESS)
MODES: dict[str, dict[str, Any]] = {
    "pulled": {},
    "ordered": {"is_orderly": True},
    "popped": {"mode": "pop"},
}


def group_of(client_id: str) -> RemotingCommand:
    """The answer of a broker that knows one member of the group."""
    body = GetConsumerListByGroupResponseBody(consumer_id_list=[client_id])
    return RemotingCommand(ResponseCode.SUCCESS, body=body.to_body())


def locked(request: RemotingCommand) -> RemotingCommand:
    queues = LockBatchRequestBody.from_body(request.body).mq_set
    return RemotingCommand(
        ResponseCode.SUCCESS, body=LockBatchResponseBody(lock_ok_mq_set=queues).to_body()
    )


def pulled(request: RemotingCommand) -> RemotingCommand | None:
    """Each queue has one message; a pull of the next one is held."""
    queue_id, offset = int(request.ext_fields["queueId"]), int(request.ext_fields["queueOffset"])
    if offset:
        return None
    fields = {
        "nextBeginOffset": "1",
        "minOffset": "0",
        "maxOffset": "1",
        "suggestWhichBrokerId": "0",
    }
    return RemotingCommand(ResponseCode.SUCCESS, fields, record("T", queue_id, 0))


class Pops:
    """Answers the first pop with a message, and holds the others."""

    def __init__(self) -> None:
        self.is_first = True

    def __call__(self, request: RemotingCommand) -> RemotingCommand | None:
        is_first, self.is_first = self.is_first, False
        return of_queue([0]) if is_first else None


def assignment(request: RemotingCommand) -> RemotingCommand:
    topic = QueryAssignmentRequestBody.from_body(request.body).topic
    made = [
        MessageQueueAssignment(
            message_queue=MessageQueue("T", name, -1), mode=MessageRequestMode.POP
        )
        for name in (HANGING, HEALTHY)
        if topic == "T"
    ]
    body = QueryAssignmentResponseBody(message_queue_assignments=made).to_body()
    return RemotingCommand(ResponseCode.SUCCESS, body=body)


@asynccontextmanager
async def two_brokers() -> AsyncIterator[ScriptedBrokers]:
    async with scripted([HANGING, HEALTHY]) as brokers:
        brokers.answer(RequestCode.QUERY_CONSUMER_OFFSET, refusal(ResponseCode.QUERY_NOT_FOUND))
        brokers.answer(RequestCode.UPDATE_CONSUMER_OFFSET, OK)
        brokers.answer(RequestCode.LOCK_BATCH_MQ, locked)
        brokers.answer(RequestCode.PULL_MESSAGE, pulled)
        brokers.answer(RequestCode.QUERY_ASSIGNMENT, assignment)
        brokers.answer(RequestCode.POP_MESSAGE, Pops())
        brokers.answer(RequestCode.BATCH_ACK_MESSAGE, OK)
        yield brokers


def member_of(
    brokers: ScriptedBrokers, topics: Iterable[str] = ("T",), **options: Any
) -> PushConsumer:
    options.setdefault("subscriptions", dict.fromkeys(topics, "*"))
    member = PushConsumer(
        URL,
        group="g",
        dial=brokers.dial,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        **options,
    )
    brokers.answer(RequestCode.GET_CONSUMER_LIST_BY_GROUP, group_of(member.client.client_id))
    return member


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", ["hanging", "down"])
async def test_a_new_member_gets_the_messages_of_the_other_broker_soon(
    autojump_clock: trio.testing.MockClock, mode: str, fault: str
) -> None:
    async with two_brokers() as brokers:
        getattr(brokers, fault).add(HANGING)
        start_s = trio.current_time()
        with trio.fail_after(60):
            async with member_of(brokers, **MODES[mode]) as member:
                message = await member.receive()
                assert message.queue.broker_name == HEALTHY
                assert trio.current_time() - start_s < SOON_S
                message.ack()


@pytest.mark.parametrize("mode", MODES)
async def test_topics_that_only_the_hanging_broker_has_do_not_add_up(
    autojump_clock: trio.testing.MockClock, mode: str
) -> None:
    async with two_brokers() as brokers:
        brokers.hanging.add(HANGING)
        lost = [f"U{number}" for number in range(8)]
        brokers.topics.update(lost)
        brokers.places.update({topic: [HANGING] for topic in lost})
        start_s = trio.current_time()
        with trio.fail_after(60):
            async with member_of(brokers, topics=[*lost, "T"], **MODES[mode]) as member:
                message = await member.receive()
                assert message.queue.broker_name == HEALTHY
                assert trio.current_time() - start_s < SOON_S
                message.ack()


@pytest.mark.parametrize("mode", ["pulled", "simple"])
async def test_the_check_of_sql_expressions_waits_once_for_the_broker_that_hangs(
    autojump_clock: trio.testing.MockClock, mode: str
) -> None:
    async with two_brokers() as brokers:
        brokers.hanging.add(HANGING)
        topics = [f"U{number}" for number in range(8)]
        brokers.topics.update(topics)
        brokers.answer(RequestCode.CHECK_CLIENT_CONFIG, OK)
        selectors = dict.fromkeys(topics, Sql("a > 1"))
        start_s = trio.current_time()
        if mode == "simple":
            await simple(brokers, subscriptions=selectors).open()
        else:
            await member_of(brokers, subscriptions=selectors).open()
        assert trio.current_time() - start_s < SOON_S
        checked = {
            CheckClientRequestBody.from_body(each.body).subscription_data.topic
            for each in brokers.requests[RequestCode.CHECK_CLIENT_CONFIG]
        }
        assert checked == set(topics)


@pytest.mark.parametrize("mode", ["pulled", "ordered"])
async def test_closing_commits_at_the_other_broker_and_waits_once_for_the_one_that_hangs(
    autojump_clock: trio.testing.MockClock, mode: str
) -> None:
    async with two_brokers() as brokers:
        committed = set[str]()

        def commit(request: RemotingCommand) -> RemotingCommand:
            committed.add(request.ext_fields["queueId"])
            return OK

        brokers.answer(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        with trio.fail_after(60):
            async with member_of(brokers, persist_offsets_s=1000.0, **MODES[mode]) as member:
                for _ in range(8):
                    (await member.receive()).ack()
                brokers.hanging.add(HANGING)
                start_s = trio.current_time()
        assert trio.current_time() - start_s <= LEAVE_TIMEOUT_S
        assert committed == {str(queue_id) for queue_id in range(4)}


@pytest.mark.parametrize("mode", MODES)
async def test_the_other_broker_knows_of_a_closing_that_has_little_time(
    autojump_clock: trio.testing.MockClock, mode: str
) -> None:
    async with two_brokers() as brokers:
        member = member_of(brokers, persist_offsets_s=1000.0, close_timeout_s=2.0, **MODES[mode])
        async with member:
            for _ in range(1 if mode == "popped" else 8):
                (await member.receive()).ack()
            brokers.hanging.add(HANGING)
        assert (HEALTHY, RequestCode.UNREGISTER_CLIENT) in brokers.log
        if mode == "ordered":
            assert (HEALTHY, RequestCode.UNLOCK_BATCH_MQ) in brokers.log


async def test_a_broker_that_hung_is_asked_last_until_it_answers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.hanging.add(HANGING)
        with trio.fail_after(600):
            async with member_of(brokers) as member:
                (await member.receive()).ack()
                start_s = trio.current_time()
                assert await member.rebalance() is True
                assert trio.current_time() == start_s


async def test_a_lock_whose_renewal_crosses_its_release_is_released_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    # Apache's brokers answer both in threads, in either order.
    async with two_brokers() as brokers, member_of(brokers, is_orderly=True) as member:
        (await member.receive()).ack()
        brokers.frozen["b"] = trio.Event()
        await trio.sleep(LOCK_S + 0.1)  # the renewal is on its way
        ids = [member.client.client_id, "~"]
        body = GetConsumerListByGroupResponseBody(consumer_id_list=ids).to_body()
        brokers.answer(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            RemotingCommand(ResponseCode.SUCCESS, body=body),
        )
        await member.rebalance()
        assert {queue.broker_name for queue in member.queues} == {"a"}
        brokers.frozen["b"].set()
        await trio.sleep(1.0)
        released = [
            LockBatchRequestBody.from_body(each.body).mq_set
            for each in brokers.requests[RequestCode.UNLOCK_BATCH_MQ]
        ]
        assert [{queue.broker_name for queue in each} for each in released] == [{"b"}] * 2


async def test_queues_of_the_other_broker_are_let_go_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with (
        two_brokers() as brokers,
        member_of(brokers, is_orderly=True, persist_offsets_s=1000.0) as member,
    ):
        for _ in range(8):
            (await member.receive()).ack()
        ids = ["!", member.client.client_id, "~"]
        body = GetConsumerListByGroupResponseBody(consumer_id_list=ids).to_body()
        brokers.answer(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            RemotingCommand(ResponseCode.SUCCESS, body=body),
        )
        released: dict[str, float] = {}

        def release(request: RemotingCommand) -> None:
            for queue in LockBatchRequestBody.from_body(request.body).mq_set:
                released[queue.broker_name] = trio.current_time()

        brokers.answer(RequestCode.UNLOCK_BATCH_MQ, release)
        brokers.hanging.add(HANGING)
        start_s = trio.current_time()
        await member.rebalance()
        await trio.sleep(0.1)  # the request is on its way
        assert released[HEALTHY] - start_s < 1.0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["pulled", "popped"])
async def test_redeliveries_that_a_hanging_broker_does_not_answer_hold_up_no_handler(
    autojump_clock: trio.testing.MockClock, mode: str
) -> None:
    async with two_brokers() as brokers, member_of(brokers, **MODES[mode]) as member:
        brokers.answer(POP, PopsOf(HANGING, HEALTHY))
        handled: list[str] = []

        async def handle(message: PushedMessage) -> None:
            brokers.hanging.add(HANGING)
            handled.append(message.queue.broker_name)
            if message.queue.broker_name == HANGING:
                raise ValueError("not now")
            if handled.count(HEALTHY) == 4:
                member.stop()

        await trio.sleep(1.0)  # all messages are there
        start_s = trio.current_time()
        await member.run(handle, concurrency=1)
        assert handled.count(HANGING) >= 3
        assert trio.current_time() - start_s < SOON_S


# Simple consumers


POP, ACK = RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE


class PopsOf:
    """Answers each pop at some brokers with the next message, at others with none."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._offsets = dict.fromkeys(names, 0)

    def __call__(self, request: RemotingCommand) -> RemotingCommand:
        name = request.ext_fields["bname"]
        if name not in self._names:
            return refusal(ResponseCode.POLLING_TIMEOUT)
        self._offsets[name] += 1
        return of_queue([self._offsets[name]])


def simple(brokers: ScriptedBrokers, **options: Any) -> SimpleConsumer:
    options.setdefault("subscriptions", {"T": "*"})
    return SimpleConsumer(URL, group="g", dial=brokers.dial, **options)


@pytest.mark.parametrize("frozen", ["a", "b"])
async def test_a_simple_consumer_waits_once_for_the_broker_that_hangs(
    autojump_clock: trio.testing.MockClock, frozen: str
) -> None:
    async with two_brokers() as brokers:
        healthy = "b" if frozen == "a" else "a"
        brokers.answer(POP, PopsOf(healthy))
        brokers.answer(ACK, OK)
        brokers.hanging.add(frozen)
        async with simple(brokers) as consumer:
            start_s = trio.current_time()
            for _ in range(100):
                (message,) = await consumer.receive(wait_s=5.0)
                assert message.queue.broker_name == healthy
                await consumer.ack(message)
            assert trio.current_time() - start_s < 1.0


async def test_a_late_answer_to_a_pop_is_received_by_the_next_call(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.answer(POP, PopsOf("a"))
        brokers.answer(RequestCode.NOTIFICATION)
        brokers.frozen["a"] = trio.Event()
        async with simple(brokers) as consumer:
            assert await consumer.receive(wait_s=2.0) == []
            brokers.frozen["a"].set()
            start_s = trio.current_time()
            (message,) = await consumer.receive(wait_s=60.0)
            assert (message.queue.broker_name, message.queue_offset) == ("a", 1)
            assert trio.current_time() - start_s < 1.0
            (message,) = await consumer.receive(wait_s=60.0)
            assert message.queue_offset == 2


async def test_a_late_answer_ends_a_wait_for_messages(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.answer(POP, PopsOf("a"))
        brokers.answer(RequestCode.NOTIFICATION)
        brokers.frozen["a"] = trio.Event()

        async def thaw() -> None:
            await trio.sleep(4.0)
            brokers.frozen["a"].set()

        async with simple(brokers) as consumer, trio.open_nursery() as nursery:
            nursery.start_soon(thaw)
            start_s = trio.current_time()
            assert len(await consumer.receive(wait_s=60.0)) == 1
            assert trio.current_time() - start_s < SOON_S


async def test_a_broker_that_answers_again_is_asked_again_beside_a_busy_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.answer(POP, PopsOf("a", "b"))
        brokers.hanging.add("a")
        async with simple(brokers) as consumer:
            for _ in range(4):
                await consumer.receive(wait_s=5.0)
            brokers.hanging.clear()
            await trio.sleep(20.0)  # the pop that hung has failed
            seen = [(await consumer.receive(wait_s=5.0))[0].queue.broker_name for _ in range(8)]
            assert {"a", "b"} == set(seen)


@pytest.mark.parametrize("wait_s", [0.0, 1.0])
async def test_brokers_that_are_slow_are_waited_for_as_long_as_for_one_request(
    autojump_clock: trio.testing.MockClock, wait_s: float
) -> None:
    async with two_brokers() as brokers:
        brokers.answer(POP, PopsOf("a", "b"))
        brokers.frozen.update(a=trio.Event(), b=trio.Event())

        async def thaw() -> None:
            await trio.sleep(2.5)
            for each in brokers.frozen.values():
                each.set()

        async with simple(brokers) as consumer, trio.open_nursery() as nursery:
            nursery.start_soon(thaw)
            assert len(await consumer.receive(wait_s=wait_s)) == 1


async def test_calls_at_the_same_time_do_not_take_each_other_for_silent_brokers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.answer(POP, refusal(ResponseCode.POLLING_TIMEOUT))
        brokers.frozen.update(a=trio.Event(), b=trio.Event())

        async def thaw() -> None:
            await trio.sleep(0.3)  # less than makes a broker late
            for each in brokers.frozen.values():
                each.set()

        async def receive() -> None:
            assert await consumer.receive(wait_s=0.0) == []

        async with simple(brokers) as consumer, trio.open_nursery() as nursery:
            nursery.start_soon(thaw)
            for _ in range(5):
                nursery.start_soon(receive)


async def test_all_brokers_hang_and_the_error_says_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.hanging.update("ab")
        async with simple(brokers) as consumer:
            start_s = trio.current_time()
            with pytest.raises(ConnectError, match="did not answer POP_MESSAGE"):
                await consumer.receive(wait_s=1.0)
            assert trio.current_time() - start_s < 20.0


async def test_an_acknowledgement_at_a_broker_that_hangs_ends_with_the_time_of_one_request(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.answer(POP, PopsOf("a"))
        async with simple(brokers) as consumer:
            (message,) = await consumer.receive(wait_s=5.0)
            brokers.hanging.add("a")
            settles = (consumer.ack, lambda each: consumer.change_invisible(each, 30.0))
            for settle in settles:
                start_s = trio.current_time()
                with pytest.raises(RequestTimeoutError):
                    await settle(message)
                assert trio.current_time() - start_s < SOON_S


async def test_an_iteration_goes_on_beside_an_acknowledgement_that_hangs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.answer(POP, PopsOf("a", "b"))
        brokers.answer(ACK, OK)
        async with simple(brokers) as consumer:
            messages = aiter(consumer)
            seen = [(await anext(messages)).queue.broker_name]
            while seen[-1] != HANGING:
                seen.append((await anext(messages)).queue.broker_name)
            brokers.hanging.add(HANGING)
            start_s = trio.current_time()
            assert (await anext(messages)).queue.broker_name == HEALTHY
            assert trio.current_time() - start_s < SOON_S
            await trio.sleep(60.0)  # its failure does not end the iteration, either
            assert (await anext(messages)).queue.broker_name == HEALTHY


TOPICS = [f"T{number}" for number in range(20)]
OPEN_S = 1.0
"""How long the first heartbeats, or the first questions of a pop mode, may take."""
TIMEOUT_S = 3.0


@pytest.mark.parametrize("selector", ["*", Sql("a > 1")])
@pytest.mark.parametrize("make", [PushConsumer, SimpleConsumer])
async def test_a_consumer_of_many_topics_waits_once_for_a_broker_that_hangs(
    autojump_clock: trio.testing.MockClock, make: Any, selector: Any
) -> None:
    async with two_brokers() as brokers:
        brokers.topics.update(TOPICS)
        brokers.hanging.add(HANGING)
        brokers.answer(RequestCode.CHECK_CLIENT_CONFIG, OK)
        subscriptions = dict.fromkeys(TOPICS, selector)
        consumer = make(URL, group="g", subscriptions=subscriptions, dial=brokers.dial)
        with trio.fail_after(TIMEOUT_S + OPEN_S + 0.1):
            await consumer.open()
        await consumer.close()


async def test_a_popping_consumer_of_many_topics_waits_once_for_brokers_that_hang(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.topics.update(TOPICS)
        brokers.hanging.update((HANGING, HEALTHY))
        subscriptions = dict.fromkeys(TOPICS, "*")
        consumer = PushConsumer(
            URL, group="g", subscriptions=subscriptions, dial=brokers.dial, mode="pop"
        )
        with trio.fail_after(2 * OPEN_S + 0.1):
            await consumer.open()
        await consumer.close()


@pytest.mark.slow
async def test_an_administrator_asks_a_broker_that_hangs_for_no_more_of_its_queues(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers, Admin(URL, dial=brokers.dial) as admin:
        brokers.queue_count = 500
        brokers.hanging.add(HANGING)
        for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
            brokers.answer(code, RemotingCommand(ResponseCode.SUCCESS, {"offset": "0"}))
        with trio.fail_after(TIMEOUT_S + 0.1), pytest.raises(ClientError, match="10911"):
            await admin.offsets("T")


async def test_a_route_that_cannot_be_read_does_not_stop_the_refresh_of_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers, Admin(URL, dial=brokers.dial) as admin:
        brokers.topics.update(("A", "Z"))
        for topic in ("A", "Z"):
            await admin.client.route(topic)
        brokers.malformed.add("A")
        brokers.queue_count = 7
        await trio.sleep(60)
        assert (await admin.client.route("Z")).queue_datas[0].read_queue_nums == 7
