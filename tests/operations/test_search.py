"""Searches in steps, on a broker."""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.client import Admin, BadAnswerError, Message
from trocket.client.messages.message import ReceivedMessage, with_content
from trocket.common.java_integers import INT64_MAX
from trocket.operations.message_search.criteria import Criteria, read_number
from trocket.operations.message_search.cursors import decode_cursor, encode_cursor
from trocket.operations.message_search.problems import Problem, SearchError
from trocket.operations.message_search.search import Limits, SearchPage, search
from trocket.remoting.bodies import MessageQueue
from trocket.remoting.body_compression import CompressionType
from trocket.remoting.headers import SendMessageRequestHeader
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from .conftest import Do, send_all

COUNT = 200


def numbered(topic: str, count: int = COUNT) -> list[Message[bytes]]:
    return [
        Message(
            topic,
            b"body %d" % number,
            tags=("even", "odd")[number % 2],
            keys=f"key-{number}",
            properties={"number": str(number)},
        )
        for number in range(count)
    ]


def numbers(page: SearchPage) -> list[int]:
    return [int(message.properties["number"]) for message in page.found]


async def all_pages(admin: Admin, criteria: Criteria, **limits: int) -> list[SearchPage]:
    pages = [await search(admin, criteria, limits=Limits(**limits))]
    while pages[-1].cursor:
        pages.append(
            await search(admin, criteria, cursor=pages[-1].cursor, limits=Limits(**limits))
        )
        assert len(pages) < 1000
    return pages


def test_all_messages_come_in_order_in_steps(do: Do, topic: str) -> None:
    async def verb(admin: Admin) -> None:
        await send_all(admin, numbered(topic))
        for is_newest_first in (False, True):
            criteria = Criteria(topic=topic, is_newest_first=is_newest_first)
            pages = await all_pages(admin, criteria, found=30)
            assert [len(page.found) for page in pages] == [30] * 6 + [20]
            assert [page.scanned_before for page in pages] == [30 * each for each in range(7)]
            assert [page.left for page in pages] == [170, 140, 110, 80, 50, 20, 0]
            found = [number for page in pages for number in numbers(page)]
            times = [each.store_timestamp_ms for page in pages for each in page.found]
            assert found == sorted(range(COUNT), reverse=is_newest_first)
            assert times == sorted(times, reverse=is_newest_first)
            assert pages[0].reached_ms == pages[0].found[-1].store_timestamp_ms
            assert not any(page.failures or page.is_late for page in pages)

    do(verb)


def test_a_step_scans_no_more_than_its_limit_and_goes_on(do_once: Do, topic: str) -> None:
    async def verb(admin: Admin) -> None:
        await send_all(admin, numbered(topic))
        pages = await all_pages(admin, Criteria(topic=topic, text="BODY 7"), scanned=45)
        assert [page.scanned for page in pages] == [45, 45, 45, 45, 20]
        found = sorted(number for page in pages for number in numbers(page))
        assert found == [7, *range(70, 80)]

    do_once(verb)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"tag": "odd"}, range(1, COUNT, 2)),
        ({"tag": "odd || even"}, range(COUNT)),
        ({"tag": "none"}, []),
        ({"sql": "number BETWEEN 10 AND 12"}, [10, 11, 12]),
        ({"sql": "TAGS = 'even' AND number < 5"}, [0, 2, 4]),
        ({"key": "key-17"}, [17]),
        ({"text": "body 19"}, [19, *range(190, 200)]),
        ({"text": "key-33"}, [33]),
        ({"text": "NUMBER"}, range(COUNT)),
        ({"tag": "odd", "sql": "number > 190", "text": "9"}, [191, 193, 195, 197, 199]),
        ({"tag": "odd", "text": "body 4", "sql": "number > 190"}, []),
    ],
)
def test_criteria_hold_together(
    do_once: Do, topic: str, wanted: dict[str, Any], expected: list[int]
) -> None:
    async def verb(admin: Admin) -> None:
        await send_all(admin, numbered(topic))
        page = await search(admin, Criteria(topic=topic, **wanted), limits=Limits(found=1000))
        assert sorted(numbers(page)) == list(expected)
        assert (page.scanned, page.cursor) == (COUNT, "")

    do_once(verb)


