"""The HTML page of `lag_and_store_report`: one file, no script, no network. Pure.

Plots are SVG without text that stretches with the page; their labels are HTML around it, so that
they stay readable on a phone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote
from xml.etree.ElementTree import Element

from .node import document, node

COLOURS: Final = 6
"""Topics with a colour each; the others share one."""
DAYS_MAX: Final = 60
GROUPS_MAX: Final = 40
SKEWED: Final = 2.0
"""The ratio of the fullest queue to the mean that the page highlights."""

Rows = Sequence[Mapping[str, Any]]


def page(report: Mapping[str, Any]) -> bytes:
    """The report as HTML, in UTF-8."""
    made = [_losses(report), _lag(report), _arrivals(report), _bytes(report), _queues(report),
            _keys(report), _duplicates(report)]  # fmt: skip
    sections = [section for section in made if section is not None]
    main = node("main", _contents(sections), *sections)
    footer = node(
        "footer",
        "Made by ",
        node("code", "trocket pipeline lag_and_store_report"),
        "; times are UTC. The numbers are in ",
        node("a", "report.json", href="report.json"),
        ", the tables beside it as Parquet.",
    )
    style = files(__package__).joinpath("report_page.css").read_text(encoding="utf-8")
    title = f"trocket, {report['source']}, {_moment(report['at_ms'])}"
    return document(title, node("body", _header(report), main, footer), style)


def _header(report: Mapping[str, Any]) -> Element:
    lag = sum(row["lag"] for row in report["lag"])
    oldest = max((row["age_s"] or 0 for row in report["lag"]), default=0)
    lost = len({row["group"] for row in report["lag"] if row["lost"] or row["is_at_risk"]})
    total = sum(row["bytes"] for row in report["bytes"])
    messages = sum(row["messages"] for row in report["bytes"])
    tiles = (
        ("", _short(messages), "messages", f"{size(total)} of {report['bytes_of']}"),
        ("", _short(lag), "not consumed", "over all groups"),
        ("", span(oldest) if oldest else "0 s", "oldest unread", "age of the next message"),
        (
            "failed" if lost else "passed",
            str(lost),
            "group loses data" if lost == 1 else "groups lose data",
            "already, or soon",
        ),
    )
    return node(
        "header",
        node("h1", "Lag and store ", node("span", _moment(report["at_ms"]))),
        node("p", "Of ", node("code", str(report["source"])), class_="lead"),
        node(
            "ul",
            *(
                node(
                    "li",
                    node("b", number),
                    node("span", what),
                    node("small", more),
                    class_=f"tile {kind}".strip(),
                )
                for kind, number, what, more in tiles
            ),
            class_="tiles",
        ),
    )


def _section(title: str, text: str, *children: Element, class_: str | None = None) -> Element:
    place = title.lower().replace(" ", "-")
    return node("section", node("h2", title), node("p", text), *children, class_=class_, id=place)


def _contents(sections: Sequence[Element]) -> Element:
    """Links to the sections."""
    links = [
        node("a", section.findtext("h2") or "", href=f"#{section.get('id')}")
        for section in sections
    ]
    return node("nav", *links, aria_label="Contents")


def _of_topic(topic: str) -> str:
    """The id of a topic's place among the queues; `%` keeps other characters out."""
    return f"queues-{quote(topic, safe='')}"


# ---- groups ------------------------------------------------------------------------------


def _losses(report: Mapping[str, Any]) -> Element | None:
    found = [row for row in report["lag"] if row["lost"] or row["is_at_risk"]]
    if not found:
        return None
    rows = [
        [
            row["group"],
            _queue(row),
            f"{row['lost']:,} lost" if row["lost"] else "soon",
            "-" if row["age_s"] is None else span(row["age_s"]),
            f"{row['lag']:,}",
        ]
        for row in found[:GROUPS_MAX]
    ]
    text = (
        "Messages that were deleted before these groups read them, or that retention"
        f" ({report['retention_hours']:g} h) is about to delete."
    )
    table = _table(("group", "queue", "loss", "next unread", "lag"), rows, numbers=(4,))
    return _section("Losing data", text, table, class_="list")


