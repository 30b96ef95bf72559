"""Plays scenarios as users of RocketMQ's gRPC client for Python, rocketmq-python-client.

Arguments: the HOST:PORT of a proxy or a broker, the prefix of topics and groups, and the scenarios'
names. Prints as the programs of the other clients do; interop/scenarios/grpc_table.py has
the expected facts. The client uses TLS if INTEROP_TLS is "true", and trusts the certificates of
GRPC_DEFAULT_SSL_ROOTS_FILE_PATH. It runs in a virtual environment of the client, without trocket.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.v5.exception import InternalErrorException
from rocketmq.v5.model.filter_expression import FilterType

WAIT_S = 40.0
PUSH_WAIT_S = 60.0
DEAD_S = 25.0
INVISIBLE_S = 30
AWAIT_S = 5
FAILURES_MAX = 10
PAUSE = threading.Event()
PRINTING = threading.Lock()


class Seen(MessageListener):  # type: ignore[misc]  # the client is not installed here
    """A listener that keeps what came, and says which attempts succeed."""

    def __init__(self, is_good: Callable[[int], bool]) -> None:
        self.all: list[list[Any]] = []
        self._is_good = is_good
        self._came = threading.Condition()

    def consume(self, message: Any) -> Any:
        with self._came:
            self.all.append([text(message), message.delivery_attempt])
            self._came.notify_all()
        is_good = self._is_good(message.delivery_attempt)
        return ConsumeResult.SUCCESS if is_good else ConsumeResult.FAILURE

    def wait(self, count: int, limit_s: float = PUSH_WAIT_S) -> list[list[Any]]:
        with self._came:
            self._came.wait_for(lambda: len(self.all) >= count, limit_s)
            return list(self.all)


class Checker(TransactionChecker):  # type: ignore[misc]
    """Commits what is named "asked"."""

    def __init__(self) -> None:
        self.checked: list[str] = []

    def check(self, message: Any) -> Any:
        body = text(message)
        if body not in self.checked:
            self.checked.append(body)
        return TransactionResolution.COMMIT if body == "asked" else TransactionResolution.ROLLBACK


def text(message: Any) -> str:
    """The body of a received message."""
    return bytes(message.body).decode()


def view(message: Any) -> list[Any]:
    return [
        text(message), message.delivery_attempt, message.tag, sorted(message.keys),
        message.properties,
    ]  # fmt: skip


def code_of(step: Callable[[], Any]) -> str:
    """The class of the exception that a step raises; "done" if it raises none."""
    try:
        step()
    except Exception as error:  # noqa: BLE001 - the report has its class
        return type(error).__name__
    return "done"


class Scenario:
    """One scenario, with what it has to close."""

    def __init__(self, server: str, topic: str) -> None:
        keys = os.environ.get("INTEROP_ACCOUNT", "").split()
        credentials = Credentials(*keys) if keys else Credentials()
        self.configuration = ClientConfiguration(server, credentials, request_timeout=10)
        self.tls = {"tls_enable": os.environ.get("INTEROP_TLS") == "true"}
        self.topic = topic
        self.facts: dict[str, Any] = {}
        self.ends: list[Callable[[], None]] = []

    def producer(self, checker: Checker | None = None, topic: str = "") -> Any:
        topics = (topic or self.topic,)
        producer = Producer(self.configuration, topics, checker=checker, **self.tls)
        producer.startup()
        self.ends.append(producer.shutdown)
        return producer

    def message(self, body: str, **fields: Any) -> Any:
        message = Message()
        message.topic = self.topic
        message.body = body.encode()
        for name, value in fields.items():
            setattr(message, name, value)
        return message

    def simple_consumer(self, group: str, expression: Any = None) -> Any:
        consumer = SimpleConsumer(self.configuration, group, await_duration=AWAIT_S, **self.tls)
        consumer.startup()
        self.ends.append(consumer.shutdown)
        consumer.subscribe(self.topic, expression or FilterExpression())
        return consumer

    def push_consumer(self, listener: Seen) -> None:
        subscriptions = {self.topic: FilterExpression()}
        consumer = PushConsumer(self.configuration, self.topic, listener, subscriptions, **self.tls)
        consumer.startup()
        self.ends.append(consumer.shutdown)

    @staticmethod
    def once(consumer: Any, count: int = 16) -> list[Any]:
        """Receive once.

        Again, if the server fails: Apache's proxy does so until it has the client's settings, for
        which this client does not wait.
        """
        for _ in range(FAILURES_MAX):
            try:
                return consumer.receive(count, INVISIBLE_S) or []
            except InternalErrorException:
                PAUSE.wait(1)
        return consumer.receive(count, INVISIBLE_S) or []

    def receive(self, consumer: Any, count: int) -> list[Any]:
        """Receive until this number has come, or the time is over."""
        found: list[Any] = []
        end_s = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < end_s:
            found += self.once(consumer)
        return found

    # ---- scenarios ----

    def grpc_simple(self) -> None:
        message = self.message("one", tag="a")
        # Each assignment adds a key.
        message.keys = "k1"
        message.keys = "k2"
        message.add_property("colour", "red")
        self.producer().send(message)
        consumer = self.simple_consumer(self.topic)
        (first,) = self.receive(consumer, 1)
        self.facts["first"] = view(first)
        consumer.change_invisible_duration(first, 3)
        (again,) = self.receive(consumer, 1)
        self.facts["again"] = [text(again), again.delivery_attempt]
        self.facts["same_id"] = again.message_id == first.message_id
        consumer.ack(again)
        self.facts["after_ack"] = len(self.once(consumer))

    def grpc_simple_in_pages(self) -> None:
        producer = self.producer()
        for number in range(10, 50):
            producer.send(self.message(str(number)))
        consumer = self.simple_consumer(self.topic)
        found = self.receive(consumer, 40)
        self.facts["received"] = sorted(text(each) for each in found)
        for message in found:
            consumer.ack(message)
        other = self.simple_consumer(f"{self.topic}_other")
        self.facts["another_group"] = len(self.receive(other, 40))

    def grpc_push(self) -> None:
        seen = Seen(lambda attempt: True)
        self.push_consumer(seen)
        producer = self.producer()
        for number in range(8):
            producer.send(self.message(str(number)))
        self.facts["received"] = sorted(seen.wait(8))

    def grpc_push_retry(self) -> None:
        seen = Seen(lambda attempt: attempt == 3)
        self.producer().send(self.message("again"))
        self.push_consumer(seen)
        self.facts["received"] = seen.wait(3)

    def grpc_push_dead(self) -> None:
        seen = Seen(lambda attempt: False)
        self.producer().send(self.message("dead"))
        self.push_consumer(seen)
        self.facts["received"] = seen.wait(2)
        self.facts["more"] = len(seen.wait(3, DEAD_S)) - 2

    def grpc_forward(self) -> None:
        producer = self.producer()
        message = self.message("one", tag="a", keys="k")
        message.add_property("colour", "red")
        producer.send(message)
        consumer = self.simple_consumer(self.topic)
        (first,) = self.receive(consumer, 1)
        fields = {"topic": f"{self.topic}_next", "tag": first.tag}
        copy = self.message(text(first), **fields)
        for key in first.keys:
            copy.keys = key
        for key, value in first.properties.items():
            copy.add_property(key, value)
        producer.send(copy)
        consumer.ack(first)
        consumer.subscribe(f"{self.topic}_next", FilterExpression())
        (second,) = self.receive(consumer, 1)
        consumer.ack(second)
        self.facts["received"] = [view(first), view(second)]
        self.facts["after_ack"] = len(self.once(consumer))

    def grpc_fifo(self) -> None:
        producer = self.producer()
        for number in range(6):
            producer.send(self.message(str(number), message_group="one group"))
        seen = Seen(lambda attempt: True)
        self.push_consumer(seen)
        self.facts["received"] = seen.wait(6)

    def grpc_delay(self) -> None:
        due_s = int(time.time()) + 4
        self.producer().send(self.message("late", delivery_timestamp=due_s))
        found = self.receive(self.simple_consumer(self.topic), 1)
        self.facts["received"] = [text(each) for each in found]
        self.facts["early"] = time.time() < due_s - 1
        self.facts["timestamp"] = [each.delivery_timestamp for each in found] == [due_s * 1000]

    def grpc_recall(self) -> None:
        producer, due_s = self.producer(), int(time.time()) + 12
        receipt = producer.send(self.message("recalled", delivery_timestamp=due_s))
        producer.send(self.message("kept", delivery_timestamp=due_s))
        recalled = producer.recall_message(self.topic, receipt.recall_handle)
        self.facts["same_id"] = recalled == receipt.message_id
        consumer = self.simple_consumer(self.topic)
        found = self.receive(consumer, 1)
        found += self.once(consumer)
        self.facts["received"] = [text(each) for each in found]

    def grpc_transaction(self) -> None:
        checker = Checker()
        producer = self.producer(checker)
        for body in ("committed", "rolled back", "asked", "asked in vain"):
            transaction = producer.begin_transaction()
            producer.send(self.message(body), transaction)
            if body == "committed":
                transaction.commit()
            elif body == "rolled back":
                transaction.rollback()
        consumer = self.simple_consumer(self.topic)
        found: list[str] = []
        for message in self.receive(consumer, 2):
            found.append(text(message))
            consumer.ack(message)
        end_s = time.monotonic() + WAIT_S / 2
        while len(checker.checked) < 2 and time.monotonic() < end_s:
            found += [text(each) for each in self.once(consumer)]
        self.facts["received"] = sorted(found)
        self.facts["checked"] = sorted(checker.checked)

    def grpc_filters(self) -> None:
        producer = self.producer()
        for tag in ("a", "b", "c"):
            message = self.message(tag, tag=tag)
            message.add_property("size", tag)
            producer.send(message)
        by_tag = self.simple_consumer(f"{self.topic}_tag", FilterExpression("a || c"))
        self.facts["by_tag"] = sorted(text(each) for each in self.receive(by_tag, 2))
        sql = FilterExpression("size = 'b'", FilterType.SQL)
        by_sql = self.simple_consumer(f"{self.topic}_sql", sql)
        self.facts["by_sql"] = sorted(text(each) for each in self.receive(by_sql, 1))

    def grpc_priority(self) -> None:
        producer = self.producer()
        for priority in (1, 3, 0, 2):
            producer.send(self.message(str(priority), priority=priority))
        consumer = self.simple_consumer(self.topic)
        found: list[Any] = []
        for _ in range(4):
            found += self.once(consumer, 1)
        self.facts["received"] = [[text(each), each.priority] for each in found]

    def grpc_refused(self) -> None:
        facts = self.facts
        facts["unknown_topic"] = code_of(lambda: self.producer(topic=f"{self.topic}_unknown"))
        producer = self.producer()
        wrong = self.message("x", message_group="a")
        facts["wrong_type"] = code_of(lambda: producer.send(wrong))
        producer.send(self.message("one"))
        consumer = self.simple_consumer(self.topic)
        (one,) = self.receive(consumer, 1)
        facts["acked"] = code_of(lambda: consumer.ack(one))
        facts["acked_again"] = code_of(lambda: consumer.ack(one))
        facts["too_short"] = code_of(lambda: consumer.receive(1, 1))
        bad = FilterExpression("a = ", FilterType.SQL)
        filtered = self.simple_consumer(f"{self.topic}_bad", bad)
        facts["bad_filter"] = code_of(lambda: filtered.receive(1, INVISIBLE_S))
        facts["bad_handle"] = code_of(lambda: producer.recall_message(self.topic, "AAAA"))


def outcome(server: str, prefix: str, name: str) -> dict[str, Any]:
    """Play a scenario; returns its report."""
    scenario = Scenario(server, prefix + name)
    report: dict[str, Any] = {"scenario": name, "facts": scenario.facts}
    start_s = time.monotonic()
    try:
        getattr(scenario, name)()
    except Exception as error:  # noqa: BLE001 - the report says so
        report["error"] = f"{type(error).__name__}: {error}"
    while scenario.ends:
        try:
            scenario.ends.pop()()
        except Exception as error:  # noqa: BLE001 - the report says so
            report.setdefault("error", f"at the end: {error}")
    report["ms"] = int(1000 * (time.monotonic() - start_s))
    return report


def main() -> None:
    server, prefix, *names = sys.argv[1:]

    def play(name: str) -> None:
        line = json.dumps(outcome(server, prefix, name))
        with PRINTING:
            print(line, flush=True)

    threads = [threading.Thread(target=play, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("end", flush=True)
    # The client's threads may wait for ever.
    os._exit(0)


if __name__ == "__main__":
    main()
