"""Consuming by the blocking client: iterating, receiving, handlers in threads."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kit.waiting import wait_until
from trocket.blocking import Admin, Producer, PushConsumer, PushedMessage, replying
from trocket.client import (
    AlreadySettledError,
    ClosedError,
    ConfigurationError,
    ConsumeFromWhere,
    Interceptor,
    Message,
    MessageQueue,
    RebalanceListener,
    ReceivedMessage,
    RetryLater,
)
from trocket.testing import Broker

from .support import DEADLINE_S, waiting_threads

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
def send(broker: Broker, topic: str) -> Iterator[Callable[..., None]]:
    with Producer(broker.url) as producer:

        def send(*bodies: object) -> None:
            for body in bodies:
                producer.send(Message(topic, str(body)))

        yield send


@pytest.fixture
def consumer(broker: Broker, topic: str, group: str) -> Iterator[PushConsumer]:
    with PushConsumer(
        broker.url, group=group, subscriptions={topic: "*"}, consume_from_where=FIRST
    ) as consumer:
        yield consumer


def offset(consumer: PushConsumer, topic: str) -> int:
    """Where the group is in the topic's only queue."""
    return sum(at for q, at in consumer.positions.items() if q.topic == topic)


class Background:
    """`run` in a thread, until the end of the block."""

    def __init__(self, consumer: PushConsumer, handler: Callable[..., Any], **options: Any) -> None:
        self.consumer = consumer
        self.error: BaseException | None = None

        def run() -> None:
            try:
                consumer.run(handler, **options)
            except BaseException as error:  # noqa: BLE001 - of another thread
                self.error = error

        self.thread = threading.Thread(target=run)

    def __enter__(self) -> Background:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.consumer.stop()
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()


# Iterating and receiving


def test_a_loop_acknowledges_each_message_when_it_asks_for_the_next(
    consumer: PushConsumer, topic: str, send: Callable[..., None]
) -> None:
    send(*range(100))
    seen = []
    for message in consumer:
        seen.append(message.text)
        assert not message.is_settled
        if len(seen) == 100:
            break
    assert seen == [str(n) for n in range(100)]
    # The one that the loop broke off at is not acknowledged.
    assert offset(consumer, topic) == 99
    message.ack()
    assert message.is_settled
    assert offset(consumer, topic) == 100


def test_receive_leaves_settling_to_the_caller(
    consumer: PushConsumer, topic: str, send: Callable[..., None]
) -> None:
    send("one", "two")
    one, two = consumer.receive(), consumer.receive(timeout_s=DEADLINE_S)
    assert isinstance(one, PushedMessage)
    assert isinstance(one, ReceivedMessage)
    assert two is not None
    assert (one.text, two.text, one.reconsume_times) == ("one", "two", 0)
    two.ack()
    assert offset(consumer, topic) == 0
    one.ack()
    with pytest.raises(AlreadySettledError, match="acknowledged already"):
        one.ack()
    with pytest.raises(AlreadySettledError):
        one.retry()
    assert offset(consumer, topic) == 2
    assert consumer.receive(timeout_s=0.01) is None
    assert consumer.receive(timeout_s=0) is None


def test_a_message_that_is_to_come_again_comes_again(
    consumer: PushConsumer, broker: Broker, send: Callable[..., None]
) -> None:
    send("one")
    consumer.receive().retry(1)
    broker.advance(seconds=2)
    again = consumer.receive()
    assert (again.text, again.reconsume_times) == ("one", 1)
    with pytest.raises(ZeroDivisionError), again.process(delay_level=1):
        raise ZeroDivisionError
    broker.advance(seconds=2)
    with consumer.receive().process() as third:
        assert third.reconsume_times == 2
        assert not third.is_settled
    assert third.is_settled
    with pytest.raises(StopIteration):
        next(iter_of_stopped(consumer))


def iter_of_stopped(consumer: PushConsumer) -> Iterator[PushedMessage]:
    consumer.stop()
    return iter(consumer)


def test_retry_later_in_process_is_no_error(
    consumer: PushConsumer, broker: Broker, send: Callable[..., None]
) -> None:
    send("one")
    with consumer.receive().process():
        raise RetryLater(1)
    broker.advance(seconds=2)
    assert consumer.receive().reconsume_times == 1


