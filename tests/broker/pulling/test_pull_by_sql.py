"""SQL92 subscriptions: what is refused with which words, what is answered, what is passed over."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from trocket.broker.pulling import pull_message
from trocket.remoting.codec import RemotingCommand, encode
from trocket.remoting.response_codes import ResponseCode

from ...kit import (
    Broker,
    Client,
    bodies_of,
    broker_and_client,
    broker_client,
    embedded_broker,
    heartbeat,
    pull_fields,
    send_fields,
    subscribed,
)

SEND, PULL, HEART_BEAT, UNREGISTER = 310, 11, 34, 35
ON: dict[str, Any] = {"enable_property_filter": True}
BIG_QUEUE: dict[str, Any] = {"mapped_file_size_consume_queue": 20 * 5000}
NOT_EXIST = "The broker's consumer filter data is not exist!Your expression may be wrong!"
FILTER_TIME_MAX_S = pull_message.FILTER_TIME_MAX_S


@pytest.fixture(autouse=True)
def in_no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer for three messages than a pull may look at them."""
    monkeypatch.setattr(pull_message, "FILTER_TIME_MAX_S", 60.0)


async def send(client: Client, *prices: object, tag: str = "") -> None:
    """Messages whose body and whose property `price` are the same."""
    for price in prices:
        properties = f"UNIQ_KEY\1AB\2price\1{price}\2" + (f"TAGS\1{tag}\2" if tag else "")
        answer = await client.ask(SEND, send_fields(i=properties), str(price).encode())
        assert answer.code == 0


def sql(expression: str, **more: object) -> dict[str, object]:
    """The fields of a pull that brings its expression along."""
    return pull_fields(expressionType="SQL92", subscription=expression, **more)


def next_of(answer: RemotingCommand) -> int:
    return int(answer.ext_fields["nextBeginOffset"])


async def hold(client: Client, fields: dict[str, object]) -> int:
    texts = {name: str(value) for name, value in fields.items()}
    opaque = await client.send(RemotingCommand(PULL, texts))
    await trio.testing.wait_all_tasks_blocked()
    return opaque


def held(broker: Broker) -> int:
    return broker.controller.pulls.hold_service.count


def filtered(*subscriptions: tuple[str, str, int]) -> bytes:
    """A heartbeat of group CG: (topic, expression, version) of each subscription by SQL92."""
    return heartbeat(
        "CG",
        *(
            subscribed(topic, text, subVersion=version, expressionType="SQL92")
            for topic, text, version in subscriptions
        ),
        client_id="c1",
    )


async def test_a_pull_that_brings_an_expression_gets_what_matches_and_moves_past_the_rest() -> None:
    async with broker_client(**ON) as client:
        await send(client, 5, 11, 12, 7, 13, 9)
        answer = await client.ask(PULL, sql("price > 10"))
        some = await client.ask(PULL, sql("price > 10", maxMsgNums=2))
        more = await client.ask(PULL, sql("price BETWEEN 6 AND 9", queueOffset=4))
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert (bodies_of(answer), next_of(answer)) == ([b"11", b"12", b"13"], 6)
    # The one at 4 does not fit any more; the one at 3 did not match.
    assert (bodies_of(some), next_of(some)) == ([b"11", b"12"], 3)
    assert (bodies_of(more), next_of(more)) == ([b"9"], 6)


async def test_when_nothing_matches_the_consumer_asks_again_behind_it() -> None:
    async with broker_client(**ON) as client:
        await send(client, 1, 2, 3)
        answer = await client.ask(PULL, sql("price > 10"))
    assert (answer.code, answer.remark) == (
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        "NO_MATCHED_MESSAGE",
    )
    assert next_of(answer) == 3


async def test_unknown_and_failing_comparisons_do_not_match() -> None:
    async with broker_client(**ON) as client:
        await send(client, "x", 1, 20)
        fails = await client.ask(PULL, sql("price > 10"))
        unknown = await client.ask(PULL, sql("missing > 10"))
        absent = await client.ask(PULL, sql("missing IS NULL AND TAGS IS NULL"))
    assert bodies_of(fails) == [b"20"]
    assert next_of(unknown) == 3
    assert bodies_of(absent) == [b"x", b"1", b"20"]


@pytest.mark.slow
async def test_tags_are_a_property_too_and_tag_consumers_get_theirs() -> None:
    async with broker_client(**ON) as client:
        await send(client, 1, 2, tag="A")
        await send(client, 3, tag="B")
        by_sql = await client.ask(PULL, sql("TAGS = 'A' AND price > 1"))
        by_tag = await client.ask(PULL, pull_fields(subscription="B"))
        all_of_them = await client.ask(PULL, pull_fields(expressionType=""))
    assert bodies_of(by_sql) == [b"2"]
    assert bodies_of(by_tag) == [b"3"]
    assert bodies_of(all_of_them) == [b"1", b"2", b"3"]


