"""The bytes between a master and its slave, without I/O: see docs/ha.md.

Java counterparts: ha/DefaultHAConnection.java and ha/DefaultHAClient.java of 5.3.3, whose headers
these are. Master to slave: `int64 physical offset, int32 size`, then so many bytes of the log; size
0 is a sign of life. Slave to master: int64, the end of its log.

Ours besides, between two of us only: a slave begins with `HELLO`, which Apache's master takes for
"nothing said yet". A master of ours then answers with frames of negative size, and the slave may
ask for checksums of the master's log before it lets the transfer begin.
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
"""The first word of a slave that can ask. Apache's masters (4.4 to 5.5) keep waiting for a first
report while the last one they read is -1."""
ASK: Final = -2
"""Two words follow, physical offsets: the slave wants the checksum of the log between them."""
IDENTITY: Final = -3
"""A word follows by which the master knows this slave again."""

READY: Final = -1
"""Size in a frame that answers HELLO and the first report; its offset: from where on all records in
the master's log are known to be written by trocket."""
CHECKSUM: Final = -2
"""Size in a frame that answers ASK; its offset: the CRC32, or `NO_CHECKSUM`."""
REFUSED: Final = -3
"""Size in a frame that refuses the first report; its offset: the end of the master's log that the
slave is on the wrong side of."""
NO_CHECKSUM: Final = -1
"""The master does not have all these bytes."""

TLS_FIRST_BYTES: Final = 0x1603
"""How a TLS handshake begins; no log is so long."""

_WORDS_AFTER = {ASK: 2, IDENTITY: 1}


class Frame(NamedTuple):
    """What a master sends, or what of it has come.

    Attributes:
      offset: physical offset of the body; in an answer, what the answer is.
      kind: 0, or which answer it is: `READY`, `CHECKSUM`, `REFUSED`.
      body: bytes of the log, in the memory of what was fed; none: a sign of life, or an answer.
    """

    offset: int
    kind: int
    body: bytes | memoryview


class Hello(NamedTuple):
    """The slave can ask, and be answered."""


class Question(NamedTuple):
    """The slave wants the checksum of [start, end) of the log."""

    start: int
    end: int


class Identity(NamedTuple):
    """By what the slave is known again."""

    number: int


Word: TypeAlias = int | Hello | Question | Identity
"""What a slave says; an int is a report: the physical offset up to which it has the log, >= 0."""


class FrameDecoder:
    """What a master sends, out of pieces of any size.

    A body that comes in pieces is as many frames, each with the offset of its own first byte: the
    log does not care where frames end, and nothing is copied to put them together.

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
        """Bytes of a header that has not come whole."""
        return len(self._header)

    def feed(self, data: bytes | bytearray) -> list[Frame]:
        """What these bytes bring.

        Raises:
          RemoteProtocolError: a header that no master sends; frames before it are lost, too.
        """
        frames: list[Frame] = []
        view = memoryview(data)
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
    """What a slave sends, out of pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._is_first = True
        self._may_ask = False

    @property
    def partial_size(self) -> int:
        """Bytes of something that has not come whole."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray) -> Iterator[Word]:
        """The words that these bytes complete, one after the other.

        Raises:
          RemoteProtocolError: what no slave sends.
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
    """What a slave says to a master of ours."""
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
    """The header of a frame; the body follows as it is."""
    return FRAME_HEADER.pack(offset, size)
