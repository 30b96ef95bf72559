"""The report of a chaos run: its figures, as JSON and as tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from rich.console import Console

from trocket.bench.chaos_ledger import Fault, Ledger, Verdict
from trocket.common.terminal import table

KILLS: Final[Mapping[str, int]] = {
    "kill-master": 1,
    "kill-slave": 1,
    "lose-slave": 1,
    "kill-both": 2,
    "apache-takes-over": 1,
    "kill-controller": 1,
    "kill-namesrv": 1,
    "kill-producer": 1,
    "kill-consumer": 1,
}
"""Processes that a fault of a kind ends by SIGKILL."""
ROUNDED: Final = 2
ERRORS_SHOWN: Final = 3
"""Kinds of errors of each client in the tables; the JSON has more."""


@dataclass
class ClientFigures:
    """What one client did.

    Attributes:
      count: confirmed sends, or deliveries with the repeated ones.
      longest_gap_s: the longest time without one.
      gap_from_s: when it began, in seconds of the run.
      gap_during: the faults that went on then.
      gaps: all that are long: when each began, and its length.
      per_second: counts, from the run's first second on.
    """

    count: int
    longest_gap_s: float
    gap_from_s: float
    gap_during: list[str]
    gaps: list[tuple[float, float]]
    per_second: list[int]


@dataclass
class Report:
    """A whole run.

    Attributes:
      minutes: that were asked for.
      seconds: the run's length with its beginning and its end.
      repeats: by group and reason, deliveries of a message that the group had been given before.
      errors: by client, texts of failed sends, and how often they came.
      problems: what else went wrong: a set or a client that did not come back.
      missing: what could not take part, and why.
    """

    seed: int
    minutes: float
    seconds: float
    faults: list[Fault] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    clients: dict[str, ClientFigures] = field(default_factory=dict)
    repeats: dict[str, dict[str, int]] = field(default_factory=dict)
    errors: dict[str, dict[str, int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost, and all came back."""
        return self.verdict.is_good and not self.problems

    @property
    def kills(self) -> int:
        """Processes that were killed (SIGKILL)."""
        return sum(KILLS.get(fault.kind, 0) for fault in self.faults)

    @property
    def deliveries(self) -> int:
        """To all groups, with those that were repeated."""
        return sum(each.count for name, each in self.clients.items() if name.startswith("take-"))

    @property
    def by_reason(self) -> dict[str, int]:
        """Repeats of all groups, the most frequent reason first."""
        sums: Counter[str] = Counter()
        for reasons in self.repeats.values():
            sums.update(reasons)
        return dict(sums.most_common())

    def as_json(self) -> dict[str, object]:
        """All figures; times are seconds of the run."""
        return {
            "good": self.is_good,
            "kills": self.kills,
            "deliveries": self.deliveries,
            "repeats_by_reason": self.by_reason,
            **asdict(self),
        }


def made_report(
    ledger: Ledger,
    *,
    seed: int,
    minutes: float,
    seconds: float,
    errors: Mapping[str, Mapping[str, int]],
    problems: list[str],
    missing: Mapping[str, str],
) -> Report:
    """The report of a ledger that has its verdict."""
    report = Report(seed, minutes, round(seconds, ROUNDED), verdict=ledger.found)
    report.faults = list(ledger.faults)
    report.problems, report.missing = list(problems), dict(missing)
    report.errors = {name: dict(some) for name, some in errors.items()}
    for (group, reason), count in ledger.repeats.items():
        report.repeats.setdefault(group, {})[reason] = count
    for name, each in ledger.activity.items():
        until_s = each.longest_from_s + each.longest_s
        during = [
            f"{fault.kind} of {fault.target}"
            for fault in ledger.faults
            if fault.from_s < until_s and fault.until_s > each.longest_from_s
        ]
        report.clients[name] = ClientFigures(
            each.counts.total(),
            round(each.longest_s, ROUNDED),
            round(each.longest_from_s, ROUNDED),
            during,
            [(round(from_s, ROUNDED), round(gap_s, ROUNDED)) for from_s, gap_s in each.gaps],
            [each.counts[second] for second in range(max(each.counts, default=-1) + 1)],
        )
    return report


def show(report: Report, console: Console) -> None:
    """Print a report for people."""
    verdict = report.verdict
    console.print(
        f"{'good' if report.is_good else 'FAILED'}: {report.minutes:g} minutes, seed {report.seed}:"
        f" {len(report.faults)} faults, {report.kills} kills; {verdict.confirmed:,} confirmed,"
        f" {report.deliveries:,} deliveries, {sum(report.by_reason.values()):,} of them repeats",
        highlight=False,
    )
    console.print(
        f"lost {verdict.lost}, not consumed {verdict.unseen}, out of order {verdict.disordered},"
        f" two at an offset {verdict.doubled}, offsets taken back {verdict.taken_back}"
    )
    for kind, places in verdict.examples.items():
        console.print(f"{kind}: {'; '.join(places)}", markup=False, highlight=False)
    rows = [
        (
            name,
            f"{each.count:,}",
            f"{each.longest_gap_s:.1f}",
            f"{each.gap_from_s:.0f}",
            ", ".join(each.gap_during),
        )
        for name, each in report.clients.items()
    ]
    console.print(table(("client", "count", "longest gap, s", "from, s", "during"), rows))
    if report.repeats:
        repeats = [
            (group, reason, f"{count:,}")
            for group, reasons in report.repeats.items()
            for reason, count in Counter(reasons).most_common()
        ]
        console.print(table(("repeats of", "reason", "count"), repeats))
    for name, some in report.errors.items():
        for text, count in Counter(some).most_common(ERRORS_SHOWN):
            console.print(f"{name}: {count:,} times {text}", markup=False, highlight=False)
    for name, reason in report.missing.items():
        console.print(f"left out: {name}: {reason}", markup=False, highlight=False)
    for problem in report.problems:
        console.print(f"problem: {problem}", markup=False, highlight=False)
