"""A run as one HTML page that needs nothing else: no network, and scripts only to search.

The page is built as a tree, which escapes whatever is put into it when it is written. A cell that
did not pass is a button whose card is a popover, so that it opens by a tap and without scripts.
Style and script are beside this module, in page.css and page.js.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files
from xml.etree.ElementTree import Element

from .cells import NO_FAULT, OURS, Cell, Kind, Run, Verdict
from .matrix import (
    KIND_ABOUT,
    KIND_TITLES,
    Feature,
    Matrix,
    Row,
    alike,
    arrange,
    grouped,
    of_verdict,
)
from .node import document
from .node import node as _node
from .text import MEANINGS, SIGNS, WORST_FIRST, duration

CELLS_LISTED_MAX = 12
"""Cells named under one reason; the rest is counted, and marked in the matrix."""


def to_html(run: Run) -> bytes:
    """The page, in UTF-8."""
    page = _Page(run)
    main = _node("main", *page.sections())
    body = _node("body", page.header(), *page.switches(), main, page.footer())
    title = f"trocket interop, {run.started_at[:10]}"
    return document(title, body, _resource("page.css"), _resource("page.js"))


def _resource(name: str) -> str:
    """A file of this package; nobody else's text comes in that way, so it is not escaped."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _badge(verdict: Verdict, text: str | None = None) -> Element:
    label = SIGNS[verdict] if text is None else f"{SIGNS[verdict]} {text}"
    return _node("span", label, class_=f"badge {verdict}")


