"""The text of config/*.json."""

from __future__ import annotations

import contextlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.broker.tables.config_text import next_version, page, pretty, written
from trocket.disk.json_config import parse
from trocket.remoting.bodies import DataVersion, TopicConfig

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def test_maps_lists_and_numbers_as_keys_look_like_fastjsons():
    value = {"a": {}, "b": {0: 1, 1: 2}, "c": [], "d": ["x"], "e": True}
    assert pretty(value).decode() == (
        '{\n\t"a":{},\n\t"b":{\n\t\t0:1,\n\t\t1:2\n\t},\n\t"c":[],\n\t"d":[\n\t\t"x"\n\t],'
        '\n\t"e":true\n}'
    )


@given(JSON)
def test_text_without_bare_keys_is_json_of_the_same_value(value):
    assert json.loads(pretty(value)) == value


@given(
    st.dictionaries(st.text("abc%@", min_size=1), st.dictionaries(st.integers(0, 9), st.just(3)))
)
def test_a_table_with_bare_keys_is_read_back(table):
    read = parse(pretty({"offsetTable": table}))
    assert read == {"offsetTable": {k: {str(q): o for q, o in v.items()} for k, v in table.items()}}


def test_a_body_is_written_by_name_without_what_is_none_for_its_depth():
    topic = TopicConfig(topic_name="T", attributes={"k": "v"})
    text = pretty({"x": {"T": written(topic, depth=2)}}).decode()
    assert text.startswith('{\n\t"x":{\n\t\t"T":{\n\t\t\t"attributes":{\n\t\t\t\t"k":"v"\n\t\t\t},')
    assert msgspec.convert(json.loads(text)["x"]["T"], TopicConfig) == topic


@pytest.mark.parametrize("text", [b"", b"[]", b"3", b"{", b'{"a":}', b"\xff", b'"\xff"'])
def test_text_that_is_no_object_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - the text tells, and differs
        parse(text)


@given(st.binary(max_size=40))
def test_any_bytes_are_an_object_or_a_value_error(text):
    with contextlib.suppress(ValueError):
        assert isinstance(parse(text), dict)


def test_a_page_is_cut_from_the_sorted_names():
    table = {"b": 2, "a": 1, "c": 3}
    assert page(table, begin=1, count=1) == {"b": 2}
    assert page(table, begin=2, count=9) == {"c": 3}
    assert page(table, begin=-1, count=2) == {"a": 1, "b": 2}
    assert page(table, begin=0, count=-1) == {}
    assert page(table, begin=3, count=1) == {}


def test_the_next_version_leaves_the_old_one_as_it_was():
    old = DataVersion(timestamp=1, counter=7, state_version=3)
    assert next_version(old, 5) == DataVersion(timestamp=5, counter=8, state_version=3)
    assert old.counter == 7
