"""Messages of controller mode in any pieces, as recorded, and what no peer of ours sends."""

from __future__ import annotations

import contextlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.remoting.errors import RemoteProtocolError
from trocket.store.config import HA_BATCH_SIZE_MAX
from trocket.store.ha.epoch_wire import (
    EPOCHS_MAX,
    EXTENDED,
    EpochFrame,
    EpochFrameDecoder,
    EpochList,
    EpochWordDecoder,
    Handshake,
    encode_answer,
    encode_epoch_header,
    encode_epoch_list,
    encode_epoch_report,
    encode_handshake,
    encode_question,
)
from trocket.store.ha.epochs import Epochs
from trocket.store.ha.wire import CHECKSUM, NO_CHECKSUM, READY, REFUSED, Question

from .test_wire import pieces_of

OFFSETS = st.integers(0, 2**62)
NUMBERS = st.integers(0, 2**31 - 1)
ANY_INT64 = st.integers(-(2**63), 2**63 - 1)
ANY_INT32 = st.integers(-(2**31), 2**31 - 1)
ANSWERS = st.builds(
    lambda value, kind, epoch: EpochFrame(value, kind, b"", epoch),
    OFFSETS,
    st.sampled_from([READY, REFUSED]),
    NUMBERS,
) | st.builds(
    lambda checksum: EpochFrame(checksum, CHECKSUM, b""),
    st.just(NO_CHECKSUM) | st.integers(0, 2**32 - 1),
)
FRAMES = st.tuples(
    st.binary(max_size=40), NUMBERS, OFFSETS, st.integers(-1, 2**62), st.integers(0, 40)
)
WORDS = OFFSETS | st.builds(Question, ANY_INT64, ANY_INT64)
HANDSHAKES = st.builds(Handshake, ANY_INT64, st.booleans(), st.booleans(), st.booleans())


@st.composite
def epoch_lists(draw):
    numbers = sorted(draw(st.sets(NUMBERS, max_size=5)))
    starts = sorted(draw(OFFSETS) for _ in numbers)
    end = (starts[-1] if starts else 0) + draw(st.integers(0, 1000))
    return EpochList(end, Epochs(zip(numbers, starts, strict=True)))


def frame_of(body, epoch, start, confirm, lead):
    """A valid frame: its epoch begins at most at its end."""
    offset = max(start + lead - len(body), 0)
    return EpochFrame(offset, 0, body, epoch, min(start, offset + len(body)), confirm)


def message_bytes(message):
    match message:
        case EpochList(end, epochs):
            return encode_epoch_list(end, epochs)
        case EpochFrame(offset, 0, body, epoch, start, confirm):
            return encode_epoch_header(offset, len(body), epoch, start, confirm) + bytes(body)
        case EpochFrame(value, kind, _, epoch):
            return encode_answer(value, kind, epoch)
        case Handshake():
            return encode_handshake(message)
        case Question():
            return encode_question(message)
        case _:
            return encode_epoch_report(message)


def put_together(messages, sent):
    """Frames whose bodies came in pieces, in the sizes in which they were sent."""
    whole, rest = [], iter(messages)
    for expected in sent:
        got = next(rest)
        while len(getattr(got, "body", b"")) < len(getattr(expected, "body", b"")):
            piece = next(rest)
            assert piece.offset == got.offset + len(got.body)
            got = got._replace(body=bytes(got.body) + bytes(piece.body))
        whole.append(got)
    assert not list(rest)
    return whole


@given(
    st.lists(ANSWERS, max_size=1),
    epoch_lists(),
    st.lists(st.builds(lambda parts: frame_of(*parts), FRAMES) | ANSWERS, max_size=6),
    st.lists(st.integers(0), max_size=8),
)
def test_messages_of_a_master_come_out_as_they_went_in(ready, epochs, frames, cuts):
    sent = [*ready, epochs, *frames]
    decoder = EpochFrameDecoder(with_answers=True)
    found = []
    for piece in pieces_of(b"".join(map(message_bytes, sent)), cuts):
        found += decoder.feed(piece)
    assert put_together(found, sent) == sent
    assert decoder.partial_size == 0


