"""A run as JUnit XML, for CI: a test suite per kind and broker, a test case per cell.

Source: the dialect that GitLab, Jenkins and GitHub's reporters read (testsuites, testsuite,
testcase with failure or skipped).
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from .cells import NO_FAULT, Cell, Kind, Run, Verdict
from .text import explained, printable


def to_junit(run: Run) -> bytes:
    """The document, in UTF-8. A deliberate difference counts as passed, and says what it is."""
    root = Element("testsuites", {"name": "trocket interop", **_counts(run.cells, run.seconds)})
    suites: dict[tuple[Kind, str], list[Cell]] = {}
    for cell in run.cells:
        suites.setdefault((cell.kind, cell.broker), []).append(cell)
    for (kind, broker), cells in suites.items():
        name = {"name": printable(f"{kind} on {broker}"), "timestamp": printable(run.started_at)}
        counts = _counts(cells, sum(cell.seconds for cell in cells))
        suite = SubElement(root, "testsuite", {**name, **counts})
        properties = SubElement(suite, "properties")
        for what, version in run.versions.items():
            SubElement(properties, "property", name=printable(what), value=printable(version))
        for cell in cells:
            _add_case(suite, cell)
    ElementTree.indent(root, " ")
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _counts(cells: Sequence[Cell], seconds: float) -> dict[str, str]:
    verdicts = [cell.verdict for cell in cells]
    return {
        "tests": str(len(verdicts)),
        "failures": str(verdicts.count(Verdict.FAILED)),
        "errors": "0",
        "skipped": str(verdicts.count(Verdict.SKIPPED)),
        "time": f"{seconds:.3f}",
    }


def _add_case(suite: Element, cell: Cell) -> None:
    fault = "" if cell.fault == NO_FAULT else f", {cell.fault}"
    case = SubElement(
        suite,
        "testcase",
        # Dots make packages of it: a broker's version or a URL has some.
        classname=printable(f"{cell.kind}.{cell.broker.replace('.', '_')}"),
        name=printable(f"{cell.feature} [{cell.client}{fault}]"),
        time=f"{cell.seconds:.3f}",
    )
    message = printable(cell.detail.partition("\n")[0])
    if cell.verdict is Verdict.FAILED:
        SubElement(case, "failure", message=message).text = explained(cell)
    elif cell.verdict is Verdict.SKIPPED:
        SubElement(case, "skipped", message=message)
    elif cell.verdict is Verdict.QUIRK:
        SubElement(case, "system-out").text = f"a deliberate difference: {explained(cell)}"