@pytest.mark.slow
def test_many_threads_iterate_and_each_message_comes_once(
    consumer: PushConsumer, topic: str, send: Callable[..., None]
) -> None:
    seen: queue.Queue[str] = queue.Queue()

    def work() -> None:
        for message in consumer:
            seen.put(message.text)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    send(*range(500))
    found = [seen.get(timeout=DEADLINE_S) for _ in range(500)]
    consumer.stop()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert Counter(found) == Counter(str(n) for n in range(500))
    assert seen.empty()


def test_stopping_ends_iterations_and_receive(consumer: PushConsumer) -> None:
    ends: queue.Queue[object] = queue.Queue()

    def iterate() -> None:
        ends.put(list(consumer))

    def receive() -> None:
        try:
            consumer.receive()
        except ClosedError as error:
            ends.put(error)

    for work in (iterate, receive):
        threading.Thread(target=work, daemon=True).start()
    wait_until(lambda: waiting_threads("message_buffer.py") == 2)
    consumer.stop()
    assert {type(ends.get(timeout=DEADLINE_S)) for _ in range(2)} == {list, ClosedError}


def test_closing_ends_them_too(broker: Broker, topic: str, group: str) -> None:
    consumer = PushConsumer(broker.url, group=group, subscriptions={topic: "*"}).open()
    ends: queue.Queue[object] = queue.Queue()
    threading.Thread(target=lambda: ends.put(list(consumer)), daemon=True).start()
    wait_until(lambda: waiting_threads("message_buffer.py"))
    consumer.close()
    assert ends.get(timeout=DEADLINE_S) == []
    with pytest.raises(ClosedError):
        consumer.receive()


def test_settling_after_the_end_does_no_harm(
    broker: Broker, topic: str, group: str, send: Callable[..., None]
) -> None:
    send("one", "two")
    with PushConsumer(
        broker.url, group=group, subscriptions={topic: "*"}, consume_from_where=FIRST
    ) as consumer:
        one, two = consumer.receive(), consumer.receive()
    one.ack()
    two.retry()
    assert broker.lag(group, topic) == 2


def test_the_offsets_are_committed_at_the_end(
    broker: Broker, topic: str, group: str, send: Callable[..., None]
) -> None:
    send("one", "two", "three")
    with PushConsumer(
        broker.url, group=group, subscriptions={topic: "*"}, consume_from_where=FIRST
    ) as consumer:
        for _ in range(3):
            consumer.receive().ack()
    assert broker.lag(group, topic) == 0


def test_the_deserializer_makes_values(
    broker: Broker, topic: str, group: str, send: Callable[..., None]
) -> None:
    send(42)
    with PushConsumer(
        broker.url,
        group=group,
        subscriptions={topic: "*"},
        consume_from_where=FIRST,
        deserializer=int,
    ) as consumer:
        assert consumer.receive().value == 42


# Handlers


def test_handlers_run_in_threads_and_may_block(
    consumer: PushConsumer, topic: str, send: Callable[..., None]
) -> None:
    meeting = threading.Barrier(4, timeout=DEADLINE_S)
    seen: queue.Queue[str] = queue.Queue()

    def handle(message: PushedMessage) -> None:
        meeting.wait()  # four at one time
        seen.put(message.text)

    with Background(consumer, handle, concurrency=4):
        send(*range(8))
        found = {seen.get(timeout=DEADLINE_S) for _ in range(8)}
        wait_until(lambda: offset(consumer, topic) == 8)
        assert consumer.handler is handle
    assert found == {str(n) for n in range(8)}
    assert consumer.handler is None


