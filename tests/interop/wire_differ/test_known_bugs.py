"""A known difference covers what it names, and nothing beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trocket.interop.wire_differ.catalogue import catalogue
from trocket.interop.wire_differ.known_bugs import KNOWN_BUGS, KnownBug, explained
from trocket.interop.wire_differ.tree import MISSING, Difference

DOCS = Path(__file__).resolve().parents[3] / "docs"
BUG = KnownBug(
    requests=("310: an *",),
    paths=("remark", "fields.x"),
    codes=((29, 1),),
    row="r",
    source="s",
)
CODE = Difference(("code",), 29, 1)
REMARK = Difference(("remark",), "a", "b")


@pytest.mark.parametrize(
    ("request_name", "found", "is_covered"),
    [
        ("310: an illegal topic", [CODE, REMARK], True),
        ("310: another", [REMARK], False),
        ("11: an illegal topic", [REMARK], False),
        ("310: an illegal topic", [Difference(("code",), 1, 29)], False),
        ("310: an illegal topic", [REMARK, Difference(("body",), 1, 2)], False),
        ("310: an illegal topic", [Difference(("fields", "x"), 1, 2)], True),
        ("310: an illegal topic", [Difference(("connection",), "ok", "closed")], False),
    ],
)
def test_every_difference_must_be_covered(request_name, found, is_covered):
    assert explained(request_name, found, [BUG]) == ([BUG] if is_covered else None)


def test_several_entries_cover_together():
    second = replace(BUG, paths=("body",))
    body = Difference(("body",), 1, 2)
    assert explained("310: an x", [REMARK, body], [BUG, second]) == [BUG, second]


def test_what_only_one_side_lacks_is_not_what_both_say_differently():
    bug = replace(BUG, theirs_absent=True)
    assert bug.covers(Difference(("fields", "x"), "1", MISSING))
    assert not bug.covers(Difference(("fields", "x"), "1", "2"))
    bug = replace(BUG, ours_absent=True)
    assert bug.covers(Difference(("fields", "x"), MISSING, "1"))
    assert not bug.covers(Difference(("fields", "x"), "1", MISSING))


def test_only_certain_values_of_apaches_may_be_covered():
    bug = replace(BUG, ours_absent=True, theirs=("0",))
    assert bug.covers(Difference(("fields", "x"), MISSING, "0"))
    assert not bug.covers(Difference(("fields", "x"), MISSING, "<time>"))


def test_versions_are_compared_as_numbers():
    bug = replace(BUG, since="5.0", before="5.10")
    assert [bug.is_of(version) for version in ("4.9.7", "5.0.0", "5.9.1", "5.10.0")] == [
        False,
        True,
        True,
        False,
    ]


def test_every_entry_names_a_row_of_the_documents():
    text = "\n".join((DOCS / name).read_text() for name in ("quirks.md", "namesrv.md"))
    starts = {line.lstrip("|- ") for line in text.splitlines() if line[:1] in "|-"}
    missing = {bug.row for bug in KNOWN_BUGS if not any(row.startswith(bug.row) for row in starts)}
    assert not missing


@pytest.mark.slow
def test_every_entry_is_about_a_request_of_the_catalogue():
    names = {
        f"{step.code.value}: {step.name}" for script in catalogue() for _, step in script.features()
    }
    idle = [
        pattern
        for bug in KNOWN_BUGS
        for pattern in bug.requests
        if not any(replace(bug, requests=(pattern,)).names(name) for name in names)
    ]
    assert not idle