def test_a_queue_is_searched_from_an_offset_in_both_directions(
    broker: Broker, do_once: Do, topic: str
) -> None:
    async def verb(admin: Admin) -> None:
        await send_all(admin, numbered(topic))
        (name,) = {each.broker_name for each in await admin.offsets(topic)}
        queue: dict[str, Any] = {"topic": topic, "broker_name": name, "queue_id": 2}
        page = await search(admin, Criteria(**queue, offset=45, is_newest_first=False))
        assert [each.queue_offset for each in page.found] == [45, 46, 47, 48, 49]
        page = await search(admin, Criteria(**queue, offset=4))
        assert [each.queue_offset for each in page.found] == [4, 3, 2, 1, 0]
        assert {each.queue_id for each in page.found} == {2}
        page = await search(admin, Criteria(topic=topic, queue_id=1), limits=Limits(found=99))
        assert len(page.found) == 50
        for offset, problem, data in [
            (-1, Problem.OFFSET_NEGATIVE, {"offset": -1}),
            (-(10**30), Problem.OFFSET_NEGATIVE, {"offset": -(10**30)}),
            (50, Problem.OFFSET_ABOVE, {"offset": 50, "end": 50}),
            (10**30, Problem.OFFSET_ABOVE, {"offset": 10**30, "end": INT64_MAX}),
        ]:
            with pytest.raises(SearchError) as caught:
                await search(admin, Criteria(**queue, offset=offset))
            assert (caught.value.problem, caught.value.data) == (problem, data)

    do_once(verb)


def test_times_bound_a_search(broker: Broker, do_once: Do, topic: str) -> None:
    async def verb(admin: Admin) -> None:
        messages = numbered(topic, 90)
        await send_all(admin, messages[:30])
        broker.advance(minutes=10)
        await send_all(admin, messages[30:60])
        broker.advance(minutes=10)
        await send_all(admin, messages[60:])
        everything = await search(admin, Criteria(topic=topic), limits=Limits(found=99))
        times = {
            int(each.properties["number"]): each.store_timestamp_ms for each in everything.found
        }
        for is_newest_first in (False, True):
            for begin_ms, end_ms in [
                (times[30], times[59]),
                (times[30], None),
                (None, times[59]),
                (times[0] - 1, times[0]),
                (times[45], times[45]),
                (0, times[30] - 1),
            ]:
                criteria = Criteria(
                    topic=topic, begin_ms=begin_ms, end_ms=end_ms, is_newest_first=is_newest_first
                )
                page = await search(admin, criteria, limits=Limits(found=99))
                expected = [
                    number
                    for number, time_ms in times.items()
                    if (begin_ms or 0) <= time_ms <= (end_ms or 1 << 62)
                ]
                assert sorted(numbers(page)) == sorted(expected)
                assert page.scanned <= len(expected) + 4 * 8
                assert page.cursor == ""

    do_once(verb)


def test_a_time_in_the_future_is_said(broker: Broker, do_once: Do, topic: str) -> None:
    async def verb(admin: Admin) -> None:
        await send_all(admin, numbered(topic, 8))
        now_ms = admin.client.wall_ms()
        future_ms = now_ms + 40 * 86_400_000
        with pytest.raises(SearchError) as caught:
            await search(admin, Criteria(topic=topic, begin_ms=future_ms))
        assert caught.value.problem is Problem.TIME_IN_FUTURE
        assert caught.value.data["begin_ms"] == future_ms
        # A broker whose clock is ahead of ours has such messages.
        broker.advance(hours=60 * 24)
        await send_all(admin, numbered(topic, 1))
        assert len((await search(admin, Criteria(topic=topic, begin_ms=future_ms))).found) == 1

    do_once(verb)


