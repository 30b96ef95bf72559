"""Mistakes in what programs give to queues, settling, deliveries and functions that are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import anyio
import pytest

import trocket
from trocket import ClientError, Message, MessageQueue, blocking
from trocket.testing import Broker

URL = "rocketmq://127.0.0.1:9876"
DOORS = {"trocket": trocket, "blocking": blocking}
THERE = datetime(2026, 11, 27, tzinfo=UTC)

Made = Callable[[ModuleType], object]
Use = Callable[[Any, MessageQueue], Any]


async def twice(body: object) -> bytes:
    return b"x"


def transactions(door: ModuleType, check: Any) -> object:
    return door.TransactionProducer(URL, group="g", check=check)


CONSTRUCTORS: dict[str, tuple[Made, str]] = {
    "host and port": (lambda d: d.Producer(("a", 9876)), "write Producer('a:9876', ...)"),
    "a broker": (lambda d: d.Producer(Broker()), "write Producer(broker.url, ...)"),
    "the scheme twice": (
        lambda d: d.Producer("rocketmq://a:1;rocketmq://b:1"),
        "name server 2 ('rocketmq://b:1') begins with rocketmq:// again: write it once",
    ),
    "a topic in the URL": (lambda d: d.Producer("rocketmq://a:1/orders"), "has a path behind it"),
    "a slash": (lambda d: d.Producer("a:1/"), "has a path behind it"),
    "a space": (lambda d: d.Producer("a:1 b:1"), "has a space: write a ';' between"),
    "a namespace with a space": (
        lambda d: d.Producer(URL, namespace="my shop"),
        "give a str of letters a-z and A-Z, digits, '|', '_' and '-'",
    ),
    "an async serializer": (
        lambda d: d.Producer(URL, serializer=twice),
        "give a function, or None; it is async, and is called where nothing awaits it",
    ),
    "an async deserializer": (
        lambda d: d.PushConsumer(URL, group="g", subscriptions={"T": "*"}, deserializer=twice),
        "remove its `async`",
    ),
    "an async on_connection": (
        lambda d: d.Producer(URL, on_connection=twice),
        "remove its `async`",
    ),
    "transactional_id": (
        lambda d: d.Producer(URL, transactional_id="shop"),
        "write TransactionProducer(url, group='shop', check=check)",
    ),
    "subscriptions of a pull consumer": (
        lambda d: d.PullConsumer(URL, group="g", subscriptions={"T": "*"}),
        "a PullConsumer has subscribe('orders')",
    ),
    "a check that is text": (lambda d: transactions(d, "commit"), "such as `def check(message):"),
    "a check without a message": (
        lambda d: transactions(d, lambda: "commit"),
        "check is called as check(message)",
    ),
    "a check as Java's listener": (
        lambda d: transactions(d, lambda message, argument: "commit"),
        "missing a required argument: 'argument'",
    ),
    "an endless batch": (lambda d: d.Producer(URL, linger_s=float("inf")), "at most 3600"),
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(("make", "text"), CONSTRUCTORS.values(), ids=CONSTRUCTORS)
def test_a_wrong_argument_is_refused_with_what_to_write(
    door: ModuleType, make: Made, text: str
) -> None:
    with pytest.raises(ClientError) as refused:
        make(door)
    assert text in str(refused.value)
    assert "=inf" not in str(refused.value)


def test_a_push_consumer_without_group_is_still_refused_for_its_group() -> None:
    with pytest.raises(ClientError, match="PushConsumer needs group: write"):
        trocket.PushConsumer(URL, subscriptions={"T": "*"})  # type: ignore[call-overload]


PULLS: dict[str, tuple[Use, str]] = {
    "seek a topic": (lambda c, q: c.seek("T", 0), "'T' is no queue"),
    "seek a tuple": (lambda c, q: c.seek(("T", 0), 0), "give one of consumer.assignment"),
    "seek to a text": (lambda c, q: c.seek(q, "0"), "give an int from 0 on"),
    "begin of a topic": (lambda c, q: c.seek_to_begin("T"), "'T' is no queue"),
    "end of a topic": (lambda c, q: c.end_offset("T"), "'T' is no queue"),
    "committed of a topic": (lambda c, q: c.committed("T"), "consumer.queues('orders')"),
    "position of a topic": (lambda c, q: c.position("T"), "'T' is no queue"),
    "a time in seconds": (
        lambda c, q: c.seek_to_time(q, 1_795_000_000.5),
        "in seconds: write 1795000000500",
    ),
    "a time as datetime": (lambda c, q: c.offset_at(q, THERE), "write 1795737600000"),
    "pause a topic": (lambda c, q: c.pause("T"), "pause takes a list of queues, and got 'T'"),
    "pause a queue": (lambda c, q: c.pause(q), "write pause(consumer.assignment), or pause([q"),
    "resume a topic": (lambda c, q: c.resume("T"), "resume takes a list of queues"),
    "commit a text": (lambda c, q: c.commit("T"), "write commit() for all that was polled"),
    "commit a list": (lambda c, q: c.commit([q]), "commit({message.queue: message.queue_offset"),
    "commit a topic": (lambda c, q: c.commit({"T": 3}), "'T' is no queue"),
    "commit None": (lambda c, q: c.commit({q: None}), "give an int from 0 on"),
    "pull a topic": (lambda c, q: c.pull("T", 0), "'T' is no queue"),
    "poll in ms": (lambda c, q: c.poll(timeout_ms=100), "write poll(timeout_s=1), in seconds"),
    "max_records": (lambda c, q: c.poll(max_records=9), "write poll(32)"),
    "an unknown name": (lambda c, q: c.poll(partitions=[0]), "has no argument partitions=[0]"),
    "stop": (lambda c, q: c.stop(), "the end of the `with` block closes it"),
    "lag": (lambda c, q: c.lag(), "write end_offset(queue), less position(queue)"),
}


def call(made: Any, use: Callable[[Any], Any]) -> None:
    """Open an object of either door, and use it."""

    async def used() -> None:
        async with made as opened:
            outcome = use(opened)
            if inspect.isawaitable(outcome):
                await outcome

    if type(made).__module__.startswith("trocket.blocking"):
        with made as opened:
            use(opened)
    else:
        anyio.run(used)


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(("use", "text"), PULLS.values(), ids=PULLS)
def test_a_wrong_queue_or_offset_is_refused_with_what_to_write(
    broker: Broker, topic: str, group: str, door: ModuleType, use: Use, text: str
) -> None:
    def assign_and_use(consumer: Any) -> Any:
        queue = MessageQueue(topic, "broker-a", 0)
        consumer.assign([queue])
        return use(consumer, queue)

    with pytest.raises((ClientError, AttributeError)) as refused:
        call(door.PullConsumer(broker.url, group=group), assign_and_use)
    assert text in str(refused.value)


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_a_queue_of_another_member_is_not_to_be_assigned_by_hand(
    broker: Broker, topic: str, group: str, door: ModuleType
) -> None:
    def seek(consumer: Any) -> None:
        consumer.subscribe(topic)
        consumer.seek(MessageQueue(topic, "broker-a", 1000), 0)

    with pytest.raises(ClientError, match="not assigned to this consumer, or not yet"):
        call(door.PullConsumer(broker.url, group=group), seek)


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_subscribing_to_none_says_what_to_write(
    broker: Broker, group: str, door: ModuleType
) -> None:
    with pytest.raises(ClientError, match=r"got None: write subscribe\('orders'\)"):
        call(door.PullConsumer(broker.url, group=group), lambda c: c.subscribe(None))


SIMPLE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a count as text": (lambda c: c.receive("1"), "an int of 1 to 32"),
    "a time as count": (lambda c: c.receive(1.5), "a time is receive(wait_s=...)"),
    "milliseconds": (lambda c: c.receive(1, wait_s=5000), "write wait_s=5"),
    "seconds as text": (lambda c: c.receive(invisible_s="60"), "give 0.001 to 259200 seconds"),
    "timeout": (lambda c: c.receive(timeout=3), "write receive(wait_s=1)"),
    "ack None": (lambda c: c.ack(None), "and got None: write ack(message)"),
    "ack an id": (lambda c: c.ack("7F00"), "ack takes a message that a SimpleConsumer received"),
    "ack a list": (lambda c: c.ack([]), "write ack_all(messages)"),
    "ack_all of ids": (lambda c: c.ack_all(["7F00"]), "write ack_all(message)"),
    "an id to change": (
        lambda c: c.change_invisible("7F00", 1),
        "write change_invisible(message, seconds)",
    ),
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(("use", "text"), SIMPLE.values(), ids=SIMPLE)
def test_a_wrong_call_of_a_simple_consumer_is_refused_with_what_to_write(
    broker: Broker,
    topic: str,
    group: str,
    door: ModuleType,
    use: Callable[[Any], Any],
    text: str,
) -> None:
    made = door.SimpleConsumer(broker.url, group=group, subscriptions={topic: "*"})
    with pytest.raises(ClientError) as refused:
        call(made, use)
    assert text in str(refused.value)


SENDS: dict[str, tuple[Callable[[Any, str], Any], str]] = {
    "a selector that is a number": (
        lambda p, t: p.send(Message(t, b"x"), selector=3),
        "selector is 3: give a function, such as `def choose(queues, message): ...`",
    ),
    "a selector of one argument": (
        lambda p, t: p.send(Message(t, b"x"), selector=lambda queues: queues[0]),
        "selector is called as choose(queues, message)",
    ),
    "a text in a batch": (
        lambda p, t: p.send_batch([Message(t, b"x"), "y"]),
        "for [1]: send takes a Message, and got 'y': write send(Message('orders', 'y'))",
    ),
    "value": (lambda p, t: p.send(t, value=b"x"), "write send(Message('orders', b'...'))"),
    "key": (
        lambda p, t: p.send(Message(t, b"x"), key="k"),
        "send(Message('orders', b'...', keys='order-1'))",
    ),
    "timeout": (lambda p, t: p.send(Message(t, b"x"), timeout=3), "timeout_s=5), in seconds"),
    "stop": (lambda p, t: p.stop(), "the end of the `with` block closes it"),
    "begin_transaction": (
        lambda p, t: p.begin_transaction(),
        "write `async with producer.transaction(message):`",
    ),
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(("use", "text"), SENDS.values(), ids=SENDS)
def test_a_wrong_send_is_refused_with_what_to_write(
    broker: Broker, topic: str, door: ModuleType, use: Callable[[Any, str], Any], text: str
) -> None:
    with pytest.raises((ClientError, AttributeError)) as refused:
        call(door.Producer(broker.url), lambda opened: use(opened, topic))
    assert text in str(refused.value)
    assert broker.messages(topic) == []


def test_a_type_error_within_a_selector_is_raised_as_it_is(broker: Broker, topic: str) -> None:
    def choose(queues: Any, message: Any) -> MessageQueue:
        raise TypeError("of the program")

    with (
        blocking.Producer(broker.url) as producer,
        pytest.raises(TypeError, match="of the program"),
    ):
        producer.send(Message(topic, b"x"), selector=choose)


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        (trocket.Delivery, "result", "write `await delivery`"),
        (trocket.Delivery, "add_done_callback", "a task that does `await delivery`"),
        (blocking.Delivery, "get", "in trocket.blocking delivery.result()"),
        (blocking.Delivery, "status", "the result has it"),
        (trocket.SendResult, "get", "it is the result already"),
        (trocket.Client, "send", "write Producer(client)"),
        (blocking.Client, "subscribe", "write PushConsumer(client, group='billing'"),
        (trocket.Admin, "stop", "call close()"),
        (trocket.PushedMessage, "reject", "retry(-1)"),
        (trocket.ReceivedMessage, "retry", "seek(queue, offset)"),
        (trocket.PushedMessage, "json", "json.loads(message.body)"),
        (trocket.PushedMessage, "reply", "producer.reply(message, body)"),
    ],
)
def test_attributes_of_other_clients_say_what_to_write(kind: type, name: str, text: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(kind, name)
    assert text in str(refused.value)


def test_a_lambda_without_a_message_is_written_as_one(
    broker: Broker, topic: str, group: str
) -> None:
    made = trocket.PushConsumer(broker.url, group=group, subscriptions={topic: "*"})
    with pytest.raises(ClientError, match=r"write `lambda message: \.\.\.`"):
        call(made, lambda consumer: consumer.run(lambda: None))


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(
    ("names", "text"),
    [
        ({"workers": 4}, "write run(handler, concurrency=20)"),
        ({"prefetch_count": 4}, "pull_threshold_for_queue"),
        ({"batch_size": 4}, "write run(handler, batch=32)"),
        ({"timeout_s": 4}, "call stop()"),
    ],
)
def test_run_says_how_its_arguments_are_called(
    broker: Broker,
    topic: str,
    group: str,
    door: ModuleType,
    names: dict[str, Any],
    text: str,
) -> None:
    made = door.PushConsumer(broker.url, group=group, subscriptions={topic: "*"})
    with pytest.raises(ClientError) as refused:
        call(made, lambda consumer: consumer.run(lambda message: None, **names))
    assert text in str(refused.value)


def test_receive_in_a_loop_says_how_to_limit_its_time(
    broker: Broker, topic: str, group: str
) -> None:
    made = trocket.PushConsumer(broker.url, group=group, subscriptions={topic: "*"})
    with pytest.raises(ClientError, match=r"`async with asyncio\.timeout\(1\):` around it"):
        call(made, lambda consumer: consumer.receive(timeout_s=3))
