"""Bodies of messages in the views of a page."""

from __future__ import annotations

import gzip
import json
import math
import time
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.console.bodies.views import (
    HEX_SIZE_MAX,
    BodyView,
    ViewKind,
    ViewProblem,
    best_kind,
    opened,
    view_of,
)
from trocket.console.shown_text import SHOWN_LENGTH_MAX
from trocket.operations.unpacking import Packing, Unreadable
from trocket.remoting.body_compression import CompressionType

MIB = 1 << 20

TOO_DEEP = 1_000_000
"""Levels that no interpreter reads: 3.13 reads some 1,000, and 3.14 as many as its stack holds."""


def text_of(body: bytes, kind: ViewKind, length_max: int = SHOWN_LENGTH_MAX) -> str:
    view = view_of(body, kind, length_max=length_max)
    assert (view.kind, view.problem) == (kind, None)
    return view.shown.text


def test_json_stands_in_lines_and_keeps_its_numbers_and_names() -> None:
    body = rb'{"a":1.10,"a":[1e400,{}, [ ],true],"b":{"c":"x,{}:\"y"},"n":12345678901234567890123}'
    assert text_of(body, ViewKind.JSON).split("\n") == [
        "{",
        '  "a": 1.10,',
        '  "a": [',
        "    1e400,",
        "    {},",
        "    [],",
        "    true",
        "  ],",
        '  "b": {',
        r'    "c": "x,{}:\"y"',
        "  },",
        '  "n": 12345678901234567890123',
        "}",
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (rb'"\u8ba2\u5355 \ud83d\ude00"', '"订单 😀"'),
        (rb'"\u0000\n\u003c\\u8ba2"', r'"\u0000\n\u003c\\u8ba2"'),
        (rb'"\ud800 \udc00 \u8ba2\udc00"', r'"\ud800 \udc00 订\udc00"'),
        (rb'"\u202e"', '"<U+202E>"'),
        (b" 1 ", "1"),
        (b"null", "null"),
        ('"订单"'.encode(), '"订单"'),
    ],
)
def test_escaped_letters_are_letters_in_json(body: bytes, expected: str) -> None:
    assert text_of(body, ViewKind.JSON) == expected


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", ViewProblem.NOT_JSON),
        (b'{"a":1', ViewProblem.NOT_JSON),
        (b"{} {}", ViewProblem.NOT_JSON),
        (b'"\xff"', ViewProblem.NOT_JSON),
        (b"NaN", ViewProblem.NOT_JSON),
        (b"[" * TOO_DEEP + b"]" * TOO_DEEP, ViewProblem.TOO_DEEP),
        (b'{"a":' * TOO_DEEP + b"1" + b"}" * TOO_DEEP, ViewProblem.TOO_DEEP),
        (b"[" * 4 * MIB, ViewProblem.TOO_DEEP),
    ],
)
def test_what_is_no_json_is_text_and_says_why(body: bytes, problem: ViewProblem) -> None:
    view = view_of(body, ViewKind.JSON)
    assert (view.kind, view.problem) == (ViewKind.TEXT, problem)
    assert view.shown == view_of(body, ViewKind.TEXT).shown
    assert (view.detail != "") == (problem is ViewProblem.NOT_JSON)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def is_infinite(tree: Any) -> bool:
    if isinstance(tree, dict):
        return any(map(is_infinite, tree.values()))
    if isinstance(tree, list):
        return any(map(is_infinite, tree))
    return isinstance(tree, float) and math.isinf(tree)


@given(JSON.filter(lambda tree: not is_infinite(tree)), st.booleans())
def test_any_json_in_lines_is_the_same_json(tree: Any, is_ascii: bool) -> None:
    text = json.dumps(tree, ensure_ascii=is_ascii).encode("utf-8", "backslashreplace").decode()
    view = view_of(text.encode(), ViewKind.JSON)
    assert view.problem is None
    assert view.left_out == 0
    if not any(segment.is_replaced for segment in view.shown.segments):
        assert json.loads(view.shown.text) == tree


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"a": [1, -1, None, True]}, '{\n  "a": [\n    1,\n    -1,\n    null,\n    true\n  ]\n}'),
        ([], "[]"),
        ({}, "{}"),
        ([[], {}], "[\n  [],\n  {}\n]"),
        ({1: b"\x00\xff"}, "{\n  1: <2 B: 00 ff>\n}"),
        (-1.5, "-1.5"),
        ("订单", '"订单"'),
        (msgspec.msgpack.Ext(5, b"abc"), "<type 5, 3 B: 61 62 63>"),
        (msgspec.msgpack.Ext(-1, b"abcd"), "<type -1, 4 B: 61 62 63 64>"),
        (list(range(20)), "[\n  " + ",\n  ".join(map(str, range(20))) + "\n]"),
        (2**64 - 1, str(2**64 - 1)),
        (-(2**63), str(-(2**63))),
        ("x" * 300, '"' + "x" * 300 + '"'),
        (b"x" * 70_000, f"<70000 B: {' '.join(['78'] * 64)} …>"),
    ],
)
def test_messagepack_stands_in_lines(tree: Any, expected: str) -> None:
    assert text_of(msgspec.msgpack.encode(tree), ViewKind.MSGPACK) == expected


@given(JSON.filter(lambda tree: not is_infinite(tree)))
def test_any_messagepack_reads_as_its_json(tree: Any) -> None:
    try:
        body = msgspec.msgpack.encode(tree)
    except (UnicodeEncodeError, OverflowError):
        return
    view = view_of(body, ViewKind.MSGPACK)
    assert view.left_out == 0
    if not any(segment.is_replaced for segment in view.shown.segments):
        assert json.loads(view.shown.text) == tree


