"""The page that follows a topic: its newest messages, and what comes while it is open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from ..message_rows import MessageRow
from ..tails import ROWS_MAX
from .messages import criteria_of, failures_of
from .page import Ask, Page


class TailPage(msgspec.Struct, frozen=True, rename="camel"):
    """What a topic got.

    Attributes:
      messages: the newest, at most `limit`, the newest first.
      since_ms: when the tail began, ms since 1970.
      left_out: how many came since then and are not shown: they came faster than they were read,
        or newer ones took their place. Whether those that were not read match is not known.
      failures: brokers that give no answer now, with the reason.
    """

    topic: str
    messages: tuple[MessageRow, ...]
    since_ms: int
    left_out: int
    failures: tuple[str, ...]
    limit: int = ROWS_MAX


async def tail(ask: Ask) -> TailPage:
    """The newest messages now."""
    topic = ask.text("topic")
    found = await ask.account.tails.of(criteria_of(ask))
    return TailPage(
        topic,
        tuple(found.rows),
        found.since_ms,
        found.left_out,
        failures_of(found.failures),
    )


@asynccontextmanager
async def _following(ask: Ask) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    found = await ask.account.tails.of(criteria_of(ask))
    async with found.viewing() as following:
        yield following


PAGES = (
    Page(
        "tail",
        tail,
        table="messages",
        section="messages",
        is_live=True,
        needs_broker=True,
        follow=_following,
    ),
)
