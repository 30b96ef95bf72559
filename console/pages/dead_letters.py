"""Dead letters of a group: the list, and sending some of them to their topics again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from ...client import BrokersError, NotFoundError, ReceivedMessage
from ...common.texts import one_line
from ...operations.dead_letters import (
    LETTERS_MAX,
    DeadLetter,
    Place,
    Resent,
    dead_letter,
    letter_page,
    letters_at,
    resend,
)
from ..errors import PageError
from ..roles import Role
from .audited import audited
from .page import Ask, Change, Done, Page
from .times import time_ms

RESEND: Final = "resend"
CHOSEN_PREFIX: Final = "letter."
"""Before the place of a dead letter, in the name of its checkbox."""
QUEUES_MAX: Final = 512
"""Queues in a URL that goes on with the list."""

Why = Literal["tries", "early", ""]


class LetterRow(msgspec.Struct, frozen=True, rename="camel"):
    """A dead letter in the list.

    Attributes:
      place: as `broker:queue:offset`.
      message_id, offset_message_id, topic, tag, keys, died_ms, tries, size: as in DeadLetter.
      why: "tries": all retries of the group were used up; "early": before that: its consumer has a
        limit that is lower, or gave it up itself; "": the group has no settings any more.
      resent: changes of the audit log that sent it again.
    """

    place: str
    message_id: str
    offset_message_id: str
    topic: str
    tag: str
    keys: str
    died_ms: int
    tries: int
    size: int
    why: Why
    resent: tuple[int, ...]


class DeadLetters(msgspec.Struct, frozen=True, rename="camel"):
    """Dead letters of a group, the oldest first.

    Attributes:
      since: the field `since`, for the form.
      begin: the field `from`, for the form.
      next: the field `from` of the page that follows; "": there is none.
      error: what did not answer; "": everything did.
    """

    group: str
    since: str
    begin: str
    letters: tuple[LetterRow, ...]
    next: str
    error: str


async def dead_letters(ask: Ask) -> DeadLetters:
    """A page of a group's dead letters."""
    group = ask.text("group")
    begin = _begin(ask.query.get("from", ""))
    page = await letter_page(
        ask.admin,
        group,
        begin_ms=time_ms(ask, "since") or 0,
        begin=begin,
        mask=ask.console.masks.message,
    )
    retries, error = await _retries(ask, group) if page.letters else ({}, "")
    resent = _resent(ask, group)
    return DeadLetters(
        group=group,
        since=ask.query.get("since", ""),
        begin=ask.query.get("from", ""),
        letters=tuple(_row(each, retries, resent) for each in page.letters),
        next=",".join(f"{key}:{offset}" for key, offset in sorted(page.next.items())),
        error=page.error or error,
    )


def _row(letter: DeadLetter, retries: dict[str, int], resent: dict[str, list[int]]) -> LetterRow:
    most = retries.get(letter.place.rpartition(":")[0].rpartition(":")[0])
    why: Why = "" if most is None else "tries" if letter.tries > most else "early"
    return LetterRow(
        place=letter.place,
        message_id=letter.message_id,
        offset_message_id=letter.offset_message_id,
        topic=letter.topic,
        tag=letter.tag,
        keys=" ".join(letter.keys),
        died_ms=letter.died_ms,
        tries=letter.tries,
        size=letter.size,
        why=why,
        resent=tuple(resent.get(letter.place, ())),
    )


async def _retries(ask: Ask, group: str) -> tuple[dict[str, int], str]:
    """How many retries a message of the group has, by broker name."""
    error = ""
    try:
        info = await ask.admin.group(group)
    except NotFoundError:
        return {}, ""
    except BrokersError as failed:
        info, error = failed.partial, one_line(failed)
    return {broker: each.retry_max_times for broker, each in info.settings.items()}, error


