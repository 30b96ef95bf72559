"""Cells as rows and columns: features down, brokers and their clients across, faults below.

A feature named "A: b" belongs to the group "A".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .cells import NO_FAULT, Cell, Kind, Verdict

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

Place = tuple[str, str]
"""Broker and client."""


@dataclass(frozen=True)
class Row:
    """One feature under one fault; `cells` by column."""

    fault: str
    cells: Mapping[Place, Cell]


@dataclass(frozen=True)
class Feature:
    """A feature with its rows: without a fault first.

    Attributes:
      group: what stands before ": " in its name, or empty.
      title: the rest of its name.
    """

    group: str
    title: str
    rows: list[Row] = field(default_factory=list)

    def cells(self) -> Iterator[Cell]:
        """All cells of the feature."""
        for row in self.rows:
            yield from row.cells.values()


@dataclass(frozen=True)
class Matrix:
    """All cells of one kind.

    Attributes:
      columns: each broker's clients; brokers and clients in the order of the run.
    """

    kind: Kind
    columns: Mapping[str, list[str]]
    features: list[Feature]

    @property
    def places(self) -> list[Place]:
        """The columns, left to right."""
        return [(broker, client) for broker, clients in self.columns.items() for client in clients]


def arrange(kind: Kind, cells: Iterable[Cell]) -> Matrix:
    """The matrix of those cells that are of this kind."""
    mine = [cell for cell in cells if cell.kind is kind]
    clients = list(dict.fromkeys(cell.client for cell in mine))
    seen = {(cell.broker, cell.client) for cell in mine}
    columns = {
        broker: [client for client in clients if (broker, client) in seen]
        for broker in dict.fromkeys(cell.broker for cell in mine)
    }
    found: dict[str, dict[str, dict[Place, Cell]]] = {}
    for cell in mine:
        rows = found.setdefault(cell.feature, {})
        rows.setdefault(cell.fault, {})[cell.broker, cell.client] = cell
    features = [
        Feature(*_split(name), [Row(fault, rows[fault]) for fault in sorted(rows, key=_is_fault)])
        for name, rows in found.items()
    ]
    return Matrix(kind, columns, features)


def _is_fault(fault: str) -> bool:
    return fault != NO_FAULT


def _split(feature: str) -> tuple[str, str]:
    group, mark, title = feature.partition(": ")
    return (group, title) if mark else ("", feature)


def grouped(features: Iterable[Feature]) -> Iterator[tuple[str, list[Feature]]]:
    """Neighbours of one group together; a feature without a group alone."""
    group: list[Feature] = []
    for feature in features:
        if group and (feature.group != group[0].group or not feature.group):
            yield group[0].group, group
            group = []
        group.append(feature)
    if group:
        yield group[0].group, group


def alike(cells: Iterable[Cell]) -> list[tuple[str, list[Cell]]]:
    """Cells by their detail: one reason, and all it is the reason of, in the order of the run."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.detail, []).append(cell)
    return list(found.items())


def of_verdict(cells: Iterable[Cell], verdict: Verdict) -> list[Cell]:
    """Those that ended so."""
    return [cell for cell in cells if cell.verdict is verdict]
