"""What programs do while a server is away: each operation of the matrix of `test_outages.py`.

The brokers are `a` and `b`, the name servers `ns1` and `ns2`. Each operation prepares what it needs
while all are well, has the outage begin, and then does one thing. Consumers are opened after it
has begun, as new members of their group.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeAlias

import trio

from trocket import (
    Admin,
    ConsumeFromWhere,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from trocket.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    TopicList,
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
from .scripted_broker import URL_OF_TWO, ScriptedBrokers, refusal, scripted

BROKERS: Final = ("a", "b")
QUEUE_COUNT: Final = 4
WAIT_S: Final = 8.0
"""How long a consumer is asked for a message."""

OK: Final = RemotingCommand(ResponseCode.SUCCESS)


class Outage:
    """Begins with an `async with` block, and measures how long the block takes.

    Args:
      names: the servers that are away.
      fault: the attribute of ScriptedBrokers that they are put into.
    """

    def __init__(self, brokers: ScriptedBrokers, names: Iterable[str], fault: str) -> None:
        self._brokers = brokers
        self._names = names
        self._fault = fault
        self._start_s = 0.0
        self.elapsed_s = 0.0

    async def __aenter__(self) -> None:
        getattr(self._brokers, self._fault).update(self._names)
        if self._fault != "hanging":
            for name in self._names:
                await self._brokers.cut(name)
        self._start_s = trio.current_time()

    async def __aexit__(self, *error: object) -> None:
        self.elapsed_s = trio.current_time() - self._start_s


Operation: TypeAlias = Callable[[ScriptedBrokers, Outage], Awaitable[object]]
"""Returns what the program got; raises the error that the program gets."""


# Answers


def stored(request: RemotingCommand) -> RemotingCommand:
    """The answer to a send."""
    fields = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "0"}
    return RemotingCommand(ResponseCode.SUCCESS, fields)


def locked(request: RemotingCommand) -> RemotingCommand:
    """All queues that were asked for."""
    queues = LockBatchRequestBody.from_body(request.body).mq_set
    body = LockBatchResponseBody(lock_ok_mq_set=queues).to_body()
    return RemotingCommand(ResponseCode.SUCCESS, body=body)


def pulled(request: RemotingCommand) -> RemotingCommand | None:
    """Each queue has one message; a pull of the next one is held."""
    queue_id, offset = int(request.ext_fields["queueId"]), int(request.ext_fields["queueOffset"])
    if offset:
        return None
    offsets = {"nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1"}
    fields = {**offsets, "suggestWhichBrokerId": "0"}
    return RemotingCommand(ResponseCode.SUCCESS, fields, record("T", queue_id, 0))


def assignment(request: RemotingCommand) -> RemotingCommand:
    """All brokers are to be popped."""
    topic = QueryAssignmentRequestBody.from_body(request.body).topic
    pop = MessageRequestMode.POP
    made = [
        MessageQueueAssignment(message_queue=MessageQueue("T", name, -1), mode=pop)
        for name in BROKERS
        if topic == "T"
    ]
    body = QueryAssignmentResponseBody(message_queue_assignments=made).to_body()
    return RemotingCommand(ResponseCode.SUCCESS, body=body)


def number(request: RemotingCommand) -> RemotingCommand:
    """An offset."""
    return RemotingCommand(ResponseCode.SUCCESS, {"offset": "0"})


@asynccontextmanager
async def two_brokers() -> AsyncIterator[ScriptedBrokers]:
    """Brokers that serve all operations, and two name servers."""
    async with scripted(BROKERS) as brokers:
        code = RequestCode
        topics = TopicList(topic_list=["SYSTEM"]).to_body()
        answers: dict[int, Any] = {
            code.SEND_MESSAGE_V2: stored,
            code.SEND_BATCH_MESSAGE: stored,
            code.QUERY_CONSUMER_OFFSET: refusal(ResponseCode.QUERY_NOT_FOUND),
            code.UPDATE_CONSUMER_OFFSET: OK,
            code.LOCK_BATCH_MQ: locked,
            code.PULL_MESSAGE: pulled,
            code.QUERY_ASSIGNMENT: assignment,
            code.POP_MESSAGE: lambda request: of_queue([0]),
            code.ACK_MESSAGE: OK,
            code.BATCH_ACK_MESSAGE: OK,
            code.CHANGE_MESSAGE_INVISIBLETIME: OK,
            code.GET_MIN_OFFSET: number,
            code.GET_MAX_OFFSET: number,
            code.GET_BROKER_CLUSTER_INFO: cluster_of(brokers),
            code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: RemotingCommand(0, body=topics),
        }
        for each, answer in answers.items():
            brokers.answer(each, answer)
        yield brokers


def cluster_of(brokers: ScriptedBrokers) -> RemotingCommand:
    """What name servers say of the brokers."""
    info = ClusterInfo(
        {name: BrokerData("c", name, {0: brokers.address_of(name)}) for name in BROKERS},
        {"c": list(BROKERS)},
    )
    return RemotingCommand(ResponseCode.SUCCESS, body=info.to_body())


# Producers


async def at_once(call: Callable[[], Awaitable[object]]) -> None:
    """Do it for each queue at the same time; the queues take turns."""
    errors: list[Exception] = []

    async def one() -> None:
        try:
            await call()
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)

    async with trio.open_nursery() as nursery:
        for _ in range(len(BROKERS) * QUEUE_COUNT):
            nursery.start_soon(one)
    if errors:
        raise errors[0]


async def send(brokers: ScriptedBrokers, outage: Outage) -> None:
    async with Producer(URL_OF_TWO, dial=brokers.dial) as producer, outage:
        await at_once(lambda: producer.send(Message("T", "x")))


async def send_oneway(brokers: ScriptedBrokers, outage: Outage) -> None:
    async with Producer(URL_OF_TWO, dial=brokers.dial) as producer, outage:
        await at_once(lambda: producer.send_oneway(Message("T", "x")))


async def send_batch(brokers: ScriptedBrokers, outage: Outage) -> None:
    async with Producer(URL_OF_TWO, dial=brokers.dial) as producer, outage:
        await at_once(lambda: producer.send_batch([Message("T", "x"), Message("T", "y")]))


async def transaction(brokers: ScriptedBrokers, outage: Outage) -> None:
    producer = TransactionProducer(
        URL_OF_TWO, group="p", check=lambda message: TransactionState.COMMIT, dial=brokers.dial
    )
    message = Message("T", "x")
    async with producer, outage:
        await at_once(
            lambda: producer.send_in_transaction(message, lambda _: TransactionState.COMMIT)
        )


async def close_producer(brokers: ScriptedBrokers, outage: Outage) -> None:
    """Close a producer that is connected to all brokers."""
    producer = await Producer(URL_OF_TWO, dial=brokers.dial).open()
    await at_once(lambda: producer.send(Message("T", "x")))
    async with outage:
        await producer.close()


# Consumers


def member_of(brokers: ScriptedBrokers, **options: Any) -> PushConsumer:
    """A push consumer that is the only member of its group."""
    member = PushConsumer(
        URL_OF_TWO,
        group="g",
        subscriptions={"T": "*"},
        dial=brokers.dial,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        persist_offsets_s=1000.0,
        **options,
    )
    know(brokers, member.client.client_id)
    return member


def consume(**options: Any) -> Operation:
    """Open a push consumer, and receive a message."""

    async def operation(brokers: ScriptedBrokers, outage: Outage) -> object:
        member = member_of(brokers, **options)
        async with AsyncExitStack() as stack, outage:
            await stack.enter_async_context(member)
            with trio.move_on_after(WAIT_S):
                return await member.receive()
        return None

    return operation


@asynccontextmanager
async def consuming(brokers: ScriptedBrokers) -> AsyncIterator[PushConsumer]:
    """A push consumer that has acknowledged a message of each queue."""
    async with member_of(brokers) as member:
        for _ in range(len(BROKERS) * QUEUE_COUNT):
            (await member.receive()).ack()
        yield member


async def commit(brokers: ScriptedBrokers, outage: Outage) -> None:
    async with consuming(brokers) as member, outage:
        await member.commit()
        check_commits(brokers)


async def close(brokers: ScriptedBrokers, outage: Outage) -> None:
    async with outage_at_the_end(consuming(brokers), outage):
        pass
    check_commits(brokers)
    for name in healthy(brokers):
        assert (name, RequestCode.UNREGISTER_CLIENT) in brokers.log


@asynccontextmanager
async def outage_at_the_end(
    opened: AbstractAsyncContextManager[object], outage: Outage
) -> AsyncIterator[None]:
    """Opens something, and closes it in the outage."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(opened)
        yield
        async with outage:
            await stack.aclose()


