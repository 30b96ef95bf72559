"""The page of popped messages of a group: which are not acknowledged, and until when."""

from __future__ import annotations

from functools import partial

import msgspec

from ...client import InvisibleMessage, PoppedQueue
from ...operations.asking import asked_at_once
from .page import Ask, Page

SHOWN_MAX = 500
"""Messages on the page, the earliest pops; more make no page that a person reads."""


class Popped(msgspec.Struct, frozen=True, rename="camel"):
    """What a group has popped and not acknowledged.

    Attributes:
      topic: the field `topic`; "": all.
      queues, since_ms, without_memory, without_pops, left_out: as in GroupPops.
      messages: as in GroupPops, the first SHOWN_MAX.
      not_shown: how many messages follow.
      error: which brokers did not answer; "": all did.
    """

    group: str
    topic: str
    queues: tuple[PoppedQueue, ...]
    messages: tuple[InvisibleMessage, ...]
    not_shown: int
    since_ms: int
    without_memory: tuple[str, ...]
    without_pops: tuple[str, ...]
    left_out: int
    error: str


async def popped(ask: Ask) -> Popped:
    """The popped messages of a group."""
    group, topic = ask.text("group"), ask.query.get("topic", "").strip()
    ((found, error),) = await asked_at_once(partial(ask.admin.popped, group, topic or None))
    return Popped(
        group=group,
        topic=topic,
        queues=found.queues,
        messages=found.messages[:SHOWN_MAX],
        not_shown=max(len(found.messages) - SHOWN_MAX, 0),
        since_ms=found.since_ms,
        without_memory=found.without_memory,
        without_pops=found.without_pops,
        left_out=found.left_out,
        error=error,
    )


PAGES = (Page("popped", popped, table="messages", section="groups"),)
