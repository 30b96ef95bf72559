"""What new users type who know another client: each error says what to write, in both doors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import anyio
import pytest

import trocket
from trocket import (
    Client,
    ClientError,
    CompressionType,
    ConsumeFromWhere,
    Interceptor,
    Message,
    MessageModel,
    Producer,
    ProducerOptions,
    PullConsumer,
    PullConsumerOptions,
    PushConsumer,
    PushConsumerOptions,
    RebalanceListener,
    SendResult,
    SendStatus,
    SimpleConsumer,
    blocking,
)
from trocket.client.options.push_options import PushConsumerConfig
from trocket.client.options.send_options import ProducerConfig
from trocket.testing import Broker

URL = "rocketmq://127.0.0.1:9876"
THERE = datetime(2026, 11, 27, tzinfo=UTC)
DOORS = {"trocket": trocket, "blocking": blocking}

Made = Callable[[ModuleType], object]


def producer(door: ModuleType, **options: Any) -> object:
    return door.Producer(URL, **options)


def push(door: ModuleType, **options: Any) -> object:
    return door.PushConsumer(URL, **{"group": "g", "subscriptions": {"T": "*"}} | options)


def pull(door: ModuleType, **options: Any) -> object:
    return door.PullConsumer(URL, group="g", **options)


def subscribed(door: ModuleType, selector: object) -> object:
    return push(door, subscriptions={"T": selector})


class Lost(Interceptor):
    def before_send(self, message: Message) -> Message:
        return None  # type: ignore[return-value]  # forgotten


CONSTRUCTORS: dict[str, tuple[Made, str]] = {
    # The servers
    "no address": (lambda d: d.Producer(), "write Producer('rocketmq://127.0.0.1:9876')"),
    "None": (lambda d: d.Producer(None), "write Producer('rocketmq://127.0.0.1:9876'"),
    "None, client": (lambda d: d.Client(None), "write Client('rocketmq://127.0.0.1:9876'"),
    "None, admin": (lambda d: d.Admin(None), "write Admin('rocketmq://127.0.0.1:9876'"),
    "a list": (lambda d: d.Producer(["a:1", "b:1"]), "write Producer('a:1;b:1'"),
    "bytes": (lambda d: d.Producer(b"a:1"), "write Producer('a:1'"),
    "a comma": (lambda d: d.Producer("a:1,b:1"), "write a ';' between name servers"),
    "kafka://": (lambda d: d.Producer("kafka://a:9092"), "write rocketmq://host:port"),
    "bootstrap_servers": (lambda d: d.Producer(bootstrap_servers="a:1"), "Write Producer('rocket"),
    "servers": (lambda d: d.Producer(servers=["a:1"]), "the first argument"),
    "host and port": (lambda d: d.Producer(host="a", port=1), "the first argument"),
    "broker": (lambda d: d.Producer(broker="amqp://a"), "the first argument"),
    "name_server_address": (lambda d: producer(d, name_server_address="a"), "first argument"),
    # Names of groups and topics
    "a group that is 3": (lambda d: producer(d, group=3), "give its name as str"),
    "a group that is None": (lambda d: push(d, group=None), "give its name as str"),
    "a group with a space": (lambda d: push(d, group="my group"), "as in 'my_group'"),
    "a group by position": (lambda d: d.Producer(URL, "g"), "group='billing')"),
    "all by position": (lambda d: d.PushConsumer(URL, "g", {"T": "*"}), "group='billing', subsc"),
    "no group": (
        lambda d: d.PullConsumer(URL),
        "write PullConsumer('rocketmq://127.0.0.1:9876', g",
    ),
    "no topics": (lambda d: d.PushConsumer(URL, group="g"), "subscriptions={'orders': '*'})"),
    "group_id": (lambda d: d.PullConsumer(URL, group_id="g"), "write group='...'"),
    "consumerGroup": (lambda d: push(d, consumerGroup="g"), "write group='...'"),
    "durable": (lambda d: d.PullConsumer(URL, durable="g"), "write group='...'"),
    "topics": (lambda d: d.PushConsumer(URL, group="g", topics=["T"]), "subscriptions={'orders':"),
    "a topic with a space": (
        lambda d: push(d, subscriptions={"my topic": "*"}),
        "as in 'my_topic'",
    ),
    # Options of a wrong type
    "seconds as str": (lambda d: producer(d, timeout_s="3"), "write timeout_s=3"),
    "seconds as timedelta": (
        lambda d: producer(d, send_timeout_s=timedelta(minutes=1)),
        "write send_timeout_s=60",
    ),
    "milliseconds": (lambda d: producer(d, timeout_s=3000), "for milliseconds write timeout_s=3"),
    "milliseconds, rebalance": (lambda d: push(d, rebalance_s=20_000), "write rebalance_s=20"),
    "a count as str": (lambda d: push(d, pull_batch_size="32"), "write pull_batch_size=32"),
    "a time in seconds": (
        lambda d: push(d, consume_timestamp_ms=1_795_000_000),
        "write consume_timestamp_ms=1795000000000",
    ),
    "a time as datetime": (
        lambda d: push(d, consume_timestamp_ms=THERE),
        "write consume_timestamp_ms=1795737600000",
    ),
    "a class of interceptors": (lambda d: producer(d, interceptors=[Interceptor]), "objects"),
    "one interceptor": (lambda d: producer(d, interceptors=Interceptor()), "give a list"),
    "a class of listeners": (
        lambda d: push(d, listener=RebalanceListener),
        "write listener=RebalanceListener()",
    ),
    "a strategy's name": (lambda d: push(d, strategy="AVG"), "AllocateMessageQueueAveragely()"),
    "credentials as tuple": (lambda d: producer(d, credentials=("a", "b")), 'Credentials("access'),
    "tls as path": (lambda d: producer(d, tls="ca.pem"), "write tls=TlsOptions(ca_file='ca.pem')"),
    "earliest": (lambda d: pull(d, consume_from_where="earliest"), "'first', 'last', 'timestamp'"),
    "model": (lambda d: push(d, message_model="fanout"), "'clustering', 'broadcasting'"),
    "gzip": (lambda d: producer(d, compression="gzip"), "'zlib', 'lz4', 'zstd'"),
    "mode": (lambda d: push(d, mode="poll"), 'give "pull" or "pop"'),
    # Options that are called otherwise
    "misspelled": (lambda d: producer(d, retry_time=3), "the nearest one is retry_times"),
    "in camel case": (lambda d: push(d, pullBatchSize=3), "the nearest one is pull_batch_size"),
    "in milliseconds": (lambda d: producer(d, timeout_ms=3), "write timeout_s, in seconds"),
    "auto_offset_reset": (lambda d: pull(d, auto_offset_reset="earliest"), "='first'"),
    "enable_auto_commit": (lambda d: pull(d, enable_auto_commit=False), "write auto_commit"),
    "value_serializer": (lambda d: producer(d, value_serializer=repr), "write serializer="),
    "acks": (lambda d: producer(d, acks="all"), "waits for the broker's confirmation"),
    "linger_ms": (lambda d: producer(d, linger_ms=5), "write linger_s, in seconds"),
    "prefetch_count": (lambda d: push(d, prefetch_count=1), "write pull_threshold_for_queue"),
    "callback": (lambda d: push(d, cb=print), "consumer.run(handler)"),
    "concurrency": (lambda d: push(d, concurrency=4), "consumer.run(handler, concurrency=20)"),
    "access_key": (lambda d: producer(d, access_key="a"), "credentials=Credentials("),
    "orderly": (lambda d: push(d, orderly=True), "is_orderly"),
    "of another class": (lambda d: producer(d, is_orderly=True), "an option of another class"),
    # Subscriptions
    "a list of topics": (lambda d: push(d, subscriptions=["T", "U"]), "{'T': '*', 'U': '*'}"),
    "a topic alone": (lambda d: push(d, subscriptions="T"), "{'T': '*'}"),
    "one bar": (lambda d: subscribed(d, "a|b"), "write 'a || b'"),
    "a comma in tags": (lambda d: subscribed(d, "a,b"), "write 'a || b'"),
    "a bar too many": (lambda d: subscribed(d, "a || "), "write 'a'"),
    "or": (lambda d: subscribed(d, "a or b"), "write 'a || b'"),
    "a star among tags": (lambda d: subscribed(d, "a || *"), "write '*' for all messages"),
    "a condition": (lambda d: subscribed(d, "price > 3"), "write Sql('price > 3')"),
    "None as tags": (lambda d: subscribed(d, None), "write {'T': '*'}"),
    "a list of tags": (lambda d: subscribed(d, ["a", "b"]), "write 'a || b'"),
    "a handler": (lambda d: subscribed(d, print), "give the handler to run"),
    "one bar, simple": (
        lambda d: d.SimpleConsumer(URL, group="g", subscriptions={"T": "a|b"}),
        "write 'a || b'",
    ),
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(("make", "text"), CONSTRUCTORS.values(), ids=CONSTRUCTORS)
def test_a_wrong_argument_is_refused_with_what_to_write(
    door: ModuleType, make: Made, text: str
) -> None:
    with pytest.raises(ClientError) as refused:
        make(door)
    assert text in str(refused.value)


OPTIONS = [
    *((producer, name) for name in (*ProducerOptions.__annotations__, "serializer")),
    *((push, name) for name in (*PushConsumerOptions.__annotations__, "deserializer")),
    *((pull, name) for name in PullConsumerOptions.__annotations__),
]


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(("make", "name"), OPTIONS)
def test_no_option_takes_a_value_of_a_wrong_type(door: ModuleType, make: Any, name: str) -> None:
    with pytest.raises(ClientError, match=f"{name} is .*: give"):
        make(door, **{name: object()})


MESSAGES: dict[str, tuple[dict[str, Any], str]] = {
    "a key that is a number": ({"keys": 7}, "write keys='7'"),
    "keys that are numbers": ({"keys": [7]}, "write '7'"),
    "a property that is a number": ({"properties": {"n": 7}}, "'n': '7'"),
    "several tags": ({"tags": "a || b"}, "a message has one tag"),
    "a list of tags": ({"tags": ["a"]}, "one tag as str"),
    "a negative delay": ({"delay_s": -1}, "seconds from 0 on"),
    "a delay as timedelta": ({"delay_s": timedelta(minutes=2)}, "write delay_s=120"),
    "a negative level": ({"delay_level": -1}, "write delay_s"),
    "a level that is a time": ({"delay_level": 2.5}, "write delay_s"),
    "a time in seconds": ({"deliver_at_ms": 1_795_000_000}, "write deliver_at_ms=1795000000000"),
    "seconds as float": ({"deliver_at_ms": 1_795_000_000.5}, "write deliver_at_ms=1795000000500"),
    "a float of milliseconds": ({"deliver_at_ms": 1.795e12}, "write deliver_at_ms=1795000000000"),
    "a datetime": ({"deliver_at_ms": THERE}, "write deliver_at_ms=1795737600000"),
    "a topic that is None": ({"topic": None}, "give the name of a topic as str"),
}


@pytest.mark.parametrize(("fields", "text"), MESSAGES.values(), ids=MESSAGES)
def test_a_wrong_field_of_a_message_is_refused_with_what_to_write(
    fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(ClientError) as refused:
        Message(**{"topic": "T", "body": b"x"} | fields)
    assert text in str(refused.value)


Used = Callable[[Any, str, "Results"], Any]
Results = SendResult

SENDS: dict[str, tuple[Used, str]] = {
    "topic and body": (lambda p, t, r: p.send("t", b"x"), "write send(Message('t', b'x'))"),
    "a topic": (lambda p, t, r: p.send("t"), "write send(Message('orders', 't'))"),
    "bytes": (lambda p, t, r: p.send(b"x"), "write send(Message('orders', b'x'))"),
    "None": (lambda p, t, r: p.send(None), "write send(Message('orders', b'...'))"),
    "a list": (lambda p, t, r: p.send([Message(t, b"x")]), "write send_batch(messages)"),
    "a dict": (lambda p, t, r: p.send({"a": 1}), "write send(Message('orders', json.dumps(v"),
    "send_soon": (lambda p, t, r: p.send_soon("t", b"x"), "write send_soon(Message('t', b'x'))"),
    "send_soon, topic": (lambda p, t, r: p.send_soon("t"), "write send_soon(Message('ord"),
    "send_oneway": (
        lambda p, t, r: p.send_oneway("t", b"x"),
        "write send_oneway(Message('t', b'x'",
    ),
    "request": (lambda p, t, r: p.request("t", b"x"), "write request(Message('t', b'x'))"),
    "one for a batch": (lambda p, t, r: p.send_batch(Message(t, b"x")), "send_batch([message])"),
    "several for a batch": (
        lambda p, t, r: p.send_batch(Message(t, b"x"), Message(t, b"y")),
        "write send_batch([first, second])",
    ),
    "a batch of bodies": (lambda p, t, r: p.send_batch([b"x"]), "takes a Message"),
    "timeout by position": (lambda p, t, r: p.send(Message(t, b"x"), 3), "timeout_s=..."),
    "timeout as str": (lambda p, t, r: p.send(Message(t, b"x"), timeout_s="3"), "timeout_s=3"),
    "timeout in ms": (
        lambda p, t, r: p.send(Message(t, b"x"), timeout_s=5000),
        "for milliseconds write timeout_s=5",
    ),
    "timeout as timedelta": (
        lambda p, t, r: p.send(Message(t, b"x"), timeout_s=timedelta(seconds=5)),
        "write timeout_s=5",
    ),
    "a queue's number": (lambda p, t, r: p.send(Message(t, b"x"), queue=0), "producer.queues('"),
    "a selector that gives a number": (
        lambda p, t, r: p.send(Message(t, b"x"), selector=lambda queues, message: 0),
        "such as queues[number % len(queues)]",
    ),
    "a dict as body": (lambda p, t, r: p.send(Message(t, {"a": 1})), "json.dumps(body)"),
    "None as body": (lambda p, t, r: p.send(Message(t, None)), "give bytes or str"),
    "a number as body": (lambda p, t, r: p.send(Message(t, 3)), "give bytes or str"),
    "an empty body": (lambda p, t, r: p.send(Message(t, b"")), "at least one byte"),
    "a topic with a space": (lambda p, t, r: p.send(Message("my topic", b"x")), "as in 'my_topic'"),
    "a level above the table": (
        lambda p, t, r: p.send(Message(t, b"x", delay_level=60)),
        "For a delay in seconds use delay_s",
    ),
    "send_sync": (lambda p, t, r: p.send_sync(Message(t, b"x")), "write send(message)"),
    "send_and_wait": (lambda p, t, r: p.send_and_wait(t, b"x"), "write send(Message("),
    "publish": (lambda p, t, r: p.publish(t, b"x"), "write send(Message("),
    "basic_publish": (lambda p, t, r: p.basic_publish("", t, b"x"), "write send(Message("),
    "send_async": (lambda p, t, r: p.send_async(Message(t, b"x")), "write send_soon(message)"),
    "apply_async": (lambda p, t, r: p.apply_async((1,)), "write send(Message("),
    "flush": (lambda p, t, r: p.flush(), "write drain()"),
    "start": (lambda p, t, r: p.start(), "open()"),
    "shutdown": (lambda p, t, r: p.shutdown(), "close()"),
    "set_namesrv_addr": (lambda p, t, r: p.set_namesrv_addr("a:1"), "the first argument"),
    "msg_id": (lambda p, t, r: r.msg_id, "write message_id"),
    "offset": (lambda p, t, r: r.offset, "write queue_offset"),
}


async def used(made: Any, use: Callable[[Any], Any]) -> None:
    async with made as opened:
        outcome = use(opened)
        if inspect.isawaitable(outcome):
            await outcome


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(("use", "text"), SENDS.values(), ids=SENDS)
def test_a_wrong_send_is_refused_with_what_to_write(
    broker: Broker, topic: str, door: ModuleType, use: Used, text: str
) -> None:
    with blocking.Producer(broker.url) as first:
        result = first.send(Message(topic, b"x"))
    made = door.Producer(broker.url)
    with pytest.raises((ClientError, AttributeError)) as refused:
        call(made, lambda opened: use(opened, topic, result))
    assert text in str(refused.value)
    assert len(broker.messages(topic)) == 1


def call(made: Any, use: Callable[[Any], Any]) -> None:
    """Open an object of either door, and use it."""
    if type(made).__module__.startswith("trocket.blocking"):
        with made as opened:
            use(opened)
    else:
        anyio.run(used, made, use)


PULLS: dict[str, tuple[Callable[[Any, str], Any], str]] = {
    "poll before subscribe": (lambda c, t: c.poll(), "call subscribe('orders')"),
    "a time as count": (lambda c, t: [c.subscribe(t), c.poll(1.0)][1], "poll(timeout_s=...)"),
    "no messages": (lambda c, t: [c.subscribe(t), c.poll(0)][1], "an int from 1 on"),
    "poll in milliseconds": (
        lambda c, t: [c.subscribe(t), c.poll(timeout_s=5000)][1],
        "write timeout_s=5",
    ),
    "a topic to assign": (lambda c, t: c.assign([t]), "subscribe('orders')"),
    "tags with one bar": (lambda c, t: c.subscribe(t, "a|b"), "write 'a || b'"),
    "a number to subscribe": (lambda c, t: c.subscribe([3]), "give its name as str"),
    "getmany": (lambda c, t: c.getmany(timeout_ms=1), "write poll(32, timeout_s=1)"),
    "seek_to_beginning": (lambda c, t: c.seek_to_beginning(), "write seek_to_begin(queue)"),
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(("use", "text"), PULLS.values(), ids=PULLS)
def test_a_wrong_call_of_a_pull_consumer_is_refused_with_what_to_write(
    broker: Broker,
    topic: str,
    group: str,
    door: ModuleType,
    use: Callable[[Any, str], Any],
    text: str,
) -> None:
    made = door.PullConsumer(broker.url, group=group)
    with pytest.raises((ClientError, AttributeError)) as refused:
        call(made, lambda opened: use(opened, topic))
    assert text in str(refused.value)


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("subscribe", "subscriptions={'orders': '*'}"),
        ("register_message_listener", "consumer.run(handler)"),
        ("start_consuming", "consumer.run(handler)"),
        ("getone", "write receive()"),
        ("start", "open()"),
        ("shutdown", "close()"),
    ],
)
def test_methods_of_other_push_consumers_say_what_to_write(
    door: ModuleType, name: str, text: str
) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(push(door), name)
    assert text in str(refused.value)
    assert not hasattr(push(door), name)


def test_an_interceptor_that_returns_no_message(broker: Broker, topic: str) -> None:
    made = blocking.Producer(broker.url, interceptors=[Lost()])
    with made as opened, pytest.raises(ClientError, match="return the message, or a changed one"):
        opened.send(Message(topic, b"x"))


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_a_received_message_is_forwarded_as_a_copy(
    broker: Broker, topic: str, group: str, door: ModuleType
) -> None:
    target = f"To_{topic}"
    broker.create_topic(target, queues=1)
    sent = Message(
        topic,
        "x",
        tags="created",
        keys=["order-1", "order-2"],
        properties={"region": "eu"},
        sharding_key="s",
        flag=7,
    )
    with (
        blocking.Producer(broker.url) as first,
        blocking.PullConsumer(broker.url, group=group, consume_from_where="first") as consumer,
    ):
        first.send(sent)
        consumer.subscribe(topic)
        (received,) = consumer.poll(1)
    for verb in ("send", "send_soon", "send_oneway", "request"):
        with pytest.raises(ClientError, match=r"received\.copy_to\('topic'\)"):
            call(door.Producer(broker.url), lambda p, verb=verb: getattr(p, verb)(received))
    call(door.Producer(broker.url), lambda p: p.send(received.copy_to(target)))
    (copy,) = broker.messages(target)
    assert copy.body == b"x"
    for name, value in received.copy_to(target).properties.items():
        assert copy.properties[name] == value
    assert (copy.tags, copy.keys, copy.flag) == ("created", "order-1 order-2", 7)
    assert copy.properties["region"] == "eu"
    assert copy.unique_key != received.message_id


def transaction(door: ModuleType) -> Any:
    transactions = door.TransactionProducer(URL, group="g", check=lambda message: "commit")
    return transactions.transaction(Message("T", b"x"))


def test_the_wrong_kind_of_with_or_for_names_the_right_one() -> None:
    with pytest.raises(TypeError, match="write `async with Producer"):
        Producer(URL).__enter__()  # type: ignore[attr-defined]  # as `with` does
    with pytest.raises(TypeError, match="write `async for message in"):
        iter(PushConsumer(URL, group="g", subscriptions={"T": "*"}))  # type: ignore[call-overload]

    with pytest.raises(TypeError, match=r"async with producer\.transaction\(message\):"):
        transaction(trocket).__enter__()

    async def scenario() -> None:
        with pytest.raises(TypeError, match="write `with Producer"):
            async with blocking.Producer(URL):  # type: ignore[attr-defined]
                pytest.fail("it opened")
        with pytest.raises(TypeError, match=r"`with producer\.transaction\(message\):"):
            async with transaction(blocking):
                pytest.fail("it began")
        consumer = blocking.PushConsumer(URL, group="g", subscriptions={"T": "*"})
        with pytest.raises(TypeError, match="write `for message in"):
            aiter(consumer)  # type: ignore[call-overload]

    anyio.run(scenario)


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_an_object_that_is_not_open_or_closed_says_what_to_do(
    broker: Broker, topic: str, door: ModuleType
) -> None:
    made = door.Producer(broker.url)

    async def send() -> None:
        outcome = made.send(Message(topic, b"x"))
        if inspect.isawaitable(outcome):
            await outcome

    if door is blocking:
        with pytest.raises(ClientError, match=r"use `with`, or call its `open\(\)` first"):
            made.send(Message(topic, b"x"))
    else:
        with pytest.raises(ClientError, match=r"use `async with`, or `await` its `open\(\)`"):
            anyio.run(send)
    call(made, lambda opened: None)
    with pytest.raises(ClientError, match="create another one"):
        made.send(Message(topic, b"x")) if door is blocking else anyio.run(send)


def test_a_client_of_the_other_door_is_named() -> None:
    with pytest.raises(ClientError, match=r"share a trocket\.blocking\.Client"):
        blocking.Producer(Client(URL))  # type: ignore[arg-type]
    with pytest.raises(ClientError, match=r"share a trocket\.Client"):
        Producer(blocking.Client(URL))  # type: ignore[arg-type]


@pytest.mark.parametrize("result", [False, "RECONSUME_LATER", ValueError("no")])
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_a_handler_that_returns_a_failure_has_its_message_again(
    broker: Broker,
    topic: str,
    group: str,
    door: ModuleType,
    result: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[int] = []

    def handle(message: Any) -> object:
        seen.append(message.reconsume_times)
        if len(seen) == 1:
            return result
        consumer.stop()
        return None

    with blocking.Producer(broker.url) as first:
        first.send(Message(topic, b"x"))
    consumer = door.PushConsumer(
        broker.url,
        group=group,
        subscriptions={topic: "*"},
        consume_from_where="first",
        is_orderly=True,  # the message comes again at once
        suspend_queue_s=0.01,
    )
    call(consumer, lambda opened: opened.run(handle))
    assert seen == [0, 1]
    assert "write `raise RetryLater()` to have it again" in caplog.text


STRINGS = [
    (push, "consume_from_where", "first", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
    (push, "consume_from_where", "timestamp", ConsumeFromWhere.CONSUME_FROM_TIMESTAMP),
    (pull, "consume_from_where", "last", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
    (push, "message_model", "broadcasting", MessageModel.BROADCASTING),
    (push, "message_model", "CLUSTERING", MessageModel.CLUSTERING),
    (producer, "compression", "zlib", CompressionType.ZLIB),
]


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(("make", "name", "text", "member"), STRINGS)
def test_an_enum_is_given_by_its_string_too(
    door: ModuleType, make: Any, name: str, text: str, member: object
) -> None:
    make(door, **{name: text})
    config = ProducerConfig if make is producer else PushConsumerConfig
    read, _ = trocket.client.connection.options.split_options(config, {name: text})  # type: ignore[arg-type]
    assert getattr(read, name) is member


def test_a_path_is_given_as_str_too(tmp_path: Any) -> None:
    PushConsumer(
        URL,
        group="g",
        subscriptions={"T": "*"},
        message_model="broadcasting",
        offset_path=str(tmp_path / "offsets.json"),
    )


@pytest.mark.parametrize(
    "kind",
    [
        *(Producer, PushConsumer, PullConsumer, SimpleConsumer, Client),
        *(blocking.Producer, blocking.PushConsumer, blocking.PushedMessage, trocket.Delivery),
    ],
)
def test_completion_shows_what_programs_use_and_nothing_else(kind: type) -> None:
    shown = {name for name in dir(kind) if not name.startswith("_")}
    assert not shown & {
        *("sender", "accumulator", "ready_messages", "handling", "next_message"),
        *("receive_nowait", "again", "inner", "start_soon", "add_member", "settle", "look_at"),
        *("start", "shutdown", "set_namesrv_addr", "publish", "getone"),
    }
    assert shown


def test_completion_of_an_object_shows_the_same() -> None:
    assert "sender" not in dir(Producer(URL))
    assert "send" in dir(Producer(URL))
    assert {"msg_id", "offset"} & set(dir(result_of())) == set()
    assert "message_id" in dir(result_of())


@functools.cache
def result_of() -> SendResult:
    return SendResult(SendStatus.SEND_OK, "id", trocket.MessageQueue("T", "b", 0), 0, "offset id")
