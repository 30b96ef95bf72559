"""The catalogue: names are unique, scripts are independent, and both headers are used."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from trocket.interop.wire_differ.builders import Names
from trocket.interop.wire_differ.catalogue import catalogue, coverage
from trocket.interop.wire_differ.normalise import Side
from trocket.interop.wire_differ.request import SHORT_MAX, Played, Request, Script, served_in
from trocket.remoting.codec import SerializeType
from trocket.remoting.request_codes import RequestCode

SIDE = Side("trocket", "127.0.0.1:1", "127.0.0.1:2")


def test_no_two_cells_have_one_name():
    names = Counter(name for script in catalogue() for name, _ in script.features())
    assert [name for name, count in names.items() if count > 1] == []


def needs_json(script: Script) -> bool:
    codes = (step.code.value for _, step in script.features())
    return any(code > SHORT_MAX for code in codes)


def test_every_script_whose_codes_fit_is_played_with_both_headers():
    headers = Counter(script.name for script in catalogue() if not needs_json(script))
    assert set(headers.values()) == {len(SerializeType)}
    assert len(headers) > 20


def test_codes_of_pop_are_asked_in_the_header_that_carries_them_and_refused_in_the_other():
    asked = {
        (step.code, script.header)
        for script in catalogue()
        for _, step in script.features()
        if step.code > SHORT_MAX
    }
    pushed = {RequestCode.NOTIFY_UNSUBSCRIBE_LITE}  # brokers send it
    codes = {code for code in RequestCode if code >= RequestCode.POP_MESSAGE}
    assert {code for code, header in asked if header is SerializeType.JSON} == codes - pushed
    assert {code for code, header in asked if header is SerializeType.ROCKETMQ} == codes


@pytest.mark.slow
def test_scripts_share_no_names():
    found: dict[str, set[str]] = {}
    for script in catalogue():
        for _, step in script.features():
            if not isinstance(step, Request):
                continue
            text = repr(step.fields) + repr(step.body)
            for prefix in re.findall(r"wd-[a-z0-9]+-[jr]\b", text):
                found.setdefault(prefix, set()).add(script.label)
    assert {prefix: labels for prefix, labels in found.items() if len(labels) > 1} == {}
    assert len(found) > 20


def test_what_is_taken_from_an_answer_that_did_not_come_is_still_a_request():
    played = Played(SIDE)
    for script in catalogue():
        for _, step in script.features():
            if isinstance(step, Request):
                for value in step.fields.values():
                    if callable(value):
                        assert str(value(played)) is not None
                if callable(step.body):
                    assert isinstance(step.body(played), bytes)


def test_a_version_that_has_it_not_is_not_asked():
    script = next(script for script in catalogue() if script.name == "timers")
    old, new = script.for_version("4.9.7"), script.for_version("5.5.0")
    assert new == script
    assert {step.code.value for step in script.steps} - {step.code.value for step in old.steps} == {
        370
    }


@pytest.mark.parametrize(
    ("version", "is_asked"),
    [
        *(("4.2.0", True), ("4.9.5", True), ("4.9.6", False), ("4.9.7", False)),
        *(("5.0.0", True), ("5.1.0", True), ("5.1.1", False), ("5.5.0", False), ("99", False)),
    ],
)
def test_a_version_that_has_it_no_more_is_not_asked(version: str, is_asked: bool):
    script = next(script for script in catalogue() if script.name == "filter servers")
    assert bool(script.for_version(version).steps) == is_asked
    assert {served_in(step) for step in script.steps} == {
        "from 4.0 to before 4.9.6 and from 5.0 to before 5.1.1"
    }


def test_names_differ_by_header():
    first, second = (Names("area", header)("x") for header in SerializeType)
    assert (first, second) == ("wd-area-j-x", "wd-area-r-x")


def test_a_request_counts_once_whatever_its_header():
    scripts = [script for script in catalogue() if script.name == "locks"]
    assert len(scripts) == 2
    assert coverage(scripts) == coverage(scripts[:1])
    assert coverage(scripts)["broker", 41, False] == 4
