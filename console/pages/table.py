"""All pages and changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from . import (
    audit,
    brokers,
    clients,
    clock,
    dead_letters,
    delayed,
    feed,
    group_changes,
    groups,
    message,
    messages,
    overview,
    popped,
    resets,
    sending,
    tail,
    topic_changes,
    topics,
    transactions,
)
from .page import Ask, Change, Download, Page

PAGES: Final[tuple[Page, ...]] = (
    *overview.PAGES,
    *topics.PAGES,
    *message.PAGES,
    *messages.PAGES,
    *feed.PAGES,
    *tail.PAGES,
    *groups.PAGES,
    *dead_letters.PAGES,
    *popped.PAGES,
    *delayed.PAGES,
    *transactions.PAGES,
    *brokers.PAGES,
    *clients.PAGES,
    *audit.PAGES,
)
CHANGES: Final[tuple[Change, ...]] = (
    *resets.CHANGES,
    *sending.CHANGES,
    *dead_letters.CHANGES,
    *delayed.CHANGES,
    *transactions.CHANGES,
    *topic_changes.CHANGES,
    *group_changes.CHANGES,
    *clock.CHANGES,
)
DOWNLOADS: Final[Mapping[str, Callable[[Ask], Awaitable[Download]]]] = message.DOWNLOADS
NAMES: Final = frozenset((*(page.name for page in PAGES), *(change.name for change in CHANGES)))