@given(HANDSHAKES, st.lists(WORDS, max_size=6), st.lists(st.integers(0), max_size=8))
def test_messages_of_a_slave_come_out_as_they_went_in(handshake, words, cuts):
    if handshake.sync_from_last_file and handshake.is_async_learner:
        handshake = handshake._replace(can_ask=False)
    if not handshake.can_ask:
        words = [word for word in words if isinstance(word, int)]
    decoder = EpochWordDecoder()
    found = []
    for piece in pieces_of(b"".join(map(message_bytes, [handshake, *words])), cuts):
        found += decoder.feed(piece)
    assert found == [handshake, *words]
    assert decoder.partial_size == 0


# ---- recordings --------------------------------------------------------------------------


def recorded(golden, name, direction):
    for line in (golden / "controller" / name).read_text().splitlines():
        record = json.loads(line)
        if record["dir"] == direction:
            yield bytes.fromhex(record["hex"])


def whole_again(messages):
    return b"".join(map(message_bytes, messages))


@pytest.mark.parametrize("name", ["startup_ha.jsonl", "switch_ha.jsonl"])
def test_recorded_streams_of_slaves_come_back_the_same(golden, name):
    streams = list(recorded(golden, name, "slave->master"))
    assert streams
    for stream in streams:
        decoder = EpochWordDecoder()
        words = list(decoder.feed(stream))
        assert decoder.partial_size == 0
        assert whole_again(words) == stream
        assert isinstance(words[0], Handshake)
        assert words[1:] == sorted(words[1:])


@pytest.mark.parametrize("name", ["startup_ha.jsonl", "switch_ha.jsonl"])
def test_recorded_streams_of_masters_come_back_the_same(golden, name):
    streams = list(recorded(golden, name, "master->slave"))
    assert streams
    for stream in streams:
        decoder = EpochFrameDecoder(with_answers=False)
        messages = decoder.feed(stream)
        assert messages[0].epochs
        # Of a long stream the recording has the first bytes only, and its last frame may be a part.
        again = whole_again(messages[:-1])
        assert stream.startswith(again)
        assert len(stream) - len(again) <= 36 + 32768


def test_the_recorded_startup_is_understood(golden):
    words = list(
        EpochWordDecoder().feed(next(recorded(golden, "startup_ha.jsonl", "slave->master")))
    )
    assert words[:3] == [Handshake(2), 0, 0]
    stream = next(recorded(golden, "startup_ha.jsonl", "master->slave"))
    epochs, heartbeat, *_ = EpochFrameDecoder(with_answers=False).feed(stream)
    assert epochs == EpochList(0, Epochs([(1, 0)]))
    assert heartbeat[:5] == (-1, 0, b"", 1, 0)


def test_the_recorded_switch_is_understood(golden):
    slave = [
        list(EpochWordDecoder().feed(stream))
        for stream in recorded(golden, "switch_ha.jsonl", "slave->master")
    ]
    master = [
        EpochFrameDecoder(with_answers=False).feed(stream)
        for stream in recorded(golden, "switch_ha.jsonl", "master->slave")
    ]
    assert [Handshake(1), 0xFB1E2] in [words[:2] for words in slave]
    assert EpochList(0x1F4627, Epochs([(1, 0), (2, 0xFB1E2)])) in [found[0] for found in master]


# ---- what no peer of ours sends ----------------------------------------------------------

LIST = encode_epoch_list(100, Epochs([(1, 0)]))