class _Page:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._matrices = [
            matrix for matrix in (arrange(kind, run.cells) for kind in Kind) if matrix.features
        ]
        self._has_faults = any(cell.fault != NO_FAULT for cell in run.cells)
        self._numbers: Mapping[str, int] = {
            cell.name: number for number, cell in enumerate(run.cells)
        }

    # ---- around the matrices -------------------------------------------------------------

    def header(self) -> Element:
        run = self._run
        counts = run.counts()
        tiles = [
            _node(
                "li",
                _node("b", f"{counts[verdict]:,}"),
                _node("span", _badge(verdict), f" {verdict}"),
                _node("small", MEANINGS[verdict]),
                class_=f"tile {verdict}",
            )
            for verdict in Verdict
        ]
        total = len(run.cells)
        bar = [
            _node("i", class_=str(verdict), style=f"flex-grow:{counts[verdict]}")
            for verdict in Verdict
            if counts[verdict]
        ]
        return _node(
            "header",
            _node("h1", "trocket ", _node("span", "interop")),
            _node(
                "p",
                f"{_count(total, 'cell')} in {duration(run.seconds)}, begun ",
                _node("time", _moment(run.started_at), datetime=run.started_at),
                class_="lead",
            ),
            _node("ul", *tiles, class_="tiles"),
            _node("div", *bar, class_="bar", aria_hidden="true"),
            self._versions(),
            self._navigation(),
        )

    def _versions(self) -> Element:
        pairs = [
            _node("div", _node("dt", name), _node("dd", version))
            for name, version in self._run.versions.items()
        ]
        return _node("dl", *pairs, class_="versions")

    def _navigation(self) -> Element:
        links = [
            _node(
                "a",
                KIND_TITLES[matrix.kind],
                " ",
                *self._kind_badges(matrix),
                href=f"#{matrix.kind}",
            )
            for matrix in self._matrices
        ]
        return _node("nav", *links)

    def _kind_badges(self, matrix: Matrix) -> list[Element]:
        verdicts = [cell.verdict for feature in matrix.features for cell in feature.cells()]
        return [
            _badge(verdict, f"{verdicts.count(verdict):,}")
            for verdict in Verdict
            if verdict in verdicts
        ]

    def sections(self) -> Iterable[Element]:
        """Failures, what is worse than with Apache, and the matrix of each kind."""
        yield self._filters()
        if self._run.failed:
            yield self._failures()
        worse = self._worse()
        if worse is not None:
            yield worse
        for matrix in self._matrices:
            yield self._section(matrix)

    def switches(self) -> Iterable[Element]:
        """What chooses rows, beside `main` and before it: so a plain selector of CSS can see it.

        (`:has` could see it anywhere, but makes Chromium style a page of this size for minutes.)
        """
        for value, _ in self._choices():
            yield _node(
                "input",
                type="radio",
                name="show",
                id=f"show-{value}",
                class_="switch",
                checked="checked" if value == "all" else None,
            )
        if self._has_faults:
            yield _node("input", type="checkbox", id="faults", class_="switch", checked="checked")

    def _choices(self) -> list[tuple[str, str]]:
        wanted = [verdict for verdict in WORST_FIRST if verdict is not Verdict.PASSED]
        return [("all", "all rows"), *((verdict, f"with {verdict}") for verdict in wanted)]

    def _filters(self) -> Element:
        labels = [_node("label", text, for_=f"show-{value}") for value, text in self._choices()]
        groups = [_node("div", *labels, class_="choice")]
        if self._has_faults:
            label = _node("label", "faults", for_="faults")
            groups.append(_node("div", label, class_="choice"))
        search = _node(
            "input",
            type="search",
            id="search",
            placeholder="search features",
            aria_label="search features",
            hidden="hidden",
        )
        return _node("form", *groups, search, class_="filters")

    def _failures(self) -> Element:
        cells = self._run.failed
        items = [
            _node(
                "details",
                _node("summary", _badge(Verdict.FAILED), " ", *_named(cell)),
                *_told(cell),
                open="open" if len(cells) <= CELLS_LISTED_MAX else None,
            )
            for cell in cells
        ]
        box = _node("div", *items, class_="long")
        return _node("section", _node("h2", "Failures"), box, id="failures", class_="list")

    def _worse(self) -> Element | None:
        mine = {_key(cell): cell for cell in self._run.cells if cell.broker == OURS}
        reasons: dict[tuple[Verdict, str], dict[str, Element]] = {}
        for cell in self._run.worse:
            own = mine.get(_key(cell))
            verdict = Verdict.SKIPPED if own is None else own.verdict
            detail = "not played on ours" if own is None else own.detail.partition("\n")[0]
            # The same is told of each of Apache's: once is enough.
            asked = reasons.setdefault((verdict, detail), {})
            asked["/".join(_key(cell))] = _node("span", *_asked(cell))
        if not reasons:
            return None
        items = [
            _node(
                "li",
                _node("p", _badge(verdict), " ", detail or "no reason was told", class_="reason"),
                _node("div", *asked.values(), class_="chips"),
            )
            for (verdict, detail), asked in reasons.items()
        ]
        return _node(
            "section",
            _node("h2", "Passed on Apache's broker, not on ours"),
            _node("ul", *items, class_="long"),
            id="worse",
            class_="list",
        )

    def footer(self) -> Element:
        command = _node("code", "trocket interop run")
        return _node("footer", "Made by ", command, ". Times are UTC.")

    # ---- a kind --------------------------------------------------------------------------

    def _section(self, matrix: Matrix) -> Element:
        cells = [cell for feature in matrix.features for cell in feature.cells()]
        notes = [
            note
            for verdict in (Verdict.QUIRK, Verdict.SKIPPED)
            for note in self._notes(of_verdict(cells, verdict), verdict)
        ]
        return _node(
            "section",
            _node("h2", KIND_TITLES[matrix.kind], " ", *self._kind_badges(matrix)),
            _node("p", KIND_ABOUT[matrix.kind]),
            _node(
                "div",
                self._table(matrix),
                class_="scroll",
                tabindex="0",
                role="region",
                aria_label=KIND_TITLES[matrix.kind],
            ),
            *notes,
            *(self._card(cell) for cell in cells if cell.verdict is not Verdict.PASSED),
            id=str(matrix.kind),
            class_="kind",
        )

    def _table(self, matrix: Matrix) -> Element:
        # Where there is but one client, as with the wire, its name is not worth a line.
        has_clients = len({client for _, client in matrix.places}) > 1
        corner = _node(
            "th",
            "feature",
            rowspan="2" if has_clients else None,
            class_="corner" if has_clients else "corner alone",
            scope="col",
        )
        brokers = [
            _node(
                "th",
                _node("span", broker),
                colspan=str(len(clients)),
                class_="broker" if has_clients else "broker alone",
            )
            for broker, clients in matrix.columns.items()
        ]
        clients = [
            _node("th", _node("span", place[1]), class_=f"client {self._edge(matrix, place) or ''}")
            for place in matrix.places
        ]
        heads = [[corner, *brokers], clients][: 2 if has_clients else 1]
        bodies = [
            body
            for group, features in grouped(matrix.features)
            for body in self._bodies(matrix, group, features)
        ]
        return _node(
            "table",
            _node("thead", *(_node("tr", *head) for head in heads)),
            *bodies,
        )

    def _bodies(self, matrix: Matrix, group: str, features: list[Feature]) -> Iterable[Element]:
        """A body for each feature, under a heading if they are a group."""
        if group:
            verdicts = {cell.verdict for feature in features for cell in feature.cells()}
            heading = _node("th", group, scope="rowgroup")
            # An empty cell in each column keeps the lines between brokers unbroken.
            blanks = [_node("td", class_=self._edge(matrix, place)) for place in matrix.places]
            yield _node(
                "tbody",
                _node("tr", heading, *blanks, class_="group"),
                data_has=" ".join(sorted(verdicts)),
                data_name=" ".join([group, *(feature.title for feature in features)]).lower(),
            )
        for feature in features:
            verdicts = {cell.verdict for cell in feature.cells()}
            yield _node(
                "tbody",
                *(
                    self._row(matrix, feature, row, number)
                    for number, row in enumerate(feature.rows)
                ),
                data_has=" ".join(sorted(verdicts)),
                data_name=f"{group} {feature.title}".strip().lower(),
            )

    def _row(self, matrix: Matrix, feature: Feature, row: Row, number: int) -> Element:
        label: list[Element | str] = []
        if number == 0:
            label += _breakable(feature.title)
        if row.fault != NO_FAULT:
            label.append(_node("span", row.fault, class_="fault"))
        classes = " ".join(
            filter(None, ("sub" if number else "", "member" if feature.group else ""))
        )
        head = _node("th", *label, scope="row")
        cells = [
            self._cell(row.cells.get(place), self._edge(matrix, place)) for place in matrix.places
        ]
        return _node("tr", head, *cells, class_=classes or None)

    @staticmethod
    def _edge(matrix: Matrix, place: tuple[str, str]) -> str | None:
        broker, client = place
        return "first" if matrix.columns[broker][0] == client else None

    def _cell(self, cell: Cell | None, edge: str | None) -> Element:
        if cell is None:
            return _node("td", class_=edge)
        title = f"{cell.verdict}: {cell.feature}, {cell.client} on {cell.broker}"
        if cell.fault != NO_FAULT:
            title += f", {cell.fault}"
        sign = SIGNS[cell.verdict]
        if cell.verdict is Verdict.PASSED:
            inner = _node(
                "span", sign, class_="mark passed", title=f"{title} ({duration(cell.seconds)})"
            )
        else:
            inner = _node(
                "button",
                sign,
                type="button",
                class_=f"mark {cell.verdict}",
                popovertarget=self._card_id(cell),
                title=f"{title}\n{cell.detail.partition(chr(10))[0]}",
            )
        return _node("td", inner, class_=edge)

    def _card_id(self, cell: Cell) -> str:
        return f"cell-{self._numbers[cell.name]}"

    def _card(self, cell: Cell) -> Element:
        close = _node(
            "button",
            "\N{MULTIPLICATION SIGN}",
            type="button",
            class_="close",
            popovertarget=self._card_id(cell),
            popovertargetaction="hide",
            aria_label="close",
        )
        return _node(
            "div",
            _node("h3", _badge(cell.verdict, str(cell.verdict)), " ", cell.feature, close),
            _node("p", *_where(cell), class_="where"),
            *_told(cell),
            popover="auto",
            id=self._card_id(cell),
            class_="card",
        )

    def _notes(self, cells: list[Cell], verdict: Verdict) -> Iterable[Element]:
        """One folded list of reasons, each with the cells that it explains."""
        if not cells:
            return
        items = []
        for detail, same in alike(cells):
            places = [_node("li", *_named(cell)) for cell in same[:CELLS_LISTED_MAX]]
            if len(same) > CELLS_LISTED_MAX:
                places.append(_node("li", f"and {len(same) - CELLS_LISTED_MAX:,} more"))
            reason = _node("p", detail or "no reason was told", class_="reason")
            items.append(_node("li", reason, _node("ul", *places)))
        title = "Deliberate differences" if verdict is Verdict.QUIRK else "Not tried"
        yield _node(
            "details",
            _node("summary", _badge(verdict), f" {title}: ", _count(len(cells), "cell")),
            _node("ul", *items),
            class_="notes",
        )


