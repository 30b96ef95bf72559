"""Sending with the blocking client: one thread, many threads, pipelined, when things go wrong."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from trocket.blocking import Client, Delivery, Producer
from trocket.client import (
    ClosedError,
    ConnectError,
    Interceptor,
    Message,
    MessageQueue,
    MessageRefusedError,
    ReceivedMessage,
    RouteNotFoundError,
    SendError,
    SendResult,
    SendStatus,
    UndeliveredError,
)
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.testing import Broker

DEADLINE_S = 30.0


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    with Producer(broker.url) as producer:
        yield producer


def bodies(broker: Broker, topic: str) -> list[str]:
    return [message.body.decode() for message in broker.messages(topic)]


# Confirmed sends


def test_a_send_is_confirmed(producer: Producer, broker: Broker, topic: str) -> None:
    result = producer.send(Message(topic, "one", keys="k", tags="t"))
    assert result.status is SendStatus.SEND_OK
    assert result.queue_offset == 0
    assert bodies(broker, topic) == ["one"]
    # The second one finds everything ready, and goes without a task.
    assert producer.send(Message(topic, "two")).queue_offset == 1


def test_the_verbs_beside_send(producer: Producer, broker: Broker, topic: str) -> None:
    queue = producer.queues(topic)[0]
    assert isinstance(queue, MessageQueue)
    batch = producer.send_batch([Message(topic, "one"), Message(topic, "two")], queue=queue)
    assert batch.queue == queue
    assert producer.send(Message(topic, "three"), queue=queue).queue == queue
    chosen = producer.send(Message(topic, "four"), selector=lambda queues, message: queues[-1])
    assert chosen.queue == producer.queues(topic)[-1]
    producer.send_oneway(Message(topic, "five"))
    producer.send(Message(topic, "six"))
    assert bodies(broker, topic) == ["one", "two", "three", "four", "five", "six"]


def test_a_delayed_message_is_taken_back(topic: str) -> None:
    with Broker(config={"recallMessageEnable": True}) as broker, Producer(broker.url) as producer:
        broker.create_topic(topic)
        result = producer.send(Message(topic, "never", delay_s=3600))
        assert result.recall_handle is not None
        assert producer.recall(topic, result.recall_handle) == result.message_id


def test_what_no_broker_takes_is_refused(producer: Producer, topic: str) -> None:
    for _ in range(2):  # the slow way, and the quick one
        with pytest.raises(MessageRefusedError, match="empty"):
            producer.send(Message(topic, ""))
        with pytest.raises(MessageRefusedError):
            producer.send(Message("no topic", "one"))
        producer.send(Message(topic, "one"))


@pytest.mark.slow
def test_16_threads_share_a_producer(producer: Producer, broker: Broker, topic: str) -> None:
    def work(thread: int) -> list[SendResult]:
        return [producer.send(Message(topic, f"{thread}/{n}")) for n in range(200)]

    with ThreadPoolExecutor(16) as pool:
        results = [result for part in pool.map(work, range(16)) for result in part]
    assert sorted(result.queue_offset for result in results) == list(range(3200))
    assert len({result.message_id for result in results}) == 3200
    assert Counter(bodies(broker, topic)) == Counter(
        f"{t}/{n}" for t in range(16) for n in range(200)
    )


def test_producers_share_a_client(broker: Broker, topic: str) -> None:
    with Client(broker.url) as client, Producer(client) as one, Producer(client, group="g2") as two:
        assert one.client is client
        one.send(Message(topic, "one"))
        two.send(Message(topic, "two"))
    assert bodies(broker, topic) == ["one", "two"]


# Errors


def test_an_unknown_topic_is_refused(broker: Broker) -> None:
    with Producer(broker.url) as producer, pytest.raises(RouteNotFoundError):
        producer.client.route("NOBODY_KNOWS_IT")


def test_a_missing_name_server_is_an_error() -> None:
    with (
        Producer("rocketmq://127.0.0.1:1", wait_for_broker_s=0) as producer,
        pytest.raises(ConnectError, match=r"127\.0\.0\.1:1"),
    ):
        producer.send(Message("T", "one"))


def test_a_refused_try_is_repeated(producer: Producer, broker: Broker, topic: str) -> None:
    producer.send(Message(topic, "one"))
    broker.faults.refuse(RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY, times=1)
    assert producer.send(Message(topic, "two")).status is SendStatus.SEND_OK
    broker.faults.refuse(RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY, times=3)
    with pytest.raises(SendError) as caught:
        producer.send(Message(topic, "three"))
    assert len(caught.value.attempts) == 3
    assert bodies(broker, topic) == ["one", "two"]


# Pipelined sends


def test_a_delivery_has_the_result(producer: Producer, broker: Broker, topic: str) -> None:
    message = Message(topic, "one")
    delivery = producer.send_soon(message)
    assert isinstance(delivery, Delivery)
    assert delivery.message is message
    result = delivery.result(DEADLINE_S)
    assert delivery.is_done
    assert delivery.error is None
    assert delivery.result() is result
    assert result.status is SendStatus.SEND_OK


def test_messages_of_one_thread_stay_in_order(
    producer: Producer, broker: Broker, topic: str
) -> None:
    producer.send(Message(topic, "first"))
    deliveries = [producer.send_soon(Message(topic, str(n))) for n in range(500)]
    producer.drain()
    assert all(delivery.is_done for delivery in deliveries)
    assert bodies(broker, topic) == ["first", *(str(n) for n in range(500))]


def test_leaving_the_block_waits_for_all(broker: Broker, topic: str) -> None:
    with Producer(broker.url) as producer:
        deliveries = [producer.send_soon(Message(topic, str(n))) for n in range(100)]
    assert [d.result(0).status for d in deliveries] == [SendStatus.SEND_OK] * 100
    assert Counter(bodies(broker, topic)) == Counter(str(n) for n in range(100))


def under_way(deliveries: list[Delivery]) -> int:
    return sum(not delivery.is_done for delivery in deliveries)


@pytest.mark.slow
@pytest.mark.parametrize("count_max", [1, 4])
def test_a_full_buffer_holds_the_calling_thread_back(
    broker: Broker, topic: str, count_max: int
) -> None:
    with Producer(broker.url, send_buffer_count_max=count_max) as producer:
        producer.send(Message(topic, "first"))
        deliveries: list[Delivery] = []
        most = 0
        for n in range(200):
            deliveries.append(producer.send_soon(Message(topic, str(n))))
            most = max(most, under_way(deliveries))
        assert 1 <= most <= count_max
        producer.drain()
    assert len(bodies(broker, topic)) == 201


def test_the_buffer_is_bounded_in_bytes_too(broker: Broker, topic: str) -> None:
    with Producer(broker.url, send_buffer_size_max=1000) as producer:
        producer.send(Message(topic, "first"))
        deliveries: list[Delivery] = []
        for _ in range(20):
            deliveries.append(producer.send_soon(Message(topic, b"x" * 400)))
            assert under_way(deliveries) * 400 <= 1000
        # One that is larger than all the room goes alone.
        producer.send_soon(Message(topic, b"x" * 3000)).result(DEADLINE_S)


@pytest.mark.slow
def test_many_threads_share_the_buffer(broker: Broker, topic: str) -> None:
    with Producer(broker.url, send_buffer_count_max=50) as producer:

        def work(thread: int) -> None:
            for n in range(200):
                delivery = producer.send_soon(Message(topic, f"{thread}/{n}"))
                if n % 50 == 0:
                    assert delivery.result(DEADLINE_S)

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(work, range(16)))
    assert len(set(bodies(broker, topic))) == 3200


def test_several_threads_wait_for_one_delivery(producer: Producer, topic: str) -> None:
    delivery = producer.send_soon(Message(topic, "one"))
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: delivery.result(DEADLINE_S), range(8)))
    assert len(set(map(id, results))) == 1


@pytest.mark.slow
def test_a_delivery_that_takes_too_long_can_be_left_alone(
    producer: Producer, broker: Broker, topic: str
) -> None:
    producer.send(Message(topic, "first"))
    broker.faults.delay(RequestCode.SEND_MESSAGE_V2, 0.1)
    delivery = producer.send_soon(Message(topic, "one"))
    with pytest.raises(TimeoutError, match="not confirmed within"):
        delivery.result(0.001)
    assert delivery.result(DEADLINE_S)


def test_what_is_wrong_with_a_message_is_its_deliverys_error(
    producer: Producer, broker: Broker, topic: str
) -> None:
    good = producer.send_soon(Message(topic, "one"))
    empty = producer.send_soon(Message(topic, ""))
    assert good.result(DEADLINE_S)
    with pytest.raises(MessageRefusedError, match="empty"):
        empty.result(DEADLINE_S)
    assert isinstance(empty.error, MessageRefusedError)
    producer.drain()  # looked at: not raised again


def test_drain_reports_failures_that_were_not_looked_at(producer: Producer, topic: str) -> None:
    producer.send_soon(Message(topic, ""))
    with pytest.raises(UndeliveredError, match="1 messages were not delivered"):
        producer.drain()
    producer.drain()


def test_close_reports_failures_that_were_not_looked_at(broker: Broker, topic: str) -> None:
    producer = Producer(broker.url).open()
    producer.send_soon(Message(topic, ""))
    with pytest.raises(UndeliveredError):
        producer.close()
    with pytest.raises(ClosedError):
        producer.send(Message(topic, "one"))


def test_the_blocks_own_error_goes_first(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ZeroDivisionError), Producer(broker.url) as producer:  # noqa: PT012
        producer.send_soon(Message(topic, ""))
        raise ZeroDivisionError
    assert "messages were not delivered when the producer was closed" in caplog.text


def test_a_failing_serializer_fails_its_message_only(broker: Broker, topic: str) -> None:
    def serializer(value: object) -> bytes:
        if value == 13:
            raise ValueError("not 13")
        return str(value).encode()

    with Producer(broker.url, serializer=serializer) as producer:
        deliveries = [producer.send_soon(Message(topic, n)) for n in (12, 13, 14)]
        with pytest.raises(UndeliveredError, match="not 13"):
            producer.drain()
        assert [delivery.is_done for delivery in deliveries] == [True] * 3
        assert isinstance(deliveries[1].error, ValueError)
        with pytest.raises(ValueError, match="not 13"):
            producer.send(Message(topic, 13))
    assert bodies(broker, topic) == ["12", "14"]


def test_a_pipelined_send_is_repeated_too(producer: Producer, broker: Broker, topic: str) -> None:
    producer.send(Message(topic, "one"))
    broker.faults.refuse(RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY, times=1)
    assert producer.send_soon(Message(topic, "two")).result(DEADLINE_S)
    broker.faults.refuse(RequestCode.SEND_MESSAGE_V2, ResponseCode.MESSAGE_ILLEGAL, times=1)
    delivery = producer.send_soon(Message(topic, "three"))
    with pytest.raises(Exception, match="MESSAGE_ILLEGAL"):
        delivery.result(DEADLINE_S)


def test_ctrl_c_does_not_wait_for_what_is_under_way(broker: Broker, topic: str) -> None:
    """What is under way when the block is left by Ctrl-C is given up, not waited for."""
    broker.faults.swallow(RequestCode.SEND_MESSAGE_V2, times=None)
    with pytest.raises(KeyboardInterrupt), Producer(broker.url) as producer:  # noqa: PT012
        producer.queues(topic)
        deliveries = [producer.send_soon(Message(topic, str(n))) for n in range(10)]
        raise KeyboardInterrupt
    for delivery in deliveries:
        with pytest.raises((ClosedError, ConnectError, SendError)):
            delivery.result(DEADLINE_S)


def test_interceptors_hear_of_every_send(broker: Broker, topic: str) -> None:
    heard: list[tuple[str, object]] = []

    class Listener(Interceptor):
        def before_send(self, message: Message) -> Message:
            return Message(message.topic, f"{message.body}!")

        def after_send(
            self, message: Message, result: SendResult | None, error: Exception | None
        ) -> None:
            heard.append((message.body, result is not None))

    with Producer(broker.url, interceptors=[Listener()]) as producer:
        producer.send(Message(topic, "one"))
        for n in range(20):
            producer.send_soon(Message(topic, str(n)))
    assert bodies(broker, topic) == ["one!", *(f"{n}!" for n in range(20))]
    assert sorted(heard) == sorted([("one!", True), *((f"{n}!", True) for n in range(20))])


# Request and reply


def test_a_request_gets_its_reply(broker: Broker, topic: str, group: str) -> None:
    from trocket.blocking import PushConsumer

    with (
        Producer(broker.url, group="askers") as asker,
        Producer(broker.url, group="repliers") as replier,
        PushConsumer(broker.url, group=group, subscriptions={topic: "*"}) as consumer,
    ):

        def answer() -> None:
            for message in consumer:
                replier.reply(message, message.text.upper())

        thread = threading.Thread(target=answer)
        thread.start()
        reply = asker.request(Message(topic, "question"), timeout_s=DEADLINE_S)
        consumer.stop()
        thread.join(DEADLINE_S)
    assert isinstance(reply, ReceivedMessage)
    assert reply.text == "QUESTION"


# Automatic batches


def test_messages_of_threads_that_wait_share_a_request(broker: Broker, topic: str) -> None:
    count = 8
    # With a plain send the test fails: the time alone would send nothing within the deadline.
    with (
        Producer(broker.url, linger_s=3600, batch_count_max=count) as producer,
        ThreadPoolExecutor(count) as threads,
    ):
        sent = [threads.submit(producer.send, Message(topic, str(i))) for i in range(count)]
        results = [each.result(DEADLINE_S) for each in sent]
    by_offset = sorted(results, key=lambda result: result.queue_offset)
    assert [each.queue_offset for each in by_offset] == list(range(count))
    assert [each.message_id for each in by_offset] == [
        message.unique_key for message in broker.messages(topic)
    ]


def test_drain_and_close_send_what_lingers(broker: Broker, topic: str) -> None:
    with Producer(broker.url, linger_s=3600) as producer:
        deliveries = [producer.send_soon(Message(topic, str(i))) for i in range(300)]
        producer.drain()
        assert [each.result().queue_offset for each in deliveries] == list(range(300))
        producer.send_soon(Message(topic, "300"))
    assert bodies(broker, topic) == [str(i) for i in range(301)]
