"""Templates of pulls: headers, binary or in JSON, that differ only in a few numbers.

The C extension recognises further pulls of a consumer by them. A template is the bytes of a header
between its opaque, queue id and offsets; a header with the same bytes and other numbers has the
same other fields, because a parser takes the same steps. `template_of` proves that with two
headers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from .codec import RemotingCommand, decode_frame, frame_start
from .errors import RemoteProtocolError
from .pull_fields import FIELDS_SIZE_MAX, PullFields, PullSeries, number_of_digits

HEADER_SIZE: Final = 21
_OPAQUE_AT: Final = 5
_SIZE_AT: Final = 17
_ROCKETMQ: Final = 1


class Slot(bytes, Enum):
    """The place of a number in a header; the values are known to the extension.

    The first five are of binary headers, where a decimal number follows its size, the last four of
    headers in JSON.
    """

    OPAQUE = b"o"
    FIELDS_SIZE = b"s"
    QUEUE_ID = b"q"
    QUEUE_OFFSET = b"f"
    COMMIT_OFFSET = b"c"
    JSON_OPAQUE = b"O"
    JSON_QUEUE_ID = b"Q"
    JSON_QUEUE_OFFSET = b"F"
    JSON_COMMIT_OFFSET = b"C"


class Numbers(NamedTuple):
    """The numbers of one pull, which a template leaves open."""

    opaque: int
    queue_id: int
    queue_offset: int
    commit_offset: int


class PullTemplate(NamedTuple):
    """What the headers of a series of pulls share, in the order that the extension expects.

    Attributes:
      pieces: the bytes before, between and after the numbers.
      slots: the numbers' places, a `Slot` each.
      command: code, flag, language, version and serialization of the pulls.
      series: their fields.
    """

    pieces: tuple[bytes, ...]
    slots: bytes
    command: tuple[int, int, int, int, int]
    series: PullSeries

    @property
    def size(self) -> int:
        """Bytes of the pieces."""
        return sum(map(len, self.pieces))

    def may_fit(self, frame: bytes) -> bool:
        """Whether a pull has all pieces, in whatever order."""
        for piece in self.pieces:  # noqa: SIM110 - half the time of `all` with a generator
            if piece not in frame:
                return False
        return True

    def frame(self, numbers: Numbers) -> bytes:
        """A pull with other numbers."""
        header = self.pieces[-1]
        for at in reversed(range(len(self.slots))):
            slot = Slot(self.slots[at : at + 1])
            header = self.pieces[at] + _written(slot, numbers, len(header)) + header
        return frame_start(len(header), 0, self.command[-1]) + header


def _written(slot: Slot, numbers: Numbers, size_after: int) -> bytes:
    if slot is Slot.OPAQUE:
        return numbers.opaque.to_bytes(4, "big", signed=True)
    if slot is Slot.FIELDS_SIZE:
        return size_after.to_bytes(4, "big")
    digits = b"%d" % numbers[_NUMBERS[slot]]
    return digits if slot in _JSON_SLOTS else len(digits).to_bytes(4, "big") + digits


_NUMBERS: Final = {
    Slot.QUEUE_ID: 1, Slot.QUEUE_OFFSET: 2, Slot.COMMIT_OFFSET: 3,
    Slot.JSON_OPAQUE: 0, Slot.JSON_QUEUE_ID: 1, Slot.JSON_QUEUE_OFFSET: 2,
    Slot.JSON_COMMIT_OFFSET: 3,
}  # fmt: skip
"""The number in each place, as an index of `Numbers`."""

_JSON_SLOTS: Final = {
    Slot.JSON_OPAQUE: re.compile(rb'"opaque" ?: ?(\d+)'),
    Slot.JSON_QUEUE_ID: re.compile(rb'"queueId" ?: ?"(\d+)"'),
    Slot.JSON_QUEUE_OFFSET: re.compile(rb'"queueOffset" ?: ?"(\d+)"'),
    Slot.JSON_COMMIT_OFFSET: re.compile(rb'"commitOffset" ?: ?"(\d+)"'),
}
_BINARY_SLOTS: Final = {
    b"queueId": Slot.QUEUE_ID,
    b"queueOffset": Slot.QUEUE_OFFSET,
    b"commitOffset": Slot.COMMIT_OFFSET,
}

_PROOFS: Final = (Numbers(1, 2, 3, 4), Numbers(987654321, 123456789, 10**17 + 1, 10**17 + 23))
"""Numbers of few and of many digits, all different."""

_Place = tuple[int, int, Slot]
"""Start and end of a number in a header, with its size before it."""


def template_of(frame: bytes) -> PullTemplate | None:
    """The template of a pull and of all that differ from it only in the four numbers.

    Args:
      frame: whole, of a pull.

    Returns: None: it is not a plain request of the usual form.
    """
    header_size = int.from_bytes(frame[5:8], "big")
    if header_size > FIELDS_SIZE_MAX or len(frame) != 8 + header_size:  # a pull has no body
        return None
    try:
        command = decode_frame(frame)
    except RemoteProtocolError:
        return None
    if command.flag or command.remark is not None:
        return None
    header = frame[8:]
    places = _binary_places(header) if command.serialize_type == _ROCKETMQ else _json_places(header)
    if places is None:
        return None
    pieces, at = [], 0
    for start, end, _ in sorted(places):
        pieces.append(header[at:start])
        at = end
    pieces.append(header[at:])
    template = PullTemplate(
        tuple(pieces),
        b"".join(slot.value for _, _, slot in sorted(places)),
        (command.code, 0, command.language, command.version, command.serialize_type),
        PullSeries(dict(command.ext_fields)),
    )
    return template if _is_proven(template, command, frame) else None


def _binary_places(header: bytes) -> list[_Place] | None:
    """The places of the numbers; None if a field is missing or occurs twice."""
    places = [(_OPAQUE_AT, _OPAQUE_AT + 4, Slot.OPAQUE), (_SIZE_AT, HEADER_SIZE, Slot.FIELDS_SIZE)]
    if int.from_bytes(header[_SIZE_AT:HEADER_SIZE], "big") != len(header) - HEADER_SIZE:
        return None
    at = HEADER_SIZE
    while at < len(header):
        name_end = at + 2 + int.from_bytes(header[at : at + 2], "big")
        end = name_end + 4 + int.from_bytes(header[name_end : name_end + 4], "big")
        slot = _BINARY_SLOTS.get(header[at + 2 : name_end])
        if slot is not None:
            places.append((name_end, end, slot))
        at = end
    return places if len({slot for _, _, slot in places}) == len(places) == 5 else None


def _json_places(header: bytes) -> list[_Place] | None:
    """The places of the numbers; None unless each occurs once, and is written as usual."""
    places: list[_Place] = []
    for slot, pattern in _JSON_SLOTS.items():
        found = list(pattern.finditer(header))
        if len(found) != 1:
            return None
        places.append((*found[0].span(1), slot))
    return places


def _is_proven(template: PullTemplate, command: RemotingCommand, frame: bytes) -> bool:
    """Whether the template makes this frame, and two others that are decoded as expected."""
    own = _numbers_of(command)
    if own is None or template.frame(own) != frame:
        return False
    for numbers in _PROOFS:
        try:
            other = decode_frame(template.frame(numbers))
        except RemoteProtocolError:
            return False
        expected = RemotingCommand(
            command.code,
            with_numbers(template.series, numbers),
            command.body,
            None,
            numbers.opaque,
            command.flag,
            command.language,
            command.version,
            command.serialize_type,
        )
        if other != expected:
            return False
    return True


def with_numbers(series: PullSeries, numbers: Numbers) -> Mapping[str, str]:
    """The fields of a series with other numbers."""
    return PullFields(series, *numbers[1:]).as_dict()


def _numbers_of(command: RemotingCommand) -> Numbers | None:
    """The numbers of a pull; None if one is missing, or not written as usual."""
    fields = command.ext_fields
    texts = (fields.get("queueId"), fields.get("queueOffset"), fields.get("commitOffset"))
    if None in texts:
        return None
    found = [number_of_digits((text or "").encode()) for text in texts]
    queue_id, queue_offset, commit_offset = found
    if queue_id is None or queue_offset is None or commit_offset is None:
        return None
    return Numbers(command.opaque, queue_id, queue_offset, commit_offset)
