"""Open and given-up transactions, and the checking again of one that was given up."""

from __future__ import annotations

from typing import Final

import msgspec

from ...operations.transactions import HalfMessage, OnBroker, given_up_at, transactions
from ..errors import PageError
from ..roles import Role
from .audited import audited
from .page import Ask, Change, Done, Page

RESUME: Final = "resume_check"
SHOWN_MAX: Final = 500
"""Rows of each table, the oldest first; more make no page that a person reads."""


class GivenUpRow(msgspec.Struct, frozen=True, rename="camel"):
    """A transaction that was given up.

    Attributes:
      half: the half message.
      resumed: numbers of the changes that had it checked again.
    """

    half: HalfMessage
    resumed: tuple[int, ...]


class TransactionsPage(msgspec.Struct, frozen=True, rename="camel"):
    """Half messages of all brokers, the oldest first.

    Attributes:
      topic: the field `topic`; "": all.
      open, given_up: the first SHOWN_MAX of each.
      not_shown: how many follow.
      brokers: of all topics.
      left_out: records that were too many to be read.
      is_late, error: as in Transactions.
    """

    topic: str
    open: tuple[HalfMessage, ...]
    given_up: tuple[GivenUpRow, ...]
    not_shown: int
    brokers: tuple[OnBroker, ...]
    left_out: int
    is_late: bool
    error: str


async def _view(ask: Ask) -> TransactionsPage:
    topic = ask.query.get("topic", "").strip()
    found = await transactions(ask.admin, mask=ask.console.masks.message)
    open_ones = [each for each in found.open if topic in ("", each.topic)]
    given_up = [each for each in found.given_up if topic in ("", each.topic)]
    resumed = _resumed(ask)
    not_shown = max(len(open_ones) - SHOWN_MAX, 0) + max(len(given_up) - SHOWN_MAX, 0)
    return TransactionsPage(
        topic=topic,
        open=tuple(open_ones[:SHOWN_MAX]),
        given_up=tuple(
            GivenUpRow(each, tuple(resumed.get(each.place, ()))) for each in given_up[:SHOWN_MAX]
        ),
        not_shown=not_shown,
        brokers=found.brokers,
        left_out=sum(each.left_out for each in found.brokers),
        is_late=found.is_late,
        error=found.error,
    )


def _resumed(ask: Ask) -> dict[str, list[int]]:
    """The changes that had a transaction checked again, by its place."""
    found: dict[str, list[int]] = {}
    for change in ask.console.audit.of(RESUME):
        found.setdefault(change.of.get("place", ""), []).append(change.number)
    return found


async def _given_up(ask: Ask) -> HalfMessage:
    """The transaction that is to be checked again. Raises: PageError: it cannot be."""
    place = ask.text("place")
    found = await transactions(ask.admin, mask=ask.console.masks.message)
    half = next((each for each in found.given_up if each.place == place), None)
    if half is None:
        raise PageError(409, "no_given_up", place=place)
    if half.is_open_again:
        raise PageError(409, "open_again", id=half.message_id)
    return half


async def _carry_out(ask: Ask) -> Done:
    half = await _given_up(ask)
    queue, _, offset = half.place.rpartition(":")
    broker_name = queue.rpartition(":")[0]
    message = await given_up_at(ask.admin, broker_name, int(offset))
    if message is None:
        raise PageError(409, "no_given_up", place=half.place)
    of = {"topic": half.topic, "id": half.message_id, "place": half.place}
    with audited(ask, RESUME, of, before=msgspec.to_builtins(half)) as line:
        await ask.admin.resume_check(message)
    values = {"id": half.message_id, "number": line.number}
    return Done("transactions", {"topic": half.topic}, RESUME, values)


PAGES = (Page("transactions", _view, table="open", section="topics"),)
CHANGES = (Change(RESUME, Role.OPERATE, _given_up, _carry_out, section="topics"),)
