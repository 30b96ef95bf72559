"""Strings of clients as a page shows them."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.console.shown_text import SEGMENTS_MAX, SHOWN_LENGTH_MAX, Segment, shown


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", []),
        ("orders", [("orders", False)]),
        ("订单 😀", [("订单 😀", False)]),
        ("<script>alert(1)</script>", [("<script>alert(1)</script>", False)]),
        ("a\0b", [("a", False), ("␀", True), ("b", False)]),
        ("\0\x1b\x7f", [("␀␛␡", True)]),
        ("\u202egpj.exe", [("<U+202E>", True), ("gpj.exe", False)]),
        ("a\u2066b", [("a", False), ("<U+2066>", True), ("b", False)]),
        ("\ud800", [("<U+D800>", True)]),
        ("\udcff", [("<U+DCFF>", True)]),
        ("a\ufffd", [("a", False), ("\ufffd", True)]),
        ("a\nb\tc", [("a", False), ("␊", True), ("b", False), ("␉", True), ("c", False)]),
        ("or\u200bders", [("or", False), ("<U+200B>", True), ("ders", False)]),
        # A joiner is needed within a picture or a word of Hindi, and hides itself in a name.
        ("👩\u200d💻", [("👩\u200d💻", False)]),
        ("क\u200dष", [("क\u200dष", False)]),
        ("or\u200dders", [("or", False), ("<U+200D>", True), ("ders", False)]),
        ("\u200d", [("<U+200D>", True)]),
        (b"caf\xc3\xa9", [("café", False)]),
        (b"\xff\xfe", [("<0xFF><0xFE>", True)]),
        (b"\xed\xa0\x80", [("<0xED><0xA0><0x80>", True)]),
        (b"a\xc3", [("a", False), ("<0xC3>", True)]),
    ],
)
def test_what_cannot_be_seen_is_a_mark(
    value: str | bytes, expected: list[tuple[str, bool]]
) -> None:
    result = shown(value)
    assert list(result.segments) == expected
    assert result.left_out == 0
    assert result.is_as_sent == (not any(is_replaced for _, is_replaced in expected))


def test_a_body_keeps_its_lines() -> None:
    assert shown("a\n\tb\r\n", has_lines=True).segments == (
        Segment("a\n\tb", False),
        Segment("␍", True),
        Segment("\n", False),
    )


NEVER_SHOWN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def is_visible(text: str, but: str = "") -> bool:
    return all(unicodedata.category(char) not in NEVER_SHOWN or char in but for char in text)


def test_no_character_without_a_picture_is_shown() -> None:
    hidden = [char for char in map(chr, range(0x110000)) if not is_visible(char)]
    assert [char for char in hidden if not shown(char).segments[0].is_replaced] == []


HOSTILE = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("\0\n\t\u202e\u2066\u200d\u200c\ufeff\ufffd\ud800\udcff\x85<&>"),
    )
)


@given(HOSTILE, st.integers(0, 30))
def test_of_any_string_nothing_is_lost_in_silence(text: str, length_max: int) -> None:
    result = shown(text, length_max=length_max)
    assert is_visible(result.text, but="\u200c\u200d")
    assert len(result.text) <= length_max
    assert all(segment.text for segment in result.segments)
    rest = text[len(text) - result.left_out :]
    again = shown(text[: len(text) - result.left_out])
    assert again.left_out == 0
    # What is shown is the beginning, but for a joiner that lost its neighbour.
    if not (rest and again.text.endswith((">", "\u200c", "\u200d"))):
        assert again.text == result.text
    result.text.encode()


@given(st.binary(max_size=60), st.integers(0, 30))
def test_of_any_bytes_nothing_is_lost_in_silence(raw: bytes, length_max: int) -> None:
    result = shown(raw, length_max=length_max, has_lines=True)
    assert len(result.text) <= length_max
    assert 0 <= result.left_out <= len(raw)
    if len(raw) * 6 <= length_max:
        assert result.left_out == 0
    result.text.encode()


def test_what_is_left_out_is_counted_in_characters_and_in_bytes() -> None:
    assert shown("é" * 10, length_max=4).left_out == 6
    assert shown(("é" * 10).encode(), length_max=4).left_out == 12
    # A mark that does not fit is left out as a whole.
    assert shown("ab\u202e", length_max=5) == shown("ab\u202e", length_max=2)


@pytest.mark.parametrize(
    "text",
    [
        "x" * (1 << 20),
        "\0" * (1 << 20),
        "a\0" * (1 << 19),
        "\u202e" * (1 << 20),
        "\u200d" * (1 << 20),
    ],
    ids=["letters", "nul", "turns", "bidi", "joiners"],
)
def test_a_mebibyte_is_cut_and_says_so(text: str) -> None:
    for value in (text, text.encode()):
        result = shown(value)
        assert result.left_out > 0
        assert len(result.text) <= SHOWN_LENGTH_MAX
        assert len(result.segments) <= SEGMENTS_MAX