def healthy(brokers: ScriptedBrokers) -> list[str]:
    """The brokers that answer."""
    away = brokers.hanging | brokers.down | brokers.lost
    return [name for name in BROKERS if name not in away]


def check_commits(brokers: ScriptedBrokers) -> None:
    """All queues of the brokers that answer are committed."""
    done = [name for name, code in brokers.log if code == RequestCode.UPDATE_CONSUMER_OFFSET]
    for name in healthy(brokers):
        assert done.count(name) >= QUEUE_COUNT


def simple(brokers: ScriptedBrokers) -> SimpleConsumer:
    """A simple consumer."""
    return SimpleConsumer(URL_OF_TWO, group="g", subscriptions={"T": "*"}, dial=brokers.dial)


async def receive(brokers: ScriptedBrokers, outage: Outage) -> object:
    """Receive twice: each call begins with another broker."""
    async with simple(brokers) as consumer, outage:
        first = await consumer.receive(wait_s=WAIT_S)
        return [*first, *await consumer.receive(wait_s=WAIT_S)]


async def ack(brokers: ScriptedBrokers, outage: Outage) -> None:
    """Acknowledge a message of each broker."""
    async with simple(brokers) as consumer:
        messages = [*await consumer.receive(1), *await consumer.receive(1)]
        assert {each.queue.broker_name for each in messages} == set(BROKERS)
        async with outage:
            await consumer.ack_all(messages)


