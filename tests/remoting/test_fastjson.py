"""The JSON of RocketMQ's bodies, as fastjson reads and writes it."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.common.steps import at_once
from trocket.remoting import fastjson
from trocket.remoting.errors import LocalProtocolError, RemoteProtocolError
from trocket.remoting.fastjson import FrozenObject, dumps, loads

INT64 = st.integers(-(2**63), 2**63 - 1)
SCALARS = (
    st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)
QUEUES = st.builds(
    lambda topic, broker, queue: FrozenObject(
        {"brokerName": broker, "queueId": queue, "topic": topic}
    ),
    st.text(),
    st.text(),
    st.integers(-(2**31), 2**31 - 1),
)
KEYS = QUEUES | st.recursive(
    st.text() | INT64,
    lambda inner: st.dictionaries(inner, INT64 | st.text()).map(FrozenObject),
    max_leaves=8,
)
SET_VALUES = st.booleans() | INT64 | st.text()
FASTJSON = st.recursive(
    SET_VALUES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=20
)
NOISE = st.text(alphabet="{}[]:,\"'\\u0123456789abdefnrstxv.-+ EL/*\n$_\ud83dé😀", max_size=60)


def nested(depth: int, *, tolerant: bool) -> str:
    """Nested objects; tolerant: not plain JSON."""
    key = "0" if tolerant else '"0"'
    return f"{{{key}:" * depth + "1" + "}" * depth


@pytest.mark.parametrize(
    ("document", "value"),
    [
        ('{0:"a",1:"b"}', {0: "a", 1: "b"}),
        ('{-5:"a"}', {-5: "a"}),
        ('{"0":"a",0:"b"}', {"0": "a", 0: "b"}),
        ('{{"queueId":1,"topic":"t"}:8}', {FrozenObject({"queueId": 1, "topic": "t"}): 8}),
        ('{{"a":[1,{"b":null}]}:{}}', {FrozenObject({"a": (1, FrozenObject({"b": None}))}): {}}),
        ("{'a':'it\\'s \"so\"'}", {"a": 'it\'s "so"'}),
        ("{name:1,$ref:2,a.b-c:3,ü:4}", {"name": 1, "$ref": 2, "a.b-c": 3, "ü": 4}),
        ("[1,2,]", [1, 2]),
        ('{"a":1,}', {"a": 1}),
        ("/* c */[1 // one\n,\t2]\v\f", [1, 2]),
        ("\ufeff[]", []),
        ("[true,false,null,NaN]", [True, False, None, None]),
        ("[+1,.5,2.,007,1E2,-0]", [1, 0.5, 2.0, 7, 100.0, 0]),
        (r"['\x41\v\0\7\/\u00e9\ud83d\ude00']", ["A\v\0\a/é😀"]),
        ("['raw\x01control\x02']", ["raw\x01control\x02"]),
        ('{"$ref":"$.a"}', {"$ref": "$.a"}),
        (str(10**30), 10**30),
    ],
)
def test_what_fastjson_reads_beyond_json_is_read(document: str, value: object) -> None:
    assert loads(document) == value
    assert loads(document.encode()) == value


@pytest.mark.parametrize(
    ("document", "reason", "position"),
    [
        (b"", "a value is expected", 0),
        (b"  ", "a value is expected", 2),
        (b"{", "a colon is expected|a key must be|a value is expected", 1),
        (b"[1", "a comma or ] is expected", 2),
        (b"[1 2]", "a comma or ] is expected", 3),
        (b'{"a" 1}', "a colon is expected", 5),
        (b'{"a":1 "b":2}', "a comma or } is expected", 7),
        (b"[,]", "a value is expected", 1),
        (b"{1.5:2}", "a key must be", 1),
        (b"{true:2} x", "there is more", 9),
        (b"{[1]:2}", "a key must be", 1),
        (b"yes", "an unknown word", 3),
        (b"'abc", "has no end", 4),
        (b"'\\q'", "an unknown escape", 1),
        (b"'\\", "an unknown escape", 1),
        (b"'\\u12'", "needs 4 hex digits", 1),
        (b"'\\xg0'", "needs 2 hex digits", 1),
        (b"'\\ud83d'", "surrogate", 7),
        (b"'\\ude00'", "surrogate", 7),
        (b"'\\ud83d\\u0041'", "surrogate", 13),
        (b"[1e999]", "beyond the range", 1),
        (b"['\xc3\xa9',x]", "an unknown word", 7),
        (b"[" + b"1" * 5000 + b"]", "a number of more than 64", 1),
        (b"['\xff']", "not UTF-8", 2),
        (b'["\xff"]', "not UTF-8", 2),
        (b"/* never closed", "a value is expected", 0),
        (b"[1]]", "there is more", 3),
    ],
)
def test_what_fastjson_cannot_read_is_refused_with_its_place(
    document: bytes, reason: str, position: int
) -> None:
    with pytest.raises(RemoteProtocolError, match=reason) as caught:
        loads(document)
    assert caught.value.position == position


@pytest.mark.parametrize(
    "space", [b" ", b"/**/", b" /* a * b **/ ", b"//\n", b"\t// a\n", b"/***"], ids=repr
)
def test_any_space_is_passed_over_in_linear_time(space: bytes) -> None:
    """One that can be matched in two ways would never end here."""
    many = space * 20_000
    with pytest.raises(RemoteProtocolError):
        loads(many + b"x")
    if not space.endswith(b"*"):
        assert loads(many + b"[1]" + many) == [1]


@given(
    st.binary()
    | st.binary().map(lambda inner: b'["' + inner + b'"]')
    | NOISE.map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_any_bytes_give_a_value_or_the_documented_error(document: bytes) -> None:
    try:
        value = loads(document)
    except RemoteProtocolError:
        return
    assert loads(dumps([value])) is not None


@given(NOISE)
def test_any_text_gives_a_value_or_the_documented_error(document: str) -> None:
    try:
        value = loads(document)
    except RemoteProtocolError:
        return
    assert isinstance(value, (dict, list, str, int, float)) or value is None


@pytest.mark.slow
@given(JSON)
def test_json_is_read_as_pythons_own_module_reads_it(value: Any) -> None:
    for ascii_only in (True, False):
        assert loads(json.dumps(value, ensure_ascii=ascii_only)) == value


@given(JSON)
def test_the_tolerant_reader_agrees_on_json(value: Any) -> None:
    document = f"[{json.dumps(value)},]"  # the last comma keeps the quick reader away
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(document)
    assert loads(document) == [value]


@pytest.mark.slow
@given(FASTJSON)
def test_what_is_written_with_bare_keys_is_read_back_the_same(value: Any) -> None:
    assert loads(dumps(value, quote_int_keys=False)) == value


@given(st.dictionaries(QUEUES | st.text(), st.lists(FASTJSON, max_size=3), max_size=3))
def test_tables_with_queues_as_keys_are_read_in_steps(value: Any) -> None:
    written = dumps(value, quote_int_keys=False)
    read = at_once(fastjson.loads_queue_keys_in_steps(written))
    assert read in (value, None)


@pytest.mark.parametrize(
    "text",
    [
        ',{"brokerName":"b","queueId":0,"topic":"t"}:',
        '{"topic":"t","brokerName":"b","queueId":0}:',
        "\0b\x000\0t",
        "\\u0000b",
    ],
)
def test_strings_that_resemble_queues_stay_strings(text: str) -> None:
    queue = FrozenObject({"brokerName": text, "queueId": 0, "topic": text})
    for value in ({queue: 1}, {queue: {text: text}}, {text: {queue: 2}, "a": [text]}):
        written = dumps(value)
        assert loads(written) == value
        assert at_once(fastjson.loads_queue_keys_in_steps(written)) in (value, None)


def test_many_queues_are_read_where_other_objects_as_keys_are_too_many() -> None:
    table = {
        FrozenObject({"brokerName": "broker-a", "queueId": number, "topic": "t" * 100}): number
        for number in range(50_000)
    }
    written = dumps(table)
    assert len(written) > fastjson.TOLERANT_SIZE_MAX
    assert loads(written) == table


@given(st.dictionaries(INT64, SET_VALUES))
def test_quoted_integer_keys_make_it_json(value: dict[int, object]) -> None:
    written = dumps({"table": value})
    assert json.loads(written) == {"table": {str(key): member for key, member in value.items()}}


@pytest.mark.parametrize("tolerant", [False, True])
def test_the_deepest_nesting_allowed_is_read_and_one_more_is_refused(tolerant: bool) -> None:
    loads(nested(fastjson.DEPTH_MAX, tolerant=tolerant))
    with pytest.raises(RemoteProtocolError, match="nested deeper than 64"):
        loads(nested(fastjson.DEPTH_MAX + 1, tolerant=tolerant))


@pytest.mark.parametrize("depth", [1_000, 100_000])
@pytest.mark.parametrize("opener", ["[", "{0:", '{"a":', "{{"])
def test_an_abyss_is_refused(opener: str, depth: int) -> None:
    with pytest.raises(RemoteProtocolError, match="nested deeper"):
        loads(opener * depth)


def test_objects_as_keys_count_as_depth() -> None:
    depth = fastjson.DEPTH_MAX
    loads("{" * depth + "}" + ":1}" * (depth - 1))
    with pytest.raises(RemoteProtocolError, match="nested deeper"):
        loads("{" * (depth + 1) + "}" + ":1}" * depth)


def test_many_brackets_that_are_not_nested_are_read() -> None:
    document = b"[" + b",".join([b"[]"] * 200) + b"]"
    assert loads(document) == [[]] * 200


def test_a_document_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastjson, "SIZE_MAX", 10)
    assert loads(b"[1,2,3,45]") == [1, 2, 3, 45]
    with pytest.raises(RemoteProtocolError, match="JSON of 11 bytes, the limit is 10"):
        loads(b"[1,2,3,456]")


def test_a_document_of_too_many_containers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastjson, "CONTAINERS_MAX", 3)
    assert loads(b"[[],{}]") == [[], {}]
    with pytest.raises(RemoteProtocolError, match="more than 3 objects and arrays"):
        loads(b"[[],{},[]]")


def test_a_long_document_is_read_only_when_it_is_plain_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fastjson, "TOLERANT_SIZE_MAX", 4)
    assert loads(b"[1,2]") == [1, 2]
    assert loads(b"[1,]") == [1]
    with pytest.raises(RemoteProtocolError, match="not plain JSON, and of 5 bytes"):
        loads(b"[12,]")


def test_members_that_are_none_are_left_out_everywhere() -> None:
    value: object = {"a": None, "b": [None, {"c": None, "d": 1}], "e": {}}
    assert dumps(value) == b'{"b":[null,{"d":1}],"e":{}}'
    assert dumps(value, quote_int_keys=False) == dumps(value)


def test_both_writers_write_the_same_where_keys_are_texts() -> None:
    value = {"é": ['\x01\u2028"\\/', 1.5, 0.0, True, -(2**63)], "n": {}, "l": [], "t": (1, 2)}
    assert dumps(value) == dumps(value, quote_int_keys=False)


def test_structs_and_object_keys_are_written() -> None:
    class Point(msgspec.Struct, frozen=True, rename="camel"):
        x_axis: int

    value: dict[object, object] = {Point(1): Point(2), FrozenObject({"a": "b"}): {0: 1}}
    assert dumps(value) == b'{{"xAxis":1}:{"xAxis":2},{"a":"b"}:{"0":1}}'
    assert dumps(value, quote_int_keys=False) == b'{{"xAxis":1}:{"xAxis":2},{"a":"b"}:{0:1}}'


def test_not_a_number_is_written_as_null() -> None:
    assert dumps([math.nan], quote_int_keys=False) == dumps([math.nan]) == b"[null]"


@pytest.mark.parametrize(
    "value", ["\ud800", {"\ud800": 1}, object(), {None: 1}, {True: 1}, {(1,): 2}]
)
@pytest.mark.parametrize("quote_int_keys", [True, False])
def test_what_cannot_be_written_is_our_own_error(value: object, quote_int_keys: bool) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be written as JSON"):
        dumps(value, quote_int_keys=quote_int_keys)


def test_a_value_that_holds_itself_is_our_own_error() -> None:
    value: list[object] = []
    value.append(value)
    for quote_int_keys in (True, False):
        with pytest.raises(LocalProtocolError, match="cannot be written as JSON"):
            dumps(value, quote_int_keys=quote_int_keys)


def test_frozen_objects_are_equal_by_their_members_in_any_order() -> None:
    one = FrozenObject({"a": 1, "b": "x"})
    other = FrozenObject({"b": "x", "a": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert one != FrozenObject({"a": 1})
    assert one != {"a": 1, "b": "x"}
    assert (len(one), one["a"], list(one)) == (2, 1, ["a", "b"])
    assert repr(one) == "FrozenObject({'a': 1, 'b': 'x'})"


def test_check_depth_refuses_what_is_too_deep_as_a_part() -> None:
    half = fastjson.DEPTH_MAX // 2
    fastjson.check_depth(None)
    fastjson.check_depth(loads(nested(half, tolerant=False)))
    with pytest.raises(ValueError, match="nested deeper than 32"):
        fastjson.check_depth(loads(nested(half + 1, tolerant=False)))
