"""Messages as rows of a list, with the beginning of their bodies."""

from __future__ import annotations

from typing import Final

import msgspec

from ..client import ReceivedMessage
from .bodies.views import ViewKind, opened

PREVIEW_LENGTH: Final = 120
"""Characters of a body in a list."""


class MessageRow(msgspec.Struct, frozen=True, rename="camel"):
    """A message that was found.

    Attributes:
      message_id: the producer's id, or the broker's.
      stored_ms: ms since 1970.
      size: of the body as stored, in bytes.
      body: its beginning, as text.
    """

    message_id: str
    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    stored_ms: int
    tags: str
    keys: tuple[str, ...]
    size: int
    body: str


def row_of(message: ReceivedMessage) -> MessageRow:
    """A message, masked, as a row."""
    view = opened(
        message.body, message.sys_flag, kind=ViewKind.TEXT, length_max=PREVIEW_LENGTH
    ).view
    return MessageRow(
        message_id=message.message_id,
        topic=message.topic,
        broker_name=message.queue.broker_name,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        stored_ms=message.store_timestamp_ms,
        tags=message.tags or "",
        keys=message.keys,
        size=len(message.body),
        body=view.shown.text + ("..." if view.left_out else ""),
    )
