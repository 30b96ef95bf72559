"""Kinds of cells in words, and cells that ended for one reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .cells import Cell, Kind

KIND_TITLES: Mapping[Kind, str] = {
    Kind.SCENARIO: "Scenarios",
    Kind.WIRE: "Wire",
    Kind.STORE: "Store",
    Kind.MQADMIN: "mqadmin",
    Kind.ORACLE: "Oracle",
}

KIND_ABOUT: Mapping[Kind, str] = {
    Kind.SCENARIO: "What clients do with messages, and how it ends: on each broker, with faults.",
    Kind.WIRE: "The same requests to two brokers, their answers compared field by field.",
    Kind.STORE: "Files that one broker wrote, opened and served by another.",
    Kind.MQADMIN: "Apache's mqadmin: exit, headings and rows against what it prints with Apache.",
    Kind.ORACLE: "What we encode, decoded by Apache's own classes, and the reverse.",
}


def alike(cells: Iterable[Cell]) -> list[tuple[str, list[Cell]]]:
    """Cells by their detail: one reason, and all it is the reason of, in the order of the run."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.detail, []).append(cell)
    return list(found.items())
