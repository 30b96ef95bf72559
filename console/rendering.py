"""Pages as HTML, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from importlib import resources
from typing import Any, Final
from urllib.parse import urlencode

import jinja2
import msgspec
from markupsafe import Markup, escape

from .. import __version__
from ..operations.doctor.findings import Value, in_words
from .shown_text import SHOWN_LENGTH_MAX, Shown, shown
from .stopped import StoppedStore
from .texts import HTML_LANGUAGES, Texts

STATIC: Final = {
    "style.css": "text/css",
    "console.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
"""Files that pages load, and their media types."""

SECTIONS: Final = (
    "overview", "topics", "messages", "groups", "feed", "brokers", "clients", "audit"
)  # fmt: skip
"""Entries of the navigation, by the names of their pages."""

_CLASSES: Final = {
    "CONSUMED": "good",
    "NO_GROUPS": "good",
    "DEAD_LETTER": "bad",
    "DAMAGED": "bad",
    "NOT_IN_QUEUE": "bad",
    "NOT_FOUND": "bad",
    "PASSED_OVER": "warn",
    "RETRYING": "warn",
    "RETRIED": "warn",
    "DEAD": "bad",
    "FILTERED": "warn",
    "SENT": "good",
    "SENT_UNREAD": "good",
}
"""How verdicts and outcomes look: a class of the style sheet."""
UNKNOWN: Final = "\N{EN DASH}"
"""In a cell whose value is not known."""
LINK_VALUE_MAX: Final = 8 << 10
"""Characters of a value in a link: a query that is longer is refused."""


class Renderer:
    """Renders pages with the templates of this package.

    Args:
      prefix: of all paths.
      pages: their names.
      stopped: the store that is shown; None: a cluster is.
      has_clock: there is a clock of a broker under test.
    """

    def __init__(
        self,
        prefix: str,
        pages: Collection[str],
        stopped: StoppedStore | None = None,
        *,
        has_clock: bool = False,
    ) -> None:
        self._prefix = prefix
        self._sections = [name for name in SECTIONS if name in pages]
        self.files = {
            name: (resources.files(__package__) / "static" / name).read_bytes() for name in STATIC
        }
        self._versions = {name: sha256(data).hexdigest()[:12] for name, data in self.files.items()}
        self._environment = jinja2.Environment(
            loader=jinja2.PackageLoader(__package__, "templates"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
            finalize=marked,
        )
        self._environment.filters.update(
            count=count,
            rate=rate,
            share=share,
            time=time_tag,
            ago=ago,
            compact=compact,
            attribute=attribute,
            plain=plain,
            verbatim=escape,
            lines=marked_lines,
        )
        self._environment.globals.update(
            url=self.url,
            url_with=self.url_with,
            static=self.static,
            stopped=stopped,
            has_clock=has_clock,
            version=__version__,
            verdict_class=lambda key: _CLASSES.get(key, ""),
            outcome_class=lambda kind: _CLASSES.get(kind, "none"),
        )

    def url(self, page: str, **query: object) -> str:
        """The path of a page with its query; None is left out."""
        given = {
            name: str(value)[:LINK_VALUE_MAX] for name, value in query.items() if value is not None
        }
        encoded = urlencode(given, errors="replace")
        return f"{self._prefix}/{page}{'?' + encoded if given else ''}"

    def url_with(self, page: str, fields: Mapping[str, str], **more: str) -> str:
        """The path of a page with the fields of a query that are not empty, and with others."""
        given = {name: value for name, value in fields.items() if value and name != "cursor"}
        return self.url(page, **given, **more)

    def static(self, name: str) -> str:
        """The path of a file that pages load; a new version has another path."""
        return f"{self._prefix}/static/{self._versions[name]}/{name}"

    def html(self, template: str, t: Texts, section: str, **values: Any) -> str:
        """A whole page."""
        found = self._environment.get_template(f"{template}.html")
        return found.render(self._context(t, section, values))

    def live_block(self, template: str, t: Texts, section: str, **values: Any) -> str:
        """The part of a page that changes with each sample."""
        found = self._environment.get_template(f"{template}.html")
        context = found.new_context(self._context(t, section, values))
        return "".join(found.blocks["live"](context))

    def _context(self, t: Texts, section: str, values: dict[str, Any]) -> dict[str, Any]:
        language = HTML_LANGUAGES[t.language]

        def text(key: str, /, **given: object) -> Markup:
            return t(key, **{name: marked(value) for name, value in given.items()})

        def said(values: Mapping[str, Value]) -> dict[str, str]:
            return in_words(
                values,
                lambda word: t(f"finding_word.{word.name}").unescape(),
                lambda more: t("more", count=more).unescape(),
            )

        return {
            "t": text,
            "said": said,
            "columns": t.under("column"),
            "section": section,
            "sections": self._sections,
            "language": language,
            **values,
        }


def to_json(page: msgspec.Struct) -> bytes:
    """A page's struct as JSON."""
    return msgspec.json.format(json_of(page), indent=2) + b"\n"


