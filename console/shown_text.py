"""Text that a page can show: strings of clients, with what cannot be seen replaced by marks.

Topics, keys, properties and bodies hold whatever a client wrote into them: control characters, NUL,
characters that turn the direction of a line (U+202E), halves of surrogate pairs, bytes that are no
UTF-8. Each is replaced by a mark that can be seen, in a segment that says so, so that a page can
tell a mark from the same characters in the text. Escaping of HTML is not done here. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

SHOWN_LENGTH_MAX: Final = 65_536
"""Characters that a page shows of one string, marks included: browsers scroll these without a
delay, and the whole is there to be downloaded."""
SEGMENTS_MAX: Final = 2_000
"""Segments of one string: each is an element of the page, and a string may alternate between a
letter and a NUL."""

_HIDDEN: Final = (
    # Control characters (Cc); TAB and LF are apart.
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"
    # Format characters (Cf), separators of lines and paragraphs (Zl, Zp).
    r"\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\ufeff\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    # Characters of other categories that are drawn as nothing.
    r"\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"
    # Halves of surrogate pairs; annotations, the mark of an earlier replacement, no characters.
    r"\ud800-\udfff\ufff0-\uffff"
)
# Between two letters or pictures a joiner stays: words of Hindi and emoji need it.
_BESIDE_JOINER: Final = r"[^\x00-\u024f\u2000-\u206f]"
_JOINER: Final = rf"(?<={_BESIDE_JOINER})[\u200c\u200d](?={_BESIDE_JOINER})"
_IN_LINES: Final = re.compile(rf"{_JOINER}|(?P<hidden>[{_HIDDEN}]+)")
_IN_A_LINE: Final = re.compile(rf"{_JOINER}|(?P<hidden>[{_HIDDEN}\t\n]+)")

_PICTURES: Final = 0x2400
"""Unicode's pictures of the control characters 0 to 31: ␀ stands for NUL."""
_PICTURE_OF_DEL: Final = "\u2421"
_REPLACED_BEFORE: Final = "\ufffd"
_BYTE: Final = 0xDC00
"""Python's `surrogateescape` gives a byte that is no UTF-8 as this and the byte."""


class Segment(NamedTuple):
    """A part of a shown text.

    Attributes:
      text: not empty; can be shown.
      is_replaced: these are marks: ␀ for NUL, <U+202E>, <0xFF> for a byte that is no UTF-8, and �
        for what was replaced before it came here.
    """

    text: str
    is_replaced: bool


class Shown(msgspec.Struct, frozen=True):
    """A string as a page shows it.

    Attributes:
      segments: its parts, in order.
      left_out: how much is not shown at the end: characters of a string, bytes of bytes; 0: all is
        shown.
    """

    segments: tuple[Segment, ...]
    left_out: int = 0

    @property
    def text(self) -> str:
        """All parts as one string, for JSON and CSV."""
        return "".join([segment.text for segment in self.segments])

    @property
    def is_as_sent(self) -> bool:
        """Whether nothing is replaced and nothing is left out."""
        return not self.left_out and not any(each.is_replaced for each in self.segments)


def shown(
    value: str | bytes, *, length_max: int = SHOWN_LENGTH_MAX, has_lines: bool = False
) -> Shown:
    """A string, or bytes that should be UTF-8, as a page shows it.

    Args:
      value: whatever a client sent.
      length_max: characters that are shown at most, marks included.
      has_lines: line breaks and tabs stay: it is a body, no name.
    """
    pattern = _IN_LINES if has_lines else _IN_A_LINE
    if isinstance(value, str):
        segments, taken = _first(value[: length_max + 1], pattern, length_max, is_bytes=False)
        return Shown(tuple(segments), len(value) - taken)
    # A character has four bytes at most; the last one may be cut, so one more is decoded.
    text = value[: 4 * length_max + 8].decode("utf-8", "surrogateescape")
    segments, taken = _first(text, pattern, length_max, is_bytes=True)
    taken_bytes = len(text[:taken].encode("utf-8", "surrogateescape"))
    return Shown(tuple(segments), len(value) - taken_bytes)


def _first(
    text: str, pattern: re.Pattern[str], length_max: int, *, is_bytes: bool
) -> tuple[list[Segment], int]:
    """The segments that fit, and how many characters of the text they stand for."""
    segments: list[Segment] = []
    room, taken = length_max, 0
    for part, is_hidden in _parts(text, pattern):
        if room <= 0 or len(segments) == SEGMENTS_MAX:
            break
        if not is_hidden:
            segments.append(Segment(part[:room], False))
            taken += len(part[:room])
            room -= len(part)
            continue
        marks: list[str] = []
        for char in part[:room]:
            mark = _mark(char, is_bytes=is_bytes)
            if len(mark) > room:
                room = 0
                break
            marks.append(mark)
            room -= len(mark)
        if marks:
            segments.append(Segment("".join(marks), True))
            taken += len(marks)
        if len(marks) < len(part):
            break
    return segments, taken


def _parts(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, bool]]:
    """What can be shown as it is, and what cannot, in turns."""
    end = 0
    for match in pattern.finditer(text):
        if match["hidden"] is None:
            continue  # a joiner that stays
        if match.start() > end:
            yield text[end : match.start()], False
        yield match[0], True
        end = match.end()
    if end < len(text):
        yield text[end:], False


def _mark(char: str, *, is_bytes: bool) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(_PICTURES + code)
    if code == 0x7F:
        return _PICTURE_OF_DEL
    if char == _REPLACED_BEFORE:
        return char
    if is_bytes and _BYTE + 0x80 <= code <= _BYTE + 0xFF:
        return f"<0x{code - _BYTE:02X}>"
    return f"<U+{code:04X}>"
