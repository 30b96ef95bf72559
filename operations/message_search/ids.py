"""Ids of messages: which kind a text is, or what is wrong with it. Pure."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from ...client.admin.messages import place_of
from ...remoting.message_id import OffsetId
from .problems import Problem, SearchError

ID_LENGTH_MAX: Final = 255
"""Characters of an id: those of RocketMQ's clients have 56 at most, and other programs may give
their messages ids of their kind."""
_HEX: Final = re.compile(r"[0-9a-fA-F]+", re.ASCII)
_LENGTHS: Final = (32, 56)
"""Hex digits of ids of brokers and of remoting clients, with IPv4 and with IPv6."""
_GRPC_LENGTH: Final = 34
_GRPC_VERSION: Final = "01"
"""Ids of gRPC clients: this, MAC, process id, seconds since 2021, a counter.
Source: MessageIdCodec of rocketmq-clients."""
_CUT_OFF_FROM: Final = 16
"""Hex digits from which on a text is more probably a part of an id than a key."""
_LOG_SIZE_MAX: Final = 1 << 48
"""Bytes of a commit log, beyond anything there is: a producer's id that reads as a broker's has a
random number there."""


class IdKind(StrEnum):
    """The kinds of a message's ids."""

    OFFSET = "offset"
    """The broker's: its address and the place in its commit log."""
    UNIQUE = "unique"
    """The producer's, as remoting clients make it."""
    GRPC = "grpc"
    """The producer's, as gRPC clients make it."""
    OTHER = "other"
    """It has the form of none of these, and may be the id of another client."""


class MessageId(NamedTuple):
    """An id of a message.

    Attributes:
      text: without spaces around it.
      kind: by its form.
      place: of OFFSET.
    """

    text: str
    kind: IdKind
    place: OffsetId | None = None

    @property
    def address(self) -> str:
        """`host:port` of the broker that the id names; "": it names none."""
        if self.place is None:
            return ""
        host = f"[{self.place.ip}]" if ":" in self.place.ip else self.place.ip
        return f"{host}:{self.place.port}"


def read_id(text: str) -> MessageId:
    """The id that a text is.

    Raises: SearchError: EMPTY, HAS_SPACES, CUT_OFF, NOT_AN_ID.
    """
    text = text.strip()
    if not text:
        raise SearchError(Problem.EMPTY)
    words = text.split()
    if len(words) > 1:
        raise SearchError(Problem.HAS_SPACES, joined="".join(words)[:ID_LENGTH_MAX])
    if len(text) > ID_LENGTH_MAX or not text.isprintable():
        raise SearchError(Problem.NOT_AN_ID, text=text[:ID_LENGTH_MAX])
    if _HEX.fullmatch(text) is None:
        return MessageId(text, IdKind.OTHER)
    length = len(text)
    if length in _LENGTHS:
        place = place_of(text)
        if place is None or place.physical_offset >= _LOG_SIZE_MAX:
            return MessageId(text, IdKind.UNIQUE)
        return MessageId(text, IdKind.OFFSET, place)
    if length == _GRPC_LENGTH and text.startswith(_GRPC_VERSION):
        return MessageId(text, IdKind.GRPC)
    if length < _CUT_OFF_FROM:
        return MessageId(text, IdKind.OTHER)
    if length < max(_LENGTHS):
        raise SearchError(Problem.CUT_OFF, length=length)
    raise SearchError(Problem.NOT_AN_ID, text=text)
