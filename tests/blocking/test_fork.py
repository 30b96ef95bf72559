"""Blocking objects after a fork: those of the parent are refused, new ones work."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from trocket.blocking import Client, Producer, PullConsumer, PushConsumer, TransactionProducer
from trocket.client import (
    ConsumeFromWhere,
    ForkedError,
    Message,
    SendStatus,
    TransactionState,
)
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

DEADLINE_S = 30.0

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork"),
    # Python 3.12 and later warn of forks in processes with threads, which is what is tested here.
    pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks:DeprecationWarning"),
]


def in_child(function: Callable[[], Any]) -> Any:
    """What a function gives in a forked child; its traceback fails the test, and so does a hang."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        # Nothing of pytest's shall run here, whatever happens.
        try:
            os.close(reading)
            try:
                answer = repr(function()).encode()
            except BaseException:  # noqa: BLE001 - reported to the parent
                answer = traceback.format_exc().encode()
            os.write(writing, answer)
        finally:
            os._exit(0)
    os.close(writing)
    killer = threading.Timer(DEADLINE_S, os.kill, (child, signal.SIGKILL))
    killer.start()
    answer = b""
    while part := os.read(reading, 65536):
        answer += part
    os.close(reading)
    os.waitpid(child, 0)
    killer.cancel()
    assert answer, "the child hung"
    assert b"Traceback" not in answer, answer.decode()
    return answer.decode()


def error_of(function: Callable[[], Any]) -> str:
    try:
        function()
    except ForkedError:
        return "forked"
    return "nothing"


def test_every_verb_of_a_producer_says_at_once_that_it_was_forked(
    broker: Broker, topic: str
) -> None:
    with Producer(broker.url) as producer:
        producer.send(Message(topic, "one"))
        queue = producer.queues(topic)[0]
        verbs: list[Callable[[], Any]] = [
            lambda: producer.send(Message(topic, "child")),
            lambda: producer.send_batch([Message(topic, "child")], queue=queue),
            lambda: producer.send_oneway(Message(topic, "child")),
            lambda: producer.send_soon(Message(topic, "child")),
            lambda: producer.queues(topic),
            lambda: producer.request(Message(topic, "child")),
            lambda: producer.client.route(topic),
            producer.drain,
            producer.open,
        ]
        assert in_child(lambda: {error_of(verb) for verb in verbs}) == "{'forked'}"
        # The parent's goes on, and the child's end has not closed it.
        assert producer.send(Message(topic, "two")).status is SendStatus.SEND_OK
    assert [m.body for m in broker.messages(topic)] == [b"one", b"two"]


def test_every_verb_of_a_consumer_says_at_once_that_it_was_forked(
    broker: Broker, topic: str, group: str
) -> None:
    with (
        Producer(broker.url) as producer,
        PushConsumer(broker.url, group=group, subscriptions={topic: "*"}) as push,
        PullConsumer(broker.url, group=f"{group}_pull") as pull,
    ):
        queue = producer.queues(topic)[0]
        verbs: list[Callable[[], Any]] = [
            push.receive,
            lambda: push.receive(timeout_s=0),
            lambda: next(iter(push)),
            lambda: push.run(print),
            push.stop,
            push.commit,
            push.rebalance,
            lambda: push.queues,
            lambda: pull.assign([queue]),
            pull.poll,
            lambda: pull.assignment,
            lambda: pull.seek(queue, 0),
            lambda: pull.position(queue),
            pull.commit,
        ]
        assert in_child(lambda: {error_of(verb) for verb in verbs}) == "{'forked'}"


