"""The page of a chaos run: one HTML file with a timeline, no script, no network. Pure.

The plots are SVG that stretches with the page and has no text; labels are HTML beside them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from trocket.bench.chaos_ledger import GAP_S, Fault
from trocket.bench.chaos_report import ClientFigures, Report

WIDTH: Final = 1000
"""Of all plots, in units of their own."""
HEIGHT: Final = 40
"""Of one client's plot."""
BARS_MAX: Final = 500
"""Of one plot: more would be narrower than a pixel."""
TICKS: Final = 6
"""Times under the plots."""

CUT: Final = 3
"""Times the median: higher bars of a plot are cut, as a consumer that catches up has some."""

LANES: Final[dict[str, tuple[str, ...]]] = {
    "brokers": ("master", "slave", "both"),
    "controller": ("controller",),
    "name servers": ("namesrv",),
    "clients": (),
}
"""Rows of faults, and the targets of each; the last has all others."""

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --line: #d1d9e0;
  --page: #ffffff; --bar: #2f6fb5; --gap: #d1242f33; --fault: #bf8700; --band: #bf870022;
  --good: #1a7f37; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d;
  --page: #0d1117; --bar: #58a6ff; --gap: #f8514955; --fault: #d29922; --band: #d2992222;
  --good: #3fb950; --bad: #f85149; } }
