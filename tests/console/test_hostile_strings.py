"""Strings of clients on every page that shows them, in each field, found by the pages' structs."""

from __future__ import annotations

import csv
import inspect
import io
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints
from urllib.parse import quote, urlencode

import msgspec
import pytest

from trocket.console.bodies.decoder import DecoderFailure
from trocket.console.charts import Chart
from trocket.console.findings import Finding
from trocket.console.pages.message import KINDS
from trocket.console.pages.page import Page
from trocket.console.pages.table import CHANGES, NAMES, PAGES
from trocket.console.rendering import Renderer, to_csv, to_json
from trocket.console.roles import Person, Role
from trocket.console.shown_text import shown
from trocket.console.texts import texts_of
from trocket.operations.doctor.findings import Names, Pair, Pairs
from trocket.operations.file_deletion import DeletionState
from trocket.operations.message_search.search_box import Meaning
from trocket.operations.transactions import Answerer

from .filled import Filler
from .running import Browser
from .test_pages import QUERIES

MEBIBYTE = 1 << 20
STRINGS = {
    "script": "<script>alert(1)</script>",
    "link": "javascript:alert(1)",
    "attribute": "\"'><img src=x onerror=alert(1)>",
    "template": "{{ 7 * 7 }}{text.__class__}%s%(name)s",
    "turned": "gpj\u202eexe",
    "nul": "a\0b",
    "surrogate": "a\ud800b",
    "no UTF-8": b"a\xff\xfeb".decode("utf-8", "replace"),
    "long": "x" * MEBIBYTE,
}
"""What clients may write into any of their strings."""


class Form(NamedTuple):
    """A page, or the preview of a change.

    Attributes:
      struct: what its template shows.
      page: None: it is the preview of a change.
    """

    name: str
    struct: type
    section: str
    page: Page | None


def _form(page: Any) -> Form:
    view = page.view if isinstance(page, Page) else page.preview
    shown = page if isinstance(page, Page) else None
    return Form(page.name, get_type_hints(view)["return"], page.section or page.name, shown)


FORMS = {page.name: _form(page) for page in (*PAGES, *CHANGES)}
CHANGE_NAMES = tuple(change.name for change in CHANGES)
CHART = Chart(("M0 0", "M0 0"), "", 1.0, 1_000, 2_000)
SETTINGS = {"plan[].before.keys": ("perm",), "plan[].after.keys": ("perm",)}
FINDINGS = {
    "findings[].severity": ("problem", "warning"),
    "findings[].kind": ("",),
    "findings[].values": ({},),
    "findings[].page": ("group",),
    "findings[].query.keys": ("group",),
}
ANSWERERS = tuple(each.name for each in Answerer)
CLOSED: dict[str, dict[str, tuple[Any, ...]]] = {
    "overview": FINDINGS
    | {
        "charts": (dict.fromkeys(("rates", "lag", "disk"), CHART),),
    },
    "message": {
        "kinds": (KINDS,),
        "life.outcomes[].refusals[].term": (str, ""),
        "decoded.failure": ("", *(each.value for each in DecoderFailure)),
        "body.view.rows[].hex": ("00",),
        "body.view.rows[].text": (".",),
    },
    "broker": FINDINGS | {"deletion.state": tuple(each.name for each in DeletionState)},
    "group": {"chart": (CHART,)},
    "transactions": {"open[].answerer": ANSWERERS, "given_up[].half.answerer": ANSWERERS},
    "resume_check": {"answerer": ANSWERERS},
    "search": {"guesses[].0": tuple(each.value for each in Meaning)},
    "audit": {"changes[].what": CHANGE_NAMES},
    "undo": {"change.what": CHANGE_NAMES},
    "create_topic": SETTINGS,
    "change_topic": SETTINGS,
    "create_group": SETTINGS | {"form.settings.keys": ("retryMaxTimes",)},
    "change_group": SETTINGS | {"form.settings.keys": ("retryMaxTimes",)},
    "delete_topic": {"brokers.values.keys": ("perm",)},
    "delete_group": {"brokers.values.keys": ("perm",)},
}
"""Strings that this package chooses among a few, or draws: no client writes them."""

