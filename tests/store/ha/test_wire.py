"""Frames and words, in any pieces, and what no peer of ours sends."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.remoting.errors import RemoteProtocolError
from trocket.store.config import HA_BATCH_SIZE_MAX
from trocket.store.ha.wire import (
    CHECKSUM,
    HELLO,
    NO_CHECKSUM,
    READY,
    REFUSED,
    Frame,
    FrameDecoder,
    Hello,
    Identity,
    Question,
    WordDecoder,
    encode_header,
    encode_report,
    encode_words,
)

OFFSETS = st.integers(0, 2**63 - 1)
ANSWERS = st.builds(Frame, OFFSETS, st.sampled_from([READY, REFUSED]), st.just(b"")) | st.builds(
    Frame, st.just(NO_CHECKSUM) | st.integers(0, 2**32 - 1), st.just(CHECKSUM), st.just(b"")
)
FRAMES = st.builds(Frame, OFFSETS, st.just(0), st.binary(max_size=40)) | ANSWERS
ANY_INT64 = st.integers(-(2**63), 2**63 - 1)
WORDS = OFFSETS | st.builds(Question, ANY_INT64, ANY_INT64) | st.builds(Identity, ANY_INT64)


def frame_bytes(frame):
    return encode_header(frame.offset, frame.kind or len(frame.body)) + frame.body


def put_together(frames):
    """Frames whose bodies came in pieces, as they were sent."""
    whole = []
    for frame in frames:
        last = whole[-1] if whole else None
        if last and last.body and frame.body and frame.offset == last.offset + len(last.body):
            whole[-1] = last._replace(body=bytes(last.body) + bytes(frame.body))
        else:
            whole.append(frame)
    return whole


def apart(frames):
    """Frames no two of which could be one."""
    offset, found = 0, []
    for frame in frames:
        found.append(frame if frame.kind else frame._replace(offset=offset))
        offset += len(frame.body) + 1
    return found


def pieces_of(data, cuts):
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(edges)]


def test_a_header_and_a_report_are_apaches_bytes():
    """Recorded: the first frame to an empty slave of 5.5.0, and a heartbeat's report."""
    assert encode_header(0, 32768).hex() == "000000000000000000008000"
    assert encode_header(0x35AAC, 0).hex() == "0000000000035aac00000000"
    assert encode_report(0x35AAC).hex() == "0000000000035aac"


@given(st.lists(FRAMES, max_size=6), st.lists(st.integers(0), max_size=8))
def test_frames_come_out_as_they_went_in_whatever_the_pieces(frames, cuts):
    frames = apart(frames)
    decoder = FrameDecoder(with_answers=True)
    found = []
    for piece in pieces_of(b"".join(map(frame_bytes, frames)), cuts):
        found += decoder.feed(piece)
    assert put_together(found) == frames
    assert decoder.partial_size == 0


@given(st.lists(WORDS, max_size=6), st.lists(st.integers(0), max_size=8), st.booleans())
def test_words_come_out_as_they_went_in_whatever_the_pieces(words, cuts, can_ask):
    if can_ask:
        words = [Hello(), *words]
    else:
        words = [word for word in words if isinstance(word, int)]
    decoder = WordDecoder()
    found = []
    for piece in pieces_of(encode_words(*words), cuts):
        found += decoder.feed(piece)
    assert found == words
    assert decoder.partial_size == 0


@pytest.mark.parametrize("cut", range(12 + 5 + 12))
def test_of_a_frame_there_is_what_has_come(cut):
    decoder = FrameDecoder(with_answers=False)
    data = encode_header(7, 5) + b"hello" + encode_header(12, 0)
    found = decoder.feed(data[:cut])
    assert b"".join(frame.body for frame in found) == b"hello"[: max(cut - 12, 0)]
    assert decoder.partial_size == (cut if cut < 12 else max(cut - 17, 0))
    found += decoder.feed(data[cut:])
    assert put_together(found) == [Frame(7, 0, b"hello"), Frame(12, 0, b"")]
    assert [frame.offset for frame in found[:-1]] == [7, cut - 5][: 1 + (12 < cut < 17)]


@pytest.mark.parametrize(
    ("offset", "size", "with_answers"),
    [
        (0, HA_BATCH_SIZE_MAX + 1, True),
        (0, 2**31 - 1, True),
        (0, -(2**31), True),
        (0, -4, True),
        (0, READY, False),
        (-1, 0, True),
        (-1, 10, True),
        (-(2**63), READY, True),
    ],
)
def test_a_header_that_no_master_sends_is_refused_before_its_body_is_waited_for(
    offset, size, with_answers
):
    decoder = FrameDecoder(with_answers=with_answers)
    with pytest.raises(RemoteProtocolError, match="a frame"):
        decoder.feed(struct.pack(">qi", offset, size))


def test_the_largest_frame_is_taken():
    decoder = FrameDecoder(with_answers=False)
    body = bytes(HA_BATCH_SIZE_MAX)
    assert decoder.feed(encode_header(0, len(body)) + body) == [Frame(0, 0, body)]


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param((-2, 0, 10), id="a question without hello"),
        pytest.param((-3, 5), id="an identity without hello"),
        pytest.param((0, HELLO), id="hello after a report"),
        pytest.param((HELLO, HELLO), id="hello twice"),
        pytest.param((HELLO, -4), id="unknown"),
        pytest.param((-(2**63),), id="the least number"),
    ],
)
def test_what_no_slave_says_is_refused(numbers):
    decoder = WordDecoder()
    with pytest.raises(RemoteProtocolError, match="a report of -"):
        list(decoder.feed(struct.pack(f">{len(numbers)}q", *numbers)))


def test_a_question_waits_for_its_numbers():
    decoder = WordDecoder()
    data = encode_words(Hello(), Question(3, 9), 5)
    assert list(decoder.feed(data[:31])) == [Hello()]
    assert decoder.partial_size == 23
    assert list(decoder.feed(data[31:])) == [Question(3, 9), 5]


@given(st.lists(st.binary(max_size=64), max_size=8), st.booleans())
def test_any_bytes_are_frames_or_the_one_documented_error(pieces, with_answers):
    decoder = FrameDecoder(body_size_max=1000, with_answers=with_answers)
    try:
        for piece in pieces:
            for frame in decoder.feed(piece):
                assert len(frame.body) <= 1000
            assert decoder.partial_size < 12
    except RemoteProtocolError:
        pass


@given(st.lists(st.binary(max_size=64), max_size=8))
def test_any_bytes_are_words_or_the_one_documented_error(pieces):
    decoder = WordDecoder()
    try:
        for piece in pieces:
            for word in decoder.feed(piece):
                assert not isinstance(word, int) or word >= 0
            assert decoder.partial_size < 24
    except RemoteProtocolError:
        pass


@given(st.lists(ANY_INT64, min_size=1, max_size=8))
def test_any_numbers_are_words_or_the_one_documented_error(numbers):
    """Most of them after a hello, so that questions are reached."""
    decoder = WordDecoder()
    try:
        words = list(decoder.feed(struct.pack(f">{len(numbers) + 1}q", HELLO, *numbers)))
    except RemoteProtocolError:
        return
    assert words[0] == Hello()