body { margin: 0 auto; padding: 1.5rem; max-width: 75rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; color: var(--soft); max-width: 60rem; }
.good { color: var(--good); } .bad { color: var(--bad); }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0; }
.tiles div { border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .9rem; }
.tiles b { display: block; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--soft); font-size: .85rem; }
.plot { display: grid; grid-template-columns: 8.5rem 1fr; gap: 2px .75rem; align-items: center; }
.plot span { font-size: .85rem; text-align: right; color: var(--soft); }
.plot svg { display: block; width: 100%; height: 2.6rem; border-bottom: 1px solid var(--line); }
.plot svg.lane { height: 1.1rem; }
.ticks { display: flex; justify-content: space-between; font-size: .8rem; color: var(--soft); }
svg .bar { fill: var(--bar); } svg .gap { fill: var(--gap); } svg .fault { fill: var(--fault); }
svg .band { fill: var(--band); } svg .failed { fill: var(--bad); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
th, td { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; } td.n, th.n { text-align: right; }
"""


def page(report: Report) -> bytes:
    """The report as HTML, in UTF-8."""
    parts = [
        _header(report),
        _timeline(report),
        _clients(report),
        _repeats(report),
        _kinds(report.faults),
        _faults(report.faults),
        _errors(report),
    ]
    title = f"Chaos, {report.minutes:g} minutes, seed {report.seed}"
    text = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )
    return text.encode()


def clock(at_s: float) -> str:
    """A moment of the run as minutes and seconds: 12:05."""
    minutes, seconds = divmod(max(round(at_s), 0), 60)
    return f"{minutes}:{seconds:02}"


# ---- figures -----------------------------------------------------------------------------


def _header(report: Report) -> str:
    verdict = report.verdict
    outcome = "Nothing was lost" if report.is_good else "Something went wrong"
    tiles = [
        (f"{verdict.confirmed:,}", "messages confirmed", ""),
        (f"{report.deliveries:,}", "deliveries", ""),
        (f"{len(report.faults):,}", "faults", ""),
        (f"{report.kills:,}", "processes killed", ""),
        *(
            (f"{count:,}", words, "bad" if count else "good")
            for count, words in (
                (verdict.lost, "confirmed and lost"),
                (verdict.unseen, "not consumed"),
                (verdict.disordered, "out of order"),
                (verdict.doubled, "offsets with two messages"),
                (verdict.taken_back, "offsets taken back"),
                (len(report.problems), "other problems"),
            )
        ),
        (f"{sum(report.by_reason.values()):,}", "repeats", ""),
    ]
    made = "".join(
        f'<div><b class="{colour}">{value}</b><span>{words}</span></div>'
        for value, words, colour in tiles
    )
    colour = "good" if report.is_good else "bad"
    lines = [f"{kind}: {'; '.join(places)}" for kind, places in verdict.examples.items()]
    lines += report.problems
    lines += [f"Left out: {name}: {reason}" for name, reason in report.missing.items()]
    return (
        f'<h1 class="{colour}">{outcome}</h1>'
        f"<p>{report.minutes:g} minutes of faults with seed {report.seed};"
        f" the whole run took {clock(report.seconds)}.</p>"
        f'<div class="tiles">{made}</div>' + "".join(f"<p>{escape(line)}</p>" for line in lines)
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> str:
    """A table; `numbers`: the columns that are set flush right."""

    sides = ("t", "n")

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="{sides[column in numbers]}">{escape(cell)}</{tag}>'
            for column, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{cells("th", head)}</tr>{body}</table></div>'


def _clients(report: Report) -> str:
    rows = [
        (
            name,
            f"{each.count:,}",
            f"{each.longest_gap_s:.1f}",
            clock(each.gap_from_s),
            ", ".join(each.gap_during) or "no fault",
        )
        for name, each in report.clients.items()
    ]
    head = ("client", "count", "longest gap, s", "from", "during")
    return (
        "<h2>Clients</h2><p>A producer's gap ends with its next confirmed send, a consumer's with"
        " its next message. The faults of clients themselves count, too.</p>"
        + _table(head, rows, (1, 2, 3))
    )


def _repeats(report: Report) -> str:
    groups = list(report.repeats)
    if not groups:
        return "<h2>Repeats</h2><p>No group was given a message twice.</p>"
    rows = [
        (reason, *(f"{report.repeats[group].get(reason, 0):,}" for group in groups), f"{count:,}")
        for reason, count in report.by_reason.items()
    ]
    return (
        "<h2>Repeats</h2><p>Deliveries of a message to a group that had been given it before, by"
        " the last fault that can be the reason.</p>"
        + _table(("reason", *groups, "all"), rows, range(1, len(groups) + 2))
    )


def _kinds(faults: Sequence[Fault]) -> str:
    lengths: defaultdict[str, list[float]] = defaultdict(list)
    for fault in faults:
        lengths[fault.kind].append(fault.until_s - fault.from_s)
    rows = [
        (kind, str(len(some)), f"{sum(some) / len(some):.1f}", f"{max(some):.1f}")
        for kind, some in sorted(lengths.items())
    ]
    head = ("kind", "count", "mean, s", "longest, s")
    return (
        "<h2>Faults by kind</h2><p>From its beginning until all brokers are in sync again.</p>"
        + _table(head, rows, (1, 2, 3))
    )


def _faults(faults: Sequence[Fault]) -> str:
    rows = [
        (
            clock(fault.from_s),
            fault.kind,
            fault.target,
            f"{fault.until_s - fault.from_s:.1f}",
            fault.problem,
        )
        for fault in faults
    ]
    head = ("at", "kind", "of", "length, s", "problem")
    return f"<h2>All faults</h2>{_table(head, rows, (0, 3))}"


def _errors(report: Report) -> str:
    rows = [
        (name, f"{count:,}", text)
        for name, some in report.errors.items()
        for text, count in Counter(some).most_common()
    ]
    if not rows:
        return ""
    return "<h2>Failed sends</h2><p>Each was sent again until it was confirmed.</p>" + _table(
        ("client", "count", "error"), rows, (1,)
    )


# ---- the timeline ------------------------------------------------------------------------


def _timeline(report: Report) -> str:
    length_s = max(report.seconds, 1.0)
    rows = [_row(name, _lane(_of_lane(report.faults, name), length_s), "lane") for name in LANES]
    for name, each in report.clients.items():
        rows.append(_row(name, _plot(each, report.faults, length_s), "rate"))
    ticks = "".join(f"<i>{clock(length_s * n / TICKS)}</i>" for n in range(TICKS + 1))
    rows.append(f'<span></span><div class="ticks">{ticks}</div>')
    return (
        "<h2>Timeline</h2><p>Above, the faults. Below, what each client sent or took; each plot"
        f" has its own scale, and ends at {CUT} times the usual rate. Red: {GAP_S:g} s and more"
        " without anything. Point at a mark for its text.</p>"
        f'<div class="plot">{"".join(rows)}</div>'
    )


def _of_lane(faults: Iterable[Fault], lane: str) -> list[Fault]:
    known = {target for targets in LANES.values() for target in targets}
    targets = LANES[lane]
    return [
        fault
        for fault in faults
        if (fault.target in targets if targets else fault.target not in known)
    ]


def _row(name: str, marks: str, kind: str) -> str:
    return (
        f'<span>{escape(name)}</span><svg class="{kind}" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' preserveAspectRatio="none" role="img" aria-label="{escape(name)}">{marks}</svg>'
    )


def _mark(kind: str, from_s: float, until_s: float, length_s: float, words: str) -> str:
    """A rectangle over the whole height of a plot, at least one unit wide."""
    left = from_s / length_s * WIDTH
    width = max((min(until_s, length_s) - from_s) / length_s * WIDTH, 1.0)
    return (
        f'<rect class="{kind}" x="{left:.2f}" y="0" width="{width:.2f}" height="{HEIGHT}">'
        f"<title>{escape(words)}</title></rect>"
    )


def _words(fault: Fault) -> str:
    length_s = fault.until_s - fault.from_s
    text = f"{fault.kind} of {fault.target} at {clock(fault.from_s)}, {length_s:.1f} s"
    return f"{text}: {fault.problem}" if fault.problem else text


def _lane(faults: Iterable[Fault], length_s: float) -> str:
    return "".join(
        _mark(
            "failed" if fault.problem else "fault",
            fault.from_s,
            fault.until_s,
            length_s,
            _words(fault),
        )
        for fault in faults
    )


def _plot(figures: ClientFigures, faults: Iterable[Fault], length_s: float) -> str:
    marks = [
        _mark("band", fault.from_s, fault.until_s, length_s, _words(fault)) for fault in faults
    ]
    marks += [
        _mark("gap", from_s, from_s + gap_s, length_s, f"{gap_s:.1f} s from {clock(from_s)} on")
        for from_s, gap_s in figures.gaps
    ]
    step = max(int(length_s / BARS_MAX) + 1, 1)
    counts = figures.per_second
    sums = [sum(counts[first : first + step]) for first in range(0, len(counts), step)]
    some = sorted(filter(None, sums)) or [1]
    highest = min(some[-1], CUT * some[len(some) // 2])
    points = ["0,40"]
    for number, total in enumerate(sums):
        left, right = (each * step / length_s * WIDTH for each in (number, number + 1))
        top = HEIGHT - min(total / highest, 1.0) * HEIGHT
        points += [f"{left:.2f},{top:.2f}", f"{min(right, WIDTH):.2f},{top:.2f}"]
    points.append(f"{points[-1].partition(',')[0]},{HEIGHT}")
    words = f"at most {some[-1] / step:.0f} a second"
    marks.append(
        f'<polygon class="bar" points="{" ".join(points)}"><title>{words}</title></polygon>'
    )
    return "".join(marks)
