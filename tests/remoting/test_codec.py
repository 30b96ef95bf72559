"""RemotingCommand and its frames."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.remoting.codec import (
    EXT_FIELDS_MAX,
    FRAME_SIZE_MAX,
    NO_EXT_FIELDS,
    FrameDecoder,
    RemotingCommand,
    SerializeType,
    decode_frame,
    encode,
    encode_head,
)
from trocket.remoting.errors import LocalProtocolError, RemoteProtocolError

INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
FIELDS = st.dictionaries(TEXT, TEXT, max_size=8)
COMMANDS = st.builds(
    RemotingCommand,
    code=INT16,
    ext_fields=st.one_of(st.just(NO_EXT_FIELDS), FIELDS.filter(bool)),
    body=st.binary(max_size=200),
    remark=st.one_of(st.none(), TEXT.filter(bool)),
    opaque=INT32,
    flag=st.integers(0, 3),
    language=st.integers(0, 12),
    version=INT16,
    serialize_type=st.sampled_from([0, 1]),
)
GOLDEN_FILES = (
    "json-5.5.0",
    "json-4.9.7",
    "rocketmq-5.5.0",
    "rocketmq-4.9.7",
    "register-5.5.0",
    "register-4.9.7",
    "register-compressed-rejected-5.5.0",
)


def same_frame(ours: bytes, theirs: bytes) -> bool:
    """Equal bytes; of a JSON header only the order of the members may differ."""
    if theirs[4] == SerializeType.ROCKETMQ:
        return ours == theirs
    size = int.from_bytes(theirs[5:8], "big")
    return (
        ours[:8] == theirs[:8]
        and json.loads(ours[8 : 8 + size]) == json.loads(theirs[8 : 8 + size])
        and ours[8 + size :] == theirs[8 + size :]
    )


def frame_of(header: bytes, body: bytes = b"", serialize_type: int = 0) -> bytes:
    mark = serialize_type << 24 | len(header)
    return (
        (4 + len(header) + len(body)).to_bytes(4, "big") + mark.to_bytes(4, "big") + header + body
    )


@pytest.mark.parametrize("name", GOLDEN_FILES)
def test_recorded_frames_decode_to_their_fields_and_encode_to_their_bytes(
    golden: Path, name: str
) -> None:
    seen = 0
    for line in (golden / "wire" / f"{name}.jsonl").read_text().splitlines():
        record = json.loads(line)
        frame = bytes.fromhex(record["frame_hex"])
        command = decode_frame(frame)
        text = json.loads(record["header_text"])
        assert command.opaque == text["opaque"]
        assert command.flag == text["flag"]
        assert command.version == text["version"]
        assert command.remark == text.get("remark")
        assert dict(command.ext_fields) == (text.get("extFields") or {})
        assert command.code in (text["code"], (text["code"] & 0xFFFF ^ 0x8000) - 0x8000)
        assert len(command.body) == record["body_len"]
        assert same_frame(encode(command), frame), record
        seen += 1
    assert seen > 0


@pytest.mark.parametrize("name", ["json-5.5.0", "rocketmq-4.9.7"])
def test_recorded_frames_give_the_same_commands_however_they_are_cut(
    golden: Path, name: str
) -> None:
    lines = (golden / "wire" / f"{name}.jsonl").read_text().splitlines()[:40]
    frames = [bytes.fromhex(json.loads(line)["frame_hex"]) for line in lines]
    expected = [decode_frame(frame) for frame in frames]
    data = b"".join(frames)
    for step in (1, 7, 4096, len(data)):
        decoder = FrameDecoder()
        got = []
        for start in range(0, len(data), step):
            got += decoder.receive_data(data[start : start + step])
        assert decoder.error is None
        assert decoder.partial_size == 0
        assert got == expected


@given(COMMANDS)
def test_decoding_what_was_encoded_gives_the_same_command(command: RemotingCommand) -> None:
    assert decode_frame(encode(command)) == command


@given(st.lists(COMMANDS, min_size=1, max_size=4), st.data())
def test_whole_and_byte_by_byte_and_cut_anywhere_are_the_same(
    commands: list[RemotingCommand], data: st.DataObject
) -> None:
    stream = b"".join(map(encode, commands)) + b"\0\0\0"
    cut = data.draw(st.integers(0, len(stream)))
    whole, halves, bytewise = FrameDecoder(), FrameDecoder(), FrameDecoder()
    assert whole.receive_data(stream) == commands
    assert halves.receive_data(stream[:cut]) + halves.receive_data(stream[cut:]) == commands
    got = []
    for byte in stream:
        got += bytewise.receive_data(bytes([byte]))
    assert got == commands
    assert whole.partial_size == halves.partial_size == bytewise.partial_size == 3


@given(st.binary(max_size=300))
def test_any_bytes_give_commands_or_the_documented_error(data: bytes) -> None:
    decoder = FrameDecoder()
    decoder.receive_data(data)
    assert decoder.error is None or isinstance(decoder.error, RemoteProtocolError)


@given(COMMANDS, st.data())
def test_a_changed_byte_gives_a_command_or_the_documented_error(
    command: RemotingCommand, data: st.DataObject
) -> None:
    frame = bytearray(encode(command))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    decoder = FrameDecoder()
    decoder.receive_data(bytes(frame))
    assert decoder.error is None or isinstance(decoder.error, RemoteProtocolError)


def test_headers_of_one_size_but_other_places_are_not_mixed_up() -> None:
    # The layout of the first is remembered; the second has the same size and other bounds.
    first = RemotingCommand(310, {"a": "12", "b": "3"}, serialize_type=1)
    second = RemotingCommand(310, {"a": "1", "b": "23"}, serialize_type=1)
    third = RemotingCommand(310, {"c": "12", "b": "3"}, serialize_type=1)
    for command in (first, second, first, third, second):
        assert decode_frame(encode(command)).ext_fields == command.ext_fields


def test_non_ascii_fields_survive_a_remembered_layout() -> None:
    plain = RemotingCommand(310, {"i": "abcdef"}, serialize_type=1)
    accented = RemotingCommand(310, {"i": "éèà"}, serialize_type=1)
    for command in (plain, accented, plain, accented):
        assert decode_frame(encode(command)) == command


def test_a_binary_code_keeps_only_its_low_16_bits() -> None:
    # As with Apache's peers: pop's 200050 arrives as 3442.
    assert decode_frame(encode(RemotingCommand(200_050, serialize_type=1))).code == 3442
    assert decode_frame(encode(RemotingCommand(200_050, serialize_type=0))).code == 200_050


def test_an_empty_ext_fields_object_is_kept_apart_from_none() -> None:
    assert decode_frame(frame_of(b'{"code":1,"extFields":{}}')).ext_fields is not NO_EXT_FIELDS
    assert decode_frame(frame_of(b'{"code":1}')).ext_fields is NO_EXT_FIELDS
    assert decode_frame(frame_of(b'{"code":1,"extFields":null}')).ext_fields is NO_EXT_FIELDS


def test_what_only_fastjson_reads_is_read() -> None:
    command = decode_frame(
        frame_of(b'{code:34,"extFields":{"n":7,"b":true,"none":null},"language":"GO","opaque":3}')
    )
    assert command.code == 34
    assert command.opaque == 3
    assert command.ext_fields == {"n": "7", "b": "true"}


BAD = [
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS handshake", id="tls"),
    pytest.param(b"GET / HTTP/1.1\r\n", "HTTP", id="http"),
    pytest.param(b"PROXY TCP4 1.2.3.4", "PROXY protocol", id="proxy"),
    pytest.param(b"\xff\xff\xff\xff\0\0\0\0", "frame length -1", id="negative"),
    pytest.param(b"\0\0\0\3\0\0\0\0", "frame length 3", id="too short"),
    pytest.param((FRAME_SIZE_MAX + 1).to_bytes(4, "big") + bytes(4), "16777217", id="too long"),
    pytest.param(b"\0\0\0\x10\0\0\0\x0d", "header length 13", id="header past frame"),
    pytest.param(
        b"\0\x7f\0\0\0\x70\0\0", "header of 7340032 bytes, the limit is", id="header too large"
    ),
    pytest.param(frame_of(b"{}", serialize_type=7), "serialization 7", id="serialize type"),
    pytest.param(frame_of(b"{"), "JSON header", id="cut json"),
    pytest.param(frame_of(b"[1]"), "JSON header", id="not an object"),
    pytest.param(frame_of(b'{"code":"x"}'), "JSON header", id="code is text"),
    pytest.param(
        frame_of(b'{"code":1,"extFields":[1]}'), "extFields is [1], not an object", id="list"
    ),
    pytest.param(frame_of(b"\0" * 20, serialize_type=1), "cut short", id="short binary"),
    pytest.param(
        frame_of(b"\0\x0a\0\0\0" + bytes(8) + b"\x7f\0\0\0" + bytes(4), serialize_type=1),
        "remark length",
        id="remark past end",
    ),
    pytest.param(
        frame_of(b"\0\x0a\0\0\0" + bytes(12) + b"\0\0\0\x09" + b"a", serialize_type=1),
        "extFields length",
        id="fields past end",
    ),
    pytest.param(
        frame_of(
            b"\0\x0a\0\0\0" + bytes(12) + b"\0\0\0\x08" + b"\0\1a\x7f\0\0\0x", serialize_type=1
        ),
        "value length",
        id="value past end",
    ),
    pytest.param(
        frame_of(b"\0\x0a\0\0\0" + bytes(12) + b"\0\0\0\x03" + b"\0\x7fa", serialize_type=1),
        "name passes",
        id="name past end",
    ),
    pytest.param(
        frame_of(b"\0\x0a\0\0\0" + bytes(12) + b"\0\0\0\x01" + b"\0", serialize_type=1),
        "name passes",
        id="one byte of fields",
    ),
]


@pytest.mark.parametrize(("data", "words"), BAD)
def test_bad_bytes_are_refused_in_words_after_the_good_frames_before_them(
    data: bytes, words: str
) -> None:
    good = RemotingCommand(34, {"a": "b"}, opaque=9)
    decoder = FrameDecoder()
    assert decoder.receive_data(encode(good) + data) == [good]
    assert decoder.error is not None
    assert words in str(decoder.error)
    assert decoder.receive_data(encode(good)) == []


def test_a_length_out_of_range_is_seen_with_its_fourth_byte() -> None:
    decoder = FrameDecoder()
    decoder.receive_data(b"GET")
    assert decoder.error is None
    decoder.receive_data(b" ")
    assert decoder.error is not None


def test_too_many_fields_are_refused() -> None:
    fields = {f"f{n}": "" for n in range(EXT_FIELDS_MAX + 1)}
    decoder = FrameDecoder()
    decoder.receive_data(encode(RemotingCommand(1, fields, serialize_type=1)))
    assert "more than" in str(decoder.error)


def test_the_frame_limit_can_be_lowered() -> None:
    decoder = FrameDecoder(frame_size_max=100)
    decoder.receive_data(encode(RemotingCommand(1, body=bytes(200))))
    assert decoder.error is not None


def test_two_frames_are_not_exactly_one() -> None:
    frame = encode(RemotingCommand(1))
    for data in (frame * 2, frame + b"x", frame[:-1], b""):
        with pytest.raises(RemoteProtocolError):
            decode_frame(data)


def test_what_does_not_fit_the_protocol_is_our_error() -> None:
    with pytest.raises(LocalProtocolError):
        encode(RemotingCommand(1, serialize_type=2))
    with pytest.raises(LocalProtocolError):
        encode(RemotingCommand(1, {"x" * 40_000: ""}, serialize_type=1))
    with pytest.raises(LocalProtocolError):
        encode_head(RemotingCommand(1), 2**31)


def test_an_answer_takes_its_requests_opaque_and_serialization() -> None:
    request = RemotingCommand(310, opaque=77, serialize_type=1)
    answer = request.answer(17, "no topic", {"a": "b"}, b"body")
    assert (answer.opaque, answer.serialize_type) == (77, 1)
    assert answer.is_response
    assert not answer.is_oneway
    assert not request.is_response
