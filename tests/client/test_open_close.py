"""`open` and `close` in any task of a loop; use in another loop is an error, and nothing hangs."""

from __future__ import annotations

import asyncio
import inspect
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest

from trocket import (
    Admin,
    Client,
    ClosedError,
    ConnectionChange,
    ConnectionEvent,
    ConsumeFromWhere,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
    WrongLoopError,
)
from trocket.testing import Broker

from .conftest import DEADLINE_S, Play

SUBSCRIBED: list[Any] = [
    partial(each, group="open_close", subscriptions={"Open": "*"})
    for each in (PushConsumer, SimpleConsumer)
]
MAKERS: list[Any] = [
    Client,
    Admin,
    Producer,
    lambda url: PullConsumer(url, group="open_close"),
    lambda url: PushConsumer(url, group="open_close", subscriptions={"Open": "*"}),
]


@pytest.mark.parametrize("make", MAKERS)
def test_one_task_opens_and_another_one_closes(play: Play, broker: Broker, make: Any) -> None:
    async def scenario() -> None:
        opened = make(broker.url)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.open)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.close)
        await opened.close()  # a second time, it does nothing
        with pytest.raises(ClosedError, match="only once"):
            await opened.open()
        await make(broker.url).close()  # never opened

    play(scenario)


@pytest.mark.parametrize("make", MAKERS)
def test_async_with_can_be_left_in_another_task(play: Play, broker: Broker, make: Any) -> None:
    async def scenario() -> None:
        opened = make(broker.url)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.__aenter__)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.__aexit__, None, None, None)

    play(scenario)


@pytest.mark.parametrize("make", SUBSCRIBED)
def test_an_iteration_over_what_was_never_opened_fails_and_over_what_was_closed_ends(
    play: Play, broker: Broker, make: Any
) -> None:
    async def scenario() -> None:
        with pytest.raises(ClosedError, match="is not open"):
            await anext(aiter(make(broker.url)))
        async with Client(broker.url) as client:
            made = make(client)
            with pytest.raises(ClosedError, match="is not open"):
                await anext(aiter(made))
            async with made:
                pass
            assert [each async for each in made] == []

    play(scenario)


VERBS: list[tuple[Callable[[Any], Any], Callable[[Any, str], Any]]] = [
    (Producer, lambda made, topic: made.send(Message(topic, "x"))),
    (partial(Producer, linger_s=0.1), lambda made, topic: made.send(Message(topic, "x"))),
    (Producer, lambda made, topic: made.send_soon(Message(topic, "x"))),
    (Producer, lambda made, topic: made.send_oneway(Message(topic, "x"))),
    (Producer, lambda made, topic: made.send_batch([Message(topic, "x")])),
    (Producer, lambda made, topic: made.request(Message(topic, "x"))),
    (Producer, lambda made, topic: made.queues(topic)),
    (Producer, lambda made, topic: made.recall(topic, "handle")),
    (Producer, lambda made, topic: made.reply(None, "x")),
    (
        lambda client: TransactionProducer(client, group="open_close", check=print),
        lambda made, topic: made.transaction(Message(topic, "x")).__aenter__(),
    ),
    (partial(PullConsumer, group="open_close"), lambda made, topic: made.poll()),
    (partial(PullConsumer, group="open_close"), lambda made, topic: made.subscribe(topic)),
    (partial(PullConsumer, group="open_close"), lambda made, topic: made.assign([])),
    (partial(PullConsumer, group="open_close"), lambda made, topic: made.commit()),
    *(
        (partial(PullConsumer, group="open_close"), use)
        for use in (
            lambda made, topic: made.queues(topic),
            lambda made, topic: made.committed(MessageQueue(topic, "broker", 0)),
            lambda made, topic: made.begin_offset(MessageQueue(topic, "broker", 0)),
            lambda made, topic: made.end_offset(MessageQueue(topic, "broker", 0)),
            lambda made, topic: made.offset_at(MessageQueue(topic, "broker", 0), 0),
            lambda made, topic: made.pull(MessageQueue(topic, "broker", 0), 0),
            lambda made, topic: made.seek(MessageQueue(topic, "broker", 0), 0),
            lambda made, topic: made.seek_to_begin(MessageQueue(topic, "broker", 0)),
            lambda made, topic: made.seek_to_end(MessageQueue(topic, "broker", 0)),
            lambda made, topic: made.seek_to_time(MessageQueue(topic, "broker", 0), 0),
            lambda made, topic: made.seek_to_committed(MessageQueue(topic, "broker", 0)),
        )
    ),
    (SUBSCRIBED[0], lambda made, topic: made.run(print)),
    (SUBSCRIBED[0], lambda made, topic: made.receive()),
    (SUBSCRIBED[0], lambda made, topic: made.rebalance()),
    (SUBSCRIBED[0], lambda made, topic: made.commit()),
    (SUBSCRIBED[0], lambda made, topic: made.reset({})),
    (SUBSCRIBED[0], lambda made, topic: made.seek(MessageQueue(topic, "broker", 0), 0)),
    (SUBSCRIBED[1], lambda made, topic: made.receive()),
    (SUBSCRIBED[1], lambda made, topic: made.subscribe(topic)),
    (SUBSCRIBED[1], lambda made, topic: made.ack_all([])),
]


