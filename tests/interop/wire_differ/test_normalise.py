"""Each normaliser replaces what differs between servers, and nothing that is wrong."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from trocket.common.clock import SystemClock
from trocket.interop.wire_differ import normalise
from trocket.interop.wire_differ.normalise import EVERYWHERE, Normaliser, Side, matches
from trocket.interop.wire_differ.tree import normalised
from trocket.remoting.receipt import Receipt, TopicForm

APACHE = Side("apache-5.5.0", "127.0.0.1:20000", "127.0.0.1:30000", {"main": "127.0.0.1:40000"})
OURS = Side("trocket", "127.0.0.1:20100", "127.0.0.1:30100", {"main": "127.0.0.1:40100"})
NOW_MS = SystemClock().wall_ms()
ID = "7F000001" + f"{20_000:08X}" + f"{1234:016X}"
RECEIPT = Receipt(7, NOW_MS, 60_000, 999, TopicForm.NORMAL, "broker-a", 0, 9)
OLD_RECEIPT = RECEIPT._replace(pop_time=NOW_MS - 7_200_000).to_text()


def after(normaliser: Normaliser, tree: Any, side: Side = APACHE) -> Any:
    return normaliser.apply(tree, side)


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("fields.msgId", "fields.msgId", True),
        ("fields.msgId", "fields.*", True),
        ("fields.msgId", "fields", False),
        ("body.0.x", "body.*.x", True),
        ("body.0.x", "body.**", True),
        ("body", "body.**", True),
        ("fields.x", "body.**", False),
        ("body.0.x.y", "body.*.x", False),
    ],
)
def test_a_path_is_what_its_pattern_says(path, pattern, expected):
    assert matches(tuple(path.split(".")), tuple(pattern.split("."))) is expected


@pytest.mark.parametrize(
    ("normaliser", "value", "expected"),
    [
        (normalise.clock("x"), NOW_MS, "<int of now>"),
        (normalise.clock("x"), str(NOW_MS), "<str of now>"),
        (normalise.clock("x"), NOW_MS - 7_200_000, NOW_MS - 7_200_000),
        (normalise.clock("x"), -1, -1),
        (normalise.clock("x"), True, True),
        (normalise.offset_ids("x"), ID, "<offset id>"),
        (normalise.offset_ids("x"), f"{ID},{ID}", "<offset id>,<offset id>"),
        (normalise.offset_ids("x"), "0", "0"),
        (normalise.offset_ids("x"), None, None),
        (normalise.physical_offsets("x"), "12", "<physical offset>"),
        (normalise.physical_offsets("x"), -1, -1),
        (normalise.unique_keys("x"), ID, "<unique key>"),
        (normalise.unique_keys("x"), ID.lower(), ID.lower()),
        (normalise.any_queue("x"), "3", "<some queue>"),
        (normalise.any_queue("x"), "-3", "-3"),
        (normalise.counts("x"), "0", "0"),
        (normalise.counts("x"), 7, "<count>"),
        (normalise.sizes("x"), 0, 0),
        (normalise.sizes("x"), 7, "<size>"),
        (normalise.place("x"), "/tmp/a", "<place>"),
        (normalise.place("x"), "", ""),
        (normalise.any_broker("x"), "192.0.2.7:20911", "<some broker>"),
        (normalise.any_broker("x"), "no address", "no address"),
        (normalise.recall_handles("x"), "xyz", "xyz"),
        (normalise.revive_queues("x"), "7", "<revive queue>"),
        (normalise.revive_queues("x"), "8", "8"),
        (normalise.revive_queues("x"), "999", "999"),
        (normalise.receipts("x"), RECEIPT.to_text(), str(RECEIPT._replace(pop_time=0))),
        (
            normalise.receipts("x"),
            RECEIPT._replace(revive_queue_id=5).to_text(),
            str(RECEIPT._replace(pop_time=0, revive_queue_id=0)),
        ),
        (normalise.receipts("x"), OLD_RECEIPT, OLD_RECEIPT),
        (normalise.receipts("x"), "1 2 3", "1 2 3"),
        (normalise.any_order("x"), "0 1 5;0 0 3", "0 0 3;0 1 5"),
        (normalise.some_queue("x"), "0 1 5", "0 <some queue> 5"),
        (normalise.some_queue("x"), "0 1 5;0 0 3", "0 1 5;0 0 3"),
        (normalise.durations("x"), "1500", "<duration>"),
        (normalise.durations("x"), "-1", "-1"),
        (normalise.unordered("x"), ["b", "a"], ["a", "b"]),
        (normalise.only("my", "x"), ["my-a", "other"], ["my-a"]),
        (normalise.only("my", "x"), {"my-a": 1, "other": 2}, {"my-a": 1}),
        (normalise.data_versions("x"), {"counter": 1}, {"counter": 1}),
        (
            normalise.data_versions("x"),
            {"counter": 1, "timestamp": 2},
            {"counter": "<counter>", "timestamp": "<timestamp>"},
        ),
    ],
    ids=map(str, itertools.count()),  # the values are of this second, and ids must not be
)
def test_a_value_is_looked_at_before_it_is_replaced(normaliser, value, expected):
    assert after(normaliser, {"x": value, "y": value}) == {"x": expected, "y": value}


def test_an_offset_id_of_another_broker_stays():
    assert after(normalise.offset_ids("x"), {"x": ID}, OURS) == {"x": ID}


@pytest.mark.parametrize(
    ("side", "remark", "expected"),
    [
        (APACHE, "java.lang.NullPointerException: null", "<what went wrong>"),
        (APACHE, 'Cannot invoke "X.y()" because it is null', "<what went wrong>"),
        (APACHE, "topic not exist", "topic not exist"),
        (APACHE, None, None),
        (OURS, "the custom field <a> is null", "<what went wrong>"),
        (OURS, "", ""),
        (OURS, None, None),
    ],
)
def test_only_a_java_exception_stands_for_words(side, remark, expected):
    assert after(normalise.java_exception_text(), {"remark": remark}, side) == {"remark": expected}


def test_all_before_the_mark_of_a_remark_is_compared():
    normaliser = normalise.after("illegal, ")
    assert after(normaliser, {"remark": "q[9] is illegal, Topic@1"}) == {
        "remark": "q[9] is illegal, <…>"
    }
    assert after(normaliser, {"remark": "another"}) == {"remark": "another"}


def test_own_addresses_have_names_wherever_they_are():
    tree = {
        "127.0.0.1:20000": ["127.0.0.1:20001", "to /127.0.0.1:40000"],
        "x": {"127.0.0.1:30000": 1},
        "y": "127.0.0.1:200001 and 127.0.0.1:20100",
    }
    assert after(normalise.own_addresses(), tree) == {
        "<broker>": ["<broker for slaves>", "to /<client main>"],
        "x": {"<name server>": 1},
        "y": "127.0.0.1:200001 and 127.0.0.1:20100",
    }


def test_what_every_answer_has_is_told_apart_from_what_it_says():
    frame = {"code": 1, "remark": "", "fields": None, "language": 0, "version": 9}
    assert normalised({**frame, "serialize_type": 0}, APACHE, EVERYWHERE) == {
        "code": 1,
        "remark": None,
        "fields": {},
        "language": "<sender>",
        "version": "<sender>",
        "serialize_type": "<sender>",
    }


def test_every_normaliser_says_why():
    makers = [
        value
        for name, value in vars(normalise).items()
        if callable(value) and getattr(value, "__annotations__", {}).get("return") == "Normaliser"
    ]
    assert len(makers) > 15
    assert all(len(maker.__doc__ or "") > 40 for maker in makers)