def json_of(value: object) -> bytes:
    """A value as JSON in one line."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # half of a surrogate pair, which many parsers refuse
        return _with_marks(json.dumps(msgspec.to_builtins(value), ensure_ascii=False)).encode()


def to_csv(page: msgspec.Struct, table: str) -> str:
    """The rows of a page's table as CSV (RFC 4180), with the names of its fields first.

    A cell that a spreadsheet would take for a formula has a quote before it.
    """
    rows = [msgspec.to_builtins(each) for each in getattr(page, table)]
    out = io.StringIO()
    if rows:
        writer = csv.writer(out)
        writer.writerow(rows[0])
        writer.writerows([[_cell(value) for value in row.values()] for row in rows])
    return out.getvalue()


def _cell(value: object) -> str:
    if isinstance(value, dict | list):
        text = json_of(value).decode()
    else:
        text = "" if value is None else str(value)
    text = _with_marks(text)
    is_text = isinstance(value, str | dict | list)
    return f"'{text}" if is_text and text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


_NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")
"""What neither HTML nor UTF-8 can have: NUL, and halves of surrogate pairs."""


def _with_marks(text: str) -> str:
    return _NO_TEXT.sub(lambda found: shown(found[0]).text, text)


def plain_text(text: Markup) -> str:
    """A text of the pages without its elements."""
    return text.striptags()


# Filters of the templates


def marked(value: object) -> object:
    """A string as a page shows it: what cannot be seen is replaced by marks. Others stay.

    Every expression of a template goes through this.
    """
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    # Nearly all strings are such, and a page may have thousands.
    if len(value) < SHOWN_LENGTH_MAX and value.isascii() and value.isprintable():
        return value
    return _elements(value, shown(value))


def _elements(value: str, found: Shown) -> object:
    if found.is_as_sent:
        return escape(value)
    parts = [
        _REPLACED.format(each.text) if each.is_replaced else escape(each.text)
        for each in found.segments
    ]
    if found.left_out:
        parts.append(_LEFT_OUT.format(f"{found.left_out:,}"))
    return Markup("").join(parts)


_REPLACED: Final = Markup('<mark class="replaced">{}</mark>')
_LEFT_OUT: Final = Markup('<mark class="replaced">+{}</mark>')


def marked_lines(value: str) -> object:
    """A text of several lines, such as a decoder's."""
    return _elements(value, shown(value, has_lines=True))


def attribute(value: object) -> Markup:
    """A value as that of a field, which a form sends as it is."""
    return escape(_NO_TEXT.sub("\ufffd", value) if isinstance(value, str) else value)


def plain(value: str) -> Markup:
    """A text where elements cannot be, such as a label or a title: its marks are plain text."""
    return escape(value.striptags() if isinstance(value, Markup) else shown(value).text)


def count(value: float | None) -> str:
    """A number with separators; a dash: unknown."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Something per second: with one digit below 10."""
    if value is None:
        return UNKNOWN
    return f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"


def share(value: float | None) -> str:
    """A part of 1 in percent."""
    return UNKNOWN if value is None else f"{value * 100:.0f} %"


def time_tag(ms: int | None) -> Markup:
    """A time as an element; the browser's script shows it in the reader's time zone."""
    if ms is None or not 0 <= ms < 253_402_300_800_000:
        return Markup(UNKNOWN)
    at = datetime.fromtimestamp(ms / 1000, UTC)
    shown = f"{at:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}"
    return Markup('<time datetime="{}">{} UTC</time>').format(at.isoformat(), shown)


def ago(seconds: float | None) -> str:
    """A span of time: "42 s", "9 min", "3.5 h", "2 d"."""
    if seconds is None:
        return UNKNOWN
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"


def compact(value: object) -> str:
    """A value as JSON in one line; a dash: there is none."""
    return UNKNOWN if value is None else json_of(value).decode()