@pytest.mark.parametrize("number", range(len(VERBS)))
def test_what_is_not_open_works_no_more_than_its_client_would(
    play: Play, broker: Broker, topic: str, number: int
) -> None:
    make, use = VERBS[number]

    async def outcome_of(made: Any) -> None:
        with anyio.fail_after(DEADLINE_S):
            given = use(made, topic)
            if inspect.isawaitable(given):
                await given

    async def scenario() -> None:
        async with Client(broker.url) as client:
            made = make(client)
            with pytest.raises(ClosedError, match=r"is not open: use `async with`"):
                await outcome_of(made)
            async with made:
                pass
            with pytest.raises(ClosedError, match="is closed: create another one"):
                await outcome_of(made)

    play(scenario)


def test_an_application_with_start_and_stop(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    class Shop:
        """What a framework starts and stops in tasks of its choice."""

        def __init__(self) -> None:
            self.producer = Producer(broker.url)
            self.consumer = PushConsumer(
                broker.url,
                group=group,
                subscriptions={topic: "*"},
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            )

        async def start(self) -> None:
            await self.producer.open()
            await self.consumer.open()

        async def stop(self) -> None:
            await self.producer.close()
            await self.consumer.close()

    async def scenario() -> None:
        shop = Shop()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shop.start)
        await shop.producer.send(Message(topic, "bread"))
        message = await shop.consumer.receive()
        message.ack()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shop.stop)
        assert broker.lag(group, topic) == 0  # `close` has committed

    play(scenario)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("other", ["asyncio", "trio"])
def test_use_in_a_loop_of_another_thread_is_an_error_at_once(
    broker: Broker, topic: str, backend: str, other: str
) -> None:
    failures: list[BaseException] = []

    async def scenario() -> None:
        async with Producer(broker.url) as producer:
            await producer.send(Message(topic, "x"))

            async def use() -> None:
                for call in (producer.send(Message(topic, "x")), producer.close()):
                    try:
                        await call
                    except WrongLoopError as error:
                        failures.append(error)

            def run() -> None:
                anyio.run(use, backend=other)

            await anyio.to_thread.run_sync(run)
            await producer.send(Message(topic, "x"))  # it has taken no harm

    ended = threading.Event()

    def main() -> None:
        anyio.run(scenario, backend=backend)
        ended.set()

    threading.Thread(target=main, daemon=True).start()
    assert ended.wait(DEADLINE_S)
    assert len(failures) == 2
    assert "opened in an event loop of the thread" in str(failures[0])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_use_in_a_later_loop_is_an_error(broker: Broker, topic: str, backend: str) -> None:
    producer = Producer(broker.url)
    anyio.run(producer.open, backend=backend)

    async def later() -> None:
        with pytest.raises((WrongLoopError, ClosedError)):
            await producer.send(Message(topic, "x"))
        await producer.close()

    anyio.run(later, backend=backend)


PROGRAM = """
import sys, asyncio
from trocket import Message, Producer, PushConsumer

async def main(url, topic):
    producer = await Producer(url).open()
    await producer.send(Message(topic, "x"))
    consumer = await PushConsumer(url, group="ctrl_c", subscriptions={topic: "*"}).open()
    print("open", flush=True)
    await consumer.run(lambda message: None)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
def test_one_ctrl_c_ends_a_program_that_closes_nothing(broker: Broker, topic: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, broker.url, topic],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "open\n"
            program.send_signal(signal.SIGINT)
            _, errors = program.communicate(timeout=DEADLINE_S)
        finally:
            program.kill()
    assert "KeyboardInterrupt" in errors
    assert program.returncode == -signal.SIGINT


UNCLOSED = """
import sys, asyncio
from trocket import Message, Producer, PushConsumer

async def main(url, topic):
    producer = await Producer(url).open()
    await producer.send(Message(topic, "x"))
    await PushConsumer(url, group="unclosed", subscriptions={topic: "*"}).open()
    await Producer(url, group="second").open()

async def close_nothing(url, topic, turns):
    await main(url, topic)
    for _ in range(turns):  # the tasks that are about to begin are others in each turn
        await asyncio.sleep(0)

url, topic = sys.argv[1:]
for turns in range(20):
    asyncio.run(close_nothing(url, topic, turns))
"""


@pytest.mark.slow
def test_a_program_that_closes_nothing_ends_without_a_warning(broker: Broker, topic: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNCLOSED, broker.url, topic],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_request_of_a_broker_is_served_in_a_loop_without_anyio(
    broker: Broker, topic: str, group: str
) -> None:
    """The broker calls the first member of a group when a second one joins."""
    topic += "_for_two"
    broker.create_topic(topic, queues=2)
    changes: list[ConnectionEvent] = []

    async def main() -> None:
        options: dict[str, Any] = {"group": group, "subscriptions": {topic: "*"}}
        async with (
            PushConsumer(broker.url, on_connection=changes.append, **options) as first,
            PushConsumer(broker.url, **options) as second,
        ):
            async with asyncio.timeout(DEADLINE_S):
                # A rebalance has no event.
                while not second.queues or {*first.queues} & {*second.queues}:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert {event.change for event in changes} == {ConnectionChange.CONNECTED}

    asyncio.run(main())
