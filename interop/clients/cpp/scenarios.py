"""Plays scenarios of messaging features, all at the same time, as users of the C++ client's wheel.

Run by an interpreter that has the wheel and nothing of ours (interop/cpp_program.py). Arguments,
lines and points are those of the other clients' programs: see interop/clients/python/__main__.py.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer
from rocketmq.exceptions import RocketMQException
from rocketmq.ffi import MessageModel

DEADLINE_S = 60.0
SEND_DEADLINE_S = 90.0
RECEIVE_DEADLINE_S = 170.0
KEYS = 4
STEPS_BEFORE = STEPS_AFTER = 5
STEP_PAUSE_S = 0.4
NAMES = {"OK": "SEND_OK"}
ERROR_MAX = 200
MESSAGE_SIZE_MAX = 4 << 20

_printing = threading.Lock()
_never = threading.Event()


def say(value: dict[str, Any]) -> None:
    with _printing:
        print(json.dumps(value), flush=True)


class Points:
    """Synchronisation points: a line out, and a line in, SCENARIO POINT, that resumes."""

    def __init__(self) -> None:
        self._passed: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def read(self) -> None:
        for line in sys.stdin.buffer:
            self._event(line.decode().strip()).set()

    def _event(self, line: str) -> threading.Event:
        with self._lock:
            return self._passed.setdefault(line, threading.Event())

    def reach(self, name: str, point: str) -> threading.Event:
        say({"at": point, "scenario": name})
        return self._event(f"{name} {point}")


POINTS = Points()


class Inbox:
    """The items received so far, in order; waiting has a deadline."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._changed = threading.Condition()

    def put(self, item: Any) -> None:
        with self._changed:
            self.items.append(item)
            self._changed.notify_all()

    def wait(self, count: int) -> list[Any]:
        with self._changed:
            if self._changed.wait_for(lambda: len(self.items) >= count, DEADLINE_S):
                return list(self.items)
        raise TimeoutError(f"only {len(self.items)} came: {self.items}")


class Received:
    """A copy of a received message: the library's is valid only during its callback."""

    def __init__(self, message: Any) -> None:
        self.body = message.body.decode()
        self.id = message.id
        self.topic = message.topic
        self.tags = _text(message.tags)
        self.keys = _text(message.keys)
        self.colour = _text(message["colour"])
        self.farbe = _text(message["farbe"])
        self.name_in_cyrillic = _text(message["цвет"])
        self.step = _text(message["step"])
        self.queue_id = message.queue_id
        self.queue_offset = message.queue_offset
        self.times = message.reconsume_times
        self.store_size = message.store_size
        self.delay_level = message.delay_time_level
        self.age_ms = time.time_ns() // 1_000_000 - message.born_timestamp


def _text(value: bytes | None) -> str:
    return (value or b"").decode()


class Stage:
    """The context of a scenario: its topic, which is also its group's name, and its facts."""

    def __init__(self, namesrv: str, topic: str, producer: Any) -> None:
        self.topic = topic
        self.producer = producer
        self.facts: dict[str, Any] = {}
        self._namesrv = namesrv
        self._consumers: list[Any] = []

    def message(self, body: str, tags: str = "", keys: str = "", **properties: str) -> Any:
        message = Message(self.topic)
        message.set_body(body)
        if tags:
            message.set_tags(tags)
        if keys:
            message.set_keys(keys)
        for name, value in properties.items():
            message.set_property(name, value)
        return message

    def send(self, *bodies: str) -> None:
        for body in bodies:
            self.producer.send_sync(self.message(body))

    def consumer(self, take: Callable[[Received], None], **options: Any) -> Any:
        """A started push consumer; it begins with the first message of a young queue."""
        expression = options.pop("expression", "*")
        instance = options.pop("instance", self.topic)
        consumer = PushConsumer(self.topic, **options)
        consumer.set_namesrv_addr(self._namesrv)
        consumer.set_instance_name(instance)
        consumer.set_thread_count(1)
        consumer.subscribe(self.topic, lambda message: take(Received(message)), expression)
        consumer.start()
        self._consumers.append(consumer)
        return consumer

    def inbox(self, **options: Any) -> Inbox:
        inbox = Inbox()
        self.consumer(inbox.put, **options)
        return inbox

    def receive(self, count: int) -> list[Received]:
        return self.inbox().wait(count)

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.shutdown()


def status(result: Any) -> str:
    name: str = result.status.name
    return NAMES.get(name, name)