def _lag(report: Mapping[str, Any]) -> Element:
    totals: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in report["lag"]:
        totals[row["group"], row["topic"]].append(row)
    sums = sorted(
        ((sum(row["lag"] for row in rows), key, rows) for key, rows in totals.items()),
        key=lambda each: (-each[0], each[1]),
    )
    if not sums:
        return _section("Lag", "No group has committed an offset.")
    most = max(total for total, _, _ in sums) or 1
    children = []
    for total, (group, topic), rows in sums[:GROUPS_MAX]:
        facts = [f"{total:,}"]
        ages = [row["age_s"] for row in rows if row["age_s"] is not None]
        if ages:
            facts.append(f"oldest {span(max(ages))}")
        slopes = [row["slope"] for row in rows if row["slope"] is not None]
        if slopes:
            facts.append(_slope(sum(slopes), total))
        widest = max(row["lag"] for row in rows)
        marks = [(row["lag"], f"{_queue(row)}: {row['lag']:,}") for row in rows]
        children.append(
            node(
                "li",
                node("div", node("b", group), " ",
                     node("a", topic, href=f"#{quote(_of_topic(topic))}", class_="soft"),
                     class_="what"),
                node("div", " · ".join(facts), class_="facts"),
                _bar(total / most, f"{group}, {topic}: {total:,} messages"),
                *(_strip_with_axis(rows, marks, widest) if widest and len(rows) > 1 else ()),
            )
        )  # fmt: skip
    more = f" The {GROUPS_MAX} longest of {len(sums)}." if len(sums) > GROUPS_MAX else ""
    text = "Messages that each group has not consumed; the small columns are the queues." + more
    return _section("Lag", text, node("ul", *children, class_="bars"))


def _slope(slope: float, lag: int) -> str:
    if slope < 0 and lag:
        return f"falls by {-slope:,.1f}/s, gone in {span(lag / -slope)}"
    return f"grows by {slope:,.1f}/s" if slope > 0 else "steady"


# ---- bytes -------------------------------------------------------------------------------


def _bytes(report: Mapping[str, Any]) -> Element:
    by_topic: dict[str, int] = defaultdict(int)
    messages: dict[str, int] = defaultdict(int)
    by_day: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in report["bytes"]:
        by_topic[row["topic"]] += row["bytes"]
        messages[row["topic"]] += row["messages"]
        by_day[row["day"]][row["topic"]] += row["bytes"]
    order = sorted(by_topic, key=lambda topic: (-by_topic[topic], topic))
    colour = {topic: min(place, COLOURS) for place, topic in enumerate(order)}
    days = _days(by_day)[-DAYS_MAX:]
    most = max(sum(by_day[day].values()) for day in days)
    rows: list[list[str | Element]] = []
    for topic in order:
        swatch = node("i", class_=f"swatch c{colour[topic]}")
        share = by_topic[topic] / (sum(by_topic.values()) or 1)
        rows.append([node("span", swatch, "\N{NO-BREAK SPACE}", topic), f"{messages[topic]:,}",
                     size(by_topic[topic]), f"{share:.1%}"])  # fmt: skip
    columns = [
        [
            (count, colour[topic], f"{day}, {topic}: {size(count)}")
            for topic in order
            if (count := by_day[day][topic])
        ]
        for day in days
    ]
    ends = [node("span", days[0])] + [node("span", day) for day in days[1:][-1:]]
    figure = node(
        "figure",
        node("div", f"{size(most)} a day", class_="axis"),
        _columns(columns, most),
        node("div", *ends, class_="axis"),
    )
    text = f"Bytes of {report['bytes_of']} that are kept, by the day they were stored."
    table = _table(("topic", "messages", "bytes", "share"), rows, numbers=(1, 2, 3))
    return _section("Bytes by topic and day", text, figure, table)


def _days(found: Iterable[str]) -> list[str]:
    """All days from the first to the last, including those without messages."""
    known = sorted(found)
    first, last = (date.fromisoformat(day) for day in (known[0], known[-1]))
    count = (last - first).days + 1
    if count > DAYS_MAX * 2:  # a clock was wrong: show only days with messages
        return known
    return [(first + timedelta(days=number)).isoformat() for number in range(count)]


# ---- arrivals ----------------------------------------------------------------------------


