"""Cells, the results of every part of the harness, and the run that contains them. Pure.

Each part (scenarios, wire differ, store differ, mqadmin, oracle) produces cells; reports show them.
A run is one JSON document, `Run.to_json`, from which every report can be made again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

NO_FAULT = "none"
OURS = "trocket"
"""The broker that is compared with Apache's."""

_APACHES_NAME = re.compile(r"(apache|docker)-[0-9.]+")


class Kind(StrEnum):
    """The part of the harness that a cell belongs to."""

    SCENARIO = "scenario"
    ACCOUNTS = "accounts"
    WIRE = "wire"
    STORE = "store"
    MQADMIN = "mqadmin"
    ORACLE = "oracle"
    TLS = "tls"
    GRPC = "grpc"
    PROXY = "proxy"
    OWN_PROXY = "trocket-proxy"


class Verdict(StrEnum):
    """The result of a cell."""

    PASSED = "passed"
    QUIRK = "quirk"
    """It differs from Apache's deliberately: `detail` names the row of docs/quirks.md."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """It did not run; `detail` says why."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One feature with one client on one broker under one fault.

    Attributes:
      feature: a scenario's name; "SEND_MESSAGE_V2 310: unknown topic"; an mqadmin command.
      client: "java-5.5.0", "go-2.1.2", "python-trio", "wire", "mqadmin-4.9.7".
      broker: as `Cluster.label`; the store differ has "apache-5.5.0 over trocket".
      fault: "none", "restart", "kill", "namesrv-gone", "slow-network".
      detail: the differences, the reason of a skip, or empty.
      frames: the failing requests and answers, decoded, one line each.
    """

    kind: Kind
    feature: str
    client: str
    broker: str
    verdict: Verdict
    fault: str = NO_FAULT
    detail: str = ""
    seconds: float = 0.0
    frames: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its id, which `--select` searches: "scenario/send_sync/java-5.5.0/trocket/none"."""
        return "/".join((self.kind, self.feature, self.client, self.broker, self.fault))


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the harness.

    Attributes:
      started_at: ISO 8601, UTC.
      versions: of what took part, by name: "trocket", "java", "go", "apache-5.5.0", "python".
      cells: in the order of the matrix, not of execution.
    """

    started_at: str
    seconds: float
    versions: Mapping[str, str]
    cells: tuple[Cell, ...] = field(default_factory=tuple)

    def counts(self) -> dict[Verdict, int]:
        """Number of cells by verdict, including verdicts without cells."""
        found = Counter(cell.verdict for cell in self.cells)
        return {verdict: found[verdict] for verdict in Verdict}

    @property
    def failed(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.verdict is Verdict.FAILED]

    @property
    def worse(self) -> list[Cell]:
        """Apache's cells that passed where ours did not, of the kinds that have cells of ours."""
        ours = [cell for cell in self.cells if cell.broker == OURS]
        kinds = {cell.kind for cell in ours}
        apaches = [cell for cell in self.cells if cell.kind in kinds and is_apaches(cell.broker)]
        return worse_than(ours, apaches)

    def to_json(self) -> bytes:
        """The whole run as JSON, indented, with a newline at its end."""
        return msgspec.json.format(msgspec.json.encode(asdict(self)), indent=1) + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Run:
        """Decode a run. Raises: ValueError: the data is not a run; the message names the place."""
        return msgspec.json.decode(data, type=cls)

    @classmethod
    def together(cls, runs: Sequence[Run]) -> Run:
        """Merge one or more runs, the parts of a long matrix.

        Of cells with the same name the last one counts, at the place of the first.
        """
        versions: dict[str, str] = {}
        cells: dict[str, Cell] = {}
        for run in runs:
            cells.update((cell.name, cell) for cell in run.cells)
            for name, text in run.versions.items():
                known = [*versions.get(name, "").split(", "), *text.split(", ")]
                versions[name] = ", ".join(filter(None, dict.fromkeys(known)))
        started_at = min(run.started_at for run in runs)
        return cls(started_at, sum(run.seconds for run in runs), versions, tuple(cells.values()))


def is_apaches(broker: str) -> bool:
    """Whether a broker is Apache's: "apache-5.5.0", "docker-4.9.7"."""
    return _APACHES_NAME.fullmatch(broker) is not None


def worse_than(ours: Iterable[Cell], apaches: Iterable[Cell]) -> list[Cell]:
    """Apache's cells that passed while the matching one of ours failed or is missing.

    Cells are matched by kind, feature, client and fault.
    """
    passed: dict[tuple[Any, ...], bool] = {}
    for cell in ours:
        passed[_matched(cell)] = cell.verdict in (Verdict.PASSED, Verdict.QUIRK)
    return [
        cell
        for cell in apaches
        if cell.verdict is Verdict.PASSED and not passed.get(_matched(cell), False)
    ]


def _matched(cell: Cell) -> tuple[Any, ...]:
    return cell.kind, cell.feature, cell.client, cell.fault
