"""One of two brokers hangs: what a consumer does at the other one, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from trocket import Admin, ClientError, ConsumeFromWhere, PushConsumer, SimpleConsumer, Sql
from trocket.client.push_options import CLOSE_TIMEOUT_S
from trocket.remoting.bodies import (
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


def member_of(brokers: ScriptedBrokers, **options: Any) -> PushConsumer:
    member = PushConsumer(
        URL,
        group="g",
        subscriptions={"T": "*"},
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
        assert trio.current_time() - start_s <= CLOSE_TIMEOUT_S
        assert committed == {str(queue_id) for queue_id in range(4)}


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
