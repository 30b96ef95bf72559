"""Searches of messages: by queue and offset, time, tag, SQL92, key and text, step by step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ...client.admin.asking import BrokerFailure
from ...common.texts import one_line
from ...operations.message_search.by_key import search_by_key
from ...operations.message_search.criteria import Criteria, read_number
from ...operations.message_search.search import search
from ...operations.message_search.search_box import (
    ClusterNames,
    Guess,
    Meaning,
    guesses,
)
from ..errors import GoTo
from ..message_rows import MessageRow, row_of
from .clients import all_ids
from .page import Ask, Page
from .times import time_ms


class Messages(msgspec.Struct, frozen=True, rename="camel"):
    """What a step of a search found.

    Attributes:
      is_asked: a topic was given; False: there is only the form.
      scanned, scanned_before, left, reached_ms, cursor: as in SearchPage.
      is_complete: nothing is left to be scanned.
      failures: brokers that gave no answer, with the reason.
      by_index: the index was asked for the key, and no queue was scanned.
    """

    topics: tuple[str, ...]
    is_asked: bool = False
    messages: tuple[MessageRow, ...] = ()
    scanned: int = 0
    scanned_before: int = 0
    left: int = 0
    reached_ms: int | None = None
    cursor: str = ""
    is_complete: bool = True
    failures: tuple[str, ...] = ()
    by_index: bool = False


async def messages(ask: Ask) -> Messages:
    """One step of a search."""
    topics = await _topics(ask)
    if not ask.query.get("topic", "").strip():
        return Messages(topics)
    criteria = criteria_of(ask)
    mask = ask.console.masks.message
    if criteria.key and not ask.query.get("scan"):
        page = await search_by_key(ask.admin, criteria, mask=mask)
        return Messages(
            topics,
            is_asked=True,
            messages=tuple(row_of(each) for each in page.found),
            scanned=page.scanned,
            is_complete=not page.full,
            failures=failures_of(page.failures),
            by_index=True,
        )
    step = await search(ask.admin, criteria, cursor=ask.query.get("cursor", ""), mask=mask)
    return Messages(
        topics,
        is_asked=True,
        messages=tuple(row_of(each) for each in step.found),
        scanned=step.scanned,
        scanned_before=step.scanned_before,
        left=step.left,
        reached_ms=step.reached_ms,
        cursor=step.cursor,
        is_complete=not step.cursor,
        failures=failures_of(step.failures),
    )


async def _topics(ask: Ask) -> tuple[str, ...]:
    sample = await ask.account.samples.fresh()
    return tuple(each.topic for each in sample.topics) if sample else ()


def criteria_of(ask: Ask) -> Criteria:
    """What the query looks for. Raises: PageError, SearchError: a field is wrong."""
    query = ask.query
    return Criteria(
        topic=query.get("topic", "").strip(),
        broker_name=query.get("broker", "").strip(),
        queue_id=read_number("queue", query.get("queue", "")),
        offset=read_number("offset", query.get("offset", "")),
        begin_ms=time_ms(ask, "from"),
        end_ms=time_ms(ask, "to"),
        tag=query.get("tag", "").strip(),
        sql=query.get("sql", "").strip(),
        key=query.get("key", "").strip(),
        text=query.get("text", ""),
        is_newest_first=query.get("order", "") != "oldest",
    )


def failures_of(failures: Iterable[BrokerFailure]) -> tuple[str, ...]:
    """Brokers that gave no answer, with the reason."""
    return tuple(f"{each.broker_name}: {one_line(each.error)}" for each in failures)


class Found(msgspec.Struct, frozen=True, rename="camel"):
    """What a text in the search box may mean.

    Attributes:
      guesses: meaning and name; the likeliest first.
      topics: for a key, which topic's is not known.
    """

    text: str
    guesses: tuple[tuple[str, str], ...]
    topics: tuple[str, ...]


_PAGES: Final = {
    Meaning.MESSAGE: ("message", "id"),
    Meaning.TOPIC: ("topic", "topic"),
    Meaning.GROUP: ("group", "group"),
    Meaning.BROKER: ("broker", "name"),
    Meaning.CLIENT: ("clients", "client"),
}


async def box(ask: Ask) -> Found:
    """The page of what was typed into the search box, or a choice."""
    text = ask.text("q")
    sample = await ask.account.samples.fresh()
    names = ClusterNames(
        client_ids=await all_ids(ask, text.strip()),
        topics=tuple(each.topic for each in sample.topics) if sample else (),
        groups=tuple(each.group for each in sample.groups) if sample else (),
        brokers=tuple(each.broker for each in sample.brokers) if sample else (),
        addresses=tuple(each.address for each in sample.brokers) if sample else (),
    )
    found = guesses(text, names)
    exact = [each for each in found if each.is_exact and each.meaning in _PAGES]
    if len(exact) == 1 and exact[0].problem is None:
        raise GoTo(*_place(exact[0]))
    if exact and exact[0].problem is not None:
        raise exact[0].problem
    return Found(text, tuple((each.meaning.value, each.value) for each in found), names_of(names))


def names_of(names: ClusterNames) -> tuple[str, ...]:
    """The topics, sorted."""
    return tuple(sorted(names.topics))


def _place(guess: Guess) -> tuple[str, dict[str, str]]:
    page, field = _PAGES[guess.meaning]
    return page, {field: guess.value}


PAGES = (
    Page("messages", messages, table="messages"),
    Page("search", box, section="messages"),
)
