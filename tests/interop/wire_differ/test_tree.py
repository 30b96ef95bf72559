"""Frames become trees, and a changed field is found wherever it is."""

from __future__ import annotations

from typing import Any

import pytest

from trocket.common.message_properties import properties_to_bytes
from trocket.interop.wire_differ.request import BodyKind
from trocket.interop.wire_differ.tree import MISSING, body_tree, differences, tree_of
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.hosts import host_bytes
from trocket.remoting.message_codec import encode_record

HOST = host_bytes("127.0.0.1", 10911)


def record(**changed: Any) -> bytes:
    values: dict[str, Any] = {
        "topic": "T",
        "queue_id": 1,
        "queue_offset": 2,
        "physical_offset": 3,
        "body": b"hello",
        "properties": {"TAGS": "A", "KEYS": "k"},
        "born_timestamp_ms": 4,
        "born_host": HOST,
        "store_timestamp_ms": 5,
        "store_host": HOST,
        "flag": 6,
        "sys_flag": 0,
        "reconsume_times": 7,
        **changed,
    }
    values["properties"] = properties_to_bytes(values["properties"])
    return encode_record(**values)


def paths(first: object, second: object) -> list[str]:
    return [".".join(found.path) for found in differences(first, second)]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, ["a"]),
        ({"a": 1}, {"a": "1"}, ["a"]),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": None}, {}, ["a"]),
        ({}, {"a": None}, ["a"]),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, ["a.b.1.c"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a"]),
        ({"a": [1, 2]}, {"a": [2, 1]}, ["a.0", "a.1"]),
        ([], {}, [""]),
        ({"a": "x", "b": 1}, {"b": 1, "a": "x"}, []),
    ],
)
def test_differences_are_named_by_their_paths(first, second, expected):
    assert paths(first, second) == expected


def test_what_is_absent_is_not_null():
    (found,) = differences({"a": None}, {})
    assert (found.first, found.second) == (None, MISSING)
    assert str(found) == "a: None / absent"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"code": 1}, ["code"]),
        ({"remark": "no"}, ["remark"]),
        ({"ext_fields": {"x": "2"}}, ["fields.x"]),
        ({"ext_fields": {"x": "1", "y": ""}}, ["fields.y"]),
        ({"ext_fields": {}}, ["fields.x"]),
        ({"body": b'{"a":[1,null]}'}, ["body.a.1"]),
        ({"body": b'{"a":[1]}'}, ["body.a"]),
        ({"body": b""}, ["body"]),
        ({"flag": 3}, ["flag"]),
        ({"serialize_type": 1}, ["serialize_type"]),
        ({"opaque": 9}, []),
    ],
)
def test_every_changed_part_of_a_frame_is_found(changed, expected):
    plain = {"code": 0, "ext_fields": {"x": "1"}, "body": b'{"a":[1,2]}', "flag": 1}
    first = tree_of(RemotingCommand(**plain), BodyKind.JSON)
    second = tree_of(RemotingCommand(**{**plain, **changed}), BodyKind.JSON)
    assert paths(first, second) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"queue_offset": 9}, {"body.0.queue_offset"}),
        ({"properties": {"KEYS": "k", "TAGS": "A"}}, set()),
        ({"properties": {"KEYS": "k", "TAGS": "B"}}, {"body.0.properties.TAGS"}),
        ({"body": b"hallo"}, {"body.0.body", "body.0.body_crc"}),
        ({"store_host": host_bytes("127.0.0.2", 1)}, {"body.0.store_host"}),
        ({"sys_flag": 8}, {"body.0.sys_flag"}),
        ({"flag": 1}, {"body.0.flag"}),
        ({"reconsume_times": 1}, {"body.0.reconsume_times"}),
        ({"born_timestamp_ms": 1}, {"body.0.born_timestamp_ms"}),
    ],
)
def test_every_changed_field_of_a_record_is_found(changed, expected):
    first = {"body": body_tree(record(), BodyKind.RECORDS)}
    second = {"body": body_tree(record(**changed), BodyKind.RECORDS)}
    assert set(paths(first, second)) == expected


def test_keys_of_fastjson_are_not_those_of_json():
    bare = body_tree(b'{"a":{0:"x"}}', BodyKind.JSON)
    quoted = body_tree(b'{"a":{"0":"x"}}', BodyKind.JSON)
    assert paths(bare, quoted) == ["a.<bare 0>", "a.0"]
    by_object = body_tree(b'{{"queueId":1,"topic":"T"}:5}', BodyKind.JSON)
    assert by_object == {"{queueId=1,topic=T}": 5}


@pytest.mark.parametrize("kind", list(BodyKind))
def test_a_body_that_is_not_of_its_kind_is_still_compared(kind):
    first, second = body_tree(b"\x00{nonsense", kind), body_tree(b"\x00{other", kind)
    assert differences(first, second)
    assert body_tree(b"", kind) is None


def test_lines_of_properties_are_a_table():
    assert body_tree(b"b=2\na=1=1\n", BodyKind.PROPERTIES) == {"a": "1=1", "b": "2"}


def test_a_timer_checkpoint_is_seven_numbers_and_what_follows_is_ours():
    numbers = (1, 2, 3, 4, 5, 6, 7)
    body = b"".join(number.to_bytes(8, "big") for number in numbers)
    tree = {
        "version": {"state_version": 5, "timestamp": 6, "counter": 7},
        "read_time_ms": 1, "log_flush_position": 2, "queue_offset": 3, "master_queue_offset": 4,
    }  # fmt: skip
    for more in (b"", b"ours"):
        assert body_tree(body + more, BodyKind.TIMER_CHECKPOINT) == tree
    assert body_tree(body[:-1], BodyKind.TIMER_CHECKPOINT) == body[:-1].decode()