TRACE = {
    f"life.trace.{of}[].{name}"
    for of, names in {
        "sends": "group client_host client_id topic tags keys store_host offset_message_id region",
        "consumptions": "group client_host keys request_id",
        "transaction_ends": "group client_host topic store_host transaction_id region",
        "recalls": "group client_host topic region",
    }.items()
    for name in names.split()
}
NOT_SHOWN = {
    name: set(paths.split()) for name, paths in {
        "overview": (
            "findings[].check brokers[].address points[].lag_group points[].disk_broker"
        ),
        "topic": "brokers[].addresses.values queues[].topic",
        "message": (
            "hidden[] body.inside.content life.message.message_id life.message.unique_key "
            "life.message.stored_topic life.message.slaves[].address life.stages[].delete_hours "
            "life.message.retention.delete_hours life.outcomes[].copy.topic "
            "life.outcomes[].copy.broker_name life.outcomes[].refusals[].expression_type "
            "life.trace.message_id " + " ".join(TRACE)
        ),
        "group": "consume_type message_model members[].wants[].expression_type",
        "member": (
            "member.subscriptions[].topic member.subscriptions[].expression "
            "member.subscriptions[].expression_type member.statuses.keys "
            "member.statuses.values.keys member.statuses.values.values"
        ),
        "dead_letters": "letters[].offset_message_id",
        "popped": "messages[].receipt",
        "delayed": "messages[].recall_handle",
        "brokers": "brokers[].address",
        "broker": "stats.broker_name findings[].check",
        "feed": "events[].broker_name events[].keys[]",
        "transactions": "open[].place",
        "reset": "target.broker_name plan.group plan.topic",
        "undo": "change.before change.after change.error plan.group plan.topic",
        "resend": "letters[].offset_message_id",
        "recall": "recall_handle",
    }.items()
}  # fmt: skip
"""Strings that a page's struct has for its JSON, or to choose a text by."""


AS_JSON = {"changes[].before", "changes[].after"}
"""Strings that are shown with the escapes of JSON."""
IN_PIECES = {"body.inside.content", "body.view.shown"}
"""Parts of a body: JSON has them in another form, and a sentence says what is left out."""
PAGE_LENGTH_MAX = 3 * MEBIBYTE
"""Of a page with one field of a mebibyte in two rows: a form has it whole."""
LEFT_OUT = re.compile(r"\+[\d,]{6,}")


class Skeleton(HTMLParser):
    """What a browser makes of a page.

    Attributes:
      elements: its tags, the names of their attributes and their classes, without the marks of
        replaced characters.
      text: of all elements together.
      attributes: values that are shown, or lead somewhere.
      fields: values that a form sends.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[object] = []
        self.parts: list[str] = []
        self.fields: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.text = "".join(self.parts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag not in ("input", "link", "meta", "option", "path"):
            self._open.append("mark.replaced" if given.get("class") == "replaced" else tag)
        if self._open[-1:] != ["mark.replaced"] or tag != "mark":
            self.elements.append((tag, sorted(given), given.get("class")))
        for name, value in given.items():
            if name in ("value", "name"):
                self.fields.append(value)
            else:
                self.attributes.append((name, value))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != "mark.replaced":
            self.elements.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        if "textarea" in self._open:
            self.fields.append(data)
        else:
            self.parts.append(data)

    def handle_comment(self, data: str) -> None:
        self.elements.append("comment")


@cache
def renderer() -> Renderer:
    return Renderer("", NAMES)


def rendered(form: Form, page: Any, **more: Any) -> str:
    """A page in English, for a person who may do everything."""
    values = {
        "person": Person("token", Role.ADMINISTER), "roles": Role, "here": form.name,
        "cluster": "127.0.0.1:9876", "is_read_only": False, "done": None, "fields": {},
        "has_clock": True,
        "rows": form.page.rows(page, {}) if form.page is not None else None,
    }  # fmt: skip
    return renderer().html(form.name, texts_of("en"), form.section, page=page, **{**values, **more})


def made(form: Form, texts: Mapping[str, str], chosen: Mapping[str, int]) -> Any:
    """The struct of a page with some strings."""
    filler = Filler(lambda path: texts.get(path, "plain"), chosen, CLOSED.get(form.name, {}))
    return filler.make(form.struct)


MARK = "Zq{}Z"


class Place(NamedTuple):
    """Where a string of a struct is shown.

    Attributes:
      chosen: the choices with which it is.
      is_text: as text; else only as the value of an attribute.
    """

    chosen: dict[str, int]
    is_text: bool


@cache
def places(name: str) -> dict[str, Place | None]:
    """Of each string of a page's struct, where it is shown; None: nowhere."""
    form = FORMS[name]
    closed = CLOSED.get(name, {})
    first = Filler(lambda path: "plain", {}, closed)
    first.make(form.struct)
    found: dict[str, Place | None] = dict.fromkeys(first.strings)
    waiting: list[dict[str, int]] = [{}]
    waiting += [
        {path: option} for path, count in first.choices.items() for option in range(1, count)
    ]
    for chosen in waiting:
        filler = Filler(lambda path: "plain", chosen, closed)
        filler.make(form.struct)
        marks = {path: MARK.format(number) for number, path in enumerate(filler.strings)}
        html = rendered(form, made(form, marks, chosen))
        text = Skeleton(html).text
        for path, mark in marks.items():
            place = found.setdefault(path, None)
            if mark in html and (place is None or (mark in text and not place.is_text)):
                found[path] = Place(chosen, mark in text)
    return found


