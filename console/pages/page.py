"""Pages and changes as data: what a path shows, and what it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...operations.whole_numbers import whole_number
from ..errors import PageError
from ..roles import Person, Role
from .rows import Rows, rows_of

if TYPE_CHECKING:
    from ...client import Admin
    from ..account import Account
    from ..console import Console

INT_DIGITS_MAX = 18
"""Digits of a number in a query: servers read signed numbers of 64 bits."""


class Ask(msgspec.Struct, frozen=True):
    """What a page is asked.

    Attributes:
      console: what all pages share.
      account: of the cluster; the person has its rights.
      person: who asks.
      query: of the URL, or the fields of the form.
    """

    console: Console
    account: Account
    person: Person
    query: Mapping[str, str]

    @property
    def admin(self) -> Admin:
        """That of the account."""
        return self.account.admin

    def text(self, name: str) -> str:
        """A field that must be there. Raises: PageError."""
        value = self.query.get(name, "").strip()
        if not value:
            raise PageError(400, "missing_field", name=name)
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """A whole number from 0. Raises: PageError: it is missing without a default, or none."""
        value = self.query.get(name, "").strip()
        if not value and default is not None:
            return default
        found = whole_number(value, INT_DIGITS_MAX)
        if found is None:
            raise PageError(400, "no_number", name=name, value=value)
        return found

    def flag(self, name: str) -> bool:
        """Whether a checkbox is checked."""
        return self.query.get(name, "") not in ("", "0")


class Download(NamedTuple):
    """Bytes that the browser saves.

    Attributes:
      name: of the file: letters, digits, dots and dashes.
    """

    name: str
    data: bytes


View = Callable[[Ask], Awaitable[msgspec.Struct]]
Follow = Callable[[Ask], AbstractAsyncContextManager[Callable[[], Awaitable[None]]]]
"""Views something; what it gives waits for the next change."""


def each_sample(ask: Ask) -> AbstractAsyncContextManager[Callable[[], Awaitable[None]]]:
    """Follows the samples of the cluster."""
    return ask.account.samples.viewing()


class Page(NamedTuple):
    """A page that shows something.

    Attributes:
      name: of its path, its template and its texts.
      view: gives what it shows; its struct is the page's JSON.
      table: the field with the rows of its CSV; "": it has no CSV.
      section: the entry of the navigation that it belongs to; "": its own name.
      is_live: its block `live` is sent again with each change.
      follow: waits for these changes.
      name_field: of a row of the table, if the page shows some of many rows at once (`rows_of`);
        "": it shows all.
      needs_broker: it shows what only a running broker knows.
    """

    name: str
    view: View
    table: str = ""
    section: str = ""
    is_live: bool = False
    name_field: str = ""
    follow: Follow = each_sample
    needs_broker: bool = False

    def rows(self, shown: msgspec.Struct, query: Mapping[str, str]) -> Rows | None:
        """The rows that it shows at once; None: all of them."""
        if not self.name_field:
            return None
        return rows_of(getattr(shown, self.table), self.name_field, query)


class Done(NamedTuple):
    """What a change did: the page to go on with, and what to say there."""

    page: str
    query: Mapping[str, str]
    key: str
    values: Mapping[str, Any]


CarryOut = Callable[[Ask], Awaitable[Done]]


class Change(NamedTuple):
    """A change: a page with what it would do, and a button that does it.

    Attributes:
      name: of its path, its template and its texts.
      role: who may make it.
      preview: gives what the page before the confirmation shows; it changes nothing.
      carry_out: makes the change.
      section: as in Page.
    """

    name: str
    role: Role
    preview: View
    carry_out: CarryOut
    section: str = ""
