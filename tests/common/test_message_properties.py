"""common/message_properties.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.common.message_properties import (
    IllegalPropertyError,
    find_property,
    properties_from_bytes,
    properties_from_string,
    properties_to_bytes,
    properties_to_string,
)

PLAIN = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20
)
PROPERTIES = st.dictionaries(PLAIN, PLAIN | PLAIN.map(lambda text: f"{text}\x01{text}"))
# Bytes that are near to properties: names given twice or without a value, or that begin alike.
ITEMS = [
    b"TAGS\x01A",
    b"TAGS\x01B",
    b"TAGS\x01",
    b"XTAGS\x01C",
    b"TAGSX\x01D",
    b"TAGS",
    b"A\x01TAGS",
]
ITEMS += [b"\x01", b"", b"KEYS\x01\x01", b"KEYS\x01\xff"]
NEARLY = st.lists(st.sampled_from(ITEMS), max_size=6).map(b"\x02".join)


@given(properties=PROPERTIES)
def test_properties_survive_being_written_and_read(properties):
    raw = properties_to_bytes(properties)
    assert properties_from_bytes(raw) == properties
    assert properties_from_bytes(memoryview(raw)) == properties
    assert properties_from_string(properties_to_string(properties)) == properties


@given(properties=PROPERTIES)
def test_the_separator_at_the_end_may_be_missing(properties):
    assert properties_from_string(properties_to_string(properties)[:-1]) == properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("\x02\x02", {}),
        ("a", {}),
        ("a\x01", {}),
        ("\x01b", {}),
        ("a\x01\x02b\x01c", {"b": "c"}),
        ("a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("a\x01b\x02a\x01c\x02", {"a": "c"}),
        ("a\x01b\x02a\x01\x02", {"a": "b"}),
    ],
)
def test_what_is_not_a_name_and_a_value_is_dropped(text, properties):
    assert properties_from_string(text) == properties


def test_bytes_that_are_not_utf8_become_replacement_characters():
    assert properties_from_bytes(b"a\x01\xff\x02") == {"a": "\ufffd"}


def test_a_lone_surrogate_is_written_as_a_question_mark():
    assert properties_to_bytes({"a": "\ud800"}) == b"a\x01?\x02"


@pytest.mark.parametrize(
    "properties",
    [{"a\x01": "b"}, {"a\x02": "b"}, {"a": "b\x02"}, {"": "b"}, {"x": "y", "a": "b\x02c\x01d"}],
)
def test_a_property_that_would_read_back_as_another_is_refused(properties):
    with pytest.raises(IllegalPropertyError, match="propert"):
        properties_to_bytes(properties)


def test_a_separator_of_name_and_value_inside_a_value_is_allowed():
    assert properties_to_bytes({"a": "b\x01c"}) == b"a\x01b\x01c\x02"


@given(raw=NEARLY)
def test_a_property_looked_for_alone_is_the_one_of_the_whole_parse(raw):
    properties = properties_from_bytes(raw)
    for name in ("TAGS", "KEYS", "A", "TAGSX", "missing"):
        value = find_property(raw, name.encode())
        text = None if value is None else value.decode("utf-8", "replace")
        assert text == properties.get(name)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"A\x01x\x02TAGS\x01first\x02TAGS\x01last", b"last"),
        (b"A\x01x\x02TAGS\x01first\x02TAGS\x01\x02B\x01y", b"first"),
        (b"TAGS\x01first\x02TAGS\x01\x02", b"first"),
        (b"TAGS\x01\x02", None),
        (b"XTAGS\x01a\x02TAGSX\x01b\x02", None),
    ],
)
def test_a_property_given_twice_has_its_last_value_that_is_not_empty(raw, value):
    assert find_property(raw, b"TAGS") == value


def test_many_empty_values_do_not_exhaust_the_search():
    assert find_property(b"TAGS\x01A\x02" + b"TAGS\x01\x02" * 5000, b"TAGS") == b"A"
