"""Findings of a check of a store, each with advice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum

FINDINGS_MAX = 10_000
"""Findings that are kept; more are counted only."""


class Severity(IntEnum):
    """The severity of a finding."""

    INFO = 0
    """Worth knowing; nothing to do."""
    WARNING = 1
    """The broker corrects it at its next start, or it may be intended."""
    ERROR = 2
    """Wrong; a repair, or a broker that rebuilds it, has to correct it."""
    LOSS = 3
    """Messages are lost."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
      severity: see `Severity`.
      kind: a short name for scripts, such as `log.hole`.
      offset: physical offset for the log, queue offset for queues, entry number for the index,
        else the position in the file; -1: none.
      what: in words.
      advice: what to do; may be empty.
    """

    severity: Severity
    kind: str
    path: str
    offset: int
    what: str
    advice: str = ""

    def as_dict(self) -> dict[str, object]:
        """For JSON; the severity as its name in small letters."""
        return {
            "severity": self.severity.name.lower(),
            "kind": self.kind,
            "path": self.path,
            "offset": self.offset,
            "what": self.what,
            "advice": self.advice,
        }


class Findings:
    """Findings as they come, the first `FINDINGS_MAX` of them kept.

    Attributes:
      items: the kept ones.
      counts: how many there were of each severity, kept or not.
    """

    def __init__(self) -> None:
        self.items: list[Finding] = []
        self.counts: Counter[Severity] = Counter()

    def add(
        self,
        severity: Severity,
        kind: str,
        path: str,
        offset: int,
        what: str,
        advice: str = "",
    ) -> None:
        """Add a finding; for the arguments see `Finding`."""
        self.add_one(Finding(severity, kind, path, offset, what, advice))

    def add_one(self, finding: Finding) -> None:
        self.counts[finding.severity] += 1
        if len(self.items) < FINDINGS_MAX:
            self.items.append(finding)

    @property
    def total(self) -> int:
        """The number of findings, kept or not."""
        return sum(self.counts.values())

    @property
    def is_clean(self) -> bool:
        """Whether nothing was an error or a loss."""
        return not (self.counts[Severity.ERROR] or self.counts[Severity.LOSS])

    def of_kind(self, *kinds: str) -> list[Finding]:
        """The kept findings of some kinds."""
        return [finding for finding in self.items if finding.kind in kinds]