def _arrivals(report: Mapping[str, Any]) -> Element | None:
    """Messages over time; None: the report is of an older version."""
    found = report.get("arrivals")
    if not found:
        return None
    by_topic: dict[str, int] = defaultdict(int)
    for row in found:
        by_topic[row["topic"]] += row["messages"]
    order = sorted(by_topic, key=lambda topic: (-by_topic[topic], topic))
    colour = {topic: min(place, COLOURS) for place, topic in enumerate(order)}
    step_ms = report["arrivals_step_ms"]
    first = min(row["at_ms"] for row in found)
    count = (max(row["at_ms"] for row in found) - first) // step_ms + 1
    columns: list[list[tuple[int, int, str]]] = [[] for _ in range(count)]
    for row in sorted(found, key=lambda row: order.index(row["topic"])):
        title = f"{_moment(row['at_ms'])}, {row['topic']}: {row['messages']:,}"
        column = columns[(row["at_ms"] - first) // step_ms]
        column.append((row["messages"], colour[row["topic"]], title))
    most = max(sum(part[0] for part in column) for column in columns)
    ends = [node("span", _moment(first)), node("span", _moment(first + (count - 1) * step_ms))]
    legend = [
        node("span", node("i", class_=f"swatch c{colour[topic]}"), "\N{NO-BREAK SPACE}", topic)
        for topic in order[:COLOURS]
    ]
    figure = node(
        "figure",
        node("div", f"{most:,} in {span(step_ms / 1000)}", class_="axis"),
        _columns(columns, most, "messages over time"),
        node("div", *ends[: min(count, 2)], class_="axis"),
        node("div", *legend, class_="legend"),
    )
    text = (
        f"Messages that are kept, by the time they were stored; a column is {span(step_ms / 1000)}."
    )
    return _section("Messages over time", text, figure)


# ---- queues, keys, duplicates ------------------------------------------------------------


def _queues(report: Mapping[str, Any]) -> Element | None:
    topics: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in report["queues"]:
        topics[row["topic"]].append(row)
    skews = []
    for topic, rows in topics.items():
        most = max(row["messages"] for row in rows)
        mean = sum(row["messages"] for row in rows) / len(rows)
        skews.append((most / mean, topic, most, rows))
    skews.sort(key=lambda each: (-each[0], each[1]))
    if not skews:
        return None
    children = []
    for skew, topic, most, rows in skews[:GROUPS_MAX]:
        marks = [(row["messages"], f"{_queue(row)}: {row['messages']:,}") for row in rows]
        children.append(
            node(
                "li",
                node("div", node("b", topic), class_="what"),
                node("div", f"{len(rows)} queues · fullest {skew:.1f} times the mean",
                     class_="facts bad" if skew >= SKEWED else "facts"),
                *_strip_with_axis(rows, marks, most),
                id=_of_topic(topic),
            )
        )  # fmt: skip
    text = "Messages in each queue that has any: one far above the others makes its consumer late."
    return _section("Queues", text, node("ul", *children, class_="bars"))


def _keys(report: Mapping[str, Any]) -> Element | None:
    rows = [
        [row["topic"], row["key"], f"{row['messages']:,}", _bar(row["share"], ""),
         f"{row['share']:.1%}"]
        for row in report["hot_keys"]
    ]  # fmt: skip
    if not rows:
        return None
    table = _table(("topic", "key", "messages", "", "share"), rows, numbers=(2, 4))
    return _section("Hot keys", "The most frequent keys of each topic.", table)


def _duplicates(report: Mapping[str, Any]) -> Element:
    count = report["duplicate_count"]
    if not count:
        return _section("Duplicates", "No message id of a producer is stored twice in a topic.")
    shown = report["duplicates"][:GROUPS_MAX]
    rows = [
        [row["topic"], node("code", row["uniqKey"]), str(row["copies"]), _moment(row["first_ms"]),
         span((row["last_ms"] - row["first_ms"]) / 1000)]
        for row in shown
    ]  # fmt: skip
    text = f"{count:,} message ids are stored more than once in a topic: retried sends."
    if count > len(shown):
        text += f" {len(shown)} of them:"
    table = _table(("topic", "id", "copies", "first", "until the last"), rows, numbers=(2,))
    return _section("Duplicates", text, table)


# ---- shapes ------------------------------------------------------------------------------


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str | Element]], *, numbers: Sequence[int]
) -> Element:
    def cells(tag: str, row: Sequence[str | Element]) -> list[Element]:
        return [
            node("th" if tag == "td" and not place else tag, cell,
                 class_="number" if place in numbers else None)
            for place, cell in enumerate(row)
        ]  # fmt: skip

    head = node("thead", node("tr", *cells("td", heads)))
    body = node("tbody", *(node("tr", *cells("td", row)) for row in rows))
    return node("div", node("table", head, body, class_="plain"), class_="scroll long")


