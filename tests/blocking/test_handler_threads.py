"""`run` of the blocking consumer: batches, a handler for each topic, and ends within a time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.kit.waiting import wait_until
from trocket.blocking import Producer, PushConsumer, PushedMessage
from trocket.client import (
    AlreadySettledError,
    ClosedError,
    ConfigurationError,
    ConsumeFromWhere,
    Message,
    RetryLater,
)
from trocket.testing import Broker

from .support import DEADLINE_S

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
CLOSED_WITHIN_S = 5.0
"""Far less than the handlers would take."""


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Ends handlers that hang, at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def send(broker: Broker, topic: str, bodies: Sequence[object], **options: Any) -> None:
    with Producer(broker.url) as producer:
        for body in bodies:
            producer.send(Message(topic, str(body), **options))


def made(broker: Broker, topic: str, group: str, **options: Any) -> PushConsumer[bytes]:
    return PushConsumer(
        broker.url,
        group=group,
        subscriptions={topic: "*"},
        consume_from_where=FIRST,
        **options,
    )


def is_closed(consumer: PushConsumer) -> bool:
    """Whether `close` was called."""
    try:
        consumer.receive(timeout_s=0)
    except ClosedError:
        return True
    except ConfigurationError:  # `run` runs
        return False
    return False


class Running:
    """`run` in a thread, until it ends."""

    def __init__(self, consumer: PushConsumer, handler: Any, **options: Any) -> None:
        self.thread = threading.Thread(target=lambda: consumer.run(handler, **options), daemon=True)
        self.thread.start()

    def join(self) -> None:
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()


# Ends


@pytest.mark.slow
def test_stop_ends_run_in_time_and_says_what_was_cut(
    broker: Broker,
    topic: str,
    group: str,
    release: threading.Event,
    caplog: pytest.LogCaptureFixture,
) -> None:
    began: queue.Queue[PushedMessage] = queue.Queue()
    over = threading.Event()

    def handle(message: PushedMessage) -> None:
        began.put(message)
        release.wait(DEADLINE_S)
        message.ack()
        over.set()

    send(broker, topic, ["slow"])
    consumer = made(broker, topic, group).open()
    running = Running(consumer, handle)
    message = began.get(timeout=DEADLINE_S)
    start_s = time.monotonic()
    consumer.stop(timeout_s=60)
    consumer.stop(timeout_s=0.1)
    running.join()
    assert time.monotonic() - start_s < CLOSED_WITHIN_S
    assert "their handlers had not returned within 0.1 s" in caplog.text
    (line,) = [line for line in caplog.messages if line.startswith("stopped without 1 ")]
    assert f"which are not acknowledged, and are redelivered: {message!r} with id" in line
    release.set()
    assert over.wait(DEADLINE_S)
    assert "has no effect: it was taken from its handler" in caplog.text
    consumer.close()
    assert broker.lag(group, topic) == 1
    with pytest.raises(ValueError, match="give the seconds that handlers have"):
        consumer.stop(timeout_s=-1)


@pytest.mark.slow
def test_closing_waits_for_handlers_in_other_threads_for_a_time(
    broker: Broker, topic: str, group: str, release: threading.Event
) -> None:
    began = threading.Event()

    def handle(message: PushedMessage) -> None:
        began.set()
        release.wait(DEADLINE_S)

    send(broker, topic, ["slow"])
    consumer = made(broker, topic, group, close_timeout_s=0.4).open()
    running = Running(consumer, handle)
    assert began.wait(DEADLINE_S)
    start_s = time.monotonic()
    consumer.close()
    assert 0.2 <= time.monotonic() - start_s < CLOSED_WITHIN_S
    running.join()
    assert broker.lag(group, topic) == 1


def test_closing_commits_what_handlers_end_in_time(
    broker: Broker, topic: str, group: str, release: threading.Event
) -> None:
    began = threading.Event()

    def handle(message: PushedMessage) -> None:
        began.set()
        assert release.wait(DEADLINE_S)

    send(broker, topic, ["slow"])
    consumer = made(broker, topic, group).open()
    running = Running(consumer, handle)
    assert began.wait(DEADLINE_S)
    closing = threading.Thread(target=consumer.close)
    closing.start()
    wait_until(lambda: is_closed(consumer))
    release.set()
    closing.join(DEADLINE_S)
    running.join()
    assert broker.lag(group, topic) == 0


def test_a_handler_may_close_its_consumer(broker: Broker, topic: str, group: str) -> None:
    send(broker, topic, ["one"])
    consumer = made(broker, topic, group).open()
    start_s = time.monotonic()
    consumer.run(lambda message: consumer.close())
    assert time.monotonic() - start_s < CLOSED_WITHIN_S


# What is settled already


def test_what_a_handler_has_settled_stays_so(
    broker: Broker, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    errors: queue.Queue[Exception] = queue.Queue()

    def handle(message: PushedMessage) -> None:
        message.ack()
        try:
            message.ack()
        except AlreadySettledError as error:
            errors.put(error)
        consumer.stop()
        raise ValueError("after its acknowledgement")

    send(broker, topic, ["one"])
    with made(broker, topic, group) as consumer:
        consumer.run(handle)
    assert "acknowledged already" in str(errors.get_nowait())
    assert "it was settled before, and stays so" in caplog.text
    assert broker.lag(group, topic) == 0


# Topics and batches


def test_each_topic_has_its_handler(broker: Broker, group: str) -> None:
    seen: queue.Queue[tuple[str, str, int]] = queue.Queue()
    names = [f"{group}_A", f"{group}_B"]
    for name in names:
        broker.create_topic(name, queues=1)
        send(broker, name, [name[-1].lower()])

    def handle_a(message: PushedMessage) -> None:
        seen.put(("A", message.text, message.reconsume_times))
        if message.reconsume_times == 0:
            raise RetryLater(1)

    def handle_b(message: PushedMessage) -> None:
        seen.put(("B", message.text, message.reconsume_times))

    with PushConsumer(
        broker.url,
        group=group,
        subscriptions=dict.fromkeys(names, "*"),
        consume_from_where=FIRST,
    ) as consumer:
        running = Running(consumer, {names[0]: handle_a, names[1]: handle_b})
        found = {seen.get(timeout=DEADLINE_S) for _ in range(2)}
        assert found == {("A", "a", 0), ("B", "b", 0)}
        wait_until(lambda: broker.advance(seconds=2) is None and not seen.empty())
        assert seen.get(timeout=DEADLINE_S) == ("A", "a", 1)
        consumer.stop()
        running.join()


def test_a_batch_fills_up_while_it_lingers_and_is_acknowledged_as_a_whole(
    broker: Broker, topic: str, group: str
) -> None:
    batches: list[list[str]] = []

    def take(batch: list[PushedMessage]) -> None:
        assert type(batch) is list
        batches.append([message.text for message in batch])
        if len(batches) == 2:
            consumer.stop()

    with made(broker, topic, group) as consumer:
        # What was fetched before is not lost to the batches.
        assert consumer.receive(timeout_s=0.01) is None
        running = Running(consumer, take, concurrency=4, batch=3, linger_s=DEADLINE_S)
        for number in range(6):
            send(broker, topic, [number])
        running.join()
    assert sorted(each for batch in batches for each in batch) == [str(n) for n in range(6)]
    assert [len(batch) for batch in batches] == [3, 3]
    assert broker.lag(group, topic) == 0


def test_what_a_run_of_batches_leaves_is_received_after_it(
    broker: Broker, topic: str, group: str
) -> None:
    def fail(batch: list[PushedMessage]) -> None:
        raise SystemExit(f"{len(batch)}")

    send(broker, topic, range(7))
    with made(broker, topic, group) as consumer:
        with pytest.raises(SystemExit, match="3"):
            consumer.run(fail, concurrency=1, batch=3, linger_s=DEADLINE_S)
        send(broker, topic, ["later"])
        found = {consumer.receive(timeout_s=DEADLINE_S) for _ in range(5)}
        texts = {message.text for message in found if message is not None}
        assert len(texts) == 5
        assert "later" in texts


def test_what_a_run_of_orderly_batches_leaves_is_received_in_order(
    broker: Broker, group: str
) -> None:
    topic = f"{group}_T"
    broker.create_topic(topic, queues=2)
    send(broker, topic, "123", sharding_key="a")
    send(broker, topic, "45", sharding_key="b")

    def fail(batch: list[PushedMessage]) -> None:
        raise SystemExit("".join(message.text for message in batch))

    with made(broker, topic, group, is_orderly=True, suspend_queue_s=0.01) as consumer:
        with pytest.raises(SystemExit, match="123"):
            consumer.run(fail, concurrency=1, batch=3, linger_s=DEADLINE_S)
        for text in "45":
            message = consumer.receive(timeout_s=DEADLINE_S)
            assert message is not None
            assert (message.text, message.reconsume_times) == (text, 0)
            message.ack()


@pytest.mark.slow
def test_messages_of_a_batch_are_settled_one_by_one(broker: Broker, topic: str, group: str) -> None:
    seen: queue.Queue[tuple[str, int]] = queue.Queue()

    def take(batch: list[PushedMessage]) -> None:
        for message in batch:
            seen.put((message.text, message.reconsume_times))
            if message.text == "a":
                message.ack()
            elif message.text == "b" and not message.reconsume_times:
                message.retry(1)
        if not batch[0].reconsume_times:
            raise RetryLater(1)

    send(broker, topic, "abc")
    with made(broker, topic, group) as consumer:
        running = Running(consumer, take, batch=3, linger_s=0.5)
        found = [seen.get(timeout=DEADLINE_S) for _ in range(3)]
        assert found == [("a", 0), ("b", 0), ("c", 0)]
        wait_until(lambda: broker.advance(seconds=2) is None and seen.qsize() == 2)
        assert {seen.get(), seen.get()} == {("b", 1), ("c", 1)}
        consumer.stop()
        running.join()
    assert broker.lag(group, topic) == 0


@pytest.mark.slow
def test_an_orderly_batch_is_of_one_queue_and_comes_again_in_order(
    broker: Broker, group: str
) -> None:
    topic = f"{group}_T"
    broker.create_topic(topic, queues=2)
    for number in range(12):
        send(broker, topic, [f"{number % 2}/{number:02}"], sharding_key="ab"[number % 2])
    seen: list[str] = []
    failed = threading.Event()
    taken = threading.Lock()

    def take(batch: list[PushedMessage]) -> None:
        assert len({message.queue_id for message in batch}) == 1
        if not failed.is_set():
            failed.set()
            raise ValueError("comes again")
        with taken:
            seen.extend(message.text for message in batch)
            if len(seen) == 12:
                consumer.stop()

    with made(broker, topic, group, is_orderly=True, suspend_queue_s=0.01) as consumer:
        consumer.run(take, batch=4, linger_s=0.2)
    for key in "01":
        mine = [each for each in seen if each.startswith(key)]
        assert mine == sorted(mine)
    assert len(seen) == 12
    assert broker.lag(group, topic) == 0


@pytest.mark.slow
def test_a_batch_that_takes_too_long_comes_again(
    broker: Broker,
    topic: str,
    group: str,
    release: threading.Event,
    caplog: pytest.LogCaptureFixture,
) -> None:
    began: queue.Queue[int] = queue.Queue()

    def take(batch: list[PushedMessage]) -> None:
        began.put(batch[0].reconsume_times)
        if batch[0].reconsume_times == 0:
            release.wait(DEADLINE_S)
        else:
            consumer.stop()

    send(broker, topic, "ab")
    with made(
        broker, topic, group, is_orderly=True, suspend_queue_s=0.01, consume_timeout_s=0.1
    ) as consumer:
        consumer.run(take, concurrency=2, batch=2, linger_s=0.3)
    assert [began.get_nowait(), began.get_nowait()] == [0, 1]
    assert caplog.text.count("did not return in 0.1 s") == 2
    assert broker.lag(group, topic) == 0


def test_a_generator_from_a_handler_is_no_success(
    broker: Broker, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Callable[[], None]] = []

    def handle(message: PushedMessage) -> Any:
        if calls:
            consumer.stop()
            return None
        calls.append(consumer.stop)
        return (each for each in [message])

    send(broker, topic, ["one"])
    with made(broker, topic, group, is_orderly=True, suspend_queue_s=0.01) as consumer:
        consumer.run(handle)
    assert "returned a generator, of which nothing ran" in caplog.text
    assert broker.lag(group, topic) == 0
