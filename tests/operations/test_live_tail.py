"""The live tail of a topic, on a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from trocket.client import Admin, Message, Producer
from trocket.client.messages.message import ReceivedMessage, with_content
from trocket.operations.message_search import live_tail
from trocket.operations.message_search.criteria import Criteria
from trocket.operations.message_search.live_tail import LiveTail, TailBatch
from trocket.operations.message_search.problems import Problem, SearchError
from trocket.operations.message_search.search import Limits
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker, Fault

from .conftest import Do, send_all, until

WAIT_S = 20.0


def messages(topic: str, first: int, count: int) -> list[Message[bytes]]:
    return [
        Message(topic, b"%d" % each, tags=("even", "odd")[each % 2])
        for each in range(first, first + count)
    ]


def bodies(batches: list[TailBatch]) -> list[int]:
    return sorted(int(message.body) for batch in batches for message in batch.messages)


@asynccontextmanager
async def running(tail: LiveTail, broker: Broker, queues: int = 4) -> AsyncIterator[Fault]:
    """The tail reads from here on: the broker has its pulls, which the fault counts."""
    fault = broker.faults.delay(RequestCode.PULL_MESSAGE, 0.0, times=None)
    async with anyio.create_task_group() as group:
        group.start_soon(tail.run)

        async def is_reading() -> bool:
            return fault.hits >= queues

        await until(is_reading)
        yield fault
        group.cancel_scope.cancel()


async def collect(tail: LiveTail, sequence: int, count: int) -> list[TailBatch]:
    """Batches until this number of messages came or were skipped."""
    batches: list[TailBatch] = []
    while sum(len(each.messages) + each.skipped for each in batches) < count:
        batches.append(await tail.after(sequence, WAIT_S))
        sequence = batches[-1].sequence
    return batches


def test_every_viewer_gets_what_comes_from_now_on(do: Do, broker: Broker, topic: str) -> None:
    async def verb(admin: Admin) -> None:
        await send_all(admin, messages(topic, 0, 10))
        tail = LiveTail(admin, Criteria(topic=topic))
        async with running(tail, broker):
            start = tail.sequence
            assert (await tail.after(start, 0)).messages == ()
            await send_all(admin, messages(topic, 10, 20))
            first = await collect(tail, start, 20)
            assert bodies(first) == list(range(10, 30))
            # Another one that comes late has the same.
            assert bodies([await tail.after(start, 0)]) == list(range(10, 30))
            assert bodies([await tail.after(tail.sequence, 0)]) == []
            assert sum(each.skipped for each in first) == 0

    do(verb)


def test_criteria_and_masks_hold_for_a_tail(do_once: Do, broker: Broker, topic: str) -> None:
    def mask(message: ReceivedMessage) -> ReceivedMessage:
        properties = dict(message.properties)
        return with_content(message, body=b"-1", properties=properties, sys_flag=0)

    async def verb(admin: Admin) -> None:
        tail = LiveTail(admin, Criteria(topic=topic, tag="odd"), mask=mask)
        async with running(tail, broker):
            await send_all(admin, messages(topic, 0, 10))
            batches = await collect(tail, 0, 5)
            assert bodies(batches) == [-1] * 5
            assert {each.tags for batch in batches for each in batch.messages} == {"odd"}

    do_once(verb)


def test_what_is_held_is_bounded_and_the_rest_is_counted(
    do_once: Do, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_tail, "HELD_MAX", 5)

    async def verb(admin: Admin) -> None:
        tail = LiveTail(admin, Criteria(topic=topic))
        async with running(tail, broker):
            await send_all(admin, messages(topic, 0, 20))

            async def all_came() -> bool:
                return tail.sequence == 20

            await until(all_came)
            batch = await tail.after(0, 0)
            assert (len(batch.messages), batch.skipped, batch.sequence) == (5, 15, 20)
            batch = await tail.after(17, 0)
            assert (len(batch.messages), batch.skipped) == (3, 0)
            # No batch ever had these numbers.
            for sequence in (-1, 21, 10**30):
                batch = await tail.after(sequence, 0)
                assert (batch.messages, batch.skipped, batch.sequence) == ((), 0, 20)

    do_once(verb)


def test_a_tail_that_falls_behind_goes_on_at_the_end(
    do_once: Do, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_tail, "BEHIND_MAX", 40)

    async def verb(admin: Admin) -> None:
        criteria = Criteria(topic=topic, queue_id=0)
        tail = LiveTail(admin, criteria)
        async with Producer(admin.client) as producer, running(tail, broker, queues=1):
            queues = [each for each in await producer.queues(topic) if each.queue_id == 0]
            async with anyio.create_task_group() as group:
                for number in range(300):
                    message = Message(topic, b"%d" % number)
                    group.start_soon(lambda m: producer.send(m, queue=queues[0]), message)
            batches = await collect(tail, 0, 300)
            shown = sum(len(each.messages) for each in batches)
            skipped = sum(each.skipped for each in batches)
            assert shown + skipped == 300
            assert skipped > 0

    do_once(verb)


def test_a_quiet_topic_costs_few_requests(do_once: Do, broker: Broker, topic: str) -> None:
    async def verb(admin: Admin) -> None:
        tail = LiveTail(admin, Criteria(topic=topic))
        async with running(tail, broker) as fault:
            await tail.after(0, 1.0)
            assert fault.hits <= 4

    do_once(verb)


def test_a_broker_that_gives_no_answer_is_named_until_it_does(
    do_once: Do, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_tail, "RETRY_S", 0.02)
    monkeypatch.setattr(live_tail, "SUSPEND_S", 0.1)

    async def verb(admin: Admin) -> None:
        for code in (RequestCode.PULL_MESSAGE, RequestCode.GET_TOPIC_STATS_INFO):
            broker.faults.refuse(code, times=None)
        tail = LiveTail(admin, Criteria(topic=topic), limits=Limits(broker_s=5))
        async with anyio.create_task_group() as group:
            group.start_soon(tail.run)

            async def has_failed() -> bool:
                return len((await tail.after(tail.sequence, 0.05)).failures) == 1

            await until(has_failed)
            broker.faults.clear()

            async def has_recovered() -> bool:
                return (await tail.after(tail.sequence, 0.05)).failures == ()

            await until(has_recovered)
            await send_all(admin, messages(topic, 0, 4))
            assert bodies(await collect(tail, 0, 4)) == [0, 1, 2, 3]
            group.cancel_scope.cancel()

    do_once(verb)


def test_a_tail_of_nothing_says_why(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        with pytest.raises(SearchError) as caught:
            await LiveTail(admin, Criteria(topic="Nowhere")).run()
        assert caught.value.problem is Problem.NO_TOPIC
        with pytest.raises(SearchError) as caught:
            LiveTail(admin, Criteria(topic="T", sql="a >"))
        assert caught.value.problem is Problem.BAD_SQL

    do_once(verb)
