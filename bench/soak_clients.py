"""The clients of `soak`: every kind, on asyncio, on trio and blocking, and what they did.

Each consumer has a group to itself.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
import trio

from trocket import (
    ClientError,
    ConsumeFromWhere,
    Delivery,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    blocking,
)

TOPIC = "Soak"
BODY_SIZE = 128
SEND_TIMEOUT_S: Final = 10.0
"""The producer's default time limit. A send that failed earlier is a violation."""
SLACK_S: Final = 0.5
"""How much earlier a send may fail: no try begins in the last moments before its deadline."""
POLL_S: Final = 0.02
FIRST: Final = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
DOORS: Final = ("asyncio", "trio", "blocking")
SENDERS: Final = tuple(f"{call}-{door}" for door in DOORS for call in ("send", "send_soon"))
GROUPS: Final = tuple(f"{kind}-{door}" for door in DOORS for kind in ("push", "pull"))
BEHIND_MAX_S: Final = 1.0
"""A sender that was held up, by a restart for instance, makes up for this time and no more."""


class Marks:
    """Which messages of each sender were confirmed, or consumed by a group.

    A byte for each, made at the start, so that a long run does not take more and more memory.

    Attributes:
      count: of messages with a mark.
      again: of further marks of these.

    Args:
      room: messages of each sender; for more, memory is taken.
    """

    def __init__(self, room: int) -> None:
        self.count = self.again = 0
        self._marks = {sender: bytearray(room) for sender in SENDERS}

    def add(self, name: str) -> None:
        """Mark the message `SENDER NUMBER`."""
        sender, _, digits = name.partition(" ")
        number, marks = int(digits), self._marks[sender]
        if number >= len(marks):
            marks.extend(bytes(number + 1))
        self.again += marks[number]
        self.count += not marks[number]
        marks[number] = 1

    def without(self, other: Marks) -> int:
        """The number of messages that are marked here, and not there."""
        return sum(
            (_bits(marks) & ~_bits(other._marks[sender])).bit_count()
            for sender, marks in self._marks.items()
        )


def _bits(marks: bytearray) -> int:
    return int.from_bytes(marks, "little")


class Pace:
    """The times of a sender's messages, at a rate per second."""

    def __init__(self, rate: float) -> None:
        self._interval_s = 1 / rate
        self._due_s = time.monotonic()

    def wait_s(self) -> float:
        """How long to wait before the next message."""
        now_s = time.monotonic()
        self._due_s = max(self._due_s + self._interval_s, now_s - BEHIND_MAX_S)
        return max(0.0, self._due_s - now_s)


@dataclass
class Failure:
    """A send that raised: its sender, the seconds since its start, and the error."""

    sender: str
    after_s: float
    error: str

    @property
    def is_early(self) -> bool:
        """Whether its deadline had not passed."""
        return self.after_s < SEND_TIMEOUT_S - SLACK_S


@dataclass
class Ledger:
    """The messages of all clients; any thread may add to it.

    Attributes:
      rate: sends per second of each sender.
      is_stopping: set when senders should end.
      is_over: set when consumers should end.
      room: messages of each sender, if all goes well.
      confirmed, sent: the messages that a broker has confirmed, and their numbers by sender.
      consumed: those that were consumed, by group.
      slowest_s: the longest confirmed send, by sender.
      tasks: of an event loop now, by loop.
      tasks_left: those that outlived their clients, by loop.
      crashes: exceptions that ended a client's thread.
      begun: number of sends that were begun.
    """

    rate: float
    room: int = 0
    is_stopping: threading.Event = field(default_factory=threading.Event)
    is_over: threading.Event = field(default_factory=threading.Event)
    confirmed: Marks = field(init=False)
    sent: dict[str, int] = field(default_factory=dict)
    consumed: dict[str, Marks] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    slowest_s: dict[str, float] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    tasks_left: dict[str, int] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)
    begun: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.confirmed = Marks(self.room)

    def add_sender(self, sender: str) -> Iterator[Message]:
        """The messages of a new sender, until `is_stopping` is set."""
        with self._lock:
            self.sent[sender] = 0
            self.slowest_s[sender] = 0.0
        return self._messages(sender)

    def _messages(self, sender: str) -> Iterator[Message]:
        for number in itertools.count():
            with self._lock:
                if self.is_stopping.is_set():
                    return
                self.begun += 1
            name = f"{sender} {number}"
            yield Message(TOPIC, name.ljust(BODY_SIZE), keys=name.replace(" ", "-"))

    def add_group(self, group: str) -> Callable[[Any], None]:
        """A handler of messages for a new group."""
        consumed = self.consumed[group] = Marks(self.room)

        def handle(message: Any) -> None:
            with self._lock:
                consumed.add(message.text)

        return handle

    @contextmanager
    def sending(self, sender: str, message: Message, start_s: float) -> Iterator[None]:
        """Record how a send ends, whose outcome the block waits for."""
        try:
            yield
        except ClientError as error:
            after_s = time.monotonic() - start_s
            with self._lock:
                self.failures.append(Failure(sender, after_s, f"{type(error).__name__}: {error}"))
        else:
            with self._lock:
                self.confirmed.add(str(message.body))
                self.sent[sender] += 1
                took_s = time.monotonic() - start_s
                self.slowest_s[sender] = max(self.slowest_s[sender], took_s)

    def progress(self) -> dict[str, int]:
        """The number of messages of each sender and each group."""
        with self._lock:
            return {**self.sent, **{name: marks.count for name, marks in self.consumed.items()}}

    def is_settled(self) -> bool:
        """Whether all sends that were begun have ended."""
        with self._lock:
            return self.confirmed.count + len(self.failures) == self.begun

    def missing(self) -> dict[str, int]:
        """Confirmed messages that a group has not consumed, by group."""
        with self._lock:
            return {group: self.confirmed.without(seen) for group, seen in self.consumed.items()}