def test_a_handler_that_fails_gets_the_message_again(
    consumer: PushConsumer,
    broker: Broker,
    send: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: queue.Queue[tuple[str, int]] = queue.Queue()

    def handle(message: PushedMessage) -> None:
        seen.put((message.text, message.reconsume_times))
        if message.reconsume_times == 0:
            raise RetryLater(1) if message.text == "later" else ValueError("bad luck")

    with Background(consumer, handle):
        send("later", "bad")
        assert {seen.get(timeout=DEADLINE_S) for _ in range(2)} == {("later", 0), ("bad", 0)}
        again: set[tuple[str, int]] = set()
        while again != {("later", 1), ("bad", 1)}:
            broker.advance(seconds=11)
            with contextlib.suppress(queue.Empty):  # the broker had not taken it back yet
                again.add(seen.get(timeout=0.1))
    assert "bad luck" in caplog.text


def test_a_late_handler_is_logged_and_its_message_is_redelivered(
    broker: Broker,
    topic: str,
    group: str,
    send: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = threading.Event()
    began: queue.Queue[int] = queue.Queue()

    def handle(message: PushedMessage) -> None:
        began.put(message.reconsume_times)
        if message.reconsume_times == 0:
            assert release.wait(DEADLINE_S)

    with (
        PushConsumer(
            broker.url,
            group=group,
            subscriptions={topic: "*"},
            consume_from_where=FIRST,
            consume_timeout_s=0.05,
        ) as consumer,
        Background(consumer, handle, concurrency=2),
    ):
        send("one")
        assert began.get(timeout=DEADLINE_S) == 0
        wait_until(lambda: "did not return in" in caplog.text)
        wait_until(lambda: offset(consumer, topic) == 1)  # taken back
        broker.advance(seconds=11)
        assert began.get(timeout=DEADLINE_S) == 1
        release.set()
        wait_until(lambda: "returned too late for" in caplog.text)


def test_stopping_does_not_wait_for_a_handler_that_hangs(
    broker: Broker, topic: str, group: str, send: Callable[..., None]
) -> None:
    release, began = threading.Event(), threading.Event()

    def handle(message: PushedMessage) -> None:
        began.set()
        release.wait(DEADLINE_S)

    try:
        with (
            PushConsumer(
                broker.url,
                group=group,
                subscriptions={topic: "*"},
                consume_from_where=FIRST,
                consume_timeout_s=0.05,
            ) as consumer,
            Background(consumer, handle, concurrency=1),
        ):
            send("one")
            assert began.wait(DEADLINE_S)
    finally:
        release.set()


def test_stopping_waits_for_handlers(
    consumer: PushConsumer, topic: str, send: Callable[..., None]
) -> None:
    began, release = threading.Event(), threading.Event()
    done = []

    def handle(message: PushedMessage) -> None:
        began.set()
        assert release.wait(DEADLINE_S)
        done.append(message.text)

    send("one")
    with Background(consumer, handle) as background:
        assert began.wait(DEADLINE_S)
        consumer.stop()
        assert background.thread.is_alive()
        release.set()
    assert done == ["one"]


def test_what_is_no_exception_ends_run(consumer: PushConsumer, send: Callable[..., None]) -> None:
    def handle(message: PushedMessage) -> None:
        raise SystemExit(3)

    send("one")
    with pytest.raises(SystemExit):
        consumer.run(handle)


def test_wrong_handlers_are_refused(
    consumer: PushConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(message: PushedMessage) -> None:
        """Async: not for the blocking consumer."""

    with pytest.raises(ConfigurationError, match="async handler"):
        consumer.run(handle)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="concurrency 0"):
        consumer.run(print, concurrency=0)
    with Background(consumer, print):
        wait_until(lambda: consumer.handler is not None)
        with pytest.raises(ConfigurationError, match="already"):
            consumer.run(print)


def test_an_ordered_queue_is_handled_in_order(
    broker: Broker, topic: str, group: str, send: Callable[..., None]
) -> None:
    seen: queue.Queue[str] = queue.Queue()
    failed = []

    def handle(message: PushedMessage) -> None:
        if message.text == "3" and not failed:
            failed.append(message.text)
            raise RetryLater
        seen.put(message.text)

    with (
        PushConsumer(
            broker.url,
            group=group,
            subscriptions={topic: "*"},
            consume_from_where=FIRST,
            is_orderly=True,
            suspend_queue_s=0.01,
        ) as consumer,
        Background(consumer, handle),
    ):
        send(*range(20))
        assert [seen.get(timeout=DEADLINE_S) for _ in range(20)] == [str(n) for n in range(20)]
    assert failed == ["3"]


# What is called in the loop's thread


def test_the_listener_and_the_interceptors_are_called_in_the_loops_thread(
    broker: Broker, topic: str, group: str, send: Callable[..., None]
) -> None:
    heard: list[tuple[str, str]] = []

    def note(what: str) -> None:
        heard.append((what, threading.current_thread().name))

    class Listener(RebalanceListener):
        def on_assign(self, queues: Any) -> None:
            note("assign")

    class Hook(Interceptor):
        def before_consume(self, message: ReceivedMessage) -> None:
            note("before")

        def after_consume(self, message: ReceivedMessage, error: Exception | None) -> None:
            note("after")

    send("one", "two")
    with PushConsumer(
        broker.url,
        group=group,
        subscriptions={topic: "*"},
        consume_from_where=FIRST,
        listener=Listener(),
        interceptors=[Hook()],
    ) as consumer:
        consumer.receive().ack()
        # One by one: an interceptor hears of a message when it is handed out.
        assert [what for what, _ in heard].count("before") == 1
        consumer.receive().ack()
        assert consumer.commit() is None
    assert {name for _, name in heard} == {"trocket-blocking"}
    assert Counter(what for what, _ in heard)["after"] == 2


# What it is


def test_what_a_consumer_tells_of_itself(
    consumer: PushConsumer, topic: str, send: Callable[..., None]
) -> None:
    send("one")
    consumer.receive().ack()
    (mine,) = [q for q in consumer.queues if q.topic == topic]
    assert isinstance(mine, MessageQueue)
    assert consumer.positions[mine] == 1
    assert {s.topic for s in consumer.subscriptions} > {topic}
    assert not consumer.is_orderly
    assert consumer.consume_timeout_s == 900.0
    assert consumer.started_ms > 0
    assert consumer.rebalance()
    consumer.reset({mine: 0})
    assert consumer.receive().text == "one"


@pytest.mark.slow
def test_a_pause_keeps_messages_that_were_fetched_and_a_resume_gives_them(
    consumer: PushConsumer, topic: str, send: Callable[..., None]
) -> None:
    send(*range(10))
    first = consumer.receive(timeout_s=DEADLINE_S)
    assert first is not None
    consumer.pause([topic])
    assert consumer.paused == {topic}
    first.ack()
    send("later")
    assert consumer.receive(timeout_s=0.2) is None
    consumer.resume([topic])
    texts = []
    for message in consumer:
        texts.append(message.text)
        if message.text == "later":
            break
    assert texts == [str(n) for n in range(1, 10)] + ["later"]
    (queue,) = [each for each in consumer.queues if each.topic == topic]
    consumer.seek(queue, 9)
    again = consumer.receive(timeout_s=DEADLINE_S)
    assert again is not None
    assert again.text == "9"


def test_a_dead_letter_is_sent_again(
    broker: Broker, consumer: PushConsumer, topic: str, group: str, send: Callable[..., None]
) -> None:
    send("one")
    message = consumer.receive(timeout_s=DEADLINE_S)
    assert message is not None
    message.retry(-1)
    with Producer(broker.url) as producer, Admin(producer.client) as admin:
        # The name server learns of the dead-letter topic a moment after it is created.
        wait_until(lambda: admin.dead_letters(group))
        (dead,) = admin.dead_letters(group)
        producer.resend(dead)
    again = consumer.receive(timeout_s=DEADLINE_S)
    assert again is not None
    assert (again.text, again.reconsume_times) == ("one", 0)
    assert again.properties["DLQ_ORIGIN_MESSAGE_ID"] == message.message_id


def test_what_a_function_returns_is_the_reply(
    broker: Broker, consumer: PushConsumer, topic: str
) -> None:
    with (
        Producer(broker.url) as requester,
        Producer(broker.url) as producer,
        Background(consumer, replying(producer, lambda message: message.text * 2)),
    ):
        (queue,) = requester.queues(topic)
        reply = requester.request(Message(topic, "ab"), queue=queue, timeout_s=DEADLINE_S)
        assert reply.text == "abab"
