"""The clients of `frozen`: each door and mode of consuming, and each way of sending.

Every consumer has a group to itself. Its loop ends when its record is over; then it is closed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trocket import (
    ClientError,
    ConsumeFromWhere,
    Message,
    MessageModel,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    RequestTimeoutError,
    SimpleConsumer,
    blocking,
)
from trocket.interop.java_program import java_command
from trocket.interop.process import LineProcess, PeerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

DOORS: Final = ("async", "blocking")
PUSHED: Final[Mapping[str, dict[str, Any]]] = {
    "pulled": {},
    "ordered": {"is_orderly": True},
    "broadcast": {"message_model": MessageModel.BROADCASTING},
    "popped": {"mode": "pop", "pop_invisible_s": 5.0},
}
"""Options of the push consumers by mode."""
MODES: Final = (*PUSHED, "simple", "polled")
POPPING: Final = ("popped", "simple")
"""The modes in which the broker keeps which messages are acknowledged."""
INVISIBLE_S: Final = 5.0
"""The shortest time after which a message that was not acknowledged is delivered again."""
WAIT_S: Final = 2.0
"""How long a simple or pull consumer waits for messages before it looks whether it is over."""
FIRST: Final = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

JAVA_MODES: Final = ("pulled", "ordered")
JAVA_TIMEOUT_S: Final = 60.0
"""For the start of a JVM, and for closing, of which it waits for each broker in turn."""
BODY_SIZE_MAX: Final = 1_000_000
SEND_TIMEOUT_S: Final = 10.0
"""The producer's default time limit."""


@dataclass
class Record:
    """What one consumer saw; its thread writes, the others read.

    Attributes:
      is_over: set to end and close the consumer.
      opening_s: when it began to open, by the monotonic clock.
      seen: time and broker of each message that was handled.
      handled: bodies by how often they were handled.
      settled: for each queue the offset behind the last message that was handled.
      close_s: seconds that closing took.
      crash: the exception that ended it, if any.
    """

    name: str
    is_over: threading.Event = field(default_factory=threading.Event)
    is_closed: threading.Event = field(default_factory=threading.Event)
    opening_s: float = 0.0
    seen: list[tuple[float, str]] = field(default_factory=list)
    handled: Counter[str] = field(default_factory=Counter)
    settled: dict[MessageQueue, int] = field(default_factory=dict)
    close_s: float = 0.0
    crash: str = ""

    def add(self, message: Any) -> None:
        """A message was handled."""
        self.handled[message.text] += 1
        self.add_at(message.queue, message.queue_offset)

    def add_at(self, queue: MessageQueue, offset: int) -> None:
        """The message at an offset was handled."""
        self.settled[queue] = max(self.settled.get(queue, 0), offset + 1)
        self.seen.append((time.monotonic(), queue.broker_name))

    def times_at(self, broker: str, since_s: float) -> list[float]:
        """When messages of a broker were handled, from `since_s` on."""
        return [at_s for at_s, name in list(self.seen) if name == broker and at_s >= since_s]


def run_consumer(door: str, mode: str, url: str, topic: str, record: Record) -> None:
    """Open a consumer, consume until the record is over, and close it."""
    record.opening_s = time.monotonic()
    try:
        if door == "async":
            asyncio.run(_ASYNC[mode](url, topic, record))
        else:
            _BLOCKING[mode](url, topic, record)
    except BaseException as error:  # noqa: BLE001 - reported as a figure
        record.crash = repr(error)
    finally:
        record.is_closed.set()


def run_java(
    version: str, mode: str, namesrv: str, topic: str, folder: Path, record: Record
) -> None:
    """The same with Java's push consumer: `pulled` or `ordered`."""

    def on_line(line: str) -> None:
        word, *rest = line.split()
        if word == "opening":
            record.opening_s = time.monotonic()
        elif word == "message":
            broker, queue_id, offset = rest
            record.add_at(MessageQueue(topic, broker, int(queue_id)), int(offset))
        elif word == "closed":
            record.close_s = int(rest[0]) / 1000
        elif word == "error":
            record.crash = line

    arguments = (namesrv, record.name, topic, mode)
    try:
        command = java_command(version, "Frozen", *arguments, folder=folder)
        process = LineProcess(command, folder=folder, name=record.name, on_line=on_line)
        try:
            process.wait_line(lambda line: line == "opening", timeout_s=JAVA_TIMEOUT_S)
            record.is_over.wait()
            process.write_line("close")
            process.wait_line(lambda line: line.startswith("closed"), timeout_s=JAVA_TIMEOUT_S)
        finally:
            process.kill()
    except PeerError as error:
        record.crash = str(error)
    finally:
        record.is_closed.set()


def push_options(mode: str, topic: str, record: Record) -> dict[str, Any]:
    """Arguments of the push consumer of a mode."""
    return {
        "group": record.name,
        "subscriptions": {topic: "*"},
        "consume_from_where": FIRST,
        **PUSHED[mode],
    }


# Under asyncio


@asynccontextmanager
async def _closing(consumer: Any, record: Record) -> AsyncIterator[Any]:
    await consumer.open()
    try:
        yield consumer
    finally:
        begin_s = time.monotonic()
        await consumer.close()
        record.close_s = time.monotonic() - begin_s