def _svg(width: float, shapes: Iterable[Element], label: str, class_: str) -> Element:
    return node(
        "svg", *shapes, viewBox=f"0 0 {width:g} 100", preserveAspectRatio="none", role="img",
        aria_label=label, class_=class_,
    )  # fmt: skip


def _rect(x: float, y: float, width: float, height: float, class_: str, title: str) -> Element:
    places = {"x": x, "y": y, "width": width, "height": height}
    texts = {name: f"{value:.4g}" for name, value in places.items()}
    return node("rect", *([node("title", title)] if title else []), class_=class_, **texts)


def _bar(share: float, label: str) -> Element:
    """A horizontal bar; a share above 0 is always visible."""
    width = max(share * 100, 0.4) if share > 0 else 0
    back = _rect(0, 0, 100, 100, "back", "")
    return _svg(100, [back, _rect(0, 0, width, 100, "c0", label)], label, "bar-plot")


def _strip_with_axis(
    rows: Rows, marks: Sequence[tuple[int, str]], most: int
) -> tuple[Element, Element]:
    """A small column for each queue, and the names of the first and the last one."""
    plot = _strip(marks, most)
    names = [f"{row['brokerName']}/{row['queueId']}" for row in rows]
    axis = node("div", *(node("span", name) for name in [names[0], *names[1:][-1:]]), class_="axis")
    axis.set("style", f"max-width:{max(len(marks) * 2.2, 14):g}rem")
    return plot, axis


def _strip(marks: Sequence[tuple[int, str]], most: int) -> Element:
    """A small column for each queue."""
    shapes = [_rect(place * 10 + 1, 0, 8, 100, "back", title)
              for place, (_, title) in enumerate(marks)]  # fmt: skip
    for place, (count, title) in enumerate(marks):
        height = max(count / (most or 1) * 100, 4) if count else 0
        shapes.append(_rect(place * 10 + 1, 100 - height, 8, height, "c1", title))
    plot = _svg(len(marks) * 10, shapes, "by queue", "strip")
    plot.set("style", f"max-width:{len(marks) * 2.2:g}rem")
    return plot


def _columns(
    days: Sequence[Sequence[tuple[int, int, str]]], most: int, label: str = "bytes by day"
) -> Element:
    """A column for each day or step, of (count, colour, title) one above the other."""
    shapes = []
    for place, parts in enumerate(days):
        top = 100.0
        for count, colour, title in parts:
            height = count / (most or 1) * 100
            top -= height
            shapes.append(_rect(place * 10 + 0.75, top, 8.5, height, f"c{colour}", title))
    plot = _svg(len(days) * 10, shapes, label, "columns")
    plot.set("style", f"max-width:{max(len(days) * 5, 8):g}rem")
    return plot


# ---- strings -------------------------------------------------------------------------------


def _queue(row: Mapping[str, Any]) -> str:
    return f"{row['topic']} {row['brokerName']}/{row['queueId']}"


def _moment(milliseconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)


def span(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min`, `5 h`, `12 days`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, size_s, below in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < below:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{seconds / 86_400:.1f} days"


def size(count: int) -> str:
    """`512 B`, `1.5 kB`, `30 MB`; powers of ten."""
    number, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        units.pop(0)
    digits = 0 if units[0] == "B" or number >= 100 else 1
    return f"{number:.{digits}f} {units[0]}"


def _short(count: int) -> str:
    """A number for a tile: all digits, or millions."""
    return f"{count:,}" if count < 10_000_000 else f"{count / 1e6:,.1f} M"