@pytest.mark.slow
async def test_a_pull_looks_through_800_messages_at_most() -> None:
    async with broker_client(**ON, **BIG_QUEUE) as client:
        await send(client, *range(900))
        first = await client.ask(PULL, sql("price = '850'"))
        second = await client.ask(PULL, sql("price = '850'", queueOffset=next_of(first)))
    assert (first.code, next_of(first)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 800)
    assert bodies_of(second) == [b"850"]


async def test_a_pull_whose_expression_takes_long_stops_and_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Time goes by while messages are looked at, 6 ms for each."""
    monkeypatch.setattr(pull_message, "FILTER_TIME_MAX_S", FILTER_TIME_MAX_S)
    now_s = 0.0

    def slow() -> float:
        nonlocal now_s
        now_s += 0.006
        return now_s

    async with broker_and_client(**ON) as (broker, client):
        await send(client, *range(9))
        broker.controller.pulls._now_s = slow
        offsets = [0]
        while offsets[-1] < 9:
            answer = await client.ask(PULL, sql("price = 'none'", queueOffset=offsets[-1]))
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            offsets.append(next_of(answer))
    assert FILTER_TIME_MAX_S == 0.01
    assert offsets == [0, 2, 4, 6, 8, 9]


async def test_a_hostile_expression_over_hostile_properties_ends_too() -> None:
    chain = " OR ".join(["price CONTAINS 'xy'"] * 240)
    async with broker_client(**ON, mapped_file_size_commit_log=1 << 20) as client:
        await send(client, *["x" * 30_000] * 3)
        offset = 0
        await client.ask(HEART_BEAT, {}, filtered(("T", chain, 1)))
        while offset < 3:
            answer = await client.ask(PULL, pull_fields(sysFlag=2, queueOffset=offset))
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert next_of(answer) > offset
            offset = next_of(answer)
        refused = await client.ask(PULL, sql("(" * 30_000 + "price"))
        too_long = await client.ask(PULL, sql(f"price = '{'x' * 33_000}'"))
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert len(refused.remark or "") < 300
    assert too_long.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "the limit is 32767" in (too_long.remark or "")


async def test_what_heartbeats_registered_counts_without_the_subscription_bit() -> None:
    async with broker_client(**ON) as client:
        await send(client, 5, 11)
        await client.ask(HEART_BEAT, {}, filtered(("T", "price > 10", 7)))
        answer = await client.ask(PULL, pull_fields(sysFlag=2, subVersion=7))
        await client.ask(HEART_BEAT, {}, filtered(("T", "price < 10", 8)))
        changed = await client.ask(PULL, pull_fields(sysFlag=2, subVersion=8))
    assert bodies_of(answer) == [b"11"]
    assert bodies_of(changed) == [b"5"]


async def test_a_wrong_registered_expression_is_logged_and_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with broker_client(**ON) as client:
        await send(client, 5)
        await client.ask(HEART_BEAT, {}, filtered(("T", "price > > 10", 7)))
        answer = await client.ask(PULL, pull_fields(sysFlag=2, subVersion=7))
        await client.ask(HEART_BEAT, {}, filtered(("T", "price > 1", 8)))
        mended = await client.ask(PULL, pull_fields(sysFlag=2, subVersion=8))
    assert (answer.code, answer.remark) == (ResponseCode.FILTER_DATA_NOT_EXIST, NOT_EXIST)
    assert (
        "group CG gets no messages of T, because its expression 'price > > 10' is refused"
        in caplog.text
    )
    assert bodies_of(mended) == [b"5"]


async def test_a_filter_older_than_the_consumers_subscription_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = "trocket.broker.clients.client_manage.HEARTBEAT_CHARACTERS_MAX"
    async with broker_client(**ON) as client:
        await send(client, 5)
        await client.ask(HEART_BEAT, {}, filtered(("T", "price > 10", 7)))
        new = filtered(("T", "price > 4", 8))
        with monkeypatch.context() as busy:
            busy.setattr(limit, 0)
            await client.ask(HEART_BEAT, {}, new)
        stale = await client.ask(PULL, pull_fields(sysFlag=2, subVersion=9))
        waits = await client.ask(PULL, pull_fields(sysFlag=2, subVersion=8))
        await client.ask(HEART_BEAT, {}, new)
        mended = await client.ask(PULL, pull_fields(sysFlag=2, subVersion=8))
    assert (stale.code, stale.remark) == (
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        "the consumer's subscription not latest",
    )
    assert (waits.code, waits.remark) == (
        ResponseCode.FILTER_DATA_NOT_LATEST,
        "the consumer's consumer filter data not latest",
    )
    assert bodies_of(mended) == [b"5"]


async def test_a_groups_filters_die_with_its_last_client() -> None:
    async with embedded_broker(**ON) as broker:
        client, other = await broker.connect(), await broker.connect()
        await send(client, 5, 11)
        body = filtered(("T", "price > 10", 7))
        await client.ask(HEART_BEAT, {}, body)
        await other.ask(HEART_BEAT, {}, body.replace(b"c1", b"c2"))
        filters = broker.controller.filters
        await client.ask(UNREGISTER, {"clientID": "c1", "consumerGroup": "CG"})
        assert filters.find("T", "CG") is not None
        await other.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert filters.find("T", "CG") is None


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        pytest.param(sql("price > 1 AND"), 23, "parse the consumer's subscription failed: line 1, "
                     "column 14: the expression ends too early", id="wrong"),
        pytest.param(sql(""), 23, "parse the consumer's subscription failed: line 1, column 1: "
                     "the expression ends too early", id="empty"),
        pytest.param(pull_fields(expressionType="GROOVY", subscription="x"), 23,
                     "parse the consumer's subscription failed: 'GROOVY' is not an expression"
                     " type; use TAG or SQL92", id="type"),
    ],
)  # fmt: skip
async def test_a_wrong_expression_in_a_pull_is_refused_with_its_place(
    fields: dict[str, object], code: int, remark: str
) -> None:
    async with broker_client(**ON) as client:
        await send(client, 5)
        answer = await client.ask(PULL, fields)
        good = await client.ask(PULL, sql("price = 5"))
    assert (answer.code, answer.remark) == (code, remark)
    assert bodies_of(good) == [b"5"]


async def test_without_the_key_every_expression_is_refused_and_none_is_compiled() -> None:
    words = "The broker does not support consumer to filter message by SQL92"
    async with broker_and_client() as (broker, client):
        await send(client, 5)
        await client.ask(HEART_BEAT, {}, filtered(("T", "price > 1", 7)))
        given = await client.ask(PULL, sql("price > 1"))
        registered = await client.ask(PULL, pull_fields(sysFlag=2, subVersion=7))
        wrong = await client.ask(PULL, sql("price > > 1"))
        assert broker.controller.filters.characters == 0
    for answer in (given, registered, wrong):
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, words)


async def test_messages_that_do_not_match_do_not_wake_a_held_pull_but_move_it_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker(**ON) as broker:
        consumer, producer = await broker.connect(), await broker.connect()
        await send(producer, 11)
        opaque = await hold(consumer, sql("price > 10", queueOffset=1))
        await send(producer, 1, 2)
        assert (held(broker), consumer.unasked) == (1, [])
        await send(producer, 12)
        answer = await consumer.answer(opaque)
    assert (bodies_of(answer), next_of(answer)) == ([b"12"], 4)


async def test_a_held_pull_without_a_match_gets_the_next_offset_when_it_times_out(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker(**ON) as broker:
        consumer, producer = await broker.connect(), await broker.connect()
        await send(producer, 11)
        start_s = trio.current_time()
        opaque = await hold(consumer, sql("price > 10", queueOffset=1))
        await send(producer, 1, 2)
        answer = await consumer.answer(opaque)
        assert trio.current_time() - start_s >= 15
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert next_of(answer) == 3


async def test_a_held_pull_that_did_not_look_at_all_that_came_is_answered_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Else a match behind what one pull looks through would wait for the next message."""
    options = {**ON, **BIG_QUEUE, "max_filter_message_size": 40}
    async with embedded_broker(**options) as broker:
        consumer, producer = await broker.connect(), await broker.connect()
        await send(producer, 11)
        start_s = trio.current_time()
        opaques = [
            await hold(consumer, sql("price > 10", queueOffset=1, maxMsgNums=1)),
            await hold(consumer, pull_fields(subscription="A", queueOffset=1, maxMsgNums=1)),
        ]
        await send_together(producer, 1, 2, 3, 14)
        for opaque in opaques:
            answer = await consumer.answer(opaque)
            assert (answer.code, next_of(answer)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 3)
        assert trio.current_time() == start_s
        answer = await consumer.ask(PULL, sql("price > 10", queueOffset=3))
    assert bodies_of(answer) == [b"14"]


async def send_together(client: Client, *prices: int) -> None:
    """In one write, so that one turn of the broker takes them all; above 10 with the tag A."""
    frames = b""
    for price in prices:
        tag = "A" if price > 10 else "B"
        fields = send_fields(i=f"UNIQ_KEY\1AB\2price\1{price}\2TAGS\1{tag}\2")
        texts = {name: str(value) for name, value in fields.items()}
        frames += encode(RemotingCommand(SEND, texts, str(price).encode(), opaque=1000 + price))
    await client.stream.send_all(frames)
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize(("options", "count"), [(ON, 1), ({}, 0)])
async def test_the_parser_is_made_before_the_broker_serves_but_only_where_it_is_wanted(
    options: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr("trocket.broker.filters.part.warm_up", lambda: made.append(1))
    async with embedded_broker(**options):
        assert len(made) == count
