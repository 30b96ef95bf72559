"""The documents name tests that exist, and each difference from Apache names who may notice it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
QUIRKS = (ROOT / "docs" / "quirks.md").read_text()
NAME_SERVER = (ROOT / "docs" / "namesrv.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", QUIRKS)

HEAD = "| ours | Apache's | why | class | peers | pinned by |"
JUDGED = "How each row was judged"
CLASSES = ("seen", "unseen", "protects", "missing")
NOBODY = "none"
"""The cell of a difference that concerns no peer, such as a line in our own log."""


class Row(NamedTuple):
    """A row of a table of differences; `section` is the heading above it."""

    section: str
    ours: str
    kind: str
    peers: str
    tests: str


def rows() -> list[Row]:
    found: list[Row] = []
    section, is_table = "", False
    for line in QUIRKS.splitlines():
        if line.startswith("## "):
            section = line[3:]
        is_table = line.startswith("|") and (is_table or line == HEAD)
        if is_table and line != HEAD and not line.startswith("|---"):
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            assert len(cells) == HEAD.count("|") - 1, line
            found.append(Row(section, cells[0], *cells[3:]))
    return found


def judged_table(first: str) -> list[list[str]]:
    """The rows of a table that explains how differences were judged, by its first heading."""
    part = QUIRKS.partition(f"\n| {first} |")[2].partition("\n\n")[0]
    return [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in part.splitlines()[2:] if line
    ]


ROWS = rows()
PEERS = {cells[0] for cells in judged_table("peer")}


def test_the_quirks_name_their_tests() -> None:
    assert len(NAMED) > 25


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_named_test_exists(path: str, name: str) -> None:
    source = (ROOT / path).read_text() if (ROOT / path).is_file() else ""
    assert re.search(rf"def {name}\(", source), f"{path} has no {name}"


def test_every_difference_has_a_class_and_a_test() -> None:
    assert len(ROWS) > 300
    assert [row for row in ROWS if row.kind not in CLASSES or "`tests/" not in row.tests] == []


def test_every_difference_names_known_peers_that_were_run_or_read() -> None:
    assert len(PEERS) > 5
    for row in ROWS:
        check_judgement(row.kind, row.peers)


def check_judgement(kind: str, peers: str) -> None:
    assert kind in CLASSES
    if peers == NOBODY:
        assert kind in ("unseen", "protects")
        return
    for each in peers.split(", "):
        name, _, how = each.partition(": ")
        assert name in PEERS
        assert how in ("run", "read")


def test_every_difference_of_the_name_server_is_judged_the_same_way() -> None:
    section = NAME_SERVER.partition("\n## Differences\n")[2].partition("\n## ")[0]
    items = section.split("\n- ")[1:]
    assert len(items) > 10
    for item in items:
        judged = re.search(r"\*\((\w+); ([^()]+)\)\*\s*$", item)
        assert judged is not None, item
        check_judgement(judged[1], judged[2])


def test_the_runs_of_each_peer_are_there() -> None:
    runs = [cells[2] for cells in judged_table("peer")]
    paths = re.findall(r"`(tests/[\w/.]+)`", " ".join(runs))
    assert len(paths) > 5
    assert [path for path in paths if not (ROOT / path).exists()] == []
    run = {
        each.partition(": ")[0] for row in ROWS for each in row.peers.split(", ") if "run" in each
    }
    without_runs = {cells[0] for cells in judged_table("peer") if not cells[2]}
    assert run & without_runs == set()


def test_a_difference_that_a_peer_can_see_was_run_with_one() -> None:
    assert [row for row in ROWS if row.kind == "seen" and ": run" not in row.peers] == []


def test_every_table_of_differences_has_the_class_and_the_peers() -> None:
    heads = re.findall(r"^\| ours \|.*$", QUIRKS, re.MULTILINE)
    assert set(heads) == {HEAD}


def test_the_differences_are_counted_by_section_and_class() -> None:
    counts: dict[str, Counter[str]] = {}
    for row in ROWS:
        counts.setdefault(row.section, Counter())[row.kind] += 1
    counts["all"] = Counter(row.kind for row in ROWS)
    wanted = [
        [section, *(str(count[kind]) for kind in CLASSES), str(count.total())]
        for section, count in counts.items()
    ]
    assert judged_table("section") == wanted


def test_no_difference_is_there_twice() -> None:
    names = Counter(row.ours.replace("`", "") for row in ROWS)
    assert [name for name, count in names.items() if count > 1] == []


QUESTIONS = (ROOT / "docs" / "operators_questions.md").read_text()


def test_every_question_of_operators_names_a_page_and_a_test() -> None:
    from trocket.console.pages.table import NAMES

    rows = [line.split(" | ") for line in QUESTIONS.splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(row[0].strip("| ")) for row in rows] == list(range(1, 34))
    for number, question, page, shown_by in rows:
        assert re.search(r"\]\(https://github\.com/[^)]+\)", question), number
        pages = re.findall(r"`(\w+)`", page)
        assert pages, number
        assert {*pages} <= {*NAMES, "login"}, number
        tests = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", shown_by)
        assert tests, number
        for path, name in tests:
            assert f"def {name}(" in (ROOT / path).read_text(), (number, name)
