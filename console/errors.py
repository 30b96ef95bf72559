"""Errors that a page says in words."""

from __future__ import annotations

from collections.abc import Mapping


class GoTo(Exception):
    """Another page is the answer.

    Args:
      page: its name.
      query: of its path.
    """

    def __init__(self, page: str, query: Mapping[str, str]) -> None:
        super().__init__(page)
        self.page = page
        self.query = query


class PageError(Exception):
    """Why a page cannot be shown, or a change was not made.

    Args:
      status: of HTTP.
      key: of a text below "error.".
      values: what the text names.
    """

    def __init__(self, status: int, key: str, **values: object) -> None:
        super().__init__(key)
        self.status = status
        self.key = key
        self.values = values
