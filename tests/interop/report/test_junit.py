"""JUnit XML of a run: read back by an XML parser, whatever the cells say."""

from __future__ import annotations

from xml.etree import ElementTree

from trocket.interop.report.cells import Cell, Kind, Run, Verdict
from trocket.interop.report.junit import to_junit

from .sample import HOSTILE, sample_run


def parsed(run: Run) -> ElementTree.Element:
    return ElementTree.fromstring(to_junit(run))


def test_every_cell_is_a_case_and_the_counts_are_right() -> None:
    run = sample_run()
    root = parsed(run)
    counts = run.counts()
    assert root.get("tests") == str(len(run.cells)) == str(len(root.findall(".//testcase")))
    assert (
        root.get("failures") == str(counts[Verdict.FAILED]) == str(len(root.findall(".//failure")))
    )
    assert (
        root.get("skipped") == str(counts[Verdict.SKIPPED]) == str(len(root.findall(".//skipped")))
    )
    assert root.get("time") == "412.300"
    assert len(root.findall(".//system-out")) == counts[Verdict.QUIRK]


def test_a_suite_is_a_kind_and_a_broker_and_names_the_versions() -> None:
    root = parsed(sample_run())
    names = [suite.get("name") for suite in root]
    assert names[:3] == [
        "scenario on trocket",
        "scenario on apache-5.5.0",
        "scenario on apache-4.9.7",
    ]
    assert len(set(names)) == len(names)
    for suite in root:
        assert suite.get("tests") == str(len(suite.findall("testcase")))
    versions = {each.get("name"): each.get("value") for each in root[0].findall(".//property")}
    assert versions["java"] == "openjdk 17.0.17"


def test_a_failure_has_its_first_line_and_all_of_it_with_the_frames() -> None:
    cell = Cell(
        Kind.SCENARIO,
        "send",
        "go",
        "apache-5.5.0",
        Verdict.FAILED,
        "kill",
        "expected 1\ngot 2",
        0.25,
        ("> SEND_MESSAGE", "< SUCCESS"),
    )
    root = parsed(Run("2026-11-22T03:00:00Z", 1.0, {}, (cell,)))
    case = root[0].find("testcase")
    assert case is not None
    assert case.attrib == {
        "classname": "scenario.apache-5_5_0",
        "name": "send [go, kill]",
        "time": "0.250",
    }
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("message") == "expected 1"
    assert failure.text == "expected 1\ngot 2\n> SEND_MESSAGE\n< SUCCESS"


def test_what_xml_cannot_hold_is_written_as_escapes() -> None:
    root = parsed(sample_run())
    texts = [failure.text or "" for failure in root.findall(".//failure")]
    shown = HOSTILE.replace("\x00", "\\x00").replace("\x1b", "\\x1b").replace("\ud800", "\\ud800")
    assert f"{shown}\n{shown}\n{shown}" in texts


def test_a_run_without_cells() -> None:
    assert parsed(Run("2026-11-22T03:00:00Z", 0.0, {})).get("tests") == "0"
