"""The page of what happens: sends, deliveries, filtered messages, retries, dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec

from ...common.texts import one_line
from ...operations.feed import FeedEvent, FeedView
from .page import Ask, Page

ROWS_MAX: Final = 100
FRESH_S: Final = 2.0
"""A page shows a look that is no older, and does not look again."""
FIRST_LOOK_S: Final = 4.0
"""How long a page waits for its look: longer than the look for a broker that hangs."""


class FeedPage(msgspec.Struct, frozen=True, rename="camel"):
    """What happened while the feed was followed.

    Attributes:
      since_ms: of the first look, ms since 1970; None: there was none yet.
      events: the newest first.
      errors: brokers that did not answer, with the reason.
    """

    since_ms: int | None
    events: tuple[FeedEvent, ...]
    errors: tuple[str, ...]


async def feed(ask: Ask) -> FeedPage:
    """What the newest look has."""
    with anyio.move_on_after(FIRST_LOOK_S):
        return _page(await ask.account.feed.latest(FRESH_S))
    last = ask.account.feed.last
    if last is None or last.value is None:
        why = one_line(last.error) if last is not None and last.error is not None else ""
        return FeedPage(None, (), (why,) if why else ())
    return _page(last.value)


def _page(view: FeedView) -> FeedPage:
    errors = tuple(f"{name}: {error}" for name, error in sorted(view.errors.items()))
    return FeedPage(view.since_ms, view.events[:ROWS_MAX], errors)


@asynccontextmanager
async def _following(ask: Ask) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    number, shown = 0, None

    async def following() -> None:
        nonlocal number, shown
        while True:
            taken = await ask.account.feed.next(number)
            number, page = taken.number, _page(taken.get())
            if page != shown:
                shown = page
                return

    yield following


PAGES = (Page("feed", feed, table="events", is_live=True, needs_broker=True, follow=_following),)
