"""Mistakes of a program: each is an error at the call that has it, and the text says what to do."""

from __future__ import annotations

import copy
import logging
import subprocess
import sys
from typing import Any

import anyio
import pytest

from trocket import (
    Client,
    ConfigurationError,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ServerError,
    Sql,
    blocking,
)
from trocket.testing import Broker

from .conftest import Play

URL = "rocketmq://127.0.0.1:9876"
PLAIN = {"subscriptions": {"T": "*"}, "group": "g"}


@pytest.mark.parametrize(
    ("kind", "options", "text"),
    [
        (Producer, {"timeout": 3}, "unknown option timeout; the nearest one is timeout_s"),
        (Producer, {"retry_time": 3}, "the nearest one is retry_times"),
        (blocking.Producer, {"retry_time": 3}, "the nearest one is retry_times"),
        (Client, {"heartbeat": 3}, "the nearest one is heartbeat_s"),
        (Producer, {"retry_times": "x"}, "retry_times is 'x': give an int from 0 on"),
        (Producer, {"retry_times": -1}, "give an int from 0 on"),
        (Producer, {"retry_times": True}, "give an int from 0 on"),
        (Producer, {"timeout_s": "3"}, "timeout_s is '3': give a number of seconds above 0"),
        (Producer, {"timeout_s": 0}, "give a number of seconds above 0"),
        (Producer, {"compression": "zip"}, "give one of 'zlib', 'lz4', 'zstd'"),
        (Producer, {"serializer": "json"}, "give a function"),
        (PushConsumer, PLAIN | {"message_model": "all"}, "'clustering', 'broadcasting'"),
        (PushConsumer, PLAIN | {"pull_batch_size": 0}, "give an int from 1 on"),
        (PushConsumer, PLAIN | {"consume_timeout": 1}, "the nearest one is consume_timeout_s"),
        (PullConsumer, {"group": "g", "auto_commit": "yes"}, "give True or False"),
    ],
)
def test_a_wrong_option_is_named_with_what_to_give(
    kind: Any, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        kind(URL, **options)
    assert text in str(refused.value)


@pytest.mark.parametrize("kind", [PushConsumer, blocking.PushConsumer])
@pytest.mark.parametrize(
    ("subscriptions", "text"),
    [
        (["Orders"], "give a dict of topics and selectors"),
        ("Orders", "{'Orders': '*'}"),
        ({}, "at least one topic"),
        ({3: "*"}, "the topic 3"),
        ({"Orders": 3}, "the subscription of Orders is 3"),
        ({"Orders": ["A", "B"]}, "tags such as 'A || B'"),
        ({"Orders": Sql(3)}, "its expression is a str"),  # type: ignore[arg-type]
    ],
)
def test_subscriptions_of_a_wrong_type(kind: Any, subscriptions: Any, text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        kind(URL, group="g", subscriptions=subscriptions)
    assert text in str(refused.value)


def test_a_wrong_sql_expression_is_refused_at_the_start(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        subscriptions = {topic: Sql("price > > 1")}
        with pytest.raises(ConfigurationError, match=r"'price > > 1' .* line 1, column 9"):
            async with PushConsumer(broker.url, group=group, subscriptions=subscriptions):
                pytest.fail("it started")
        async with PullConsumer(broker.url, group=group) as consumer:
            consumer.assign(await consumer.queues(topic), Sql("price > > 1"))
            with pytest.raises(ConfigurationError, match="line 1, column 9"):
                await consumer.poll(timeout_s=20)
            consumer.assign(await consumer.queues(topic), Sql("price > 1"))
            assert await consumer.poll(timeout_s=0.01) == []

    play(scenario)


def test_a_broker_without_sql_names_the_key_to_set(play: Play) -> None:
    async def scenario(broker: Broker) -> None:
        subscriptions = {"T": Sql("price > 1")}
        with pytest.raises(ConfigurationError, match="set enablePropertyFilter=true"):
            async with PushConsumer(broker.url, group="g", subscriptions=subscriptions):
                pytest.fail("it started")

    with Broker() as broker:
        broker.create_topic("T")
        play(lambda: scenario(broker))


@pytest.mark.slow
def test_a_wrong_sql_expression_for_a_new_topic_is_logged_once(
    play: Play, broker: Broker, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"Later_{group}"
    seen: list[str] = []

    async def scenario() -> None:
        subscriptions = {topic: Sql("price > > 1")}
        async with PushConsumer(broker.url, group=group, subscriptions=subscriptions) as consumer:
            broker.create_topic(topic, queues=2)
            await consumer.rebalance()
            while not seen:
                mine = [r for r in caplog.records if r.name == "trocket.client.pulling.pulls"]
                seen.extend(r.getMessage() for r in mine)
                await anyio.sleep(0.01)

    with caplog.at_level(logging.WARNING, logger="trocket.client"):
        play(scenario)
    assert len(seen) == 1  # not one line for each queue
    assert topic in seen[0]
    assert "line 1, column 9" in seen[0]


def test_a_brokers_address_in_place_of_a_name_servers(play: Play, broker: Broker) -> None:
    async def scenario() -> None:
        async with Producer(broker.broker_address) as producer:
            with pytest.raises(ServerError, match="no name server, but probably a broker") as found:
                await producer.send(Message("T", b"x"))
            assert "9876" in str(found.value)

    play(scenario)


def test_receive_beside_run(play: Play, broker: Broker, topic: str, group: str) -> None:
    async def scenario() -> None:
        async with (
            PushConsumer(broker.url, group=group, subscriptions={topic: "*"}) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(consumer.run, lambda message: None)
            while consumer.handler is None:
                await anyio.lowlevel.checkpoint()
            with pytest.raises(ConfigurationError, match="either `run` or `receive`"):
                await consumer.receive()
            consumer.stop()

    play(scenario)


@pytest.mark.parametrize("kind", [Producer, Client, blocking.Producer, blocking.Client])
def test_what_has_connections_says_why_it_cannot_be_pickled(kind: Any) -> None:
    with pytest.raises(TypeError, match="has connections and tasks of its process"):
        copy.copy(kind(URL))  # as pickle does


def test_debug_shows_what_a_send_does(
    play: Play, broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as producer:
            await producer.send(Message(topic, b"x"))
            await (await producer.send_soon(Message(topic, b"x")))

    with caplog.at_level(logging.DEBUG, logger="trocket.client"):
        play(scenario)
    for text in (
        f"connected to {broker.broker_address}",
        f"the topic {topic} has the route",
        "to broker-a/0, try 1",
    ):
        assert text in caplog.text
    assert caplog.text.count("SEND_OK") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "statement", "extra"),
    [
        ("trio", "from trocket.testing import Broker", "broker"),
        ("opentelemetry", "import trocket.client.opentelemetry", "opentelemetry"),
    ],
)
def test_a_missing_package_names_the_extra(missing: str, statement: str, extra: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; {statement}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert f"pip install 'trocket[{extra}]'" in done.stderr.splitlines()[-1]


def test_completion_shows_nothing_of_the_answers_to_administrators() -> None:
    shown = {name for name in dir(PushConsumer) if not name.startswith("_")}
    assert not shown & {"process_queues", "unassigned_message"}
    assert {"queues", "positions", "run", "receive"} <= shown
