"""Transactions with the blocking client."""

from __future__ import annotations

import queue
import threading

import pytest

from trocket.blocking import TransactionProducer
from trocket.client import (
    ConfigurationError,
    Message,
    MessageRefusedError,
    ReceivedMessage,
    TransactionState,
)
from trocket.testing import Broker

DEADLINE_S = 30.0


def never(message: ReceivedMessage) -> TransactionState:
    raise AssertionError("the check must not be called")


def commit(message: object) -> TransactionState:
    return TransactionState.COMMIT


def bodies(broker: Broker, topic: str) -> list[bytes]:
    return [message.body for message in broker.messages(topic)]


def test_a_commit_makes_the_message_visible(broker: Broker, topic: str, group: str) -> None:
    with TransactionProducer(broker.url, group=group, check=never) as producer:
        seen = []

        def local(message: Message) -> TransactionState:
            seen.append((message.body, bodies(broker, topic), threading.current_thread()))
            return TransactionState.COMMIT

        result = producer.send_in_transaction(Message(topic, "one"), local)
        assert result.state is TransactionState.COMMIT
        # `local` ran in the calling thread, before the message was there.
        assert seen == [("one", [], threading.current_thread())]
        dropped = producer.send_in_transaction(
            Message(topic, "two"), lambda message: TransactionState.ROLLBACK
        )
        assert dropped.state is TransactionState.ROLLBACK
        # It is a producer like any other.
        producer.send(Message(topic, "three"))
    assert set(bodies(broker, topic)) == {b"one", b"three"}


def test_the_error_of_local_reaches_the_sender_and_the_broker_hears_unknown(
    broker: Broker, topic: str, group: str
) -> None:
    def local(message: Message) -> TransactionState:
        raise ZeroDivisionError

    with TransactionProducer(broker.url, group=group, check=commit) as producer:
        with pytest.raises(ZeroDivisionError):
            producer.send_in_transaction(Message(topic, "one"), local)
        with pytest.raises(ConfigurationError, match="return 'commit', 'rollback' or 'unknown'"):
            producer.send_in_transaction(Message(topic, "two"), lambda message: True)  # type: ignore[arg-type,return-value]
        with pytest.raises(KeyboardInterrupt):
            producer.send_in_transaction(Message(topic, "three"), _interrupted)
        with pytest.raises(MessageRefusedError, match="delayed"):
            producer.send_in_transaction(Message(topic, "four", delay_level=1), commit)
        assert producer.send_in_transaction(Message(topic, "five"), commit)


def _interrupted(message: Message) -> TransactionState:
    raise KeyboardInterrupt


def test_local_may_use_the_producer_itself(broker: Broker, topic: str, group: str) -> None:
    with TransactionProducer(broker.url, group=group, check=never) as producer:

        def local(message: Message) -> TransactionState:
            producer.send(Message(topic, "inner"))
            return TransactionState.COMMIT

        producer.send_in_transaction(Message(topic, "outer"), local)
    assert b"inner" in bodies(broker, topic)


def test_check_runs_in_a_thread_of_its_own_and_may_block(topic: str, group: str) -> None:
    asked: queue.Queue[tuple[bytes, str]] = queue.Queue()

    def check(message: ReceivedMessage) -> TransactionState:
        # A blocking call, which the loop's thread would refuse.
        producer.send(Message(topic, "meanwhile"))
        asked.put((message.body, threading.current_thread().name))
        return TransactionState.COMMIT

    with (
        Broker() as broker,
        TransactionProducer(broker.url, group=group, check=check) as producer,
    ):
        broker.create_topic(topic, queues=1)
        producer.send_in_transaction(Message(topic, "one"), lambda m: TransactionState.UNKNOWN)
        broker.advance(minutes=2)
        assert asked.get(timeout=DEADLINE_S) == (b"one", "trocket-check")
        assert b"meanwhile" in bodies(broker, topic)


def test_the_end_of_a_block_commits_and_an_exception_leaves_it_to_the_check(
    broker: Broker, topic: str, group: str
) -> None:
    with TransactionProducer(broker.url, group=group, check=never) as producer:
        failed = producer.transaction(Message(topic, "failed"))
        with pytest.raises(ZeroDivisionError), failed:
            raise ZeroDivisionError
        with producer.transaction(Message(topic, "unwanted")) as unwanted:
            unwanted.rollback()
        with producer.transaction(Message(topic, "one")) as transaction:
            assert transaction.state is None
            assert bodies(broker, topic) == []
        assert transaction.result.message_id
        states = [each.state for each in (failed, unwanted, transaction)]
    unknown, rollback = TransactionState.UNKNOWN, TransactionState.ROLLBACK
    assert states == [unknown, rollback, TransactionState.COMMIT]
    assert bodies(broker, topic) == [b"one"]
