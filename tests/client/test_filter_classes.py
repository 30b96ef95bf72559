"""Push consumers with a FilterClass: an embedded broker and filter servers, in both loops."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

import anyio
import pytest

from trocket import (
    Admin,
    Client,
    ConfigurationError,
    ConsumeFromWhere,
    Credentials,
    FilterClass,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    PushConsumerOptions,
    blocking,
)
from trocket.client.pushing import queue_puller
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from .conftest import Play
from .filter_server import FilterServer
from .support import until

SOURCE = "package org.shop;\npublic class KeepFifth implements MessageFilter { /* … */ }\n"
FIFTHS = FilterClass("org.shop.KeepFifth", SOURCE)
FIRST = PushConsumerOptions(
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    route_refresh_s=0.05,
    heartbeat_s=0.2,
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker for one test only, so that routes do not have filter servers of other tests."""
    with Broker() as broker:
        yield broker


@pytest.fixture(autouse=True)
def pull_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_puller, "PULL_RETRY_S", 0.05)


async def send(url: str, topic: str, count: int, *, size: int = 0) -> None:
    async with Producer(url) as producer:
        for number in range(count):
            await producer.send(Message(topic, f"{number} ".ljust(size, "x")))


async def numbers(consumer: PushConsumer, count: int) -> list[int]:
    """So many messages, each acknowledged."""
    found = []
    for _ in range(count):
        message = await consumer.receive()
        found.append(int(message.text.split()[0]))
        message.ack()
    return found


def fields(request: RemotingCommand) -> dict[str, str]:
    return dict(request.ext_fields)


@contextmanager
def closing_listener() -> Iterator[tuple[str, list[int]]]:
    """Takes connections and closes them at once; its address, and an item for each."""
    taken: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def take() -> None:
            while True:
                connection, _ = listener.accept()
                connection.close()
                if taken and taken[-1] < 0:
                    return
                taken.append(1)

        thread = threading.Thread(target=take)
        thread.start()
        host, port = listener.getsockname()
        yield f"{host}:{port}", taken
        taken.append(-1)
        socket.create_connection((host, port)).close()
        thread.join()


# Uploading and pulling


def test_a_class_is_uploaded_to_every_filter_server_and_decides(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, 100)
        with FilterServer(broker) as one, FilterServer(broker) as two:
            async with PushConsumer(
                broker.url, group=group, subscriptions={topic: FIFTHS}, suspend_s=0.05, **FIRST
            ) as consumer:
                assert await numbers(consumer, 20) == list(range(0, 100, 5))
                await until(lambda: one.classes and two.classes)
                await until(lambda: consumer.positions[queue(topic)] == 100)
            for server in (one, two):
                assert server.classes == {(topic, group): SOURCE.encode()}
                assert fields(server.uploads[0]) == {
                    "topic": topic,
                    "consumerGroup": group,
                    "className": "org.shop.KeepFifth",
                    "classCRC": str(crc32(SOURCE.encode()) & 0x7FFFFFFF),
                }
        assert broker.lag(group, topic) == 0

    play(scenario)


def test_a_pull_at_a_filter_server_says_what_rocketmqs_says(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, 6)
        with FilterServer(broker) as server:
            async with PushConsumer(
                broker.url, group=group, subscriptions={topic: FIFTHS}, **FIRST
            ) as consumer:
                assert await numbers(consumer, 2) == [0, 5]
                subscription = next(s for s in consumer.subscriptions if s.topic == topic)
                await until(lambda: len(server.pulls) > 1)
            first, second = map(fields, server.pulls[:2])
            assert "subscription" not in first
            assert (first["sysFlag"], first["queueOffset"], first["commitOffset"]) == (
                "10",
                "0",
                "0",
            )
            assert (first["maxMsgNums"], first["suspendTimeoutMillis"]) == ("32", "15000")
            assert (first["consumerGroup"], first["topic"]) == (group, topic)
            assert first["subVersion"] == str(subscription.sub_version)
            assert second["queueOffset"] == "6"
            assert {each.ext_fields["topic"] for each in server.pulls} == {topic}
        assert subscription.class_filter_mode
        assert subscription.sub_string == "org.shop.KeepFifth"
        assert (subscription.tags_set, subscription.code_set) == (set(), set())
        assert (subscription.expression_type, subscription.filter_class_source) == ("TAG", None)

    play(scenario)


