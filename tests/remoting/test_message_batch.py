"""remoting/message_batch.py."""

from __future__ import annotations

import json

import construct
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.common.message_properties import properties_from_bytes, properties_to_bytes
from trocket.remoting.errors import LocalProtocolError, RemoteProtocolError
from trocket.remoting.message import Message
from trocket.remoting.message_batch import encode_batch, iter_batch

from ..constructs import BATCH_ENTRY

PLAIN = st.text("abcÄ\U0001d11e", min_size=1, max_size=5)
MESSAGES = st.lists(
    st.builds(
        Message,
        st.just("T"),
        st.binary(max_size=40),
        st.integers(-(1 << 31), (1 << 31) - 1),
        st.dictionaries(PLAIN, PLAIN, max_size=3),
    ),
    max_size=5,
)


@given(messages=MESSAGES)
def test_a_batch_survives_being_written_and_read(messages):
    entries = list(iter_batch(encode_batch(messages)))
    assert [
        Message("T", body, flag, properties_from_bytes(properties))
        for flag, body, properties in entries
    ] == messages


@given(messages=MESSAGES)
def test_a_batch_is_written_as_declared(messages):
    entries = construct.GreedyRange(BATCH_ENTRY).parse(encode_batch(messages))
    assert [(e.total_size, e.magic, e.body_crc) for e in entries] == [
        (22 + len(m.body) + len(properties_to_bytes(m.properties)), 0, 0) for m in messages
    ]
    assert [e.body for e in entries] == [m.body for m in messages]


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("serialize", ["json", "rocketmq"])
def test_batches_of_java_clients_are_read_and_written_back_to_the_same_bytes(
    golden, version, serialize
):
    count = 0
    for line in (golden / "wire" / f"{serialize}-{version}.jsonl").read_text().splitlines():
        frame = json.loads(line)
        if frame["dir"] != "request" or frame["code"] != 320:
            continue
        body = bytes.fromhex(frame["frame_hex"])[-frame["body_len"] :]
        entries = list(iter_batch(body))
        messages = [
            Message("T", text, flag, properties_from_bytes(raw)) for flag, text, raw in entries
        ]
        assert all("UNIQ_KEY" in message.properties for message in messages)
        assert [
            (e.flag, e.body, e.properties) for e in construct.GreedyRange(BATCH_ENTRY).parse(body)
        ] == entries
        # 4.9 leaves out the last separator, which is one byte per message.
        if all(raw.endswith(b"\x02") for _, _, raw in entries):
            assert encode_batch(messages) == body
        else:
            assert len(encode_batch(messages)) == len(body) + len(messages)
        count += len(entries)
    assert count >= 3


@given(data=st.data(), messages=MESSAGES.filter(bool))
def test_a_batch_cut_inside_an_entry_is_refused(data, messages):
    whole = encode_batch(messages)
    last = len(encode_batch(messages[-1:]))
    size = data.draw(st.integers(len(whole) - last + 1, len(whole) - 1))
    with pytest.raises(RemoteProtocolError) as refusal:
        list(iter_batch(whole[:size]))
    assert refusal.value.position == len(whole) - last


@given(messages=MESSAGES, data=st.data())
def test_damaged_and_random_batches_give_entries_or_the_documented_error(messages, data):
    raw = bytearray(encode_batch(messages) or data.draw(st.binary(max_size=100)))
    if raw:
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        entries = list(iter_batch(bytes(raw)))
    except RemoteProtocolError:
        return
    taken = sum(22 + len(body) + len(properties) for _, body, properties in entries)
    assert taken == len(raw)


@pytest.mark.parametrize(
    ("body_length", "properties_length"), [(-1, 0), (-(1 << 31), 0), ((1 << 31) - 1, 0), (0, -1)]
)
def test_lengths_that_cannot_be_are_refused(body_length, properties_length):
    head = (22).to_bytes(4, "big") + bytes(12) + body_length.to_bytes(4, "big", signed=True)
    body = head + properties_length.to_bytes(2, "big", signed=True) + bytes(50)
    with pytest.raises(RemoteProtocolError, match="batch entry") as refusal:
        list(iter_batch(body))
    assert refusal.value.position == 0


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"", 1 << 31),
        Message("T", b"", 0, {"a": "b" * 32_767}),
    ],
    ids=["flag", "properties"],
)
def test_what_does_not_fit_an_entry_is_refused(message):
    with pytest.raises(LocalProtocolError, match="does not fit"):
        encode_batch([message])