@pytest.mark.parametrize(
    ("wanted", "problem", "data"),
    [
        ({"topic": "Nowhere"}, Problem.NO_TOPIC, {"topic": "Nowhere"}),
        ({"topic": ""}, Problem.EMPTY, {}),
        ({"broker_name": "b"}, Problem.NO_QUEUE, {"queue": "b/*"}),
        ({"queue_id": 99}, Problem.NO_QUEUE, {"queue": "*/99"}),
        ({"queue_id": -1}, Problem.NO_QUEUE, {}),
        ({"queue_id": 1 << 80}, Problem.NO_QUEUE, {}),
        ({"offset": 3}, Problem.NEEDS_QUEUE, {}),
        ({"begin_ms": -1}, Problem.TIME_OUT_OF_RANGE, {"time_ms": -1}),
        ({"end_ms": 1 << 70}, Problem.TIME_OUT_OF_RANGE, {"time_ms": 1 << 70}),
        ({"begin_ms": 2, "end_ms": 1}, Problem.TIMES_REVERSED, {"begin_ms": 2, "end_ms": 1}),
        ({"sql": "a >"}, Problem.BAD_SQL, {"line": 1}),
        ({"sql": "\ud800"}, Problem.BAD_SQL, {}),
        ({"sql": "(" * 3000 + "a" + ")" * 3000}, Problem.TOO_LONG, {"field": "sql"}),
        ({"sql": "(" * 1500 + "a=1" + ")" * 1500}, Problem.BAD_SQL, {}),
        ({"text": "x" * 1001}, Problem.TOO_LONG, {"field": "text", "length": 1001, "limit": 1000}),
        ({"tag": "x" * 1001}, Problem.TOO_LONG, {"field": "tag"}),
        ({"key": "a b"}, Problem.BAD_KEY, {"key": "a b"}),
    ],
)
def test_what_cannot_be_searched_is_said_with_its_data(
    do_once: Do, topic: str, wanted: dict[str, Any], problem: Problem, data: dict[str, Any]
) -> None:
    async def verb(admin: Admin) -> None:
        with pytest.raises(SearchError) as caught:
            await search(admin, Criteria(**({"topic": topic} | wanted)))
        assert caught.value.problem is problem
        assert data.items() <= caught.value.data.items()

    do_once(verb)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", None),
        (" ", None),
        ("0", 0),
        (" 17\n", 17),
        ("-1", -1),
        ("+5", 5),
        ("9" * 20, int("9" * 20)),
    ],
)
def test_numbers_are_read(text: str, number: int | None) -> None:
    assert read_number("offset", text) == number


@pytest.mark.parametrize("text", ["x", "1_000", "٣", "1.5", "1e3", "0x10", "9" * 5000, "--1", "\0"])
def test_what_is_no_number_is_said(text: str) -> None:
    with pytest.raises(SearchError) as caught:
        read_number("offset", text)
    assert caught.value.problem is Problem.NOT_A_NUMBER
    assert caught.value.data == {"field": "offset", "text": text[:1000]}


def test_a_page_asks_a_broker_few_times(do_once: Do, broker: Broker, topic: str) -> None:
    async def verb(admin: Admin) -> None:
        await send_all(admin, numbered(topic))
        asked = broker.faults.delay(None, 0.0, times=None)
        await search(admin, Criteria(topic=topic))
        assert asked.hits <= 1 + 2 * 4
        before = asked.hits
        await search(admin, Criteria(topic=topic, begin_ms=1, end_ms=1 << 40))
        assert asked.hits - before <= 1 + 4 * 4

    do_once(verb)


def test_hostile_texts_are_searched_as_they_are(do_once: Do, topic: str) -> None:
    bodies = [
        b"\xff\x00\xfe",
        "<script>订单</script>".encode(),
        rb'{"a":"\u8ba2\u5355","q":"say \"hi\""}',
        gzip.compress(b"within gzip"),
        b"x" * 3_000_000 + b"the end",
        b"\x1f\x8b\x08 no gzip",
    ]

    async def found(admin: Admin, text: str) -> list[int]:
        page = await search(admin, Criteria(topic=topic, text=text))
        return sorted(numbers(page))

    async def verb(admin: Admin) -> None:
        await send_all(
            admin,
            [
                Message(topic, body, properties={"number": str(number)})
                for number, body in enumerate(bodies)
            ],
        )
        assert await found(admin, "订单") == [1, 2]
        assert await found(admin, "WITHIN gzip") == [3]
        assert await found(admin, "the end") == [4]
        assert await found(admin, 'say "hi"') == [2]
        assert await found(admin, "no gzip") == [5]
        assert await found(admin, "\ud800") == []
        assert await found(admin, "\0") == [0]
        assert await found(admin, "\u202e") == []

    do_once(verb)