@pytest.mark.slow
def test_a_message_and_a_delivery_of_the_parent_cannot_be_settled_by_the_child(
    broker: Broker, topic: str, group: str
) -> None:
    with (
        Producer(broker.url) as producer,
        PushConsumer(
            broker.url,
            group=group,
            subscriptions={topic: "*"},
            # The message may be sent while the consumer asks for the end of its queue.
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer,
    ):
        done = producer.send_soon(Message(topic, "one"))
        done.result(DEADLINE_S)
        message = consumer.receive(timeout_s=DEADLINE_S)
        assert message is not None
        # Of the send alone: a heartbeat or a pull may come first. Longer than a fork takes.
        broker.faults.delay(RequestCode.SEND_MESSAGE_V2, seconds=1)
        pending = producer.send_soon(Message(topic, "two"))
        # What is known already is known in the child, too.
        verbs = [message.ack, message.retry, pending.result, done.result]
        expected = "['forked', 'forked', 'forked', 'nothing']"
        assert in_child(lambda: [error_of(verb) for verb in verbs]) == expected
        message.ack()


def test_a_transaction_producer_says_it_too(broker: Broker, topic: str, group: str) -> None:
    def never(message: object) -> TransactionState:
        raise AssertionError

    with TransactionProducer(broker.url, group=group, check=never) as producer:

        def send() -> None:
            producer.send_in_transaction(Message(topic, "child"), never)

        assert in_child(lambda: error_of(send)) == "'forked'"


@pytest.mark.slow
def test_closing_the_parents_objects_in_the_child_does_nothing(broker: Broker, topic: str) -> None:
    with Producer(broker.url) as producer, Client(broker.url) as client:
        assert in_child(lambda: (producer.close(), client.close())) == "(None, None)"

        def leave() -> str:
            with pytest.raises(ForkedError), producer:
                pass
            producer.__exit__(None, None, None)
            return "left"

        assert in_child(leave) == "'left'"
        assert producer.send(Message(topic, "one")).status is SendStatus.SEND_OK


def test_a_new_object_works_in_the_child(broker: Broker, topic: str) -> None:
    with Producer(broker.url) as producer:
        producer.send(Message(topic, "parent"))

        def work() -> str:
            with Producer(broker.url) as own:
                assert own.client.client_id != producer.client.client_id
                own.send_soon(Message(topic, "pipelined")).result(DEADLINE_S)
                return own.send(Message(topic, "child")).status.name

        assert in_child(work) == "'SEND_OK'"
        producer.send(Message(topic, "parent again"))
    found = [m.body for m in broker.messages(topic)]
    assert found == [b"parent", b"pipelined", b"child", b"parent again"]


@pytest.mark.slow
def test_what_was_made_but_not_opened_before_the_fork_is_the_childs(
    broker: Broker, topic: str
) -> None:
    """As servers do that load the program first and fork then."""
    client = Client(broker.url)
    producer = Producer(client)

    def work() -> str:
        with client, producer:
            return producer.send(Message(topic, str(os.getpid()))).status.name

    assert in_child(work) == "'SEND_OK'"
    assert in_child(work) == "'SEND_OK'"
    with client, producer:
        producer.send(Message(topic, str(os.getpid())))
    pids = [m.body for m in broker.messages(topic)]
    assert len(set(pids)) == 3


@pytest.mark.slow
def test_a_shared_client_of_the_parent_is_refused_in_the_child(broker: Broker) -> None:
    with Client(broker.url) as client:
        producer = Producer(client)
        assert in_child(lambda: error_of(producer.open)) == "'forked'"
        assert in_child(lambda: error_of(Producer(client).open)) == "'forked'"


@pytest.mark.slow
def test_a_fork_amid_busy_threads_never_hangs_the_child(broker: Broker, topic: str) -> None:
    """Other threads hold the door's locks at any moment."""
    is_over = threading.Event()

    def pipeline() -> None:
        while not is_over.is_set():
            producer.send_soon(Message(topic, "busy"))

    def confirm() -> None:
        while not is_over.is_set():
            producer.send(Message(topic, "busy"))

    def open_and_close() -> None:
        while not is_over.is_set():
            with Client(broker.url):
                pass

    with Producer(broker.url) as producer:
        producer.send(Message(topic, "first"))
        threads = [
            threading.Thread(target=work) for work in (pipeline, pipeline, confirm, open_and_close)
        ]
        for thread in threads:
            thread.start()
        try:

            def work() -> str:
                assert error_of(lambda: producer.send(Message(topic, "child"))) == "forked"
                assert error_of(lambda: producer.send_soon(Message(topic, "child"))) == "forked"
                with Producer(broker.url) as own:
                    own.send_soon(Message(topic, "child"))
                    own.drain()
                return "done"

            for _ in range(20):
                assert in_child(work) == "'done'"
        finally:
            is_over.set()
            for thread in threads:
                thread.join(DEADLINE_S)
    assert sum(m.body == b"child" for m in broker.messages(topic)) == 20


_shared: list[Producer] = []


def _send_in_worker(url: str, topic: str, number: int) -> tuple[str, str]:
    with Producer(url) as own:
        status = own.send(Message(topic, str(number))).status.name
    return error_of(lambda: _shared[0].send(Message(topic, "child"))), status


@pytest.mark.slow
def test_multiprocessing_with_fork(broker: Broker, topic: str) -> None:
    with Producer(broker.url) as producer:
        _shared[:] = [producer]
        try:
            with multiprocessing.get_context("fork").Pool(3) as pool:
                jobs = [
                    pool.apply_async(_send_in_worker, (broker.url, topic, n)) for n in range(12)
                ]
                results = [job.get(DEADLINE_S) for job in jobs]
                pool.close()
                pool.join()
        finally:
            _shared.clear()
        assert results == [("forked", "SEND_OK")] * 12
        producer.send(Message(topic, "12"))
    assert sorted(int(m.body) for m in broker.messages(topic)) == list(range(13))


@pytest.mark.slow
def test_a_child_that_ends_the_ordinary_way_neither_hangs_nor_complains(
    broker: Broker, topic: str
) -> None:
    """Its end runs the parent's exit hooks, with the parent's objects still open."""
    import subprocess

    program = """
import os, sys
from trocket.blocking import Message, Producer
producer = Producer(sys.argv[1]).open()
producer.send_soon(Message(sys.argv[2], "one"))
child = os.fork()
if child == 0:
    sys.exit(4)
_, status = os.waitpid(child, 0)
producer.send(Message(sys.argv[2], "two"))
producer.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, broker.url, topic],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (4, "")
    assert len(broker.messages(topic)) == 2
