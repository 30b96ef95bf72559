"""`run` in both loops: threads for plain handlers, and how handlers end when the consumer stops."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from trocket import (
    AlreadySettledError,
    ConsumeFromWhere,
    PushConsumer,
    PushConsumerOptions,
    RetryLater,
)
from trocket.client import PushedMessage
from trocket.client.pushing import loop_watch
from trocket.testing import Broker

from .conftest import DEADLINE_S, Play
from .support import send, until

FIRST = PushConsumerOptions(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
CLOSED_WITHIN_S = 5.0
"""Far less than the handlers would take."""


def opened(broker: Broker, topic: str, group: str, **options: Any) -> PushConsumer[bytes]:
    return PushConsumer(broker.url, group=group, subscriptions={topic: "*"}, **FIRST, **options)


# Threads


def test_plain_handlers_run_in_as_many_threads_as_concurrency_says(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    meeting = threading.Barrier(4, timeout=DEADLINE_S)
    threads: list[threading.Thread] = []

    def handle(message: PushedMessage) -> None:
        meeting.wait()  # four at one time
        threads.append(threading.current_thread())
        if len(threads) == 8:
            consumer.stop()

    async def scenario() -> None:
        nonlocal consumer
        await send(broker.url, topic, *"abcdefgh")
        async with opened(broker, topic, group) as consumer:
            await consumer.run(handle, concurrency=4)
        assert broker.lag(group, topic) == 0

    consumer: PushConsumer
    play(scenario)
    assert len({thread.name for thread in threads}) == 4
    assert threading.current_thread() not in threads
    assert all(thread.daemon for thread in threads)


def test_a_thread_has_the_context_variables_of_run_and_runs_no_loop(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    tenant = contextvars.ContextVar("tenant", default="")
    seen: list[str] = []

    async def in_own_loop() -> str:
        return tenant.get()

    def handle(message: PushedMessage) -> None:
        seen.append(tenant.get())
        tenant.set("changed")
        seen.append(anyio.run(in_own_loop))
        if message.text == "b":
            consumer.stop()

    async def scenario() -> None:
        nonlocal consumer
        tenant.set("mine")
        await send(broker.url, topic, "a", "b")
        async with opened(broker, topic, group) as consumer:
            await consumer.run(handle, concurrency=1)
        assert tenant.get() == "mine"

    consumer: PushConsumer
    play(scenario)
    assert seen == ["mine", "changed"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("is_async", [False, True])
def test_in_loop_handlers_run_in_the_thread_of_the_loop(
    play: Play, broker: Broker, topic: str, group: str, is_async: bool
) -> None:
    names: list[str] = []

    def handle(message: PushedMessage) -> None:
        names.append(threading.current_thread().name)
        consumer.stop()

    async def scenario() -> None:
        nonlocal consumer
        await send(broker.url, topic, "a")
        async with opened(broker, topic, group) as consumer:
            if is_async:

                async def handle_async(message: PushedMessage) -> None:
                    handle(message)

                await consumer.run(handle_async)
            else:
                await consumer.run(handle, in_loop=True)

    consumer: PushConsumer
    play(scenario)
    assert names == [threading.current_thread().name]


def test_what_a_plain_handler_returns_is_awaited_in_the_loop(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        names = []

        async def bill(message: PushedMessage, db: str) -> None:
            await anyio.lowlevel.checkpoint()
            names.append((threading.current_thread().name, db))
            consumer.stop()

        await send(broker.url, topic, "a")
        async with opened(broker, topic, group) as consumer:
            await consumer.run(lambda message: bill(message, "db"))
        assert names == [(threading.current_thread().name, "db")]

    play(scenario)


def test_a_handler_in_a_thread_settles_its_messages_itself(
    play: Play, broker: Broker, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Exception] = []
    again = threading.Event()

    def handle(message: PushedMessage) -> None:
        if message.text == "later" and message.reconsume_times == 0:
            message.retry(1)  # type: ignore[unused-coroutine] # it has begun
            return
        if message.text == "later":
            again.set()
        message.ack()
        if message.text == "twice":
            try:
                message.ack()
            except AlreadySettledError as error:
                errors.append(error)
        if message.text == "fails":
            raise ValueError("after its acknowledgement")

    async def scenario() -> None:
        await send(broker.url, topic, "later", "twice", "fails")
        async with (
            opened(broker, topic, group) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(consumer.run, handle)
            while not again.is_set():
                await anyio.to_thread.run_sync(lambda: broker.advance(seconds=2))
                await anyio.sleep(0.01)
            consumer.stop()
        assert broker.lag(group, topic) == 0

    play(scenario)
    assert "acknowledged already: settle each message once" in str(errors[0])
    assert "it was settled before, and stays so" in caplog.text


# Time limits


def test_a_thread_that_takes_too_long_loses_its_message(
    play: Play, broker: Broker, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    release, over = threading.Event(), threading.Event()
    seen: list[tuple[str, int]] = []

    def handle(message: PushedMessage) -> None:
        seen.append((message.text, message.reconsume_times))
        if len(seen) == 1:
            assert release.wait(DEADLINE_S)
            message.ack()
            over.set()
        else:
            consumer.stop()

    async def scenario() -> None:
        nonlocal consumer
        await send(broker.url, topic, "slow")
        async with (
            opened(broker, topic, group, consume_timeout_s=0.05) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(lambda: consumer.run(handle, concurrency=1))
            await until(lambda: "did not return in 0.05 s" in caplog.text)
            await until(lambda: sum(consumer.positions.values()) == 1)
            assert seen == [("slow", 0)]
            release.set()
            while len(seen) < 2:
                await anyio.to_thread.run_sync(lambda: broker.advance(minutes=1))
        assert seen == [("slow", 0), ("slow", 1)]

    consumer: PushConsumer
    play(scenario)
    assert over.wait(DEADLINE_S)
    assert "did not return in 0.05 s" in caplog.text
    assert "ack of <Message" in caplog.text
    assert "has no effect: it was taken from its handler" in caplog.text


released = threading.Event()


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    """Handlers without end, at the end of the test."""
    released.clear()
    yield
    released.set()


async def sleeps(message: PushedMessage) -> None:
    await anyio.sleep_forever()


async def suppresses(message: PushedMessage) -> None:
    with anyio.CancelScope(shield=True):
        await until(released.is_set)


def blocks(message: PushedMessage) -> None:
    released.wait(DEADLINE_S)


ENDLESS = [sleeps, suppresses, blocks]


@pytest.mark.slow
@pytest.mark.parametrize("endless", ENDLESS)
def test_stop_ends_run_in_time_and_says_what_was_cut(
    play: Play,
    broker: Broker,
    topic: str,
    group: str,
    caplog: pytest.LogCaptureFixture,
    endless: Callable[[PushedMessage], Awaitable[None] | None],
) -> None:
    def handle(message: PushedMessage) -> Awaitable[None] | None:
        if message.text == "slow":
            began.append(message)
            return endless(message)
        return None

    async def handle_async(message: PushedMessage) -> None:
        outcome = handle(message)
        assert outcome is None or await outcome is None

    async def scenario() -> None:
        await send(broker.url, topic, "quick", "slow", "quick")
        async with (
            opened(broker, topic, group, close_timeout_s=2.0) as consumer,
            anyio.create_task_group() as tasks,
        ):
            run = handle if endless is blocks else handle_async
            tasks.start_soon(consumer.run, run)
            await until(lambda: began)
            start_s = time.monotonic()
            consumer.stop(timeout_s=60.0)
            consumer.stop(timeout_s=0.1)
        assert time.monotonic() - start_s < CLOSED_WITHIN_S
        assert "handlers had not returned within 0.1 s" in caplog.text
        (line,) = [line for line in caplog.messages if line.startswith("stopped without 1 ")]
        assert f"which are not acknowledged, and are redelivered: {began[0]!r} with id" in line
        # It comes again, and no other message is lost.
        seen = []
        async with opened(broker, topic, group) as consumer:
            while "slow" not in seen:
                message = await consumer.receive()
                seen.append(message.text)
                message.ack()
        released.set()

    began: list[PushedMessage] = []
    play(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("endless", ENDLESS)
def test_closing_while_handlers_run_takes_no_longer_than_its_limit(
    play: Play,
    broker: Broker,
    topic: str,
    group: str,
    caplog: pytest.LogCaptureFixture,
    endless: Callable[[PushedMessage], Any],
) -> None:
    def handle(message: PushedMessage) -> Any:
        began.append(message)
        return endless(message)

    async def handle_async(message: PushedMessage) -> None:
        await handle(message)

    began: list[PushedMessage] = []

    async def scenario() -> None:
        await send(broker.url, topic, "slow")
        async with anyio.create_task_group() as tasks:
            consumer = await opened(broker, topic, group, close_timeout_s=0.4).open()
            tasks.start_soon(consumer.run, handle if endless is blocks else handle_async)
            await until(lambda: began)
            start_s = time.monotonic()
            await consumer.close()
            assert time.monotonic() - start_s < CLOSED_WITHIN_S
        assert consumer.handler is None
        released.set()

    play(scenario)


@pytest.mark.slow
def test_closing_waits_for_handlers_that_end_in_time(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        began, go_on = anyio.Event(), anyio.Event()

        async def handle(message: PushedMessage) -> None:
            began.set()
            await go_on.wait()

        await send(broker.url, topic, "a")
        async with anyio.create_task_group() as tasks:
            consumer = await opened(broker, topic, group).open()
            tasks.start_soon(consumer.run, handle)
            await began.wait()
            tasks.start_soon(consumer.close)
            await anyio.wait_all_tasks_blocked()
            go_on.set()
        assert broker.lag(group, topic) == 0

    play(scenario)


def test_a_handler_may_close_its_consumer(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        async def handle(message: PushedMessage) -> None:
            await consumer.close()

        await send(broker.url, topic, "a")
        consumer = await opened(broker, topic, group).open()
        start_s = time.monotonic()
        await consumer.run(handle)
        assert time.monotonic() - start_s < CLOSED_WITHIN_S

    play(scenario)


def test_a_run_that_is_cancelled_cancels_its_handlers(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        began, ended = anyio.Event(), anyio.Event()

        async def handle(message: PushedMessage) -> None:
            began.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.set()

        await send(broker.url, topic, "a")
        async with opened(broker, topic, group) as consumer:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(consumer.run, handle)
                await began.wait()
                tasks.cancel_scope.cancel()
            assert ended.is_set()
            assert consumer.handler is None
        assert broker.lag(group, topic) == 1

    play(scenario)


# Errors


@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_no_exception_ends_run(
    play: Play, broker: Broker, topic: str, group: str, is_async: bool
) -> None:
    def handle(message: PushedMessage) -> None:
        raise SystemExit(3)

    async def handle_async(message: PushedMessage) -> None:
        handle(message)

    async def scenario() -> None:
        await send(broker.url, topic, "a")
        async with opened(broker, topic, group) as consumer:
            with pytest.raises(SystemExit):
                await consumer.run(handle_async if is_async else handle)
        assert broker.lag(group, topic) == 1

    play(scenario)


def test_a_handler_whose_future_was_cancelled_has_failed(
    broker: Broker, topic: str, group: str
) -> None:
    """And the handlers go on: the cancellation was not meant for them."""

    async def main() -> None:
        async def handle(message: PushedMessage) -> None:
            if message.reconsume_times:
                consumer.stop()
                return
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

        await send(broker.url, topic, "a")
        async with opened(broker, topic, group, is_orderly=True, suspend_queue_s=0.01) as consumer:
            async with asyncio.timeout(DEADLINE_S):
                await consumer.run(handle, concurrency=1)

    asyncio.run(main())


# The loop


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_that_holds_the_loop_is_named_once(
    play: Play,
    broker: Broker,
    topic: str,
    group: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_async: bool,
) -> None:
    monkeypatch.setattr(loop_watch, "LOOP_HELD_S", 0.0)

    async def scenario() -> None:
        caplog.clear()

        def counts(message: PushedMessage) -> None:
            if message.text == "c":
                consumer.stop()

        async def counts_async(message: PushedMessage) -> None:
            await anyio.lowlevel.checkpoint()
            counts(message)

        await send(broker.url, topic, *"abc")
        async with opened(broker, topic, group) as consumer:
            if is_async:
                await consumer.run(counts_async, concurrency=1)
            else:
                await consumer.run(counts, concurrency=1, in_loop=True)
        lines = [line for line in caplog.messages if "held the event loop for 0.00 s" in line]
        assert len(lines) == 1
        assert ("counts_async" if is_async else "<locals>.counts ") in lines[0]

    play(scenario)


def test_a_thread_does_not_hold_the_loop(
    play: Play,
    broker: Broker,
    topic: str,
    group: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_watch, "LOOP_HELD_S", 0.0)
    ticks: list[int] = []
    ticked = threading.Event()

    def handle(message: PushedMessage) -> None:
        assert ticked.wait(DEADLINE_S)  # the loop runs meanwhile
        consumer.stop()

    async def scenario() -> None:
        nonlocal consumer
        await send(broker.url, topic, "a")
        async with (
            opened(broker, topic, group) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(consumer.run, handle)
            while len(ticks) < 10:
                await anyio.sleep(0.001)
                ticks.append(1)
            ticked.set()

    consumer: PushConsumer
    play(scenario)
    assert "held the event loop" not in caplog.text


def test_a_handler_sees_its_cancellation_and_its_results(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    """The watch passes on what is sent and thrown into the handler."""

    async def scenario() -> None:
        async def handle(message: PushedMessage) -> None:
            with anyio.move_on_after(0.01) as scope:
                await anyio.sleep_forever()
            assert scope.cancelled_caught
            assert await anyio.to_thread.run_sync(lambda: 42) == 42
            with pytest.raises(ZeroDivisionError):
                await anyio.to_thread.run_sync(lambda: 1 // 0)
            consumer.stop()
            if message.reconsume_times == 0:
                raise RetryLater(1)

        await send(broker.url, topic, "a")
        async with opened(broker, topic, group) as consumer:
            await consumer.run(handle)
        waiting = [m.properties["REAL_TOPIC"] for m in broker.messages("SCHEDULE_TOPIC_XXXX")]
        assert waiting.count(f"%RETRY%{group}") == 1  # others are of other tests

    play(scenario)
