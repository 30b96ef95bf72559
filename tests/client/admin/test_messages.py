"""Single messages: by id, by key, by time; dead letters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from trocket.client import (
    Admin,
    ClientError,
    ConfigurationError,
    NotFoundError,
    PushConsumer,
    RouteNotFoundError,
)
from trocket.client.admin.messages import place_of

from .conftest import Do, is_there, send, until


def test_messages_are_found_by_both_ids_by_key_and_by_time(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 2)
        await admin.create_topic("Other", 1)
        key = admin.client.next_unique_id()  # the log has the other loop's messages still
        sent = await send(admin, "T", *"abc", keys=[key, "other"])
        await send(admin, "T", "d")
        await send(admin, "Other", "e", keys=key)

        async def with_key() -> list[str]:
            return [m.text for m in await admin.messages_by_key("T", key)]

        async def all_indexed() -> bool:
            return len(await with_key()) == 3

        await until(all_indexed)
        assert await with_key() == ["a", "b", "c"]
        for result, body in zip(sent, "abc", strict=True):
            for message in (
                await admin.message(result.offset_message_id),
                await admin.message(result.offset_message_id, "T"),
                await admin.message(result.message_id),
                await admin.message(result.message_id, "T"),
            ):
                assert (message.text, message.topic) == (body, "T")
                assert message.queue == result.queue
        assert [m.text for m in await admin.messages_by_time("T", 0)] == ["a", "b", "c", "d"]
        assert [m.text for m in await admin.messages_by_time("T", 0, count=2)] == ["a", "b"]
        one = await admin.message(sent[1].offset_message_id)
        at_ms = one.store_timestamp_ms
        span = await admin.messages_by_time("T", at_ms, at_ms)
        assert "b" in {m.text for m in span}
        assert {m.store_timestamp_ms for m in span} == {at_ms}
        assert await admin.messages_by_time("T", at_ms + 3_600_000) == []
        assert await admin.is_intact(one)

    do(verb)


@pytest.mark.parametrize("key", ["order\u30001", "order\u00a01", "order\t1", "\u2003", "order\x0b"])
def test_a_key_with_other_white_space_than_a_blank_is_one_key(do: Do, key: str) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("Blanks", 1)
        await send(admin, "Blanks", "x", keys=[key, "other"])

        async def with_key() -> set[tuple[str, ...]]:
            return {m.keys for m in await admin.messages_by_key("Blanks", key)}

        async def is_found() -> bool:
            return bool(await with_key())

        await until(is_found)
        assert await with_key() == {(key, "other")}

    do(verb)


@pytest.mark.parametrize(
    ("look_up", "kind", "text"),
    [
        (lambda admin: admin.message("7F00000118D214C415FD6C3B37F00003"), NotFoundError, "no mess"),
        (lambda admin: admin.message("anything", "T"), NotFoundError, "in the topic T"),
        (lambda admin: admin.message("anything", "U"), RouteNotFoundError, "U"),
        (lambda admin: admin.message("two words"), ConfigurationError, "not the id"),
        (lambda admin: admin.message(""), ConfigurationError, "not the id"),
        (lambda admin: admin.messages_by_key("T", ""), ConfigurationError, "needs a key"),
        (lambda admin: admin.messages_by_time("T", 0, count=0), ConfigurationError, "needs a time"),
    ],
)
def test_what_cannot_be_found_is_said(
    do_once: Do,
    look_up: Callable[[Admin], Awaitable[object]],
    kind: type[ClientError],
    text: str,
) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        with pytest.raises(kind, match=text):
            await look_up(admin)

    do_once(verb)


def test_a_brokers_id_of_nothing_or_of_another_topic_is_not_found(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        (sent,) = await send(admin, "T", "a")
        place, last = sent.offset_message_id[:-1], sent.offset_message_id[-1]
        with pytest.raises(NotFoundError, match="can not find"):
            await admin.message(place + ("1" if last != "1" else "2"))
        with pytest.raises(NotFoundError, match="is in the topic T, not U"):
            await admin.message(sent.offset_message_id, "U")

    do_once(verb)


def test_offset_ids_and_unique_ids_are_distinguished() -> None:
    assert place_of("7F0000010000916B000000000000028E") is not None
    assert place_of("7F00000118D214C415FD6C3B37F00003") is None
    assert place_of("anything") is None


def test_dead_letters_are_those_of_the_groups_own_topic(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        assert await admin.dead_letters("g") == []
        await admin.create_topic("T", 1)
        await send(admin, "T", "given up")
        async with PushConsumer(admin.client, group="g", subscriptions={"T": "*"}) as consumer:
            await until(lambda: is_there(consumer))
            await admin.reset_offset("g", "T", to="begin")
            await (await consumer.receive()).retry(-1)
            (dead,) = await until(lambda: admin.dead_letters("g"))
            assert dead.text == "given up"
            assert (await admin.progress("g")).dead_letters == 1
            assert [(p.group, p.dead_letters) for p in await admin.all_progress()] == [("g", 1)]

    do_once(verb)