def list_bytes(entries, end=1 << 40, size=None):
    body = b"".join(struct.pack(">iq", *entry) for entry in entries)
    return struct.pack(">iiqi", 1, len(body) if size is None else size, end, 1) + body


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(list_bytes([], size=12 * 1001), "12012 bytes", id="1,001 epochs"),
        pytest.param(list_bytes([], size=2**31 - 12), "at most 1000", id="an endless list"),
        pytest.param(list_bytes([], size=-12), "of -12 bytes", id="a negative list"),
        pytest.param(list_bytes([], size=13), "of 13 bytes", id="part of an epoch"),
        pytest.param(list_bytes([(2, 0), (1, 5)]), "not in order", id="numbers fall"),
        pytest.param(list_bytes([(1, 0), (1, 5)]), "not in order", id="a number twice"),
        pytest.param(list_bytes([(1, 9), (2, 5)]), "not in order", id="starts fall"),
        pytest.param(list_bytes([(1, -1)]), "not in order", id="a negative start"),
        pytest.param(list_bytes([(-1, 0)]), "not in order", id="a negative number"),
        pytest.param(list_bytes([(1, 0), (2, 101)], end=100), "log ends at 100", id="a late start"),
        pytest.param(list_bytes([], end=-1), "ends at -1", id="a negative end"),
        pytest.param(struct.pack(">q", 5), "state 0 at the begin", id="the default mode"),
        pytest.param(encode_epoch_header(0, 0, 1, 0, 0), "state 2 at", id="no list"),
        pytest.param(LIST + LIST, "state 1 after", id="two lists"),
        pytest.param(LIST + struct.pack(">i", 3), "state 3", id="suspend"),
        pytest.param(LIST + struct.pack(">i", 4), "state 4", id="shutdown"),
        pytest.param(struct.pack(">i", 5), "state 5", id="no state"),
        pytest.param(struct.pack(">i", -4), "state -4", id="an unknown answer"),
        pytest.param(struct.pack(">iiqi", READY, 1, 0, 0), "an answer", id="an answer with a body"),
        pytest.param(struct.pack(">iiqi", REFUSED, 0, -1, 0), "an answer", id="a negative answer"),
        pytest.param(
            LIST + encode_epoch_header(0, HA_BATCH_SIZE_MAX + 1, 1, 0, 0), "at most", id="too large"
        ),
        pytest.param(LIST + encode_epoch_header(0, -1, 1, 0, 0), "of -1 bytes", id="negative"),
        pytest.param(LIST + encode_epoch_header(-1, 5, 1, 0, 0), "offset -1", id="before 0"),
        pytest.param(LIST + encode_epoch_header(-2, 0, 1, 0, 0), "offset -2", id="heartbeat at -2"),
        pytest.param(LIST + encode_epoch_header(0, 0, 1, 0, -2), "up to -2", id="confirmed -2"),
        pytest.param(LIST + encode_epoch_header(0, 0, -1, 0, 0), "epoch -1", id="epoch -1"),
        pytest.param(LIST + encode_epoch_header(9, 5, 1, 15, 0), "offset 15", id="epoch too late"),
        pytest.param(LIST + encode_epoch_header(9, 5, 1, -1, 0), "offset -1", id="epoch start -1"),
    ],
)
def test_what_no_master_sends_is_refused_before_its_body_is_waited_for(data, why):
    decoder = EpochFrameDecoder(with_answers=True)
    with pytest.raises(RemoteProtocolError, match=why):
        decoder.feed(data)


def test_an_answer_that_was_not_asked_for_is_refused():
    with pytest.raises(RemoteProtocolError, match="state -1"):
        EpochFrameDecoder(with_answers=False).feed(encode_answer(0, READY))


def test_the_longest_list_and_the_largest_frame_are_taken():
    epochs = Epochs((number, number * 10) for number in range(EPOCHS_MAX))
    decoder = EpochFrameDecoder(with_answers=False)
    assert decoder.feed(encode_epoch_list(1 << 20, epochs)) == [EpochList(1 << 20, epochs)]
    body = bytes(HA_BATCH_SIZE_MAX)
    header = encode_epoch_header(0, len(body), 1, 0, 0)
    assert decoder.feed(header + body) == [EpochFrame(0, 0, body, 1, 0, 0)]