@pytest.mark.parametrize("name", FORMS)
def test_every_string_of_a_page_is_shown_or_known_not_to_be(name: str) -> None:
    hidden = {path for path, place in places(name).items() if place is None}
    assert hidden == NOT_SHOWN.get(name, set())


def is_visible(text: str) -> bool:
    return all(
        char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
        for char in set(text)  # some have a mebibyte
    )


@cache
def plain_elements(
    name: str, paths: Sequence[str], chosen: Sequence[tuple[str, int]]
) -> list[object]:
    """The elements of a page with marks in the place of some strings."""
    marks = {path: MARK.format(number) for number, path in enumerate(paths)}
    form = FORMS[name]
    return Skeleton(rendered(form, made(form, marks, dict(chosen)))).elements


def check(form: Form, hostile: str, paths: Sequence[str], chosen: Mapping[str, int]) -> None:
    """Compare a page with strings to the same page with others that are plain."""
    marks = {path: MARK.format(number) for number, path in enumerate(paths)}
    plain = plain_elements(form.name, tuple(paths), tuple(chosen.items()))
    texts = {path: mark + hostile for path, mark in marks.items()}
    html = rendered(form, made(form, texts, chosen))
    html.encode()
    found = Skeleton(html)
    assert found.elements == plain, paths
    assert is_visible(found.text), paths
    assert not set("".join(found.fields)) & {"\0", "\ud800"}, paths
    for name, value in found.attributes:
        assert is_visible(value), (paths, name)
        assert name not in ("href", "src", "action") or value[:1] in ("/", "#"), (paths, name)
    for path, mark in marks.items():
        place = places(form.name)[path]
        if place is not None and place.is_text and path not in AS_JSON:
            expected = shown(mark + hostile)
            assert expected.text in found.text, path
            assert not expected.left_out or LEFT_OUT.search(found.text) or path in IN_PIECES
    assert len(html) < len(paths) * PAGE_LENGTH_MAX, paths


@pytest.mark.parametrize("kind", STRINGS)
@pytest.mark.parametrize("name", FORMS)
def test_a_string_is_shown_as_text_in_every_field(name: str, kind: str) -> None:
    together: dict[str, list[str]] = {}
    chosen: dict[str, Mapping[str, int]] = {}
    for path, place in places(name).items():
        choices = place.chosen if place is not None else {}
        key = f"{choices} {path if kind == 'long' else ''}"
        together.setdefault(key, []).append(path)
        chosen[key] = choices
    for key, paths in together.items():
        check(FORMS[name], STRINGS[kind], paths, chosen[key])