def bodies(messages: list[Received]) -> list[str]:
    return sorted(message.body for message in messages)


# ---- sending ---------------------------------------------------------------------------------


def send_sync(stage: Stage) -> None:
    results = [
        stage.producer.send_sync(
            stage.message(f"body-{n}", f"Tag{n}", f"key-{n} shared", colour=f"red-{n}")
        )
        for n in range(3)
    ]
    got = stage.receive(3)
    stage.facts.update(
        statuses=[status(result) for result in results],
        offsets=[result.offset for result in results],
        same_ids=[result.msg_id for result in results] == [m.id for m in got],
        received=[[m.body, m.tags, m.keys, m.colour, m.queue_offset, m.times] for m in got],
    )


def send_oneway(stage: Stage) -> None:
    for n in range(10):
        stage.producer.send_oneway(stage.message(f"body-{n}"))
    stage.facts["received"] = bodies(stage.receive(10))


def send_by_selector(stage: Stage) -> None:
    for step in range(4):
        for order in range(6):
            stage.producer.send_orderly(stage.message(f"{order}/{step}"), order)
    steps: dict[str, list[str]] = {}
    queues: dict[str, set[int]] = {}
    for message in sorted(stage.receive(24), key=lambda m: m.queue_offset):
        order, step = message.body.split("/")
        steps.setdefault(order, []).append(step)
        queues.setdefault(order, set()).add(message.queue_id)
    stage.facts["steps_of_each"] = steps
    stage.facts["queues_of_each"] = [len(ids) for ids in queues.values()]


def send_unicode(stage: Stage) -> None:
    properties = {"farbe": "grün ✓ 🙂", "цвет": "зелёный"}
    # The wheel hands bodies over as C strings: they end at the first zero byte.
    message = stage.message("日本語 ✓ 🙂 ", "Größe", "schlüssel ключ", **properties)
    stage.producer.send_sync(message)
    stage.facts["received"] = [
        [m.body, m.tags, m.keys, m.farbe, m.name_in_cyrillic] for m in stage.receive(1)
    ]


def send_compressed(stage: Stage) -> None:
    body = "\n".join(f"line {number % 10}" for number in range(20_000))
    stage.send(body)
    got = stage.receive(1)[0]
    stage.facts.update(
        same=got.body == body,
        length=len(got.body),
        stored_smaller=got.store_size < len(body) / 10,
    )


# ---- consuming -------------------------------------------------------------------------------


def push_concurrent(stage: Stage) -> None:
    """By turns to all queues, as the producer does."""
    stage.send(*map(str, range(20)))
    inbox = stage.inbox()
    inbox.wait(20)
    stage.send(*map(str, range(20, 40)))
    got = inbox.wait(40)
    stage.facts.update(
        count=len(got),
        received=sorted(int(m.body) for m in got),
        queues=len({m.queue_id for m in got}),
        times=sorted({m.times for m in got}),
    )


def push_broadcasting(stage: Stage) -> None:
    """Each of two consumers gets everything."""
    inboxes = [
        stage.inbox(message_model=MessageModel.BROADCASTING, instance=f"{stage.topic}{number}")
        for number in range(2)
    ]
    stage.send(*map(str, range(8)))
    stage.facts["received"] = [sorted(int(m.body) for m in inbox.wait(8)) for inbox in inboxes]


def push_tags(stage: Stage) -> None:
    """AaAa and BBBB have one hash code, and a consume queue stores only the hash code."""
    for number, tag in enumerate(["A", "B", "C", "", "AaAa", "BBBB", "B"]):
        stage.producer.send_sync(stage.message(str(number), tag))
    got = stage.inbox(expression="A || B || AaAa").wait(4)
    stage.facts["received"] = [m.body for m in got]


def group_goes_on(stage: Stage) -> None:
    """A new consumer of a group resumes behind what an ended one consumed."""
    stage.send(*"01234")
    inbox = Inbox()
    first = stage.consumer(inbox.put, instance=f"{stage.topic}_first")
    stage.facts["first"] = [m.body for m in inbox.wait(5)]
    first.shutdown()
    stage.send(*"567")
    second = stage.inbox(instance=f"{stage.topic}_second")
    stage.facts["second"] = [m.body for m in second.wait(3)]


def later_level(stage: Stage) -> None:
    message = stage.message("level-1", "Tag", "key")
    message.set_delay_time_level(1)
    result = stage.producer.send_sync(message)
    got = stage.receive(1)[0]
    stage.facts.update(
        status=status(result),
        received=[got.body, got.tags, got.keys, got.topic == stage.topic, got.delay_level],
        early=got.age_ms < 1000,
    )