# Clients in event loops


async def run_in_loop(url: str, name: str, ledger: Ledger) -> None:
    """The clients of one event loop, asyncio's or trio's, until the ledger is over."""
    before = _task_count(name)
    push, pull = f"push-{name}", f"pull-{name}"
    async with (
        Producer(url, group=f"producer-{name}") as producer,
        PushConsumer(
            url, group=push, subscriptions={TOPIC: "*"}, consume_from_where=FIRST
        ) as pushed,
        PullConsumer(url, group=pull, consume_from_where=FIRST) as pulled,
    ):
        pulled.assign(await pulled.queues(TOPIC))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pushed.run, ledger.add_group(push))
            tasks.start_soon(_poll, pulled, ledger.add_group(pull), ledger)
            tasks.start_soon(_send, producer, f"send-{name}", ledger)
            tasks.start_soon(_send_soon, producer, f"send_soon-{name}", ledger)
            while not ledger.is_over.is_set():
                ledger.tasks[name] = _task_count(name)
                await anyio.sleep(POLL_S)
            pushed.stop()
    ledger.tasks_left[name] = _task_count(name) - before


def _task_count(name: str) -> int:
    if name == "trio":
        return trio.lowlevel.current_statistics().tasks_living
    return len(asyncio.all_tasks())


async def _send(producer: Producer, sender: str, ledger: Ledger) -> None:
    pace = Pace(ledger.rate)
    for message in ledger.add_sender(sender):
        with ledger.sending(sender, message, time.monotonic()):
            await producer.send(message)
        await anyio.sleep(pace.wait_s())


async def _send_soon(producer: Producer, sender: str, ledger: Ledger) -> None:
    async def settle(message: Message, delivery: Delivery, start_s: float) -> None:
        with ledger.sending(sender, message, start_s):
            await delivery

    pace = Pace(ledger.rate)
    async with anyio.create_task_group() as tasks:
        for message in ledger.add_sender(sender):
            start_s = time.monotonic()
            try:
                delivery = await producer.send_soon(message)
            except ClientError as error:
                with ledger.sending(sender, message, start_s):
                    raise error
            else:
                tasks.start_soon(settle, message, delivery, start_s)
            await anyio.sleep(pace.wait_s())


async def _poll(consumer: PullConsumer, handle: Callable[[Any], None], ledger: Ledger) -> None:
    while not ledger.is_over.is_set():
        for message in await consumer.poll(timeout_s=0.2):
            handle(message)


# Blocking clients, one thread each


def send_blocking(url: str, ledger: Ledger) -> None:
    """A blocking producer that waits for each message."""
    sender, pace = "send-blocking", Pace(ledger.rate)
    with blocking.Producer(url, group="producer-blocking") as producer:
        for message in ledger.add_sender(sender):
            with ledger.sending(sender, message, time.monotonic()):
                producer.send(message)
            ledger.is_stopping.wait(pace.wait_s())


def send_soon_blocking(url: str, ledger: Ledger) -> None:
    """A blocking producer that sends ahead; each delivery is waited for in the order of sends."""
    sender, pace = "send_soon-blocking", Pace(ledger.rate)
    with blocking.Producer(url, group="producer-blocking-ahead") as producer:
        waiting: list[tuple[Message, blocking.Delivery, float]] = []
        for message in ledger.add_sender(sender):
            start_s = time.monotonic()
            try:
                waiting.append((message, producer.send_soon(message), start_s))
            except ClientError as error:
                with ledger.sending(sender, message, start_s):
                    raise error
            _settle(sender, ledger, waiting, is_last=False)
            ledger.is_stopping.wait(pace.wait_s())
        _settle(sender, ledger, waiting, is_last=True)


def _settle(
    sender: str,
    ledger: Ledger,
    waiting: list[tuple[Message, blocking.Delivery, float]],
    *,
    is_last: bool,
) -> None:
    for each in waiting[:]:
        message, delivery, start_s = each
        if is_last or delivery.is_done:
            waiting.remove(each)
            with ledger.sending(sender, message, start_s):
                delivery.result()


def push_blocking(url: str, ledger: Ledger) -> None:
    """A blocking push consumer."""
    group = "push-blocking"
    with blocking.PushConsumer(
        url, group=group, subscriptions={TOPIC: "*"}, consume_from_where=FIRST
    ) as consumer:

        def stop_in_the_end() -> None:
            ledger.is_over.wait()
            consumer.stop()

        ender = threading.Thread(target=stop_in_the_end)
        ender.start()
        try:
            consumer.run(ledger.add_group(group))
        finally:
            ender.join()


def pull_blocking(url: str, ledger: Ledger) -> None:
    """A blocking pull consumer."""
    group = "pull-blocking"
    with blocking.PullConsumer(url, group=group, consume_from_where=FIRST) as consumer:
        consumer.assign(consumer.queues(TOPIC))
        handle = ledger.add_group(group)
        while not ledger.is_over.is_set():
            for message in consumer.poll(timeout_s=0.2):
                handle(message)


def programs(url: str, ledger: Ledger) -> dict[str, Callable[[], None]]:
    """What each thread runs."""
    in_loops: dict[str, Callable[[], None]] = {
        backend: partial(anyio.run, run_in_loop, url, backend, ledger, backend=backend)
        for backend in ("asyncio", "trio")
    }
    threads = (send_blocking, send_soon_blocking, push_blocking, pull_blocking)
    return in_loops | {each.__name__: partial(each, url, ledger) for each in threads}
