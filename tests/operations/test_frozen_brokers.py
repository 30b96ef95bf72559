"""Searches with two brokers, of which one is frozen by SIGSTOP."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from trocket.bench.frozen import BROKERS, TwoBrokers, two_brokers
from trocket.client import Admin, Message, MessageQueue, Producer
from trocket.operations.message_search.by_id import search_by_id
from trocket.operations.message_search.by_key import search_by_key
from trocket.operations.message_search.criteria import Criteria
from trocket.operations.message_search.search import STEP_S, search

from .conftest import until

pytestmark = pytest.mark.slow

DEADLINE_S = 60.0
TOPIC = "Frozen"
COUNT = 10


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBrokers]:
    folder: Path = tmp_path_factory.mktemp("brokers")
    with two_brokers(folder) as started:
        yield started


async def fill(admin: Admin) -> list[str]:
    """Ten messages on each broker. Returns: ids of the first one of each."""
    await admin.create_topic(TOPIC, 4)
    ids: list[str] = []
    async with Producer(admin.client) as producer:
        for number in range(COUNT):
            for name in BROKERS:
                queue = MessageQueue(TOPIC, name, number % 4)
                sent = await producer.send(Message(TOPIC, name, keys="k"), queue=queue)
                if not number:
                    ids.append(sent.message_id)
    return ids


def test_the_messages_of_the_other_broker_are_there_and_the_frozen_one_is_named(
    brokers: TwoBrokers,
) -> None:
    criteria = Criteria(topic=TOPIC)
    first, second = BROKERS

    async def play() -> None:
        async with Admin(brokers.url) as admin:
            ids = await fill(admin)

            async def indexed() -> bool:
                page = await search_by_key(admin, Criteria(topic=TOPIC, key="k"))
                return len(page.found) == 2 * COUNT

            await until(indexed)
            whole = await search(admin, criteria)
            assert (len(whole.found), whole.failures, whole.cursor) == (2 * COUNT, (), "")
            times = [each.store_timestamp_ms for each in whole.found]
            assert times == sorted(times, reverse=True)
            with brokers.frozen(second):
                begin_s = time.monotonic()
                page = await search(admin, criteria)
                assert {each.queue.broker_name for each in page.found} == {first}
                assert len(page.found) == COUNT
                assert [each.broker_name for each in page.failures] == [second]
                by_key = await search_by_key(admin, Criteria(topic=TOPIC, key="k"))
                assert len(by_key.found) == COUNT
                assert [each.broker_name for each in by_key.failures] == [second]
                by_id = await search_by_id(admin, ids[0])
                assert [each.text for each in by_id.found] == [first]
                lost = await search_by_id(admin, ids[1])
                assert lost.found == ()
                assert second in {each.broker_name for each in lost.failures}
                assert time.monotonic() - begin_s < 4 * STEP_S
            rest = await search(admin, criteria, cursor=page.cursor)
            assert {each.queue.broker_name for each in rest.found} == {second}
            assert (len(rest.found), rest.failures, rest.cursor) == (COUNT, (), "")

    async def main() -> None:
        with anyio.fail_after(DEADLINE_S):
            await play()

    anyio.run(main, backend="trio")
