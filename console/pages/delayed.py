"""Delayed messages that wait, and their recall."""

from __future__ import annotations

from typing import Final

import msgspec

from ...client import Producer
from ...operations.delayed import DelayedMessage, delayed_messages
from ..errors import PageError
from ..roles import Role
from .audited import audited
from .page import Ask, Change, Done, Page

RECALL: Final = "recall"
SHOWN_MAX: Final = 500
"""Messages on the page, those that are due first; more make no page that a person reads."""


class Delayed(msgspec.Struct, frozen=True, rename="camel"):
    """Messages that wait, by due time.

    Attributes:
      topic: the field `topic`; "": all.
      messages: the first SHOWN_MAX.
      not_shown: how many follow.
      left_out, is_late, error: as in DelayedMessages.
    """

    topic: str
    messages: tuple[DelayedMessage, ...]
    not_shown: int
    left_out: int
    is_late: bool
    error: str


async def delayed(ask: Ask) -> Delayed:
    """The messages that wait."""
    topic = ask.query.get("topic", "").strip()
    found = await delayed_messages(ask.admin, topic or None, mask=ask.console.masks.message)
    return Delayed(
        topic=topic,
        messages=found.messages[:SHOWN_MAX],
        not_shown=max(len(found.messages) - SHOWN_MAX, 0),
        left_out=found.left_out,
        is_late=found.is_late,
        error=found.error,
    )


async def _recalled(ask: Ask) -> DelayedMessage:
    """The message that is to be recalled. Raises: PageError: it does not wait, or cannot be."""
    topic, place = ask.text("topic"), ask.text("place")
    found = await delayed_messages(ask.admin, topic, mask=ask.console.masks.message)
    for each in found.messages:
        if each.place == place and each.recall_handle:
            return each
    raise PageError(409, "no_recall", topic=topic, place=place)


async def _carry_out(ask: Ask) -> Done:
    message = await _recalled(ask)
    of = {"topic": message.topic, "id": message.message_id}
    before = msgspec.to_builtins(message)
    with audited(ask, RECALL, of, before=before) as line:
        async with Producer(ask.admin.client) as producer:
            await producer.recall(message.topic, message.recall_handle)
    values = {"id": message.message_id, "number": line.number}
    return Done("delayed", {"topic": message.topic}, RECALL, values)


PAGES = (Page("delayed", delayed, table="messages", section="topics"),)
CHANGES = (Change(RECALL, Role.OPERATE, _recalled, _carry_out, section="topics"),)