async def poll(brokers: ScriptedBrokers, outage: Outage) -> object:
    """Look the queues up, and poll."""
    options: dict[str, Any] = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}
    consumer = PullConsumer(URL_OF_TWO, group="g", dial=brokers.dial, **options)
    async with consumer, outage:
        consumer.assign(await consumer.queues("T"))
        return await consumer.poll(timeout_s=WAIT_S)


def know(brokers: ScriptedBrokers, client_id: str) -> None:
    """Have the brokers know one member of the group."""
    body = GetConsumerListByGroupResponseBody(consumer_id_list=[client_id]).to_body()
    answer = RemotingCommand(ResponseCode.SUCCESS, body=body)
    brokers.answer(RequestCode.GET_CONSUMER_LIST_BY_GROUP, answer)


async def subscribe(brokers: ScriptedBrokers, outage: Outage) -> object:
    """Subscribe by a pull consumer, and poll."""
    options: dict[str, Any] = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}
    consumer = PullConsumer(URL_OF_TWO, group="g", dial=brokers.dial, **options)
    know(brokers, consumer.client.client_id)
    async with consumer, outage:
        consumer.subscribe("T")
        return await consumer.poll(timeout_s=WAIT_S)


async def close_puller(brokers: ScriptedBrokers, outage: Outage) -> None:
    """Close a pull consumer that has consumed a message of each queue."""
    options: dict[str, Any] = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}
    consumer = await PullConsumer(URL_OF_TWO, group="g", dial=brokers.dial, **options).open()
    consumer.assign(await consumer.queues("T"))
    for _ in range(len(BROKERS) * QUEUE_COUNT):
        assert await consumer.poll(max=1)
    async with outage:
        await consumer.close()
    check_commits(brokers)
    for name in healthy(brokers):
        assert (name, RequestCode.UNREGISTER_CLIENT) in brokers.log


async def administer(brokers: ScriptedBrokers, outage: Outage) -> object:
    async with Admin(URL_OF_TWO, dial=brokers.dial) as admin, outage:
        return await admin.system_topics()


OPERATIONS: Final[dict[str, Operation]] = {
    "send": send,
    "send oneway": send_oneway,
    "batch": send_batch,
    "transaction": transaction,
    "consume by pull": consume(),
    "consume by pop": consume(mode="pop"),
    "consume in order": consume(is_orderly=True),
    "commit": commit,
    "close": close,
    "close a producer": close_producer,
    "receive": receive,
    "acknowledge": ack,
    "poll": poll,
    "subscribe and poll": subscribe,
    "close a pull consumer": close_puller,
    "administer": administer,
}
