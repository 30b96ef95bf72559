"""Pulling with the blocking client."""

from __future__ import annotations

import time
from collections.abc import Iterator

import anyio
import pytest

from tests.kit.waiting import wait_until
from trocket.blocking import Producer, PullConsumer
from trocket.client import ClosedError, ConfigurationError, ConsumeFromWhere, Message, PullStatus
from trocket.client.connection.members import Members
from trocket.testing import Broker

from .support import DEADLINE_S, in_background, waiting_threads


@pytest.fixture
def filled(broker: Broker, topic: str) -> str:
    """A topic with ten messages in one queue."""
    with Producer(broker.url) as producer:
        for n in range(10):
            producer.send_soon(Message(topic, str(n), tags="odd" if n % 2 else "even"))
            producer.drain()
    return topic


@pytest.fixture
def consumer(broker: Broker, group: str) -> Iterator[PullConsumer]:
    with PullConsumer(
        broker.url, group=group, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        yield consumer


def poll_all(consumer: PullConsumer, count: int) -> list[str]:
    found: list[str] = []
    due_s = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < due_s:
        found += [message.text for message in consumer.poll(timeout_s=1.0)]
    return found


def test_poll_gives_what_is_there(consumer: PullConsumer, filled: str) -> None:
    queues = consumer.queues(filled)
    consumer.assign(queues)
    assert consumer.assignment == queues
    assert poll_all(consumer, 10) == [str(n) for n in range(10)]
    assert consumer.position(queues[0]) == 10
    assert consumer.poll(timeout_s=0) == []


def test_a_selector_filters(consumer: PullConsumer, filled: str) -> None:
    consumer.assign(consumer.queues(filled), "odd")
    assert poll_all(consumer, 5) == ["1", "3", "5", "7", "9"]


def test_seeking(consumer: PullConsumer, filled: str) -> None:
    (queue,) = consumer.queues(filled)
    with pytest.raises(ConfigurationError, match="not assigned"):
        consumer.seek(queue, 3)
    consumer.assign([queue])
    consumer.seek(queue, 7)
    assert poll_all(consumer, 3) == ["7", "8", "9"]
    consumer.seek_to_begin(queue)
    assert consumer.position(queue) == 0
    consumer.seek_to_end(queue)
    assert consumer.position(queue) == 10
    consumer.seek_to_time(queue, 0)
    assert consumer.position(queue) == 0
    consumer.seek_to_committed(queue)
    assert consumer.position(queue) == 0
    with pytest.raises(ConfigurationError):
        consumer.seek(queue, -1)


def test_a_commit_before_the_first_heartbeat_is_kept(
    monkeypatch: pytest.MonkeyPatch, broker: Broker, group: str, filled: str
) -> None:
    """The broker does not know the group by then."""

    async def never(members: Members) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(Members, "run", never)
    with PullConsumer(broker.url, group=group) as consumer:
        (queue,) = consumer.queues(filled)
        consumer.commit({queue: 4})
        assert consumer.committed(queue) == 4


def test_committing(consumer: PullConsumer, filled: str) -> None:
    (queue,) = consumer.queues(filled)
    consumer.commit({queue: 4})
    assert consumer.committed(queue) == 4
    consumer.assign([queue])
    assert poll_all(consumer, 6) == ["4", "5", "6", "7", "8", "9"]
    consumer.commit()
    assert consumer.committed(queue) == 10
    assert (consumer.begin_offset(queue), consumer.end_offset(queue)) == (0, 10)
    assert consumer.offset_at(queue, 0) == 0


def test_pausing(consumer: PullConsumer, filled: str) -> None:
    (queue,) = consumer.queues(filled)
    consumer.assign([queue])
    consumer.pause([queue])
    assert consumer.poll(timeout_s=0.05) == []
    consumer.resume([queue])
    assert poll_all(consumer, 10) == [str(n) for n in range(10)]


def test_pulling_once(consumer: PullConsumer, filled: str) -> None:
    (queue,) = consumer.queues(filled)
    pulled = consumer.pull(queue, 3, count=2)
    assert [message.text for message in pulled.messages] == ["3", "4"]
    assert (pulled.next_offset, pulled.min_offset, pulled.max_offset) == (5, 0, 10)
    assert consumer.pull(queue, 10).status is PullStatus.NO_NEW_MESSAGE


def test_a_waiting_poll_fails_when_the_consumer_is_closed(
    broker: Broker, topic: str, group: str
) -> None:
    consumer = PullConsumer(broker.url, group=group).open()
    consumer.assign(consumer.queues(topic))
    poll = in_background(lambda: consumer.poll(timeout_s=DEADLINE_S))
    wait_until(lambda: waiting_threads("loop_object.py"))
    consumer.close()
    with pytest.raises(ClosedError):
        poll()