# ---- on and on -------------------------------------------------------------------------------


class Through:
    """Sends and consumes through a fault of the broker, like interop/clients/python/through.py."""

    def __init__(self, stage: Stage, name: str, send: str, consume: str) -> None:
        self._stage = stage
        self._name = name
        self._send = send
        self._consume = consume
        self._step = 0
        self._acknowledged: list[str] = []
        self._failed: list[str] = []
        self._received: list[list[Any]] = []
        self._came: set[str] = set()

    def play(self) -> None:
        self._stage.consumer(self._take, orderly=self._consume == "orderly")
        counts = [self._send_steps(lambda: self._step >= STEPS_BEFORE)]
        self._wait_received()
        ready = POINTS.reach(self._name, "ready")
        counts.append(self._send_steps(ready.is_set))
        end = self._step + STEPS_AFTER
        counts.append(self._send_steps(lambda: self._step >= end))
        self._wait_received()
        POINTS.reach(self._name, "done").wait()
        self._stage.facts.update(
            counts=counts,
            failed=self._failed,
            acknowledged=self._acknowledged,
            received=list(self._received),
        )

    def _send_steps(self, is_enough: Callable[[], bool]) -> int:
        before = len(self._acknowledged)
        while not is_enough():
            for key in range(KEYS):
                self._until_acknowledged(key)
            self._step += 1
            _never.wait(STEP_PAUSE_S)
        return len(self._acknowledged) - before

    def _until_acknowledged(self, key: int) -> None:
        end_s = time.monotonic() + SEND_DEADLINE_S
        body = f"{key}/{self._step}"
        while True:
            message = self._stage.message(body, f"T{key}", f"k-{body}", step=str(self._step))
            if self._send == "delayed":
                message.set_delay_time_level(1 + key % 2)
            try:
                if self._send == "ordered":
                    self._stage.producer.send_orderly(message, key)
                else:
                    self._stage.producer.send_sync(message)
            except RocketMQException as error:
                if time.monotonic() > end_s:
                    raise TimeoutError(f"{body} is not acknowledged: {error}") from error
                self._failed.append(f"{body}: {error}"[:ERROR_MAX])
                _never.wait(STEP_PAUSE_S)
            else:
                self._acknowledged.append(body)
                return

    def _take(self, message: Received) -> None:
        own = message.topic == self._stage.topic
        row = [message.body, message.times, message.tags, message.keys, message.step, own]
        self._received.append([*row, message.age_ms])
        self._came.add(message.body)

    def _wait_received(self) -> None:
        """Wait until all acknowledged messages are received; the harness reports missing ones."""
        end_s = time.monotonic() + RECEIVE_DEADLINE_S
        while not self._came.issuperset(self._acknowledged) and time.monotonic() < end_s:
            _never.wait(0.1)


ALL: dict[str, Callable[[Stage], None]] = {
    scenario.__name__: scenario
    for scenario in (
        send_sync,
        send_oneway,
        send_by_selector,
        send_unicode,
        send_compressed,
        push_concurrent,
        push_broadcasting,
        push_tags,
        group_goes_on,
        later_level,
    )
}


def play(argument: str, namesrv: str, prefix: str, producer: Any) -> None:
    name, *how = argument.split(":")
    stage = Stage(namesrv, prefix + name, producer)
    outcome: dict[str, Any] = {"scenario": name, "facts": stage.facts}
    started_s = time.monotonic()
    try:
        if how:
            Through(stage, name, *how).play()
        else:
            ALL[name](stage)
        stage.close()
    except Exception:  # noqa: BLE001 - reported as the scenario's error
        outcome["error"] = traceback.format_exc()
    outcome["ms"] = round((time.monotonic() - started_s) * 1000)
    say(outcome)


def main() -> None:
    namesrv, prefix, *arguments = sys.argv[1:]
    threading.Thread(target=POINTS.read, daemon=True).start()
    producer = Producer("scenarios", timeout=10_000, max_message_size=MESSAGE_SIZE_MAX)
    producer.set_namesrv_addr(namesrv)
    producer.start()
    threads = [
        threading.Thread(target=play, args=(argument, namesrv, prefix, producer))
        for argument in arguments
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("end", flush=True)
    # The library's threads do not end by themselves.
    os._exit(0)


if __name__ == "__main__":
    main()
