"""common/java_hash.py against the definition of `String.hashCode` and known codes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.common import java_hash
from trocket.common.java_hash import (
    hash_continue,
    hash_prefix,
    index_key_hash,
    index_key_hash_after,
    java_hash_code,
    tags_code,
)

TEXTS = st.one_of(st.text(max_size=200), st.text("0123456789ABCDEF#-", max_size=200))


def utf16_units(text: str) -> list[int]:
    units: list[int] = []
    for character in text:
        point = ord(character)
        if point > 0xFFFF:
            point -= 0x10000
            units += [0xD800 | point >> 10, 0xDC00 | point & 0x3FF]
        else:
            units.append(point)
    return units


def hash_by_definition(text: str) -> int:
    code = 0
    for unit in utf16_units(text):
        code = (code * 31 + unit) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello world", 1794106052),
        ("polygenelubricants", -(1 << 31)),
        ("\U0001d11e", 0xD834 * 31 + 0xDD1E),
    ],
)
def test_known_strings_have_javas_code(text, code):
    assert java_hash_code(text) == code
    assert tags_code(text) == code


@given(text=TEXTS)
def test_the_hash_is_that_of_the_definition(text):
    assert java_hash_code(text) == hash_by_definition(text)


def test_a_lone_surrogate_is_hashed_as_the_unit_that_it_is():
    assert java_hash_code("\ud834x") == 0xD834 * 31 + ord("x")


def test_no_tag_has_code_0():
    assert tags_code(None) == tags_code("") == 0


def test_a_long_tag_has_its_code_and_is_not_remembered():
    before = java_hash._cached_tags_code.cache_info().currsize
    assert tags_code("x" * 3000) == hash_by_definition("x" * 3000)
    assert java_hash._cached_tags_code.cache_info().currsize == before


def test_the_index_hash_of_the_code_without_a_positive_twin_is_0():
    assert index_key_hash("polygenelubricants") == 0
    assert index_key_hash_after(hash_prefix("poly"), "genelubricants") == 0


@given(text=TEXTS)
def test_the_index_hash_is_the_codes_distance_from_0(text):
    code = hash_by_definition(text)
    assert index_key_hash(text) == (0 if code == -(1 << 31) else abs(code))


@given(prefix=TEXTS, key=TEXTS)
def test_a_continued_hash_is_that_of_the_whole_string_whatever_is_cached(prefix, key):
    whole = hash_by_definition(prefix + key)
    for _ in range(2):
        assert index_key_hash_after(hash_prefix(prefix), key) == index_key_hash(prefix + key)
        assert hash_continue(hash_prefix(prefix), key) == whole & 0xFFFFFFFF


def test_the_cache_of_key_beginnings_is_bounded(monkeypatch):
    monkeypatch.setattr(java_hash, "HEAD_CACHE_COUNT_MAX", 8)
    prefix = hash_prefix("Topic#")
    for number in range(100):
        key = f"{number:032X}{number % 7:04X}"
        assert index_key_hash_after(prefix, f"{number:X}{key}") == (
            index_key_hash(f"Topic#{number:X}{key}")
        )
        assert len(java_hash._heads) <= 8