@given(st.binary(max_size=300))
def test_any_bytes_have_every_view(body: bytes) -> None:
    for kind in ViewKind:
        view = view_of(body, kind, length_max=50)
        assert view.size == len(body)
        assert view.problem is None or view.kind is ViewKind.TEXT
        assert 0 <= view.left_out <= len(body)
        if view.kind is not ViewKind.HEX:
            assert len(view.shown.text) <= 50
    assert best_kind(body) in ViewKind


def test_messagepack_that_is_none_is_text_and_says_why() -> None:
    for body, problem in [
        (b"\xc1", ViewProblem.NOT_MSGPACK),
        (b"\x92\x01", ViewProblem.NOT_MSGPACK),
        (b"\xdd\xff\xff\xff\xff", ViewProblem.NOT_MSGPACK),
        (b"\x91" * TOO_DEEP + b"\x01", ViewProblem.TOO_DEEP),
    ]:
        view = view_of(body, ViewKind.MSGPACK)
        assert (view.kind, view.problem) == (ViewKind.TEXT, problem)


def test_hex_has_offsets_and_pages() -> None:
    body = bytes(range(256)) * 40
    view = view_of(body, ViewKind.HEX)
    assert len(view.rows) == 256
    assert view.rows[2].hex.startswith("20 21 22")
    assert view.rows[4].text == "@ABCDEFGHIJKLMNO"
    assert view.rows[0].text == "." * 16
    assert view.left_out == len(body) - HEX_SIZE_MAX
    last = view_of(body, ViewKind.HEX, offset=len(body) - 5)
    assert (last.offset, last.left_out) == (len(body) - 16, 0)
    assert last.rows[-1].hex.endswith("ff")
    for offset in (-1, -(10**30), 10**30):
        view_of(body, ViewKind.HEX, offset=offset)
        view_of(body, ViewKind.TEXT, offset=offset)
    assert view_of(b"", ViewKind.HEX).rows == ()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", ViewKind.TEXT),
        (b"hello", ViewKind.TEXT),
        ("订单\n".encode(), ViewKind.TEXT),
        (b' {"a": 1}\n', ViewKind.JSON),
        (b"[1,2]", ViewKind.JSON),
        (b"[1,2", ViewKind.TEXT),
        (b"12", ViewKind.TEXT),
        (b"\x82\xa1a\x01\xa1b\x02", ViewKind.MSGPACK),
        (b"\x82\xa1a\x01\xa1b", ViewKind.HEX),
        (b"\x00\x01", ViewKind.HEX),
        (b"caf\xe9", ViewKind.HEX),
        (b"[" * TOO_DEEP + b"]" * TOO_DEEP, ViewKind.JSON),
    ],
)
def test_the_best_view(body: bytes, kind: ViewKind) -> None:
    assert best_kind(body) is kind


def test_what_is_inside_is_shown_unless_asked_otherwise() -> None:
    packed = gzip.compress(b'{"a":1}')
    found = opened(packed)
    assert found.inside.layers == (Packing.GZIP,)
    assert (found.best, found.view.shown.text) == (ViewKind.JSON, '{\n  "a": 1\n}')
    assert (found.size, found.view.size) == (len(packed), 7)
    as_stored = opened(packed, is_as_stored=True)
    assert (as_stored.inside.layers, as_stored.best) == ((), ViewKind.HEX)
    by_client = opened(zlib.compress(b"hello"), CompressionType.ZLIB.sys_flag)
    assert by_client.view.shown.text == "hello"
    broken = opened(b"junk", CompressionType.ZLIB.sys_flag)
    assert (broken.inside.failure, broken.view.size) == (Unreadable.DAMAGED, 0)


HOSTILE = {
    "ones": b"[" + b"1," * (2 * MIB - 1) + b"1]",
    "empty objects": b"[" + b"{}," * (4 * MIB // 3 - 2) + b"{}]",
    "deep and wide": (b"[" * 400 + b"1" + b"]" * 400 + b",") * 5000,
    "a deep array of ones": b"[" * 500 + b"1," * (2 * MIB - 600) + b"1" + b"]" * 500,
    "one string": b'"' + b"x" * (4 * MIB - 2) + b'"',
    "escapes": b'"' + rb"\u0000" * (4 * MIB // 6) + b'"',
    "backslashes": b'"' + b"\\\\" * (2 * MIB - 2) + b'"',
    "an open string": b'["' + b"\\\\" * (2 * MIB - 2),
    "blanks": b"[" + b" " * (4 * MIB - 2) + b"]",
    "one number": b"1" * 4 * MIB,
    "nul": bytes(4 * MIB),
    "ff": b"\xff" * 4 * MIB,
    "empty maps": b"\xdd\x00\x3f\xff\x00" + b"\x80" * 0x3FFF00,
    "astral": "😀".encode() * MIB,
    "half": b"a\x00" * (2 * MIB),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_body_of_4_mib_is_shown_in_little_time_and_memory(
    name: str, traced: Callable[[], int]
) -> None:
    body = HOSTILE[name]
    for kind in (None, *ViewKind):
        begin_s = time.process_time()
        tracemalloc.reset_peak()
        held = traced()
        view = opened(body, kind=kind).view
        assert time.process_time() - begin_s < 2.0
        assert tracemalloc.get_traced_memory()[1] - held < 64 * MIB
        check_said(view)


def check_said(view: BodyView) -> None:
    assert len(view.shown.text) <= SHOWN_LENGTH_MAX
    assert view.left_out > 0 or view.size == view.offset or view.shown.text == "[]"
    assert view.kind is ViewKind.HEX or view.left_out == view.shown.left_out
