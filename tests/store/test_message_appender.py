"""Batches are split in one of three ways, and all say the same."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from trocket.common.java_hash import tags_code
from trocket.common.message_properties import find_property
from trocket.remoting.errors import RemoteProtocolError
from trocket.remoting.message import Message
from trocket.remoting.message_batch import encode_batch, iter_batch
from trocket.store.writing.even_batch import even_messages
from trocket.store.writing.message_appender import usual_entries

ADDED = b"MSG_REGION\x01r\x02"
names = st.sampled_from(["UNIQ_KEY", "TAGS", "A", "#"])
values = st.text("abc\0ü", min_size=1, max_size=3)
messages = st.builds(
    Message,
    st.just("T"),
    st.binary(max_size=3),
    flag=st.integers(-(2**31), 2**31 - 1),
    properties=st.dictionaries(names, values, max_size=2),
)
bodies = st.lists(messages, min_size=1, max_size=4).map(encode_batch)


def slowly(body: bytes, added: bytes) -> list[tuple[int, bytes, bytes, int]]:
    """What the entries are, one after the other; nothing where one needs the slow way."""
    entries = []
    for flag, message_body, own in iter_batch(body):
        if b"\0" in own or b"#" in own:
            return []
        tags = find_property(own, b"TAGS")
        separator = b"\x02" if own and added and own[-1] != 2 else b""
        code = 0 if tags is None else tags_code(tags.decode())
        entries.append((flag, message_body, own + separator + added, code))
    return entries


def even_entries(body: bytes, added: bytes) -> list[tuple[int, bytes, bytes, int]]:
    """The columns of an even batch as entries; nothing for any other batch."""
    found = even_messages(body, added)
    if found is None:
        return []
    rows = zip(found.flags, found.bodies, found.properties, strict=True)
    return [(flag, message_body, own + found.after, 0) for flag, message_body, own in rows]


@given(bodies, st.sampled_from([b"", ADDED]))
@example(encode_batch([Message("T", b"x", properties={"A": "b"})] * 3), ADDED)
def test_a_batch_is_what_its_entries_are(body: bytes, added: bytes) -> None:
    expected = slowly(body, added)
    assert usual_entries(body, added) == expected
    assert even_entries(body, added) in ([], expected)


def test_a_batch_of_even_entries_is_split_at_once() -> None:
    for properties in (b"A\x01b", b"A\x01b\x02"):
        one = encode_batch([Message("T", b"xyz", flag=7, properties={"A": "b"})])
        one = one[: -len(b"A\x01b\x02") - 2] + len(properties).to_bytes(2, "big") + properties
        expected = [(7, b"xyz", b"A\x01b\x02" + ADDED, 0)] * 5
        assert even_entries(one * 5, ADDED) == expected == usual_entries(one * 5, ADDED)


@given(st.binary(max_size=80))
@example(b"")
def test_bytes_that_are_no_batch_are_left_to_the_slow_way(body: bytes) -> None:
    try:
        expected = slowly(body, ADDED)
    except RemoteProtocolError:
        expected = []
    assert usual_entries(body, ADDED) == expected
    assert even_entries(body, ADDED) in ([], expected)


@given(st.data())
def test_a_damaged_batch_is_never_split_otherwise(data: st.DataObject) -> None:
    body = bytearray(encode_batch([Message("T", b"xyz", properties={"A": "b"})] * 3))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        expected = slowly(bytes(body), ADDED)
    except RemoteProtocolError:
        expected = []
    assert usual_entries(bytes(body), ADDED) == expected
    assert even_entries(bytes(body), ADDED) in ([], expected)
