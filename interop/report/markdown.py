"""The report in Markdown, docs/compatibility.md: our broker's results beside those of Apache's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from .cells import NO_FAULT, OURS, Cell, Kind, Run, Verdict, is_apaches
from .text import MEANINGS, SIGNS, duration, printable

# Titles and descriptions of kinds of cells, and cells grouped by reason.

KIND_TITLES: Mapping[Kind, str] = {
    Kind.SCENARIO: "Scenarios",
    Kind.ACCOUNTS: "Accounts",
    Kind.WIRE: "Wire",
    Kind.STORE: "Store",
    Kind.MQADMIN: "mqadmin",
    Kind.ORACLE: "Oracle",
    Kind.TLS: "TLS",
    Kind.GRPC: "gRPC",
    Kind.PROXY: "Proxy",
    Kind.OWN_PROXY: "trocket proxy",
}

KIND_ABOUT: Mapping[Kind, str] = {
    Kind.SCENARIO: "Features of the clients on each broker, without and with faults.",
    Kind.ACCOUNTS: "The clients with access control of both generations: features with an account "
    "that may use them, and the refusals of others.",
    Kind.WIRE: "The same requests to two brokers, their answers compared field by field.",
    Kind.STORE: "Files written by one broker, opened and served by another.",
    Kind.MQADMIN: "The output of Apache's mqadmin, compared with its output for Apache's broker.",
    Kind.ORACLE: "Data that we encode, decoded by Apache's classes, and the reverse.",
    Kind.TLS: "Clients and brokers by TLS, with the files that `trocket tls init` made for all.",
    Kind.GRPC: "Clients that speak gRPC, on the broker's port; Apache's brokers need a proxy for "
    "them.",
    Kind.PROXY: "Clients that reach each broker through Apache's proxy in cluster mode, by gRPC "
    "and by its remoting port.",
    Kind.OWN_PROXY: "Clients that speak gRPC, through `trocket proxy` before each broker.",
}


def by_reason(cells: Iterable[Cell]) -> list[tuple[str, list[Cell]]]:
    """Group cells by their detail, in the order of the run."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.detail, []).append(cell)
    return list(found.items())


_ESCAPED = re.compile(r"([\\`*\[\]<>|#]|(?<!\w)_|_(?!\w))")

ABOUT = """\
Results of Apache's clients, tools and files with trocket, beside those with Apache's brokers. This
page is made by `trocket interop report RUN.json --markdown FILE` from a run of the harness.
"""
LEGEND = """\
In the tables: {meanings}. Where the verdicts in a field differ, numbers count the cells.
"""
NAMES_MAX = 6
"""Features named beside a reason; the rest is counted."""


def to_markdown(run: Run) -> str:
    """The page, with a newline at its end."""
    lines = [
        "# Compatibility",
        "",
        ABOUT,
        *_summary(run),
    ]
    for kind in Kind:
        cells = [cell for cell in run.cells if cell.kind is kind]
        if cells:
            lines += _kind(kind, cells)
    lines += _reasons(run, Verdict.FAILED, "Failures")
    lines += _reasons(run, Verdict.QUIRK, "Deliberate differences")
    lines += _reasons(run, Verdict.SKIPPED, "Skipped")
    return "\n".join(lines).rstrip() + "\n"


def _text(text: str) -> str:
    """One line of plain text, escaped for Markdown and its tables."""
    return _ESCAPED.sub(r"\\\1", " ".join(printable(text).split()))


def _summary(run: Run) -> list[str]:
    counts = run.counts()
    rows = [["kind", *(f"{SIGNS[verdict]} {verdict}" for verdict in Verdict)]]
    for kind in Kind:
        verdicts = [cell.verdict for cell in run.cells if cell.kind is kind]
        if verdicts:
            rows.append([KIND_TITLES[kind], *(f"{verdicts.count(each):,}" for each in Verdict)])
    rows.append(["all", *(f"{counts[verdict]:,}" for verdict in Verdict)])
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    meanings = "; ".join(f"{SIGNS[verdict]} {MEANINGS[verdict]}" for verdict in Verdict)
    size = f"{len(run.cells):,} cells, {_text(run.started_at[:10])}, {duration(run.seconds)}."
    return [f"{size} {_text(versions)}.", "", *_table(rows), "", LEGEND.format(meanings=meanings)]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *rest = rows
    marks = ["---", *("---" for _ in head[1:])]
    return ["| " + " | ".join(row) + " |" for row in (head, marks, *rest)]


def _kind(kind: Kind, cells: list[Cell]) -> list[str]:
    """A row for each feature (for its group, where it has one), a column for each client."""
    ours = [cell for cell in cells if not is_apaches(cell.broker)]
    apaches = [cell for cell in cells if is_apaches(cell.broker)]
    # For the store the broker says who opens whose files; it does not denote another broker.
    brokers = list(dict.fromkeys(cell.broker for cell in ours))
    columns = list(dict.fromkeys((cell.broker, cell.client) for cell in ours))
    others = list(dict.fromkeys(cell.broker for cell in apaches))
    heads = [client if brokers == [OURS] else f"{client}, {broker}" for broker, client in columns]
    rows = [["feature", *map(_text, heads), *(f"on {_text(broker)}" for broker in others)]]
    features = list(dict.fromkeys(_group(cell) for cell in cells))
    found: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        where = (cell.broker,) if is_apaches(cell.broker) else (cell.broker, cell.client)
        found.setdefault((_group(cell), *where), []).append(cell)
    for feature in features:
        row = [_signs(found.get((feature, *column), [])) for column in columns]
        row += [_signs(found.get((feature, broker), [])) for broker in others]
        rows.append([_text(feature), *row])
    return [f"## {KIND_TITLES[kind]}", "", KIND_ABOUT[kind], "", *_table(rows), ""]


def _group(cell: Cell) -> str:
    """A feature's group, such as a request code of the wire; without one, the feature itself."""
    return cell.feature.partition(": ")[0]


def _signs(cells: list[Cell]) -> str:
    """`✓`, or `✓ 3 ✗ 1`: faults and members of a group are counted together."""
    if not cells:
        return ""
    verdicts = [cell.verdict for cell in cells]
    found = [verdict for verdict in Verdict if verdict in verdicts]
    if len(found) == 1:
        return SIGNS[found[0]]
    return " ".join(f"{SIGNS[verdict]} {verdicts.count(verdict)}" for verdict in found)


def _reasons(run: Run, verdict: Verdict, title: str) -> list[str]:
    cells = [cell for cell in run.cells if cell.verdict is verdict]
    if not cells:
        return []
    lines = [f"## {title}", ""]
    for detail, same in by_reason(cells):
        reason = _text(detail.partition("\n")[0]) or "no reason given"
        lines.append(f"- {reason}: {_names(same)}")
    return [*lines, ""]


def _names(cells: Iterable[Cell]) -> str:
    """The names of cells, at most `NAMES_MAX`."""
    names = list(dict.fromkeys(_name(cell) for cell in cells))
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return "; ".join(names[:NAMES_MAX]) + more


def _name(cell: Cell) -> str:
    fault = "" if cell.fault == NO_FAULT else f", {cell.fault}"
    return _text(f"{cell.feature} ({cell.client} on {cell.broker}{fault})")