def _key(cell: Cell) -> tuple[str, ...]:
    return cell.kind, cell.feature, cell.client, cell.fault


def _breakable(name: str) -> list[Element | str]:
    """A name that may go on in the next line after each underscore."""
    first, *rest = name.split("_")
    parts: list[Element | str] = [first]
    for part in rest:
        parts += ["_", _node("wbr"), part]
    return parts


def _asked(cell: Cell) -> list[Element | str]:
    parts: list[Element | str] = [_node("code", cell.feature), " ", cell.client]
    if cell.fault != NO_FAULT:
        parts += [", ", _node("span", cell.fault, class_="fault")]
    return parts


def _where(cell: Cell) -> list[Element | str]:
    parts: list[Element | str] = [_node("b", cell.client), " on ", _node("b", cell.broker)]
    if cell.fault != NO_FAULT:
        parts += [", ", _node("span", cell.fault, class_="fault")]
    if cell.seconds:
        parts.append(f", {duration(cell.seconds)}")
    return parts


def _named(cell: Cell) -> list[Element | str]:
    return [_node("code", cell.feature), " ", *_where(cell)]


def _told(cell: Cell) -> Iterable[Element]:
    if cell.detail:
        yield _node("pre", cell.detail, class_="detail")
    if cell.frames:
        frames = [_node("code", frame) for frame in cell.frames]
        yield _node("div", *frames, class_="frames")


def _moment(started_at: str) -> str:
    """`2026-11-22 03:00` of an ISO time."""
    return started_at[:16].replace("T", " ")
