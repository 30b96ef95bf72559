"""The operator's own filters: expressions and installed functions."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import pytest

from trocket.common.config import ConfigError
from trocket.filtersrv import filters
from trocket.filtersrv.filters import FilterError, NamedFilter, read_filter_classes

from .messages import message


def is_big(found):
    return len(found.body) > 10


async def test_an_expression_decides_by_properties():
    table = read_filter_classes('{"a.Cheap": {"expression": "price < 10"}}', {})
    cheap, dear, none = (message(properties=p) for p in ({"price": "9"}, {"price": "10"}, {}))
    assert await table["a.Cheap"].match([cheap, dear, none], "g") == [True, False, False]
    await table["a.Cheap"].aclose()


async def test_a_function_decides_by_the_whole_message():
    table = read_filter_classes('{"a.Big": {"named": "big"}}', {"big": lambda: is_big})
    found = await table["a.Big"].match([message(b"x" * 11), message(b"x")], "g")
    assert found == [True, False]
    await table["a.Big"].aclose()


async def test_a_function_that_fails_lets_nothing_pass():
    broken = NamedFilter("broken", lambda found: found.no_such_field)
    with pytest.raises(FilterError, match=r"the filter broken: AttributeError"):
        await broken.match([message()], "g")


def test_what_a_filter_says_is_cut():
    assert len(str(FilterError("x" * 100_000))) == filters.REMARK_LENGTH_MAX


def cannot_be_imported():
    raise ImportError("gone")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[", "is not JSON"),
        ("[]", "not an object"),
        ('{"a.B": {"expression": "price <"}}', "a.B: "),
        ('{"a.B": {"named": "nowhere"}}', r"no installed package has a filter 'nowhere'.*: big"),
        ('{"a.B": {"named": "missing"}}', "cannot be imported"),
        ('{"a.B": {"named": "number"}}', "is not a function"),
        ('{"a.B": {"exec": "os.system"}}', "a.B: expected"),
        ('{"a.B": {"named": "big", "expression": "x = 1"}}', "a.B: expected"),
        ('{"a.B": "big"}', "a.B: expected"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused(text, why):
    installed = {"big": lambda: is_big, "missing": cannot_be_imported, "number": lambda: 7}
    with pytest.raises(ConfigError, match=f"filters.json.*{why}"):
        read_filter_classes(text, installed, path="filters.json")


def test_installed_functions_are_entry_points(monkeypatch):
    point = EntryPoint("dumps", "json:dumps", filters.ENTRY_POINT_GROUP)
    monkeypatch.setattr(filters, "entry_points", lambda *, group: [point])
    assert filters.installed_functions()["dumps"]() is json.dumps
