"""The wire protocol between a master and its slave, without I/O: see docs/ha.md.

Java counterparts: ha/DefaultHAConnection.java and ha/DefaultHAClient.java of 5.3.3, with the same
headers. Master to slave: `int64 physical offset, int32 size`, then `size` bytes of the log; size 0
is a heartbeat. Slave to master: int64, the end of its log.

An extension between two trocket brokers: a slave begins with `HELLO`, which Apache's master treats
as "no report yet". A trocket master answers with frames of negative size, and the slave may ask for
checksums of the master's log before it lets the transfer begin.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from ...remoting.errors import RemoteProtocolError
from ..config import HA_BATCH_SIZE_MAX

FRAME_HEADER: Final = struct.Struct(">qi")
REPORT: Final = struct.Struct(">q")

HELLO: Final = -1
"""The first word of a slave with the extension. Apache's masters (4.4 to 5.5) wait for a first
report while the last one they read is -1."""
ASK: Final = -2
"""Two words follow, physical offsets: the slave asks for the checksum of the log between them."""
IDENTITY: Final = -3
"""A word follows by which the master recognizes this slave at its next connection."""

READY: Final = -1
"""Size in a frame that answers HELLO and the first report; its offset: the one from which on all
records in the master's log are known to be written by trocket."""
CHECKSUM: Final = -2
"""Size in a frame that answers ASK; its offset: the CRC32, or `NO_CHECKSUM`."""
REFUSED: Final = -3
"""Size in a frame that refuses the first report; its offset: the start or end of the master's log,
outside of which the report is."""
NO_CHECKSUM: Final = -1
"""The master does not have all these bytes."""

TLS_FIRST_BYTES: Final = 0x1603
"""The first bytes of a TLS handshake; no log has such an offset."""

_WORDS_AFTER = {ASK: 2, IDENTITY: 1}


class Frame(NamedTuple):
    """A frame of a master, or a part of one.

    Attributes:
      offset: physical offset of the body; in an answer, its value.
      kind: 0, or the kind of answer: `READY`, `CHECKSUM`, `REFUSED`.
      body: bytes of the log, a view of the fed bytes; empty: a heartbeat, or an answer.
    """

    offset: int
    kind: int
    body: bytes | memoryview


class Hello(NamedTuple):
    """The slave supports the extension."""


class Question(NamedTuple):
    """The slave asks for the checksum of [start, end) of the log."""

    start: int
    end: int


class Identity(NamedTuple):
    """The number by which the master recognizes the slave."""

    number: int


Word: TypeAlias = int | Hello | Question | Identity
"""A message of a slave; an int is a report: the physical offset up to which it has the log, >= 0.
"""


class FrameDecoder:
    """Decodes the frames of a master from pieces of any size.

    A body that comes in pieces becomes several frames, each with the offset of its first byte: the
    log does not depend on frame boundaries, and nothing is copied to join them.

    Args:
      body_size_max: bytes of a body; more is an error.
      with_answers: whether frames of negative size may come.
    """

    def __init__(self, *, body_size_max: int = HA_BATCH_SIZE_MAX, with_answers: bool) -> None:
        self._body_size_max = body_size_max
        self._with_answers = with_answers
        self._header = b""
        self._offset = 0
        self._missing = 0

    @property
    def partial_size(self) -> int:
        """Received bytes of an incomplete header."""
        return len(self._header)

    def feed(self, data: bytes | bytearray) -> list[Frame]:
        """The frames in these bytes.

        Raises:
          RemoteProtocolError: an invalid header; frames before it are lost, too.
        """
        frames: list[Frame] = []
        view = memoryview(data)
        # The last read ended within a header.
        if self._header:
            begun = len(self._header)
            self._header += view[: FRAME_HEADER.size - begun]
            if len(self._header) < FRAME_HEADER.size:
                return frames
            view = view[FRAME_HEADER.size - begun :]
            self._begin(frames, *FRAME_HEADER.unpack(self._header))
            self._header = b""
        position = self._take_body(frames, view, 0)
        while len(view) - position >= FRAME_HEADER.size:
            self._begin(frames, *FRAME_HEADER.unpack_from(view, position))
            position = self._take_body(frames, view, position + FRAME_HEADER.size)
        self._header = bytes(view[position:])
        return frames

    def _begin(self, frames: list[Frame], offset: int, size: int) -> None:
        self._check(offset, size)
        if size > 0:
            self._offset, self._missing = offset, size
        else:
            frames.append(Frame(offset, size, b""))

    def _take_body(self, frames: list[Frame], view: memoryview, position: int) -> int:
        body = view[position : position + self._missing]
        if body:
            frames.append(Frame(self._offset, 0, body))
            self._offset += len(body)
            self._missing -= len(body)
        return position + len(body)

    def _check(self, offset: int, size: int) -> None:
        if size > self._body_size_max:
            raise RemoteProtocolError(f"a frame of {size} bytes, at most {self._body_size_max}")
        if size < 0 and not (self._with_answers and size in (READY, CHECKSUM, REFUSED)):
            raise RemoteProtocolError(f"a frame of {size} bytes")
        if offset < 0 and size != CHECKSUM:
            raise RemoteProtocolError(f"a frame at physical offset {offset}")


class WordDecoder:
    """Decodes the words of a slave from pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._is_first = True
        self._may_ask = False

    @property
    def partial_size(self) -> int:
        """Received bytes of an incomplete word."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray) -> Iterator[Word]:
        """The words that these bytes complete, in order.

        Raises:
          RemoteProtocolError: an invalid word.
        """
        self._buffer += data
        while len(self._buffer) >= REPORT.size:
            (number,) = REPORT.unpack_from(self._buffer)
            size = REPORT.size * (1 + _WORDS_AFTER.get(number, 0))
            self._check(number)
            if len(self._buffer) < size:
                return
            arguments = struct.unpack(f">{size // 8 - 1}q", self._buffer[8:size])
            del self._buffer[:size]
            yield self._word(number, arguments)

    def _check(self, number: int) -> None:
        if self._is_first and number >> 48 == TLS_FIRST_BYTES:
            raise RemoteProtocolError("it speaks TLS, and haTlsEnable is false here")
        is_known = number >= 0 or (number == HELLO and self._is_first)
        if not (is_known or (self._may_ask and number in _WORDS_AFTER)):
            raise RemoteProtocolError(f"a report of {number}")

    def _word(self, number: int, arguments: tuple[int, ...]) -> Word:
        self._is_first = False
        if number == HELLO:
            self._may_ask = True
            return Hello()
        if number == ASK:
            return Question(*arguments)
        return Identity(*arguments) if number == IDENTITY else number


def encode_report(offset: int) -> bytes:
    """A report: the slave has the log up to this physical offset."""
    return REPORT.pack(offset)


def encode_words(*words: Word) -> bytes:
    """Words of a slave to a trocket master."""
    numbers: list[int] = []
    for word in words:
        match word:
            case Hello():
                numbers.append(HELLO)
            case Question(start, end):
                numbers += (ASK, start, end)
            case Identity(number):
                numbers += (IDENTITY, number)
            case _:
                numbers.append(word)
    return struct.pack(f">{len(numbers)}q", *numbers)


def encode_header(offset: int, size: int) -> bytes:
    """The header of a frame; the body follows unchanged."""
    return FRAME_HEADER.pack(offset, size)
