"""Offsets as texts: what a user writes, what a checkpoint keeps, how ranges are cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.spark.errors import OptionError, SparkConnectorError
from trocket.spark.queue_offsets import (
    EARLIEST,
    GROUP,
    LATEST,
    OffsetSpec,
    Queue,
    QueueRange,
    StreamOffset,
    limited,
    read_offset_spec,
    read_time_spec,
    split_ranges,
)

QUEUE = st.builds(
    Queue, st.sampled_from(["T", "%RETRY%g"]), st.sampled_from("ab"), st.integers(0, 20)
)
OFFSETS = st.dictionaries(QUEUE, st.integers(0, 2**62), max_size=10)


def test_what_a_user_writes() -> None:
    assert read_offset_spec("Earliest", "x") == OffsetSpec(EARLIEST)
    assert read_offset_spec("latest", "x") == OffsetSpec(LATEST)
    assert read_offset_spec("group", "x") == OffsetSpec(GROUP)
    spec = read_offset_spec('{"T":{"broker-a":{"0":23,"1":-2}}}', "x")
    assert spec.of(Queue("T", "broker-a", 0)) == 23
    assert spec.of(Queue("T", "broker-a", 1)) == EARLIEST
    assert spec.of(Queue("T", "broker-b", 0)) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "newest", "{", '{"T":{"0":1}}', '{"T":{"b":{"x":1}}}', "7",
        '{"T":{"b":{"1_0":1}}}', '{"T":{"b":{" 1":1}}}', '{"T":{"b":{"-1":1}}}',
        '{"T":{"b":{"2147483648":1}}}', '{"T":{"b":{"0":9223372036854775808}}}',
    ],
)  # fmt: skip
def test_what_is_no_offset_is_refused_with_an_example(text) -> None:
    with pytest.raises(OptionError, match=r'startingOffsets must be .*\{"T":\{"broker-a"'):
        read_offset_spec(text, "startingOffsets")
    with pytest.raises(OptionError, match=r"-4 is not an offset \(topic T, broker b, queue 0\)"):
        read_offset_spec('{"T":{"b":{"0":-4}}}', "startingOffsets")


@pytest.mark.parametrize("time_ms", ["-1", "9223372036854775807", "1.5"])
def test_what_is_no_time_is_refused(time_ms: str) -> None:
    with pytest.raises(OptionError, match=r"startingOffsetsByTimestamp.* (must be|is not a time)"):
        read_time_spec(f'{{"T":{{"b":{{"0":{time_ms}}}}}}}', "startingOffsetsByTimestamp")


@given(OFFSETS, st.booleans(), OFFSETS)
def test_a_checkpoint_gives_back_what_it_was_given_always_in_the_same_words(
    offsets, is_boot, init
) -> None:
    one = StreamOffset(offsets, is_boot, init)
    other = StreamOffset(dict(reversed(offsets.items())), is_boot, dict(reversed(init.items())))
    text = json.dumps(one.to_json())
    assert text == json.dumps(other.to_json())
    assert text == json.dumps(json.loads(text), sort_keys=True)
    assert StreamOffset.from_json(json.loads(text)) == one


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ({"v": 2, "off": {}, "boot": False}, "version 2, but this trocket reads 1"),
        ({"topic": {"0": 5}}, "does not hold offsets of a rocketmq stream"),
        ({"v": 1, "off": {"T": {"b": {"x": 1}}}, "boot": False}, "does not hold offsets"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(tree, text) -> None:
    with pytest.raises(SparkConnectorError, match=text):
        StreamOffset.from_json(tree)


@given(
    st.dictionaries(QUEUE, st.tuples(st.integers(0, 1000), st.integers(-5, 500)), max_size=8),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 200),
)
def test_pieces_cover_each_message_once(sizes, parts_min, size_max) -> None:
    ranges = [QueueRange(queue, start, start + size) for queue, (start, size) in sizes.items()]
    pieces = split_ranges(ranges, parts_min=parts_min, size_max=size_max)
    seen = [(piece.queue, n) for piece in pieces for n in range(piece.start, piece.end)]
    assert seen == [(each.queue, n) for each in ranges for n in range(each.start, each.end)]
    assert all(0 < piece.size <= (size_max or piece.size) for piece in pieces)
    if parts_min is not None:
        assert len(pieces) >= min(parts_min, len(seen))


@given(st.dictionaries(QUEUE, st.integers(0, 500), max_size=8), OFFSETS, st.integers(1, 1000))
def test_a_limit_is_shared_by_backlog_and_nobody_starves(backlogs, start, count_max) -> None:
    start = {queue: start.get(queue, 7) for queue in backlogs}
    latest = {queue: start[queue] + backlog for queue, backlog in backlogs.items()}
    found = limited(start, latest, count_max)
    taken = {queue: found[queue] - start[queue] for queue in latest}
    assert all(0 <= taken[queue] <= backlogs[queue] for queue in latest)
    assert all(taken[queue] > 0 for queue in latest if backlogs[queue])
    assert sum(taken.values()) <= count_max + len(latest)
    if sum(backlogs.values()) <= count_max:
        assert found == latest
