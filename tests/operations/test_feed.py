"""The feed of what happens on brokers, on a broker."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest

from trocket.client import Admin, ConsumeFromWhere, Message, PushConsumer
from trocket.client.pushing.pushed_message import PushedMessage
from trocket.operations import feed
from trocket.operations.feed import EventKind, Feed, FeedEvent, FeedView
from trocket.operations.message_search.criteria import unmasked
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from .conftest import Do, send_all, until


def counts(view: FeedView, topic: str) -> dict[EventKind, int]:
    found: Counter[EventKind] = Counter()
    for each in view.events:
        if each.topic == topic:
            found[each.kind] += each.count
    return dict(found)


def of_kind(view: FeedView, kind: EventKind) -> list[FeedEvent]:
    return [each for each in view.events if each.kind is kind]


def test_sends_are_seen_and_what_was_not_read_is_counted(
    do: Do, broker: Broker, topic: str
) -> None:
    async def verb(admin: Admin) -> None:
        await send_all(admin, [Message(topic, b"before")])
        found = Feed(admin, unmasked)

        async def has(count: int) -> bool:
            return sum(counts(await found.look(), topic).values()) >= count

        assert (await found.look()).events == ()
        await send_all(admin, [Message(topic, b"%d" % n, tags="paid") for n in range(4)])
        await until(lambda: has(4))
        sent = of_kind(await found.look(), EventKind.SENT)
        assert {each.tags for each in sent} == {"paid"}
        assert len({each.message_id for each in sent}) == 4
        await send_all(admin, [Message(topic, b"%d" % n) for n in range(100)])
        await until(lambda: has(104))
        now = counts(await found.look(), topic)
        assert now[EventKind.SENT] + now[EventKind.SENT_UNREAD] == 104
        assert now[EventKind.SENT_UNREAD] >= 100 - feed.READS_MAX * feed.READ_COUNT

    do(verb)


def test_a_topic_that_is_new_has_sends_from_its_first_message(
    do_once: Do, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "TABLES_S", 0.0)

    async def verb(admin: Admin) -> None:
        found = Feed(admin, unmasked)
        await found.look()
        broker.create_topic("brand-new", queues=1)
        await send_all(admin, [Message("brand-new", b"first")])

        async def has_it() -> bool:
            return counts(await found.look(), "brand-new") == {EventKind.SENT: 1}

        await until(has_it)

    do_once(verb)


def test_what_a_group_passed_is_said_and_what_it_filtered_where_it_is_known(
    do: Do, broker: Broker, topic: str
) -> None:
    group = f"g-{topic}"
    broker.create_topic(topic, queues=1)

    async def verb(admin: Admin) -> None:
        found = Feed(admin, unmasked)
        await found.look()
        async with (
            PushConsumer(broker.url, group=group, subscriptions={topic: "paid"}) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(consumer.run, consume)
            await send_all(admin, [Message(topic, b"%d" % n, tags="paid") for n in range(8)])

            async def began() -> bool:
                await consumer.commit()
                now = counts(await found.look(), topic)
                return now.get(EventKind.BEGAN, 0) + now.get(EventKind.PASSED, 0) == 8

            await until(began)
            tags = ("refund", "paid")
            await send_all(admin, [Message(topic, b"%d" % n, tags=tags[n % 2]) for n in range(8)])

            behind = (EventKind.BEGAN, EventKind.FILTERED, EventKind.PASSED)

            async def has_passed_all() -> bool:
                await consumer.commit()
                now = counts(await found.look(), topic)
                return sum(now.get(kind, 0) for kind in behind) == 16

            await until(has_passed_all)
            view = await found.look()
            filtered = of_kind(view, EventKind.FILTERED)
            assert {(each.tags, each.group) for each in filtered} == {("refund", group)}
            assert len({each.message_id for each in filtered}) == 4
            tasks.cancel_scope.cancel()

    do(verb)


async def consume(message: PushedMessage[bytes]) -> None:
    """Consume it."""


def test_retries_and_dead_letters_name_their_group_and_topic(
    do_once: Do, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "TABLES_S", 0.0)
    monkeypatch.setattr(feed, "TOPICS_MAX", 100)
    group = f"g-{topic}"
    broker.create_group(group, retry_max_times=1)

    async def fail(message: PushedMessage[bytes]) -> None:
        raise ValueError("not today")

    async def verb(admin: Admin) -> None:
        found = Feed(admin, unmasked)
        await found.look()
        async with (
            PushConsumer(
                broker.url,
                group=group,
                subscriptions={topic: "*"},
                max_reconsume_times=1,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            ) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(consumer.run, fail)
            await send_all(admin, [Message(topic, b"x", keys="k-1")])
            seen: list[list[FeedEvent]] = []

            async def has(kind: EventKind) -> bool:
                # A retry is due in 10 s. In larger steps a slow test would come to where files
                # are deleted.
                await anyio.to_thread.run_sync(lambda: broker.advance(seconds=10))
                last = await found.look()
                seen.append([each for each in last.events if each.group == group])
                return any(each.kind is kind for each in seen[-1])

            await until(lambda: has(EventKind.RETRIED))
            await until(lambda: has(EventKind.DEAD))
            for kind in (EventKind.RETRIED, EventKind.DEAD):
                (event,) = [each for each in seen[-1] if each.kind is kind]
                # One that could not be read is counted by its own topic.
                if event.message_id:
                    assert (event.topic, event.keys) == (topic, ("k-1",))
            tasks.cancel_scope.cancel()

    do_once(verb)


def test_at_rest_a_look_asks_a_broker_four_requests_at_most(
    do_once: Do, broker: Broker, topic: str
) -> None:
    async def verb(admin: Admin) -> None:
        found = Feed(admin, unmasked)
        for _ in range(3):
            await found.look()
        codes = [code for code in RequestCode if code is not RequestCode.HEART_BEAT]
        faults = [broker.faults.delay(code, seconds=0, times=None) for code in codes]
        await found.look()
        assert 0 < sum(fault.hits for fault in faults) <= 4

    do_once(verb)


def test_a_broker_that_hangs_is_named_and_the_others_are_seen(
    do_once: Do, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "BROKER_S", 0.05)

    async def verb(admin: Admin) -> None:
        found = Feed(admin, unmasked)
        fault = broker.faults.delay(RequestCode.GET_BROKER_CONSUME_STATS, seconds=60, times=None)
        view = await found.look()
        assert list(view.errors.values()) == [feed.LATE]
        assert fault.hits == 1

    do_once(verb)