def test_brokers_hear_of_the_class(play: Play, broker: Broker, topic: str, group: str) -> None:
    async def scenario() -> None:
        with FilterServer(broker):
            async with (
                PushConsumer(broker.url, group=group, subscriptions={topic: FIFTHS}, **FIRST),
                Admin(broker.url) as admin,
            ):
                clients = await admin.clients(group)
        wants = {each.topic: each.expression for each in clients.subscriptions}
        assert wants == {topic: "org.shop.KeepFifth", f"%RETRY%{group}": "*"}

    play(scenario)


def test_what_a_filter_server_encoded_anew_is_as_it_was_sent(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as producer:
            for number, size in ((5, 20_000), (10, 10)):
                body = f"{number} ".ljust(size, "x")
                await producer.send(
                    Message(topic, body, tags="t", keys="k", properties={"mine": "1"})
                )
        with FilterServer(broker):
            async with PushConsumer(
                broker.url, group=group, subscriptions={topic: FIFTHS}, **FIRST
            ) as consumer:
                for size in (20_000, 10):
                    message = await consumer.receive()
                    assert len(message.body) == size
                    assert (message.tags, message.keys) == ("t", ("k",))
                    assert message.user_properties == {"mine": "1"}
                    assert message.properties["MAX_OFFSET"] == "2"
                    message.ack()

    play(scenario)


def test_the_offset_moves_on_past_what_did_not_match(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as producer:
            for _ in range(100):
                await producer.send(Message(topic, "1"))
        with FilterServer(broker) as server:
            async with PushConsumer(
                broker.url, group=group, subscriptions={topic: FIFTHS}, **FIRST
            ) as consumer:
                await until(lambda: consumer.positions.get(queue(topic)) == 100)
                assert len(server.pulls) >= 4
        assert broker.lag(group, topic) == 0

    play(scenario)


def test_what_comes_again_comes_from_the_broker(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, 1)
        with FilterServer(broker) as server:
            async with PushConsumer(
                broker.url, group=group, subscriptions={topic: FIFTHS}, **FIRST
            ) as consumer:
                message = await consumer.receive()
                await message.retry(1)
                await anyio.to_thread.run_sync(lambda: broker.advance(seconds=2))
                again = await consumer.receive()
                assert (again.text, again.topic, again.reconsume_times) == (message.text, topic, 1)
                again.ack()
            assert {each.ext_fields["topic"] for each in server.pulls} == {topic}

    play(scenario)


def test_python_source_says_that_it_is(play: Play, broker: Broker, topic: str, group: str) -> None:
    async def scenario() -> None:
        source = "def match(message): return True  # …\n"
        python = FilterClass("keep.Fifth", source, language="python")
        await send(broker.url, topic, 1)
        with FilterServer(broker) as server:
            async with PushConsumer(
                broker.url, group=group, subscriptions={topic: python}, **FIRST
            ) as consumer:
                assert await numbers(consumer, 1) == [0]
            assert server.uploads[0].ext_fields["sourceLanguage"] == "python"
            assert bytes(server.uploads[0].body) == source.encode()

    play(scenario)


def test_a_class_without_source_is_not_uploaded(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, 6)
        with FilterServer(broker, knows_all=True) as server:
            async with PushConsumer(
                broker.url, group=group, subscriptions={topic: FilterClass("Named")}, **FIRST
            ) as consumer:
                assert await numbers(consumer, 2) == [0, 5]
                await consumer.client.heartbeat()
            assert server.uploads == []

    play(scenario)


def test_topic_and_group_are_in_the_namespace_and_the_class_is_not(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        broker.create_topic(f"shop%{topic}", queues=1)
        await send(broker.url, f"shop%{topic}", 1)
        with FilterServer(broker) as server:
            async with PushConsumer(
                broker.url, group=group, subscriptions={topic: FIFTHS}, namespace="shop", **FIRST
            ) as consumer:
                message = await consumer.receive()
                assert message.topic == topic
                message.ack()
            assert list(server.classes) == [(f"shop%{topic}", f"shop%{group}")]
            assert server.uploads[0].ext_fields["className"] == "org.shop.KeepFifth"

    play(scenario)


def test_what_goes_to_a_filter_server_is_signed(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, 1)
        with FilterServer(broker) as server:
            async with PushConsumer(
                broker.url,
                group=group,
                subscriptions={topic: FIFTHS},
                credentials=Credentials("me", "secret"),
                **FIRST,
            ) as consumer:
                assert await numbers(consumer, 1) == [0]
            for request in server.requests:
                assert request.ext_fields["AccessKey"] == "me"
                assert len(request.ext_fields["Signature"]) == 28

    play(scenario)


def test_threads_have_it_too(broker: Broker, topic: str, group: str) -> None:
    with blocking.Producer(broker.url) as producer:
        for number in range(6):
            producer.send(Message(topic, str(number)))
    with (
        FilterServer(broker) as server,
        blocking.PushConsumer(
            broker.url, group=group, subscriptions={topic: FIFTHS}, **FIRST
        ) as consumer,
    ):
        found = []
        for _ in range(2):
            message = consumer.receive()
            found.append(message.text)
            message.ack()
        assert found == ["0", "5"]
        assert server.uploads


# Trouble


@pytest.mark.slow
def test_a_new_filter_server_gets_the_class_and_is_pulled_from(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    options = PushConsumerOptions(FIRST, heartbeat_s=1000.0)

    async def scenario() -> None:
        with FilterServer(broker) as old:
            async with PushConsumer(
                broker.url, group=group, subscriptions={topic: FIFTHS}, **options
            ) as consumer:
                await until(lambda: old.pulls)
                with FilterServer(broker) as new:
                    await until(lambda: new.classes)
                    old.kill()
                    await send(broker.url, topic, 6)
                    assert await numbers(consumer, 2) == [0, 5]
                    assert new.pulls
                    # Ports are used again, by servers that have no class.
                    uploads = consumer._filter_servers._uploads
                    await until(lambda: list(uploads) == [(topic, new.address)])

    play(scenario)


@pytest.mark.slow
def test_another_filter_server_is_asked_at_once_when_one_is_down(
    play: Play, broker: Broker, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The route still has it: only consumers notice."""
    monkeypatch.setattr(queue_puller, "PULL_RETRY_S", 1000.0)
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

    async def scenario() -> None:
        with FilterServer(broker) as dead, FilterServer(broker) as alive:
            async with Client(broker.url) as client:
                both = {dead.address, alive.address}
                while await routed(client, topic, broker) != both:  # noqa: ASYNC110 - the servers'
                    await anyio.sleep(0.005)
                async with PushConsumer(
                    client, group=group, subscriptions={topic: FIFTHS}, consume_from_where=first
                ) as consumer:
                    await until(lambda: dead.pulls or alive.pulls)
                    dead.close_the_door()
                    for _ in range(10):
                        await send(broker.url, topic, 1)
                        assert await numbers(consumer, 1) == [0]
                    assert await routed(client, topic, broker) == both
        assert broker.lag(group, topic) == 0

    play(scenario)


@pytest.mark.slow
def test_without_any_filter_server_nothing_is_pulled_until_there_is_one(
    play: Play, broker: Broker, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, 6)
        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: FIFTHS}, **FIRST
        ) as consumer:
            await until(lambda: caplog.text.count("has no filter server of this broker") > 2)
            assert consumer.receive_nowait() is None
            assert broker.lag(group, topic) == 6
            with FilterServer(broker):
                assert await numbers(consumer, 2) == [0, 5]

    play(scenario)


def test_a_filter_server_that_forgot_the_class_gets_it_again(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    options = PushConsumerOptions(FIRST, heartbeat_s=1000.0, suspend_s=0.05)
    pull = RequestCode.PULL_MESSAGE

    async def scenario() -> None:
        with FilterServer(broker) as server:
            async with PushConsumer(
                broker.url, group=group, subscriptions={topic: FIFTHS}, **options
            ) as consumer:
                codes: list[int] = []
                # Until no heartbeat of the start is in the way.
                while codes[:3] != [pull, RequestCode.REGISTER_MESSAGE_FILTER_CLASS, pull]:
                    await until(lambda: server.pulls)
                    server.requests.clear()
                    server.classes.clear()
                    await send(broker.url, topic, 1)
                    assert await numbers(consumer, 1) == [0]
                    codes = [request.code for request in server.requests]

    play(scenario)


@pytest.mark.slow
def test_nothing_is_pulled_where_the_class_was_refused_and_that_is_logged_once(
    play: Play, broker: Broker, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, 6)
        with FilterServer(broker, knows_all=True) as server:
            server.refusal = "registerFilterClass error: ';' expected"
            async with PushConsumer(
                broker.url, group=group, subscriptions={topic: FIFTHS}, **FIRST
            ) as consumer:
                # By heartbeats, not by each pull.
                await until(lambda: len(server.uploads) > 2)
                logged = [r for r in caplog.records if r.name.endswith("filter_servers")]
                assert [(r.levelname, "';' expected" in r.getMessage()) for r in logged] == [
                    ("ERROR", True)
                ]
                assert server.pulls == []
                server.refusal = ""
                assert await numbers(consumer, 2) == [0, 5]

    play(scenario)


@pytest.mark.slow
def test_a_filter_server_that_refuses_the_class_does_not_hinder_others(
    play: Play, broker: Broker, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_puller, "PULL_RETRY_S", 1000.0)
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

    async def scenario() -> None:
        with FilterServer(broker, knows_all=True) as other, FilterServer(broker):
            other.refusal = "group G may not upload"
            async with Client(broker.url) as client:
                while len(await routed(client, topic, broker)) < 2:  # noqa: ASYNC110 - a server's
                    await anyio.sleep(0.005)
                async with PushConsumer(
                    client, group=group, subscriptions={topic: FIFTHS}, consume_from_where=first
                ) as consumer:
                    for _ in range(10):
                        await send(broker.url, topic, 1)
                        assert await numbers(consumer, 1) == [0]
            assert other.uploads
            assert other.pulls == []

    play(scenario)


@pytest.mark.slow
def test_a_filter_that_fails_drops_nothing(
    play: Play, broker: Broker, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, 6)
        with FilterServer(broker) as server:
            server.broken = "do Message Filter Exception, ConsumerGroup: G Topic: T "
            async with PushConsumer(
                broker.url, group=group, subscriptions={topic: FIFTHS}, **FIRST
            ) as consumer:
                await until(lambda: caplog.text.count("do Message Filter Exception") > 2)
                server.broken = ""
                assert await numbers(consumer, 2) == [0, 5]
                assert {each.ext_fields["queueOffset"] for each in server.pulls[:3]} == {"0"}

    play(scenario)


def test_a_filter_server_that_closes_connections_does_not_hinder_others(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    options = PushConsumerOptions(FIRST, heartbeat_s=1000.0)

    async def scenario() -> None:
        heartbeats = broker.faults.delay(RequestCode.HEART_BEAT, 0.0, times=None)
        with closing_listener() as (address, taken), FilterServer(broker) as server:
            server.register_another(address)
            async with PushConsumer(
                broker.url, group=group, subscriptions={topic: FIFTHS}, **options
            ) as consumer:
                await until(lambda: taken)
                async with Producer(consumer.client) as producer:
                    for _ in range(10):
                        await producer.send(Message(topic, "5"))
                        assert await numbers(consumer, 1) == [5]
            assert heartbeats.hits < 10
            assert len(server.uploads) < 10

    play(scenario)


# What is refused


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (FilterClass(""), "not the full name of a class"),
        (FilterClass("../../etc/passwd"), "not the full name of a class"),
        (FilterClass("a;b"), "not the full name of a class"),
        (FilterClass("a" * 256), "not the full name of a class"),
        (FilterClass("A", ""), "has 0 bytes"),
        (FilterClass("A", "é" * 32_769), "has 65538 bytes; it has 1 to 65536"),
        (FilterClass("A", "…", "ruby"), "in 'ruby'"),  # type: ignore[arg-type]
    ],
)
def test_a_class_that_no_filter_server_would_take_is_refused(wrong: FilterClass, why: str) -> None:
    for kind in (PushConsumer, blocking.PushConsumer):
        with pytest.raises(ConfigurationError, match=why):
            kind("127.0.0.1:1", group="g", subscriptions={"T": wrong})


def test_the_largest_source_is_taken() -> None:
    consumer = PushConsumer(
        "127.0.0.1:1", group="g", subscriptions={"T": FilterClass("A$B_1.C", "x" * 65_536)}
    )
    assert [each.sub_string for each in consumer.subscriptions] == ["A$B_1.C", "*"]


def test_a_pull_consumer_refuses_it(play: Play, broker: Broker, topic: str, group: str) -> None:
    selector: Any = FIFTHS

    async def scenario() -> None:
        async with PullConsumer(broker.url, group=group) as consumer:
            with pytest.raises(ConfigurationError, match="only push consumers support"):
                consumer.assign(await consumer.queues(topic), selector)
            with pytest.raises(ConfigurationError, match="only push consumers support"):
                await consumer.pull(queue(topic), 0, selector=selector)

    play(scenario)


def test_the_source_is_not_in_logs() -> None:
    assert "KeepFifth" in repr(FIFTHS)
    assert "implements" not in repr(FIFTHS)
    assert hash(FIFTHS) == hash(FilterClass("org.shop.KeepFifth", SOURCE))


async def routed(client: Client, topic: str, broker: Broker) -> set[str]:
    """The filter servers in the name server's route."""
    route = await client.route(topic, is_fresh=True)
    return set(route.filter_server_table.get(broker.broker_address, ()))


def queue(topic: str) -> MessageQueue:
    return MessageQueue(topic, "broker-a", 0)
