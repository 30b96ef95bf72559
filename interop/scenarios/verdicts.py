"""Verdicts of scenario cells from expected and reported facts. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..report.cells import Cell, Verdict
from .faults import FaultScenario
from .programs import Outcome
from .table import Scenario, same_broker

FACT_MAX = 600
"""Characters of one fact in a difference."""
ERROR_MAX = 4000
ABSENT = "(missing)"
UNEXPECTED = "(nothing)"


def difference(expected: Mapping[str, Any], reported: Mapping[str, Any]) -> str:
    """The facts that differ, expected and reported below each other; empty if none does."""
    lines = []
    for name in [*expected, *(name for name in reported if name not in expected)]:
        if name in expected and name in reported and expected[name] == reported[name]:
            continue
        lines.append(f"{name}:")
        lines.append(f"  expected {_text(expected, name, UNEXPECTED)}")
        lines.append(f"  reported {_text(reported, name, ABSENT)}")
    return "\n".join(lines)


def reason_to_skip(scenario: Scenario | FaultScenario, client: str, broker: str) -> str | None:
    """Why the tables exclude a scenario for a client and broker; None: they do not."""
    if client not in scenario.clients:
        return f"{client} lacks it"
    kind = same_broker(broker)
    if kind in scenario.not_on:
        return f"{broker} lacks it"
    if f"{client} on {kind}" in scenario.not_on:
        return f"{client} cannot do that on {broker}"
    return scenario.left_out.get(client) if isinstance(scenario, FaultScenario) else None


def expected_facts(
    scenario: Scenario | FaultScenario, client: str, broker: str, fault: str
) -> dict[str, Any]:
    """The facts that a program must report."""
    if isinstance(scenario, FaultScenario):
        return scenario.facts(fault)
    return scenario.facts(client, broker)


def with_outcome(cell: Cell, scenario: Scenario | FaultScenario, outcome: Outcome) -> Cell:
    """The cell with the verdict of its scenario's outcome."""
    expected = expected_facts(scenario, cell.client, cell.broker, cell.fault)
    differing = difference(expected, outcome.facts)
    cell = replace(cell, seconds=outcome.seconds)
    if outcome.error:
        # Facts reported before the error may help to explain it.
        facts = f"\n{differing}" if outcome.facts else ""
        return with_verdict(cell, Verdict.FAILED, outcome.error[:ERROR_MAX] + facts)
    if differing:
        note = f"\n{outcome.note}" if outcome.note else ""
        return with_verdict(cell, Verdict.FAILED, differing + note)
    if isinstance(scenario, Scenario) and scenario.is_quirk(cell.client, cell.broker):
        return with_verdict(cell, Verdict.QUIRK, scenario.quirk)
    return with_verdict(cell, Verdict.PASSED, outcome.note)


def with_verdict(cell: Cell, verdict: Verdict, detail: str) -> Cell:
    return replace(cell, verdict=verdict, detail=detail)


def _text(facts: Mapping[str, Any], name: str, otherwise: str) -> str:
    if name not in facts:
        return otherwise
    text = json.dumps(facts[name], ensure_ascii=False)
    return text if len(text) <= FACT_MAX else f"{text[:FACT_MAX]}..."
