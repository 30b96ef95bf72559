"""kombu's verbs over a broker in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty
from typing import Any

import pytest

from trocket import ConnectError, Message
from trocket.blocking import Admin, Producer
from trocket.testing import Broker

kombu = pytest.importorskip("kombu", reason="needs the extra `kombu`")

Connect = Callable[..., Any]
SOON_S = 5.0
NONE_S = 0.3


@contextmanager
def consuming(channel: Any, *queues: Any, **options: Any) -> Iterator[list[Any]]:
    """What a consumer of a channel gets: messages, not acknowledged."""
    got: list[Any] = []
    consumer = kombu.Consumer(
        channel, list(queues), callbacks=[lambda body, message: got.append(message)], **options
    )
    with consumer:
        yield got


def drain(connection: Any, got: list[Any], count: int) -> list[Any]:
    """The bodies, sorted, when there are as many."""
    while len(got) < count:
        connection.drain_events(timeout=SOON_S)
    return sorted(each.payload for each in got)


def publish(connection: Any, queue: Any, *bodies: Any, **options: Any) -> None:
    producer = connection.Producer()
    for body in bodies:
        producer.publish(
            body,
            exchange=queue.exchange,
            routing_key=queue.routing_key,
            declare=[queue],
            **options,
        )


def queue_of(name: str, **options: Any) -> Any:
    return kombu.Queue(name, kombu.Exchange(name), routing_key=name, **options)


def test_a_message_is_received_with_its_headers_and_acknowledged(
    connect: Connect, name: str, broker: Broker
) -> None:
    connection = connect()
    queue = connection.SimpleQueue(name)
    queue.put({"order": 7}, headers={"k": "v", "id": "task-7"})
    message = queue.get(timeout=SOON_S)
    assert (message.payload, message.headers["k"]) == ({"order": 7}, "v")
    assert not message.delivery_info["redelivered"]
    message.ack()
    queue.close()
    connection.release()
    again = connect().SimpleQueue(name)
    with pytest.raises(Empty):
        again.get_nowait()
    with Admin(broker.url) as admin:
        assert [each.keys for each in admin.messages_by_key(name, "task-7")] == [("task-7",)]


def test_a_requeued_message_is_there_at_once(connect: Connect, name: str) -> None:
    queue = connect().SimpleQueue(name)
    queue.put("one")
    queue.get(timeout=SOON_S).requeue()
    again = queue.get_nowait()
    assert again.payload == "one"
    assert again.delivery_info["redelivered"]
    again.reject()
    with pytest.raises(Empty):
        queue.get_nowait()


def test_what_a_closed_connection_held_comes_to_another(connect: Connect, name: str) -> None:
    first, queue = connect(), queue_of(name)
    publish(first, queue, 1, 2, 3)
    with consuming(first, queue) as got:
        drain(first, got, 1)
        first.release()
    second = connect()
    with consuming(second, queue) as got:
        assert drain(second, got, 3) == [1, 2, 3]
        assert all(each.delivery_info["redelivered"] for each in got)


def test_what_a_dead_process_held_comes_when_its_time_is_over(
    connect: Connect, name: str, broker: Broker
) -> None:
    # Its renewals are by its own clock, so the broker's that jumps ahead takes it for dead.
    queue, living = queue_of(name), connect()
    publish(living, queue, "task")
    dead = connect(visibility_timeout=60)
    with consuming(dead, queue, prefetch_count=1) as held:
        drain(dead, held, 1)
        with consuming(living, queue) as got:
            with pytest.raises(TimeoutError):
                living.drain_events(timeout=NONE_S)
            broker.advance(seconds=61)
            assert drain(living, got, 1) == ["task"]
            got[0].ack()


def test_a_message_stays_invisible_while_it_is_handled(connect: Connect, name: str) -> None:
    queue, slow, other = queue_of(name), connect(visibility_timeout=1), connect()
    publish(slow, queue, "task")
    with consuming(slow, queue) as held:
        drain(slow, held, 1)
        with consuming(other, queue), pytest.raises(TimeoutError):
            other.drain_events(timeout=2.5)
        held[0].ack()


def test_no_more_is_received_than_may_be_prefetched(connect: Connect, name: str) -> None:
    first, second, queue = connect(), connect(), queue_of(name)
    publish(first, queue, *range(5))
    with consuming(first, queue, prefetch_count=2) as got:
        drain(first, got, 2)
        with consuming(second, queue, prefetch_count=2) as others:
            drain(second, others, 2)
            with pytest.raises(TimeoutError):
                first.drain_events(timeout=NONE_S)
            others[0].ack()
            drain(second, others, 3)
        assert sorted(each.payload for each in got + others) == list(range(5))


def test_a_consumer_takes_turns_among_queues(connect: Connect, name: str) -> None:
    connection, queues = connect(), [queue_of(f"{name}-{each}") for each in range(3)]
    with consuming(connection, *queues, prefetch_count=1) as got:
        for number, queue in enumerate(queues):
            publish(connection, queue, number)
        for count in range(1, 4):
            drain(connection, got, count)[0]
            got[-1].ack()
    assert sorted(each.payload for each in got) == [0, 1, 2]


def test_a_fanout_reaches_the_queues_of_all_connections(connect: Connect, name: str) -> None:
    exchange = kombu.Exchange(name, type="fanout")
    first, second, sender = connect(), connect(), connect()
    sender.Producer().publish("before", exchange=exchange, declare=[exchange])
    one, two = (kombu.Queue(f"{name}-{each}", exchange, auto_delete=True) for each in (1, 2))
    with consuming(first, one) as got_1, consuming(second, two) as got_2:
        sender.Producer().publish("news", exchange=exchange, declare=[exchange])
        assert drain(first, got_1, 1) == drain(second, got_2, 1) == ["news"]
        for each in (*got_1, *got_2):
            each.ack()


def test_a_topic_exchange_routes_by_pattern(connect: Connect, name: str) -> None:
    exchange = kombu.Exchange(name, type="topic")
    first, sender = connect(), connect()
    queue = kombu.Queue(name, exchange, routing_key="order.*")
    with consuming(first, queue) as got:
        for key in ("order.paid", "bill.paid", "order.sent"):
            sender.Producer().publish(key, exchange=exchange, routing_key=key, declare=[exchange])
        assert drain(first, got, 2) == ["order.paid", "order.sent"]
        for each in got:
            each.ack()
        with pytest.raises(TimeoutError):
            first.drain_events(timeout=NONE_S)


def test_a_reply_finds_the_queue_of_another_connection(connect: Connect, name: str) -> None:
    exchange = kombu.Exchange(name, type="direct", durable=False)
    first, sender = connect(), connect()
    mine = kombu.Queue(f"{name}-me", exchange, routing_key="me", durable=False, auto_delete=True)
    with consuming(first, mine, no_ack=True) as got:
        for key in ("you", "me"):
            sender.Producer().publish(key, exchange=exchange, routing_key=key, declare=[exchange])
        assert drain(first, got, 1) == ["me"]


def test_the_broker_holds_a_delayed_message(connect: Connect, name: str, broker: Broker) -> None:
    connection, queue = connect(), queue_of(name)
    publish(connection, queue, "late", delay_seconds=3600)
    with consuming(connection, queue) as got:
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=NONE_S)
        broker.advance(minutes=61)
        assert drain(connection, got, 1) == ["late"]
        got[0].requeue()  # at once: the delay is over
        drain(connection, got, 2)
        got[1].ack()


def test_an_expired_message_is_dropped(connect: Connect, name: str) -> None:
    connection, queue = connect(), queue_of(name)
    publish(connection, queue, "old", expiration=0)
    publish(connection, queue, "new", expiration=60)
    with consuming(connection, queue, no_ack=True) as got:
        assert drain(connection, got, 1) == ["new"]


def test_purge_returns_how_many_were_there(connect: Connect, name: str) -> None:
    connection, queue = connect(), queue_of(name)
    publish(connection, queue, *range(40))
    bound = queue(connection.default_channel)
    assert bound.queue_declare(passive=True).message_count == 40
    assert bound.purge() == 40
    assert bound.get() is None


def test_a_deleted_queue_leaves_no_topic_and_no_group(
    connect: Connect, name: str, broker: Broker
) -> None:
    connection, queue = connect(), queue_of(name)
    publish(connection, queue, 1)
    bound = queue(connection.default_channel)
    bound.get().ack()
    bound.delete()
    transient = kombu.Queue(f"{name}-mine", kombu.Exchange("", type="direct"), auto_delete=True)
    with consuming(connection, transient), Admin(broker.url) as admin:
        assert f"{name}-mine" in admin.topics()
    connection.release()
    with Admin(broker.url) as admin:
        left = {*admin.topics(), *admin.broker_groups("broker-a")}
    assert not [each for each in left if each.startswith(name)]


def test_a_queue_that_is_not_there_is_an_error_of_the_channel(connect: Connect, name: str) -> None:
    connection = connect()
    with pytest.raises(connection.channel_errors, match="NOT_FOUND"):
        queue_of(name)(connection.default_channel).queue_declare(passive=True)


def test_a_message_of_another_program_arrives_as_it_is(
    connect: Connect, name: str, broker: Broker
) -> None:
    queue = connect().SimpleQueue(name)
    with Producer(broker.url, group="java") as producer:
        producer.send(Message(name, json.dumps({"order": 7}), properties={"from": "java"}))
    message = queue.get(timeout=SOON_S)
    assert message.body == b'{"order": 7}'
    assert (message.content_type, message.headers) == (
        "application/octet-stream",
        {"from": "java"},
    )
    message.ack()


def test_options_reach_the_names_and_the_topics(
    connect: Connect, name: str, broker: Broker
) -> None:
    connection = connect(queue_name_prefix="shop-", topic_queues=2)
    connection.SimpleQueue(name).put(1)
    with Admin(broker.url) as admin:
        (there,) = admin.topic(f"shop-{name}").brokers
    assert there.write_queues == 2


def test_a_cluster_that_is_away_is_an_error_of_the_connection(connect: Connect) -> None:
    connection = connect("rocketmq://127.0.0.1:1")
    with pytest.raises(ConnectError):
        connection.connect()
    assert issubclass(ConnectError, connection.connection_errors)
    assert issubclass(ConnectError, connection.recoverable_connection_errors)


def test_messages_are_received_again_after_a_restart_of_the_broker(name: str) -> None:
    from trocket.integrations.kombu import register

    register()
    queue = queue_of(name)
    with Broker() as broker:
        options = {"wait_time_seconds": 0.2}
        with kombu.Connection(broker.url, transport_options=options) as connection:
            publish(connection, queue, 1)
            got: list[Any] = []

            def consume() -> None:
                with consuming(connection, queue) as messages:
                    drain(connection, messages, 1)
                    messages[0].ack()
                    got.append(messages[0].payload)

            consume()
            broker.restart()
            publish(connection, queue, 2)
            connection.ensure(connection, consume, max_retries=20, interval_start=0.1)()
            assert got == [1, 2]
