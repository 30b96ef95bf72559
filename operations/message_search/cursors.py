"""Cursors: how a search goes on, as a string for an address. Nothing in one is trusted. Pure."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final

import msgspec

from ...remoting.bodies import MessageQueue
from .problems import Problem, SearchError

QUEUES_MAX: Final = 512
"""Queues of one search: a cursor of them fits an address of 16 KiB, which servers take."""
CURSOR_LENGTH_MAX: Final = 16_000
_VERSION: Final = 1

_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_QueueId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Place(msgspec.Struct, array_like=True, frozen=True):
    """How far a search is in a queue.

    Attributes:
      at: offset from which the search goes on (oldest first), or before which (newest first).
      until: where it ends: an offset that is not scanned any more (oldest first), or the last one
        (newest first).
      is_known: False: the broker did not say yet where the queue begins and ends.
    """

    queue_id: _QueueId
    at: _Offset = 0
    until: _Offset = 0
    is_known: bool = True


class Cursor(msgspec.Struct, array_like=True, frozen=True):
    """How a search goes on.

    Attributes:
      version: of this layout.
      checksum: that of the criteria, by which a cursor of another search is known.
      scanned: messages that were scanned so far.
      brokers: broker name to the places in its queues; queues that are done are left out.
    """

    version: int
    checksum: int
    scanned: _Offset
    brokers: dict[str, list[Place]]


Places = dict[MessageQueue, tuple[int, int] | None]
"""Queue to where a search goes on in it and where it ends, as in `Place`; None: not known yet."""


def encode_cursor(checksum: int, scanned: int, places: Places) -> str:
    """A cursor as a string, of the letters that an address has without escapes.

    Args:
      checksum: that of the criteria, by which a cursor of another search is known.
      scanned: messages so far.
      places: of the queues that are not done.
    """
    brokers: dict[str, list[Place]] = {}
    for queue, known in places.items():
        at, until = known or (0, 0)
        place = Place(queue.queue_id, at, until, known is not None)
        brokers.setdefault(queue.broker_name, []).append(place)
    raw = msgspec.msgpack.encode(Cursor(_VERSION, checksum, scanned, brokers))
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode_cursor(text: str, checksum: int, topic: str) -> tuple[int, Places]:
    """The inverse of `encode_cursor`.

    Args:
      text: from outside.
      checksum: of the criteria that it comes with.
      topic: with namespace.

    Returns: messages scanned so far, and the places. Whether there are such queues is not checked.
    Raises: SearchError: BAD_CURSOR.
    """
    if len(text) > CURSOR_LENGTH_MAX:
        raise SearchError(Problem.BAD_CURSOR, reason="it is too long")
    try:
        raw = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), b"-_", validate=True)
        cursor = msgspec.msgpack.decode(raw, type=Cursor)
    except (UnicodeEncodeError, binascii.Error, msgspec.DecodeError, RecursionError) as error:
        raise SearchError(Problem.BAD_CURSOR, reason="it is cut off or changed") from error
    if cursor.version != _VERSION:
        raise SearchError(Problem.BAD_CURSOR, reason="it is of another version")
    if cursor.checksum != checksum:
        raise SearchError(Problem.BAD_CURSOR, reason="it is of another search")
    places: Places = {
        MessageQueue(topic, broker, place.queue_id): (
            (place.at, place.until) if place.is_known else None
        )
        for broker, found in cursor.brokers.items()
        for place in found
    }
    if len(places) > QUEUES_MAX:
        raise SearchError(Problem.BAD_CURSOR, reason="it has too many queues")
    return cursor.scanned, places
