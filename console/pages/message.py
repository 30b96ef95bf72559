"""The page of one message: its verdict, its life, its groups, its body and its properties."""

from __future__ import annotations

from typing import Final

import msgspec

from ...client import ClientError, ReceivedMessage
from ...common.texts import one_line
from ...operations.message_life import Life, collect_life, life_of
from ...operations.unpacking import as_sent
from ..bodies.views import OpenedBody, ViewKind, opened
from ..errors import PageError
from ..masks import BodyState
from .page import Ask, Download, Page

DEADLINE_S: Final = 3.0
"""For all that the page asks for."""
GROUPS_MAX: Final = 8
MEMBERS_MAX: Final = 8
"""Groups, and members of each, that are asked in full: with them a page takes at most 40 requests
at a broker."""
KINDS: Final = tuple(kind.value for kind in ViewKind)
DECODED: Final = "decoded"
"""The view by the user's decoder."""


class DecodedBody(msgspec.Struct, frozen=True, rename="camel"):
    """What the user's decoder makes of a body.

    Attributes:
      text: as text; "": it failed.
      failure: why it failed; "": it did not.
      detail: more about that, from the decoder.
    """

    text: str
    failure: str = ""
    detail: str = ""


class MessagePage(msgspec.Struct, frozen=True, rename="camel"):
    """A message.

    Attributes:
      message_id, topic: as asked for.
      life: with masked properties.
      body: what is inside, as `kind`; None: the message was not found, or its body not read.
      body_state: what the masks did to it.
      hidden: names of properties that the masks hide.
      error: why the body was not read; "": it was.
      kinds: the ways in which a body can be shown.
      decoded: what the user's decoder makes of it; None: it was not asked.
      group: the one that was asked about, whether it has to do with the topic or not; "": none.
    """

    message_id: str
    topic: str
    life: Life
    body: OpenedBody | None = None
    body_state: BodyState = BodyState.SHOWN
    hidden: tuple[str, ...] = ()
    error: str = ""
    kinds: tuple[str, ...] = KINDS
    decoded: DecodedBody | None = None
    group: str = ""


async def message(ask: Ask) -> MessagePage:
    """A message's life, and its body as the query wants it."""
    message_id = ask.text("id")
    topic = ask.query.get("topic", "").strip()
    group = ask.query.get("group", "").strip()
    wants_decoder = ask.query.get("as", "") == DECODED and ask.console.decoder is not None
    kind = None if wants_decoder else _kind(ask)
    life = life_of(
        await collect_life(
            ask.admin,
            message_id,
            topic or None,
            groups=(group,) if group else (),
            groups_max=GROUPS_MAX,
            members_max=MEMBERS_MAX,
            deadline_s=DEADLINE_S,
            is_stopped=ask.console.settings.stopped is not None,
        )
    )
    page = MessagePage(message_id, topic, life, group=group)
    if life.message is None:
        return page
    try:
        found = await ask.admin.message(life.message.offset_message_id)
    except ClientError as error:
        hidden_life = masked_life(life, tuple(life.message.properties))
        return msgspec.structs.replace(page, life=hidden_life, error=one_line(error))
    masked = ask.console.masks.masked(found)
    body = opened(
        masked.message.body, masked.message.sys_flag, kind=kind, offset=ask.number("offset", 0)
    )
    return msgspec.structs.replace(
        page,
        life=masked_life(life, masked.hidden_properties),
        body=body,
        body_state=masked.body,
        hidden=masked.hidden_properties,
        kinds=KINDS if ask.console.decoder is None else (*KINDS, DECODED),
        decoded=await _decoded(ask, masked.message) if wants_decoder else None,
    )


async def _decoded(ask: Ask, message: ReceivedMessage) -> DecodedBody | None:
    if ask.console.decoder is None:
        return None
    body = as_sent(message.body, message.sys_flag).content
    made = await ask.console.decoder.decode(message.topic, message.properties, body)
    if made.failure is not None:
        return DecodedBody("", made.failure.value, made.detail)
    text = made.text
    if text is None:
        text = opened(made.body or b"").view.shown.text
    return DecodedBody(text)


def _kind(ask: Ask) -> ViewKind | None:
    wanted = ask.query.get("as", "")
    if not wanted:
        return None
    if wanted not in KINDS:
        raise PageError(400, "no_view", value=wanted)
    return ViewKind(wanted)


HIDDEN: Final = "***"


def masked_life(life: Life, hidden: tuple[str, ...]) -> Life:
    """A life without the values of some properties; a trace repeats tags and keys. Pure."""
    if not hidden or life.message is None:
        return life
    properties = {
        name: HIDDEN if name in hidden else value for name, value in life.message.properties.items()
    }
    message = msgspec.structs.replace(
        life.message,
        properties=properties,
        tags=HIDDEN if "TAGS" in hidden and life.message.tags else life.message.tags,
        keys=(HIDDEN,) if "KEYS" in hidden and life.message.keys else life.message.keys,
    )
    trace = None if {"TAGS", "KEYS"} & set(hidden) else life.trace
    return msgspec.structs.replace(life, message=message, trace=trace)


async def body(ask: Ask) -> Download:
    """The whole body of a message, masked, as its program gave it to the client."""
    message_id = ask.text("id")
    topic = ask.query.get("topic", "").strip()
    found: ReceivedMessage = await ask.admin.message(message_id, topic or None)
    masked = ask.console.masks.masked(found).message
    sent = as_sent(masked.body, masked.sys_flag)
    return Download(f"{found.offset_message_id}.bin", sent.content)


PAGES = (Page("message", message, section="messages"),)
DOWNLOADS = {"body": body}
