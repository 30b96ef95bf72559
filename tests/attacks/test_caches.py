"""Caches kept what strangers sent after they were gone: 1.7 GiB of layouts, 3 GiB of tags codes.

They were bounded by the number of entries, and one entry could be as large as a header.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio.testing

from trocket.broker.filters.subscription import (
    SUBSCRIPTION_CODES_MAX,
    SUBSCRIPTION_LENGTH_MAX,
    tags_codes_of,
)
from trocket.common.sized_cache import SizedCache
from trocket.common.sql92.expression import compile_expression
from trocket.remoting.codec import RemotingCommand, decode_frame, encode
from trocket.remoting.header_layouts import FIELDS_SIZE_MAX, LAYOUTS_SIZE_MAX, HeaderLayouts

from ..kit import broker_client, embedded_broker, pull_fields, send_fields

MIB = 1 << 20
SEND_MESSAGE_V2, PULL_MESSAGE, HEART_BEAT, LOCK_BATCH_MQ = 310, 11, 34, 41
SUBSCRIPTION_PARSE_FAILED = 23
GROWTH_MAX = 16 * MIB


def frame(count: int, value_size: int, last_size: int) -> bytes:
    """A frame of some fields. Only ASCII headers are remembered: no byte of a size may pass 127."""
    fields = {f"field{number}": "v" * value_size for number in range(count)}
    return encode(RemotingCommand(1, fields | {"last": "w" * last_size}, serialize_type=1))


@pytest.mark.slow
@pytest.mark.parametrize(("count", "value_size"), [(20, 0x3200), (200, 0x3C)])
def test_layouts_of_many_headers_are_not_all_kept(
    traced: Callable[[], int], count: int, value_size: int
) -> None:
    """Few that are almost as large as a header may be, and many with many fields."""
    decode_frame(frame(1, 1, 1))
    before = traced()
    for number in range(300):
        last_size = number // 100 << 8 | number % 100
        command = decode_frame(frame(count, value_size, last_size))
        assert len(command.ext_fields["last"]) == last_size
        assert len(command.ext_fields) == count + 1
    assert traced() - before < GROWTH_MAX


def test_the_size_of_the_layouts_is_known_and_bounded() -> None:
    layouts = HeaderLayouts(size_max=100_000)
    for size in [*range(100, 5_000, 7), 100, 100]:
        layouts.remember(bytes(size), [("name", slice(10, 20))] * 5)
        assert 0 < layouts.size <= 100_000
        assert layouts.size == sum(layout.size for layout in layouts.by_size.values())
    layouts.remember(bytes(FIELDS_SIZE_MAX + 1), [])
    assert FIELDS_SIZE_MAX + 1 not in layouts.by_size
    assert LAYOUTS_SIZE_MAX <= 8 * MIB


@pytest.mark.slow
def test_tags_codes_of_many_large_subscriptions_are_not_all_kept(traced: Callable[[], int]) -> None:
    before = traced()
    for number in range(40):
        tags = [f"{number * 5_000 + tag:x}abc" for tag in range(3_000)]
        codes = tags_codes_of("||".join(tags))
        assert codes is not None
        assert len(codes) > 2_000
    assert traced() - before < 6 * MIB
    assert tags_codes_of.size <= tags_codes_of.size_max


def test_a_usual_subscription_is_remembered() -> None:
    assert tags_codes_of("TagA || TagB") is tags_codes_of("TagA || TagB")


@pytest.mark.slow
def test_expressions_are_remembered_up_to_a_size() -> None:
    for number in range(80):
        compile_expression(" OR ".join(f"a = {number}{term}" for term in range(240)))
        assert compile_expression.size <= compile_expression.size_max


async def test_a_subscription_that_is_too_large_is_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tags = "a||" * (SUBSCRIPTION_LENGTH_MAX // 3) + "b" * (SUBSCRIPTION_LENGTH_MAX % 3)
    async with broker_client() as client:
        assert (await client.ask(SEND_MESSAGE_V2, send_fields(), b"first")).code == 0
        taken = await client.ask(PULL_MESSAGE, pull_fields(sysFlag=4, subscription=tags))
        assert taken.code != SUBSCRIPTION_PARSE_FAILED
        refused = await client.ask(PULL_MESSAGE, pull_fields(sysFlag=4, subscription=tags + "c"))
        assert refused.code == SUBSCRIPTION_PARSE_FAILED
        assert refused.remark is not None
        assert f"the limit is {SUBSCRIPTION_LENGTH_MAX}" in refused.remark


def heartbeat(sub_string: str, codes: int = 0, group: str = "CG", client: str = "c") -> bytes:
    code_set = ",".join(map(str, range(codes)))
    subscription = f'{{"topic":"T","subString":"{sub_string}","codeSet":[{code_set}]}}'
    return (
        f'{{"clientID":"{client}","producerDataSet":[],"consumerDataSet":[{{"groupName":"{group}",'
        f'"subscriptionDataSet":[{subscription}]}}]}}'
    ).encode()


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (heartbeat("a" * (SUBSCRIPTION_LENGTH_MAX + 1)), SUBSCRIPTION_LENGTH_MAX),
        (heartbeat("a", SUBSCRIPTION_CODES_MAX + 1), SUBSCRIPTION_CODES_MAX),
        (heartbeat("a", client="c" * 1_025), 1_024),
        (b'{"clientID":"c","producerDataSet":[{"groupName":"%b"}]}' % (b"g" * 256), 255),
    ],
)
async def test_a_heartbeat_that_is_too_large_is_refused(
    autojump_clock: trio.testing.MockClock, body: bytes, limit: int
) -> None:
    async with broker_client() as client:
        refused = await client.ask(HEART_BEAT, {}, body)
        assert refused.code == 1
        assert str(limit) in (refused.remark or "")


async def test_subscriptions_are_counted_and_freed_with_their_connection(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker() as broker:
        assert broker.controller.server is not None
        share = broker.controller.server.memory.subscriptions
        client = await broker.connect()
        for number in range(10):
            body = heartbeat("a" * 20_000, 1_000, group=f"CG{number}")
            assert (await client.ask(HEART_BEAT, {}, body)).code == 0
            assert (await client.ask(HEART_BEAT, {}, body)).code == 0
            assert share.used > (number + 1) * 50_000
        assert share.used < 10 * 150_000
        await client.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert share.used == 0


async def test_a_lock_with_a_long_name_is_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with broker_client() as client:
        queue = b'{"topic":"%b","brokerName":"b","queueId":0}' % (b"t" * 256)
        body = b'{"consumerGroup":"CG","clientId":"c","mqSet":[%b]}' % queue
        refused = await client.ask(LOCK_BATCH_MQ, {}, body)
        assert refused.code == 1
        assert "at most 255" in (refused.remark or "")


def test_a_result_that_is_too_large_for_the_cache_is_computed_each_time() -> None:
    computed: list[str] = []

    def twice(text: str) -> str:
        computed.append(text)
        return text * 2

    cache = SizedCache(twice, size_max=100, size_of=lambda text, result: len(text) + len(result))
    assert [cache("abc"), cache("abc"), cache("x" * 10), cache("x" * 10)] == [
        "abcabc", "abcabc", "x" * 20, "x" * 20,
    ]  # fmt: skip
    assert computed == ["abc", "x" * 10, "x" * 10]
    for number in range(100):
        cache(str(number))
        assert cache.size <= 100
    assert len(cache) < 20
    assert cache("abc") == "abcabc"
    assert computed[-1] == "abc"  # the oldest gave way