async def _over(record: Record) -> None:
    while not record.is_over.is_set():  # noqa: ASYNC110 - set by another thread
        await asyncio.sleep(0.02)


async def _push(mode: str, url: str, topic: str, record: Record) -> None:
    async def handle(message: Any) -> None:
        record.add(message)

    consumer = PushConsumer(url, **push_options(mode, topic, record))
    async with _closing(consumer, record):
        running = asyncio.create_task(consumer.run(handle))
        over = asyncio.create_task(_over(record))
        await asyncio.wait([running, over], return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        consumer.stop()
        await running


async def _receive(url: str, topic: str, record: Record) -> None:
    consumer = SimpleConsumer(
        url, group=record.name, subscriptions={topic: "*"}, consume_from_where=FIRST
    )
    async with _closing(consumer, record):
        while not record.is_over.is_set():
            for message in await consumer.receive(wait_s=WAIT_S, invisible_s=INVISIBLE_S):
                with suppress(RequestTimeoutError):
                    await consumer.ack(message)
                    record.add(message)


async def _poll(url: str, topic: str, record: Record) -> None:
    consumer = PullConsumer(url, group=record.name, consume_from_where=FIRST)
    async with _closing(consumer, record):
        consumer.assign(await consumer.queues(topic))
        while not record.is_over.is_set():
            for message in await consumer.poll(timeout_s=WAIT_S):
                record.add(message)


def _pushing(mode: str) -> Callable[[str, str, Record], Any]:
    return lambda url, topic, record: _push(mode, url, topic, record)


_ASYNC: Final[dict[str, Callable[[str, str, Record], Any]]] = {
    **{mode: _pushing(mode) for mode in PUSHED},
    "simple": _receive,
    "polled": _poll,
}


# In threads


@contextmanager
def _closing_blocking(consumer: Any, record: Record) -> Iterator[Any]:
    consumer.open()
    try:
        yield consumer
    finally:
        begin_s = time.monotonic()
        consumer.close()
        record.close_s = time.monotonic() - begin_s


def _push_blocking(mode: str, url: str, topic: str, record: Record) -> None:
    consumer = blocking.PushConsumer(url, **push_options(mode, topic, record))
    with _closing_blocking(consumer, record):

        def stop_in_the_end() -> None:
            record.is_over.wait()
            consumer.stop()

        ender = threading.Thread(target=stop_in_the_end)
        ender.start()
        try:
            consumer.run(record.add)
        finally:
            record.is_over.set()
            ender.join()


def _receive_blocking(url: str, topic: str, record: Record) -> None:
    consumer = blocking.SimpleConsumer(
        url, group=record.name, subscriptions={topic: "*"}, consume_from_where=FIRST
    )
    with _closing_blocking(consumer, record):
        while not record.is_over.is_set():
            for message in consumer.receive(wait_s=WAIT_S, invisible_s=INVISIBLE_S):
                with suppress(RequestTimeoutError):
                    consumer.ack(message)
                    record.add(message)


def _poll_blocking(url: str, topic: str, record: Record) -> None:
    consumer = blocking.PullConsumer(url, group=record.name, consume_from_where=FIRST)
    with _closing_blocking(consumer, record):
        consumer.assign(consumer.queues(topic))
        while not record.is_over.is_set():
            for message in consumer.poll(timeout_s=WAIT_S):
                record.add(message)


def _pushing_blocking(mode: str) -> Callable[[str, str, Record], None]:
    return lambda url, topic, record: _push_blocking(mode, url, topic, record)


_BLOCKING: Final[dict[str, Callable[[str, str, Record], None]]] = {
    **{mode: _pushing_blocking(mode) for mode in PUSHED},
    "simple": _receive_blocking,
    "polled": _poll_blocking,
}


# Sends


@dataclass
class Sent:
    """How one send ended: after how many seconds, and with which error, if any."""

    door: str
    took_s: float
    error: str = ""


def _body(number: int) -> bytes:
    """Every other one is large, so that the socket of a frozen broker takes no more of them."""
    return b"x" * (BODY_SIZE_MAX if number % 2 else 1)


async def send_all(url: str, topic: str, count: int, sent: list[Sent]) -> float:
    """Send with one async producer, all at once; the seconds that closing it took."""
    producer = await Producer(url, group="frozen-async").open()

    async def send(number: int) -> None:
        begin_s = time.monotonic()
        error = ""
        try:
            await producer.send(Message(topic, _body(number)))
        except ClientError as failure:
            error = repr(failure)
        sent.append(Sent("async", time.monotonic() - begin_s, error))

    await asyncio.gather(*map(send, range(count)))
    begin_s = time.monotonic()
    await producer.close()
    return time.monotonic() - begin_s


def send_all_blocking(url: str, topic: str, count: int, sent: list[Sent]) -> float:
    """Send with one blocking producer, a thread each; the seconds that closing it took."""
    producer = blocking.Producer(url, group="frozen-blocking").open()

    def send(number: int) -> None:
        begin_s = time.monotonic()
        error = ""
        try:
            producer.send(Message(topic, _body(number)))
        except ClientError as failure:
            error = repr(failure)
        sent.append(Sent("blocking", time.monotonic() - begin_s, error))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    begin_s = time.monotonic()
    producer.close()
    return time.monotonic() - begin_s
