"""Searches of messages on Apache's brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import anyio
import msgspec
import pytest

from tests.client.admin.conftest import runtime_info, until
from trocket.client import Admin, Message, Producer
from trocket.interop.apache import ApacheCluster
from trocket.operations.message_search.by_id import search_by_id
from trocket.operations.message_search.by_key import search_by_key
from trocket.operations.message_search.criteria import Criteria
from trocket.operations.message_search.live_tail import LiveTail
from trocket.operations.message_search.problems import Problem, SearchError
from trocket.operations.message_search.search import Limits, SearchPage, search
from trocket.remoting.hosts import host_bytes
from trocket.remoting.message_id import decode_offset_id, encode_offset_id

pytestmark = [pytest.mark.interop, pytest.mark.slow]

DEADLINE_S = 90.0
TIMEOUT_S = 20.0
"""Of one request: the other tests' processes leave a cold JVM little of the machine."""
COUNT = 100
LIMITS = Limits(found=COUNT, broker_s=TIMEOUT_S, step_s=30)
T = TypeVar("T")


@pytest.fixture
def do(cluster: ApacheCluster) -> Callable[[Callable[[Admin], Awaitable[Any]]], Any]:
    def run(verb: Callable[[Admin], Awaitable[T]]) -> T:
        async def main() -> T:
            with anyio.fail_after(DEADLINE_S):
                async with Admin(cluster.namesrv_address, timeout_s=TIMEOUT_S) as admin:
                    return await verb(admin)

        return anyio.run(main, backend="trio")

    return run


Do = Callable[[Callable[[Admin], Awaitable[Any]]], Any]


def numbers(page: SearchPage) -> list[int]:
    return [int(each.properties["number"]) for each in page.found]


async def search_all(admin: Admin, criteria: Criteria, limits: Limits = LIMITS) -> SearchPage:
    """A search in as many steps as it takes: the last step's page, with all that was found.

    A JVM that has no turn for so long gives no answer, and a next step asks it again.
    """
    page = await search(admin, criteria, limits=limits)
    found = page.found
    while page.cursor:
        page = await search(admin, criteria, cursor=page.cursor, limits=limits)
        found += page.found
    assert page.failures == ()
    return msgspec.structs.replace(page, found=found, scanned=page.scanned + page.scanned_before)


async def fill(admin: Admin, topic: str) -> list[Any]:
    """Send, and wait until the broker has all in its queues, which it fills after its answers."""
    await admin.create_topic(topic, 4)

    async def is_queued() -> bool:
        return sum(queue.count for queue in await admin.offsets(topic)) == COUNT

    async with Producer(admin.client) as producer:
        sent = [
            await producer.send(
                Message(
                    topic,
                    b"body %d" % number,
                    tags=("even", "odd")[number % 2],
                    keys=f"{topic}-{number}",
                    properties={"number": str(number)},
                )
            )
            for number in range(COUNT)
        ]
    await until(is_queued)
    return sent


def test_a_search_in_steps_finds_everything_in_order(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        topic = "SearchInSteps"
        await fill(admin, topic)
        limits = Limits(found=30, broker_s=TIMEOUT_S, step_s=30)
        for is_newest_first in (True, False):
            criteria = Criteria(topic=topic, is_newest_first=is_newest_first)
            page = await search_all(admin, criteria, limits)
            assert numbers(page) == sorted(range(COUNT), reverse=is_newest_first)
        for wanted, expected in [
            ({"tag": "odd"}, range(1, COUNT, 2)),
            ({"sql": "number BETWEEN 10 AND 12"}, [10, 11, 12]),
            ({"text": "BODY 9"}, [9, *range(90, 100)]),
        ]:
            criteria = Criteria(topic=topic, is_newest_first=False, **wanted)
            page = await search_all(admin, criteria)
            assert (numbers(page), page.scanned) == (list(expected), COUNT)

    do(verb)


def test_times_and_offsets_bound_a_search(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        topic = "SearchByTime"
        await fill(admin, topic)
        everything = (await search_all(admin, Criteria(topic=topic))).found
        times = {int(each.properties["number"]): each.store_timestamp_ms for each in everything}
        for begin_ms, end_ms in [
            (times[30], times[60]),
            (times[30], None),
            (None, times[60]),
            (times[45], times[45]),
            (0, times[0]),
        ]:
            criteria = Criteria(topic=topic, begin_ms=begin_ms, end_ms=end_ms)
            page = await search_all(admin, criteria)
            expected = [
                number
                for number, time_ms in times.items()
                if (begin_ms or 0) <= time_ms <= (end_ms or 1 << 62)
            ]
            assert sorted(numbers(page)) == sorted(expected)
        future_ms = admin.client.wall_ms() + 86_400_000
        with pytest.raises(SearchError) as caught:
            await search_all(admin, Criteria(topic=topic, begin_ms=future_ms))
        assert caught.value.problem is Problem.TIME_IN_FUTURE
        queue = everything[0].queue
        place = {"topic": topic, "broker_name": queue.broker_name, "queue_id": queue.queue_id}
        page = await search_all(admin, Criteria(**place, offset=5))
        assert [each.queue_offset for each in page.found] == [5, 4, 3, 2, 1, 0]
        with pytest.raises(SearchError) as caught:
            await search_all(admin, Criteria(**place, offset=1000))
        assert caught.value.problem is Problem.OFFSET_ABOVE

    do(verb)


def test_ids_and_keys_are_found_without_more(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        topic = "SearchById"
        sent = (await fill(admin, topic))[7]
        limits = Limits(broker_s=TIMEOUT_S, step_s=30)

        async def by_unique_id() -> bool:
            with suppress(SearchError):
                page = await search_by_id(admin, sent.message_id, limits=limits)
                return [each.text for each in page.found] == ["body 7"]
            return False

        await until(by_unique_id)
        await runtime_info(admin, sent.queue.broker_name)  # it says why a place has no message
        page = await search_by_id(admin, sent.offset_message_id, limits=limits)
        assert [each.text for each in page.found] == ["body 7"]
        by_key = await search_by_key(admin, Criteria(topic=topic, key=f"{topic}-7"), limits=limits)
        assert [each.text for each in by_key.found] == ["body 7"]
        place = decode_offset_id(sent.offset_message_id)
        ours = host_bytes(place.ip, place.port)
        for message_id, problem in [
            (encode_offset_id(host_bytes("10.0.0.9", 10911), 0), Problem.OTHER_CLUSTER),
            (encode_offset_id(ours, 1 << 40), Problem.BEYOND_LOG),
            (encode_offset_id(ours, place.physical_offset + 4), Problem.NO_MESSAGE_THERE),
            (admin.client.next_unique_id(), Problem.UNKNOWN_ID),
        ]:
            with pytest.raises(SearchError) as caught:
                await search_by_id(admin, message_id, limits=limits)
            assert caught.value.problem is problem, caught.value

    do(verb)


def test_a_tail_has_what_comes(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        topic = "SearchTail"
        await admin.create_topic(topic, 4)
        tail = LiveTail(admin, Criteria(topic=topic), limits=Limits(broker_s=TIMEOUT_S))
        async with anyio.create_task_group() as group:
            group.start_soon(tail.run)
            async with Producer(admin.client) as producer:

                async def has_news() -> bool:
                    await producer.send(Message(topic, b"news"))
                    return bool((await tail.after(0, 0.2)).messages)

                await until(has_news)
            group.cancel_scope.cancel()

    do(verb)
