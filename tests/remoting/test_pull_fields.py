"""Series of pulls: what is recognised by its bytes is what the parser reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.remoting.codec import RemotingCommand, decode_frame, encode, encode_ext_fields
from trocket.remoting.errors import RemoteProtocolError
from trocket.remoting.headers import PullMessageRequestHeader, decode
from trocket.remoting.pull_fields import FIELDS_SIZE_MAX, PullFields, PullSeriesCache

PULL_MESSAGE = 11
PARSED = 12
"""A code whose headers are always parsed."""


def pull_fields(**changed: str) -> dict[str, str]:
    return {
        "consumerGroup": "CG", "topic": "T", "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "3", "commitOffset": "0", "suspendTimeoutMillis": "15000",
        "subVersion": "1", "expressionType": "TAG",
    } | changed  # fmt: skip


def frame(fields: dict[str, str], code: int = PULL_MESSAGE) -> bytes:
    return encode(RemotingCommand(code, fields, b"body", serialize_type=1))


def same_parsed(pull: bytes) -> RemotingCommand | str:
    """What the parser reads of a pull, or its error."""
    return outcome(pull[:8] + PARSED.to_bytes(2, "big") + pull[10:])


def outcome(data: bytes) -> RemotingCommand | str:
    try:
        command = decode_frame(data)
    except RemoteProtocolError as error:
        return str(error)
    command.code = PARSED
    return command


def recognised(data: bytes) -> bool:
    return isinstance(decode_frame(data).ext_fields, PullFields)


NUMBERS = st.integers(0, 10**18 - 1).map(str)
ODD_NUMBERS = st.text("0123456789-+_ .e٣", max_size=25)


@given(st.integers(0, 10**9 - 1).map(str), NUMBERS, NUMBERS)
def test_a_pull_of_a_known_series_is_recognised_and_equal_to_a_parsed_one(
    queue_id: str, queue_offset: str, commit_offset: str
) -> None:
    decode_frame(frame(pull_fields()))
    fields = pull_fields(queueId=queue_id, queueOffset=queue_offset, commitOffset=commit_offset)
    found = decode_frame(frame(fields))
    assert isinstance(found.ext_fields, PullFields)
    assert found.ext_fields.as_dict() == fields
    assert list(found.ext_fields.items()) == list(fields.items())
    assert found.ext_fields == fields
    assert outcome(frame(fields)) == same_parsed(frame(fields))
    header = decode(PullMessageRequestHeader, fields)
    assert decode(PullMessageRequestHeader, found.ext_fields) == header
    assert header.queue_id == found.ext_fields.queue_id
    assert header.queue_offset == found.ext_fields.queue_offset
    assert header.commit_offset == found.ext_fields.commit_offset
    assert found.body == b"body"


@given(ODD_NUMBERS, ODD_NUMBERS, ODD_NUMBERS)
def test_numbers_of_another_form_are_left_to_the_parser(
    queue_id: str, queue_offset: str, commit_offset: str
) -> None:
    decode_frame(frame(pull_fields()))
    fields = pull_fields(queueId=queue_id, queueOffset=queue_offset, commitOffset=commit_offset)
    assert dict(decode_frame(frame(fields)).ext_fields) == fields


@pytest.mark.parametrize(
    "changed",
    [
        {"queueId": "00"}, {"queueOffset": "01"}, {"commitOffset": "-1"}, {"queueOffset": ""},
        {"queueId": "1_0"}, {"queueOffset": "+1"}, {"commitOffset": " 1"}, {"queueId": "٣"},
        {"queueId": "1" * 10}, {"queueOffset": "1" * 19}, {"commitOffset": "1" * 19},
        {"queueOffset": "1" * 300}, {"topic": "U"}, {"sysFlag": "2"}, {"expressionType": "SQL"},
        {"more": "1"},
    ],
)  # fmt: skip
def test_other_headers_are_not_of_the_series(changed: dict[str, str]) -> None:
    known = frame(pull_fields())
    decode_frame(known)
    assert recognised(known)
    other = pull_fields(**changed)
    assert not recognised(frame(other))
    assert dict(decode_frame(frame(other)).ext_fields) == other


@given(st.data())
def test_a_damaged_header_is_read_as_the_parser_reads_it(data: st.DataObject) -> None:
    good = frame(pull_fields(queueId="12", queueOffset="345", commitOffset="67"))
    decode_frame(good)
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(10, len(good) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    assert outcome(bytes(damaged)) == same_parsed(bytes(damaged))


@given(st.lists(st.sampled_from(["queueId", "queueOffset", "commitOffset", "a", "b"]), max_size=8))
def test_fields_in_any_order_and_number_are_read_as_the_parser_reads_them(names: list[str]) -> None:
    """Also a field that comes twice, of which the last one counts."""
    for number in (1, 23, 456):
        block = b"".join(encode_ext_fields({name: str(number)}) for name in names)
        empty = encode(RemotingCommand(PULL_MESSAGE, serialize_type=1))
        header = empty[8:-4] + len(block).to_bytes(4, "big") + block
        start = (4 + len(header)).to_bytes(4, "big") + (1 << 24 | len(header)).to_bytes(4, "big")
        assert outcome(start + header) == same_parsed(start + header)


def test_a_name_of_a_field_inside_a_value_is_a_part_of_the_value() -> None:
    inner = "\0\7queueId\0\0\0\1" + "5"
    for queue_id in ("1", "2"):
        fields = pull_fields(consumerGroup=inner, queueId=queue_id)
        assert dict(decode_frame(frame(fields)).ext_fields) == fields
    decode_frame(frame(pull_fields()))
    decode_frame(frame(pull_fields(subVersion="\0\x0ccommitOffset\0\0\0\1" + "5")))
    assert recognised(frame(pull_fields(queueId="7")))


def test_a_last_value_that_passes_the_end_is_refused() -> None:
    fields = {"topic": "T", "queueId": "1", "queueOffset": "2", "commitOffset": "34"}
    good = encode(RemotingCommand(PULL_MESSAGE, fields, serialize_type=1))
    decode_frame(good)
    assert recognised(good)
    for size in (3, 4, 255):
        damaged = good[:-3] + bytes([size]) + good[-2:]
        assert "passes the extFields' end" in str(outcome(damaged))
        assert outcome(damaged) == same_parsed(damaged)


def test_a_pull_that_ends_too_early_is_refused_like_any_header() -> None:
    good = frame(pull_fields(queueId="12", queueOffset="345", commitOffset="67"))
    decode_frame(good)
    for end in range(35, len(good)):
        header_size = max(end - 8, 0)
        fields_size = max(header_size - 21, 0)
        cut = bytearray(good[:end])
        cut[:8] = (end - 4).to_bytes(4, "big") + (1 << 24 | header_size).to_bytes(4, "big")
        cut[25:29] = fields_size.to_bytes(4, "big")
        assert outcome(bytes(cut)) == same_parsed(bytes(cut))


def test_the_series_are_bounded_in_bytes(traced: Callable[[], int]) -> None:
    cache = PullSeriesCache(size_max=100_000)
    before = traced()
    kept = []
    for number in range(300):
        fields = pull_fields(topic=f"T{number:04}", expressionType="x" * 100)
        block = encode_ext_fields(fields)
        cache.remember(block, 0, len(block), fields)
        assert cache.find(block, 0, len(block)) == fields
        assert cache.size <= 100_000
        kept.append(len(cache))
    assert traced() - before < 2 * 100_000
    assert max(kept) < 40


def test_a_large_header_and_one_without_the_three_fields_are_not_cached() -> None:
    cache = PullSeriesCache()
    for fields in (
        pull_fields(subscription="x" * FIELDS_SIZE_MAX),
        {"queueId": "1"},
        {"queueOffset": "1", "queueId": "1", "commitOffset": "1"},
        {},
    ):
        block = encode_ext_fields(fields)
        cache.remember(block, 0, len(block), fields)
        assert cache.find(block, 0, len(block)) is None
    assert (len(cache), cache.size) == (0, 0)
