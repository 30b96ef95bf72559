"""Frames decoded by the C extension and by pure Python are equal, whatever the bytes."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket import native
from trocket.remoting import codec
from trocket.remoting.codec import (
    NO_EXT_FIELDS,
    FrameDecoder,
    RemotingCommand,
    encode,
)
from trocket.remoting.pull_fields import PullFields

from .frames import odd_json_frame

pytestmark = pytest.mark.skipif(native.extension is None, reason=native.choice.description)

TEXTS = st.text(max_size=80) | st.sampled_from(["", "0", "a", "topic", "x" * 64, "y" * 65])
NAMES = st.text(max_size=50) | st.sampled_from([*"abcdefghijkl", "topic", "n" * 41])
INT32 = st.integers(-(2**31), 2**31 - 1)

commands = st.builds(
    RemotingCommand,
    code=st.integers(-(2**15), 2**15 - 1) | st.sampled_from([10, 11, 310]),
    ext_fields=st.dictionaries(NAMES, TEXTS, min_size=1) | st.just(NO_EXT_FIELDS),
    body=st.binary(max_size=100),
    remark=st.none() | st.text(max_size=5),
    opaque=INT32,
    flag=INT32,
    language=st.integers(0, 255),
    version=st.integers(-(2**15), 2**15 - 1),
    serialize_type=st.sampled_from([0, 0, 1, 1]),
)


@dataclass
class Decoded:
    """What came out of a decoder that was fed with two pieces."""

    commands: list[RemotingCommand]
    error: str | None
    partial_size: int


def decoded(data: bytes, cut: int, native_too: bool, monkeypatch: pytest.MonkeyPatch) -> Decoded:
    with monkeypatch.context() as patch:
        extension = native.extension if native_too else None
        patch.setattr(codec, "_decode_usual", codec.usual_frames(extension))
        decoder = FrameDecoder(frame_size_max=1000)
        found = decoder.receive_data(data[:cut]) + decoder.receive_data(data[cut:])
    error = decoder.error
    text = None if error is None else f"{error.position} {error.reason}"
    return Decoded(found, text, decoder.partial_size)


def assert_equal(data: bytes, cut: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        pure, c = decoded(data, cut, False, patch), decoded(data, cut, True, patch)
    assert c == pure
    for ours, theirs in zip(c.commands, pure.commands, strict=True):
        assert (ours.ext_fields is NO_EXT_FIELDS) == (theirs.ext_fields is NO_EXT_FIELDS)
        assert list(ours.ext_fields.items()) == list(theirs.ext_fields.items())


@given(st.lists(commands, max_size=4), st.integers(0, 300))
def test_whole_frames_in_two_pieces(sent: list[RemotingCommand], cut: int) -> None:
    data = b"".join(map(encode, sent))
    assert_equal(data, cut)


@given(st.integers(0, 2**32), st.dictionaries(NAMES, TEXTS, max_size=6), INT32, INT32)
def test_json_headers_in_odd_forms(
    seed: int, fields: dict[str, str], opaque: int, flag: int
) -> None:
    random = Random(seed)
    frames = [
        odd_json_frame(
            random, random.choice((34, 37, 310, 0)), fields, b"b", opaque=opaque, flag=flag
        )
        for _ in range(3)
    ]
    assert_equal(b"".join(frames), random.randrange(300))


@pytest.mark.slow
@given(st.lists(commands, min_size=1, max_size=3), st.data())
def test_frames_with_changed_bytes(sent: list[RemotingCommand], choices: st.DataObject) -> None:
    data = bytearray(b"".join(map(encode, sent)))
    for _ in range(choices.draw(st.integers(1, 3))):
        at = choices.draw(st.integers(0, len(data) - 1))
        data[at] = choices.draw(st.integers(0, 255))
    assert_equal(bytes(data), choices.draw(st.integers(0, len(data))))


@given(st.lists(commands, min_size=1, max_size=3), st.data())
def test_frames_with_a_changed_length(sent: list[RemotingCommand], choices: st.DataObject) -> None:
    data = b"".join(map(encode, sent))
    at = choices.draw(st.integers(0, max(len(data) - 4, 0)))
    length = choices.draw(st.sampled_from([0, 1, 2, 3, 5, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]))
    assert_equal(data[:at] + length.to_bytes(4, "big") + data[at + 4 :], 0)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_header(header: bytes, cut: int) -> None:
    start = (len(header) + 8).to_bytes(4, "big") + (1 << 24 | len(header)).to_bytes(4, "big")
    assert_equal(start + header + b"body", cut)


def test_the_number_of_fields_is_limited_alike() -> None:
    for count in (codec.EXT_FIELDS_MAX, codec.EXT_FIELDS_MAX + 1):
        fields = {str(number): "" for number in range(count)}
        assert_equal(encode(RemotingCommand(1, fields, serialize_type=1)) * 2, 0)


def test_usual_frames_are_decoded_by_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("pure Python was asked")

    monkeypatch.setattr(codec, "_decode_usual", codec.usual_frames(native.extension))
    monkeypatch.setattr(codec, "_decode_rocketmq", refuse)
    monkeypatch.setattr(codec, "_decode_json", refuse)
    for serialize_type in (0, 1):
        sent = RemotingCommand(310, {"a": "group", "i": "KEYS\1é\2"}, b"body")
        sent.serialize_type = serialize_type
        assert FrameDecoder().receive_data(encode(sent) * 3) == [sent] * 3


def test_pulls_are_left_to_the_cache_of_their_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_decode_usual", codec.usual_frames(native.extension))
    fields = {"topic": "T", "queueId": "1", "queueOffset": "5", "x": "", "commitOffset": "5"}
    pull = encode(RemotingCommand(11, fields, serialize_type=1))
    commands = FrameDecoder().receive_data(pull * 3)
    assert [type(each.ext_fields) for each in commands][1:] == [PullFields] * 2