def _resent(ask: Ask, group: str) -> dict[str, list[int]]:
    """The changes that sent each dead letter again, by its place."""
    found: dict[str, list[int]] = {}
    for change in ask.console.audit.of(RESEND):
        sent = change.after if isinstance(change.after, dict) else {}
        if change.of.get("group") == group:
            for place in sent:
                found.setdefault(place, []).append(change.number)
    return found


def _begin(text: str) -> dict[str, int]:
    """The field `from`: `broker:queue:offset`, with commas between."""
    places = [_place(each) for each in text.split(",", QUEUES_MAX)] if text else []
    return {f"{each.broker_name}:{each.queue_id}": each.offset for each in places}


def _place(text: str) -> Place:
    queue, _, offset = text.rpartition(":")
    broker_name, _, queue_id = queue.rpartition(":")
    numbers = (queue_id, offset)
    if not broker_name or not all(each.isascii() and each.isdigit() for each in numbers):
        raise PageError(400, "no_place", value=text)
    if len(queue_id) > 9 or len(offset) > 18:
        raise PageError(400, "no_place", value=text)
    return Place(broker_name, int(queue_id), int(offset))


# Sending again


class ResendPage(msgspec.Struct, frozen=True, rename="camel"):
    """What would be sent again.

    Attributes:
      letters: in the order in which they are sent.
      topics: where they go, and how many to each, sorted.
    """

    group: str
    letters: tuple[DeadLetter, ...]
    topics: dict[str, int]


def _chosen(ask: Ask) -> list[Place]:
    names = [name.removeprefix(CHOSEN_PREFIX) for name in ask.query if _is_chosen(name)]
    if len(names) > LETTERS_MAX:
        raise PageError(400, "too_many_letters", limit=LETTERS_MAX)
    return [_place(each) for each in names]


def _is_chosen(name: str) -> bool:
    return name.startswith(CHOSEN_PREFIX)


async def _preview(ask: Ask) -> ResendPage:
    group = ask.text("group")
    if ask.flag("all"):
        page = await dead_letters(ask)
        places: Sequence[Place] = [_place(each.place) for each in page.letters]
    else:
        places = _chosen(ask)
    found = await _letters(ask, group, places)
    mask = ask.console.masks.message
    letters = tuple(dead_letter(ask.admin.client, mask(each)) for each in found)
    topics = sorted({each.topic for each in letters})
    counts = {topic: sum(each.topic == topic for each in letters) for topic in topics}
    return ResendPage(group, letters, counts)


async def _letters(ask: Ask, group: str, places: Sequence[Place]) -> list[ReceivedMessage]:
    """The dead letters at some places, which can all be sent again. Raises: PageError."""
    if not places:
        raise PageError(400, "no_letter")
    found, gone = await letters_at(ask.admin, group, places)
    if gone:
        raise PageError(409, "letters_gone", places=", ".join(str(each) for each in gone))
    for each in found:
        letter = dead_letter(ask.admin.client, each)
        if not letter.topic:
            raise PageError(409, "no_topic_of_letter", place=letter.place)
    return found


async def _carry_out(ask: Ask) -> Done:
    group = ask.text("group")
    found = await _letters(ask, group, _chosen(ask))
    letters = [dead_letter(ask.admin.client, each) for each in found]
    of = {"group": group}
    before = {each.place: each.message_id for each in letters}
    after: dict[str, str] = {}

    def on_sent(sent: Resent) -> None:
        # They are sent one after another, so the next one it is.
        after[letters[len(after)].place] = sent.message_id

    with audited(ask, RESEND, of, before=before, after=after) as line:
        await resend(ask.admin.client, found, on_sent)
    values = {"count": len(after), "number": line.number}
    return Done("dead_letters", {"group": group}, "resend", values)


PAGES = (Page("dead_letters", dead_letters, table="letters", section="groups"),)
CHANGES = (Change(RESEND, Role.OPERATE, _preview, _carry_out, section="groups"),)