def test_a_mask_comes_before_everything(do_once: Do, topic: str) -> None:
    def mask(message: ReceivedMessage) -> ReceivedMessage:
        properties = dict(message.properties) | {"number": "0", "KEYS": "hidden"}
        return with_content(message, body=b"hidden", properties=properties, sys_flag=0)

    async def count(admin: Admin, **wanted: str) -> int:
        page = await search(admin, Criteria(topic=topic, **wanted), mask=mask)
        assert all(message.body == b"hidden" for message in page.found)
        return len(page.found)

    async def verb(admin: Admin) -> None:
        await send_all(admin, numbered(topic, 20))
        assert await count(admin, text="body 1") == 0
        assert await count(admin, text="key-1") == 0
        assert await count(admin, key="key-1") == 0
        assert await count(admin, sql="number > 0") == 0
        assert await count(admin, sql="number = 0") == 20

    do_once(verb)


async def send_as_compressed(admin: Admin, broker: Broker, topic: str, body: bytes) -> None:
    """Send a body of which the flag says that it is compressed by zlib."""
    header = SendMessageRequestHeader(
        producer_group="hostile",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=CompressionType.ZLIB.sys_flag,
        born_timestamp=0,
        flag=0,
        properties="number\x019\x02",
    )
    await admin.client.request(broker.broker_address, RequestCode.SEND_MESSAGE, header, body)


@pytest.mark.parametrize(
    "body", [b"no zlib", zlib.compress(bytes(80 << 20))], ids=["broken", "80 MiB inside"]
)
def test_a_body_that_cannot_be_read_does_not_stop_a_search(
    broker: Broker, do_once: Do, topic: str, body: bytes
) -> None:
    async def verb(admin: Admin) -> None:
        await send_all(admin, numbered(topic, 4))
        await send_as_compressed(admin, broker, topic, body)
        page = await search(admin, Criteria(topic=topic, text="number"))
        assert sorted(numbers(page)) == [0, 1, 2, 3, 9]
        assert page.failures == ()
        # The client's own pulls refuse it.
        with pytest.raises(BadAnswerError):
            await admin.messages_by_time(topic, 0)

    do_once(verb)


def test_large_messages_fill_pages_by_their_size(do_once: Do, topic: str) -> None:
    async def verb(admin: Admin) -> None:
        size = 1_000_000
        await send_all(
            admin,
            [
                Message(topic, bytes(size) + b"%d" % each, properties={"number": str(each)})
                for each in range(12)
            ],
        )
        for is_newest_first in (True, False):
            criteria = Criteria(topic=topic, is_newest_first=is_newest_first)
            pages = await all_pages(admin, criteria, found_size=20_000)
            found = [number for page in pages for number in numbers(page)]
            assert found == sorted(found, reverse=is_newest_first)
            assert len(found) == 12

    do_once(verb)


def test_a_broker_that_hangs_is_named_and_the_search_goes_on_later(
    broker: Broker, do_once: Do, topic: str
) -> None:
    limits = Limits(step_s=1.0, broker_s=0.2)

    async def verb(admin: Admin) -> None:
        await send_all(admin, numbered(topic, 20))
        criteria = Criteria(topic=topic)
        for code in (RequestCode.PULL_MESSAGE, RequestCode.GET_TOPIC_STATS_INFO):
            broker.faults.swallow(code, times=None)
            page = await search(admin, criteria, limits=limits)
            assert (page.found, page.scanned) == ((), 0)
            assert [each.broker_name for each in page.failures] == ["broker-a"]
            assert page.cursor
            broker.faults.clear()
            again = await search(admin, criteria, cursor=page.cursor)
            assert sorted(numbers(again)) == list(range(20))
            assert (again.failures, again.cursor) == ((), "")

    do_once(verb)