def test_of_a_longer_list_the_newest_epochs_are_sent():
    epochs = Epochs((number, number * 10) for number in range(EPOCHS_MAX + 5))
    (sent,) = EpochFrameDecoder(with_answers=False).feed(encode_epoch_list(1 << 20, epochs))
    assert len(sent.epochs) == EPOCHS_MAX
    assert list(sent.epochs) == list(epochs)[5:]


HANDSHAKE = encode_handshake(Handshake(2))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(encode_epoch_report(0), "state 2 and not", id="no handshake"),
        pytest.param(struct.pack(">q", 5), "enableControllerMode", id="the default mode"),
        pytest.param(struct.pack(">q", -1), "state -1 and not", id="the default mode's hello"),
        pytest.param(bytes.fromhex("16030101"), "speaks TLS", id="TLS"),
        pytest.param(HANDSHAKE + HANDSHAKE, "state 1 after", id="two handshakes"),
        pytest.param(HANDSHAKE + encode_epoch_report(-1), "a report of -1", id="a negative report"),
        pytest.param(HANDSHAKE + encode_question(Question(0, 1)), "state -2", id="a question"),
        pytest.param(HANDSHAKE + struct.pack(">i", 0), "state 0", id="ready"),
        pytest.param(HANDSHAKE + struct.pack(">i", 4), "state 4", id="shutdown"),
        pytest.param(HANDSHAKE + struct.pack(">i", 2**31 - 1), "state 2147483647", id="no state"),
    ],
)
def test_what_no_slave_says_is_refused(data, why):
    with pytest.raises(RemoteProtocolError, match=why):
        list(EpochWordDecoder().feed(data))


def test_half_a_handshake_is_waited_for():
    decoder = EpochWordDecoder()
    assert list(decoder.feed(HANDSHAKE[:12])) == []
    assert decoder.partial_size == 12
    assert list(decoder.feed(HANDSHAKE[12:])) == [Handshake(2)]


def test_the_extension_is_a_flag_that_apaches_master_takes_for_0():
    offered = encode_handshake(Handshake(3, can_ask=True))
    assert offered.hex() == "00000001000200020000000000000003"
    assert encode_handshake(Handshake(3, True, can_ask=True)).hex()[8:16] == "00010002"
    assert encode_handshake(Handshake(3, True, True, can_ask=True)).hex()[8:16] == "00010001"
    assert EXTENDED not in (0, 1)


@given(st.lists(st.binary(max_size=64), max_size=8), st.booleans(), st.booleans())
def test_any_bytes_are_messages_or_the_one_documented_error(pieces, with_answers, with_list):
    decoder = EpochFrameDecoder(body_size_max=1000, with_answers=with_answers)
    with contextlib.suppress(RemoteProtocolError):
        for piece in [LIST] * with_list + pieces:
            for message in decoder.feed(piece):
                assert isinstance(message, EpochList) or len(message.body) <= 1000
            assert decoder.partial_size < 20 + 12 * EPOCHS_MAX


@given(st.lists(st.tuples(st.integers(-4, 5), *[ANY_INT32] * 8), max_size=6))
def test_any_numbers_are_messages_or_the_one_documented_error(rows):
    decoder = EpochFrameDecoder(body_size_max=1000, with_answers=True)
    with contextlib.suppress(RemoteProtocolError):
        for row in rows:
            for message in decoder.feed(struct.pack(">9i", *row)):
                assert not isinstance(message, EpochFrame) or message.epoch_start >= 0


@given(st.lists(st.binary(max_size=64), max_size=8), st.booleans())
def test_any_bytes_are_words_or_the_one_documented_error(pieces, with_handshake):
    decoder = EpochWordDecoder()
    with contextlib.suppress(RemoteProtocolError):
        for piece in [encode_handshake(Handshake(2, can_ask=True))] * with_handshake + pieces:
            for word in decoder.feed(piece):
                assert not isinstance(word, int) or word >= 0
            assert decoder.partial_size < 20
