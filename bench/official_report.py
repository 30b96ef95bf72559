"""Text of an official benchmark's results: tables for a terminal, and a section for the docs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.table import Table

from trocket.bench.kit import spread_text
from trocket.bench.official_figures import (
    Report,
    Row,
    WorkloadResult,
    first_minute_rows,
    limited_by,
    memory_rows,
    steady_rows,
)
from trocket.common.terminal import table

BEGIN = "<!-- bench/official.py: results -->"
END = "<!-- bench/official.py: end of results -->"
"""The lines of a document between which `write_into` replaces everything."""

SECTIONS = (
    ("Steady state: the median of the rounds (smallest … largest)", steady_rows),
    ("First minute of a fresh broker, once per run", first_minute_rows),
    ("Start and memory", memory_rows),
)


def tables(report: Report) -> list[Table]:
    """The results as tables."""
    brokers = broker_names(report.workloads)
    return [
        table(headings(brokers), cells(rows_of(report.workloads), brokers), title=title)
        for title, rows_of in SECTIONS
    ]


def notes(results: Iterable[WorkloadResult]) -> list[str]:
    """A sentence for each rate that never became steady, and for each error."""
    found: list[str] = []
    for result in results:
        for broker in result.brokers:
            warm_up = broker.warm_up
            if warm_up is None:
                continue
            windows = "; ".join(
                f"{program} {', '.join(f'{rate:,}' for rate in rates) or 'no window'}"
                for program, rates in warm_up.windows.items()
            )
            if warm_up.is_steady:
                state = f"steady after {warm_up.seconds:.0f} s of load"
            else:
                state = f"NOT STEADY after {warm_up.seconds:.0f} s of load"
            found.append(f"{result.workload}, {broker.broker}: {state}; last windows: {windows}")
            if broker.rounds:
                limit = limited_by(broker.rounds)
                found.append(f"{result.workload}, {broker.broker}: limited by {limit}")
        if result.repeated:
            found.append(
                f"{result.workload}: {result.repeated} rounds were repeated, in which "
                f"{result.brokers[0].broker} was slower than in its best one"
            )
        if result.error:
            found.append(f"{result.workload}: ERROR, ended early: {result.error}")
    return found


def markdown(report: Report) -> str:
    """The results as a section of a document."""
    brokers = broker_names(report.workloads)
    lines = [f"- {name}: {value}" for name, value in report.facts.items()]
    for title, rows_of in SECTIONS:
        head = headings(brokers)
        lines += ["", f"{title}:", "", _line(head), _line(["---"] * len(head))]
        lines += [_line(row) for row in cells(rows_of(report.workloads), brokers)]
    lines += ["", *(f"- {_one_line(note)}" for note in notes(report.workloads))]
    return "\n".join(lines)


def write_into(path: Path, report: Report) -> None:
    """Replace the results in a document.

    Raises: ValueError: it has no `BEGIN` and `END`.
    """
    text = path.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no lines {BEGIN!r} and {END!r}")
    path.write_text(f"{before}{begin}\n\n{markdown(report)}\n\n{end}{after}")


def broker_names(results: Iterable[WorkloadResult]) -> list[str]:
    """The brokers of all results, in their order, each once."""
    return list(dict.fromkeys(each.broker for result in results for each in result.brokers))


def headings(brokers: Sequence[str]) -> list[str]:
    """The columns: the first broker, then each other one with its ratio to the first."""
    more = [text for broker in brokers[1:] for text in (broker, f"{broker} / {brokers[0]}")]
    return ["workload", "metric", *brokers[:1], *more]


def cells(rows: Iterable[Row], brokers: Sequence[str]) -> list[list[str]]:
    """The texts of rows, for `headings`; the marks of rates that never became steady included."""
    found = []
    for row in rows:
        texts = [row.workload, row.metric]
        for number, broker in enumerate(brokers):
            texts.append(spread_text(row.values.get(broker)))
            if number:
                texts.append(spread_text(row.ratios.get(broker)))
        found.append(texts)
    return found


def _line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _one_line(text: str) -> str:
    return " ".join(text.split())