def values(tree: Any) -> Iterator[object]:
    """All keys and values of JSON."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield key
            yield from values(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from values(value)
    else:
        yield tree


@pytest.mark.parametrize("kind", STRINGS)
@pytest.mark.parametrize("name", FORMS)
def test_a_string_is_whole_in_json_and_in_csv(name: str, kind: str) -> None:
    form, hostile = FORMS[name], STRINGS[kind]
    # A mebibyte in each field would make a hundred.
    texts = {path: f"{number}{hostile[:100]}" for number, path in enumerate(places(name))}
    page = made(form, texts, {})
    whole = set(values(json.loads(to_json(page))))
    filler = Filler(lambda path: texts[path], {}, CLOSED.get(name, {}))
    filler.make(form.struct)
    for path in filler.strings:
        if path not in IN_PIECES:
            assert texts[path].replace("\ud800", "<U+D800>") in whole, path
    if form.page is None or not form.page.table:
        return
    table = form.page.table
    lines = list(csv.reader(io.StringIO(to_csv(page, table).encode().decode(), newline="")))
    assert len({len(line) for line in lines}) == 1
    row = msgspec.to_builtins(getattr(page, table)[0])
    for value, cell in zip(row.values(), lines[1], strict=True):
        if isinstance(value, str):
            assert cell == value.replace("\0", "␀").replace("\ud800", "<U+D800>")


TEXTS = texts_of("en")
ERROR = Form("error", msgspec.Struct, "", None)


@pytest.mark.parametrize("kind", STRINGS)
def test_a_string_is_shown_as_text_in_every_sentence(kind: str) -> None:
    for key in sorted(TEXTS.keys):
        names = TEXTS.names(key)
        if not names or not key.startswith(("error.", "done.")):
            continue
        hostile = STRINGS[kind]
        pages = []
        for text in ("Zq", f"Zq{hostile}"):
            values = dict.fromkeys(names, text)
            if key.startswith("error."):
                more = {"key": key.removeprefix("error."), "values": values}
                html = rendered(ERROR, None, **more, here=text, cluster=text)
            else:
                more = {
                    "done": (key.removeprefix("done."), values),
                    "person": Person(text, Role.LOOK),
                }
                html = rendered(FORMS["topics"], made(FORMS["topics"], {}, {}), **more)
            html.encode()
            pages.append(Skeleton(html))
        plain, found = pages
        assert found.elements == plain.elements, key
        assert is_visible(found.text), key
        assert shown(f"Zq{hostile}").text in found.text, key


ASKED = re.compile(r"(?:\.(?:text|number|flag|get)\(|time_ms\(ask, )\"(\w+)\"")


@pytest.mark.parametrize("kind", STRINGS)
def test_a_string_is_shown_as_text_in_every_finding(kind: str) -> None:
    form = FORMS["overview"]
    page = made(form, {}, {})
    for key in sorted(TEXTS.keys):
        if not key.startswith("finding."):
            continue
        name = key.removeprefix("finding.")
        names = TEXTS.names(key) | TEXTS.names(f"advice.{name}")
        pages = []
        for text in ("Zq", f"Zq{STRINGS[kind]}"):
            value = Pairs((Pair(text, Names((text,), 1)),))
            finding = Finding("x", "problem", name, dict.fromkeys(names, value), "", "", "", {})
            shown_page = msgspec.structs.replace(page, findings=(finding,))
            html = rendered(form, shown_page)
            html.encode()
            pages.append(Skeleton(html))
        plain, found = pages
        assert found.elements == plain.elements, key
        assert is_visible(found.text), key
        assert not names or "Zq" in found.text, key


QUERY_STRINGS = {
    "hostile": quote("<script>'\"{{ 1 }}\u202e\0") + "%ff%fe%ed%a0%80",
    "long": "x" * 7_000,
}


def asked(page: Any) -> set[str]:
    """The fields of a query that a page reads."""
    view = page.view if isinstance(page, Page) else page.preview
    return set(ASKED.findall(Path(inspect.getfile(view)).read_text()))


@pytest.mark.parametrize("kind", QUERY_STRINGS)
@pytest.mark.parametrize("page", [*PAGES, *CHANGES], ids=lambda each: each.name)
def test_a_string_in_a_query_is_answered_in_words(browser: Browser, page: Any, kind: str) -> None:
    plain = {"topic": "orders", "group": "billing", **QUERIES.get(page.name, {})}
    for field in asked(page):
        others = urlencode({name: value for name, value in plain.items() if name != field})
        path = f"{page.name}?{others}&{field}={QUERY_STRINGS[kind]}"
        answer = browser.request("GET", f"/{path}")
        assert answer.status in (200, 400, 404, 409, 502), (field, answer.text)
        found = Skeleton(answer.text)
        scripts = [each for each in found.elements if each[0] == "script"]
        assert scripts == [("script", ["defer", "src"], None)], field
        assert is_visible(found.text), field
        assert "\0" not in answer.text
        assert len(answer.text) < MEBIBYTE


@pytest.mark.parametrize("kind", QUERY_STRINGS)
def test_a_string_in_the_sentence_of_a_change_is_shown_as_text(browser: Browser, kind: str) -> None:
    for name in ("", "key", "topic", "number", "self"):
        query = f"done=reset&done_{name}={QUERY_STRINGS[kind]}&done_topic=Zq"
        answer = browser.request("GET", f"/topics?{query}")
        assert answer.status == 200
        assert is_visible(Skeleton(answer.text).text)
