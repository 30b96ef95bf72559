"""Sending a message, or an edited copy of one."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ...client import (
    ConfigurationError,
    Message,
    MessageRefusedError,
    Producer,
)
from ...common.texts import one_line
from ...operations.unpacking import as_sent
from ..errors import PageError
from ..masks import BodyState
from ..roles import Role
from .audited import audited
from .page import Ask, Change, Done

SEND: Final = "send"
BODY_LENGTH_MAX: Final = 4 << 20
"""Characters of a body: brokers take 4 MiB by default."""
PROPERTIES_LENGTH_MAX: Final = 32_767
"""Characters of all properties: the wire has 2 bytes for their length."""


class SendPage(msgspec.Struct, frozen=True, rename="camel"):
    """What the form begins with.

    Attributes:
      copy_of: the id of the message that it is a copy of; "": of none.
      properties: lines of name=value: those that programs set.
      is_binary: the body of that message is no text, so that it cannot be edited here.
      has_crlf: all lines of that body end with CR LF; a form has LF, whatever was there.
      left_out: what else a form cannot hold: names of properties, TAGS and KEYS among them.
    """

    topic: str
    tags: str = ""
    keys: str = ""
    properties: str = ""
    body: str = ""
    copy_of: str = ""
    is_binary: bool = False
    has_crlf: bool = False
    left_out: tuple[str, ...] = ()


_NOT_IN_A_FORM: Final = re.compile("[\0\r\ud800-\udfff]")
"""What a browser replaces, or ends a line with, in the fields of a form."""


def _fits_in_a_line(text: str) -> bool:
    return "\n" not in text and not _NOT_IN_A_FORM.search(text)


async def _preview(ask: Ask) -> SendPage:
    copy_of = ask.query.get("id", "").strip()
    topic = ask.text("topic")
    if not copy_of:
        return SendPage(topic)
    masked = ask.console.masks.masked(await ask.admin.message(copy_of, topic))
    if masked.body is not BodyState.SHOWN or masked.hidden_properties:
        raise PageError(403, "masked_copy")
    found = masked.message
    text, has_crlf = _editable(as_sent(found.body, found.sys_flag).content)
    tags, keys = found.tags or "", " ".join(found.keys)
    fits = {
        name: _fits_in_a_line(name + value) and "=" not in name and name.strip() == name
        for name, value in found.user_properties.items()
    }
    fits |= {
        "TAGS": _fits_in_a_line(tags) and tags.strip() == tags,
        "KEYS": _fits_in_a_line(keys),
    }
    properties = [f"{name}={value}" for name, value in found.user_properties.items() if fits[name]]
    return SendPage(
        found.topic,
        tags=tags if fits["TAGS"] else "",
        keys=keys if fits["KEYS"] else "",
        properties="\n".join(properties),
        body=text or "",
        copy_of=found.message_id,
        is_binary=text is None,
        has_crlf=has_crlf,
        left_out=tuple(name for name, is_fit in fits.items() if not is_fit),
    )


def _editable(body: bytes) -> tuple[str | None, bool]:
    """A body as a form has it (None: it cannot), and whether its lines end with CR LF."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None, False
    has_crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
    if has_crlf:
        text = text.replace("\r\n", "\n")
    return (None if _NOT_IN_A_FORM.search(text) else text), has_crlf


async def _carry_out(ask: Ask) -> Done:
    topic = ask.text("topic")
    body = ask.query.get("body", "").replace("\r\n", "\n")
    if ask.flag("crlf"):
        body = body.replace("\n", "\r\n")
    if len(body) > BODY_LENGTH_MAX:
        raise PageError(413, "body_too_long", limit=BODY_LENGTH_MAX)
    tags, keys = ask.query.get("tags", "").strip(), ask.query.get("keys", "").split()
    try:
        message = Message(
            topic,
            body.encode("utf-8", "surrogateescape"),
            tags=tags or None,
            keys=keys,
            properties=_properties(ask.query.get("properties", "")),
        )
    except (ConfigurationError, MessageRefusedError) as error:
        raise PageError(400, "bad_message", text=one_line(error)) from None
    of = {"topic": topic}
    after = {"tags": tags, "keys": keys, "size": len(message.body)}
    with audited(ask, SEND, of, after=after):
        try:
            async with Producer(ask.admin.client) as producer:
                result = await producer.send(message)
        except (ConfigurationError, MessageRefusedError) as error:
            raise PageError(400, "bad_message", text=one_line(error)) from None
        after["messageId"] = result.message_id
    query = {"id": result.offset_message_id or result.message_id, "topic": topic}
    return Done("message", query, "send", {"topic": topic})


def _properties(text: str) -> dict[str, str]:
    """Lines of name=value. Raises: PageError: a line has no =, or there is too much."""
    if len(text) > PROPERTIES_LENGTH_MAX:
        raise PageError(413, "properties_too_long", limit=PROPERTIES_LENGTH_MAX)
    found = {}
    for line in text.replace("\r\n", "\n").split("\n"):
        if not line.strip():
            continue
        name, separator, value = line.partition("=")
        if not separator or not name.strip():
            raise PageError(400, "bad_property", line=line[:100])
        found[name.strip()] = value
    return found


CHANGES = (Change("send", Role.OPERATE, _preview, _carry_out, section="messages"),)