def test_a_step_ends_in_time_with_what_it_has(broker: Broker, do_once: Do, topic: str) -> None:
    async def verb(admin: Admin) -> None:
        await send_all(admin, numbered(topic))
        criteria = Criteria(topic=topic)
        broker.faults.delay(RequestCode.PULL_MESSAGE, 0.15, times=None)
        page = await search(admin, criteria, limits=Limits(step_s=0.25, broker_s=5.0, found=COUNT))
        assert page.is_late
        assert 0 < page.scanned < COUNT
        broker.faults.clear()
        rest = await search(admin, criteria, cursor=page.cursor, limits=Limits(found=COUNT))
        assert sorted([*numbers(page), *numbers(rest)]) == list(range(COUNT))

    do_once(verb)


def test_a_refusing_broker_is_named(broker: Broker, do_once: Do, topic: str) -> None:
    async def verb(admin: Admin) -> None:
        await send_all(admin, numbered(topic, 4))
        broker.faults.refuse(RequestCode.GET_TOPIC_STATS_INFO, times=None)
        page = await search(admin, Criteria(topic=topic))
        assert sorted(numbers(page)) == [0, 1, 2, 3]
        broker.faults.refuse(RequestCode.PULL_MESSAGE, times=None)
        page = await search(admin, Criteria(topic=topic))
        assert len(page.failures) == 1
        assert page.cursor

    do_once(verb)


def test_a_cursor_that_was_changed_is_refused(do_once: Do, topic: str) -> None:
    async def verb(admin: Admin) -> None:
        await send_all(admin, numbered(topic, 20))
        criteria = Criteria(topic=topic)
        cursor = (await search(admin, criteria, limits=Limits(found=3))).cursor
        assert cursor.replace("-", "").replace("_", "").isalnum()
        foreign = encode_cursor(criteria.checksum, 0, {MessageQueue(topic, "b", 0): (9, 0)})
        for text, wanted in [
            (cursor[:-3], criteria),
            (cursor + "!", criteria),
            ("é", criteria),
            ("A" * 20_000, criteria),
            (cursor, Criteria(topic=topic, text="other")),
            (cursor, Criteria(topic=topic, is_newest_first=False)),
            (foreign, criteria),
        ]:
            with pytest.raises(SearchError) as caught:
                await search(admin, wanted, cursor=text)
            assert caught.value.problem is Problem.BAD_CURSOR
        beyond = {
            MessageQueue(topic, "broker-a", each): (INT64_MAX, INT64_MAX - 40) for each in range(4)
        }
        for is_newest_first in (True, False):
            wanted = Criteria(topic=topic, is_newest_first=is_newest_first)
            text = encode_cursor(
                wanted.checksum,
                0,
                {
                    queue: place if is_newest_first else place[::-1]
                    for queue, place in beyond.items()
                },
            )
            page = await search(admin, wanted, cursor=text)
            assert (page.found, page.failures) == ((), ())

    do_once(verb)


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.hex()))
def test_any_text_is_a_cursor_or_a_problem(text: str) -> None:
    with suppress(SearchError):
        decode_cursor(text, 0, "T")


OFFSETS = st.integers(0, INT64_MAX)


@given(
    st.dictionaries(
        st.tuples(st.text(max_size=5), st.integers(0, 2**31 - 1)),
        st.none() | st.tuples(OFFSETS, OFFSETS),
        max_size=20,
    )
)
def test_a_cursor_reads_back(places: dict[tuple[str, int], tuple[int, int] | None]) -> None:
    try:
        queues = {MessageQueue("T", *queue): place for queue, place in places.items()}
        text = encode_cursor(7, 5, queues)
    except UnicodeEncodeError:
        return
    assert decode_cursor(text, 7, "T") == (5, queues)
