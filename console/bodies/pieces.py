"""A text that is made piece by piece, with the place in the body that each piece stands for.

A view stops making it where the page is full, so that a body of 4 MiB, whose indented form may have
GiB, costs no more than what is shown. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from ..shown_text import Shown, shown

INDENT: Final = "  "
INDENTED_DEPTH_MAX: Final = 32
"""Levels that are indented; deeper ones stand below each other. A level may have a line for each
byte of the body."""


class Piece(NamedTuple):
    """A part of the text, and where in the body (in bytes) what it stands for ends."""

    text: str
    end: int


def new_line(depth: int) -> str:
    """A line break and the indentation of a level."""
    return "\n" + INDENT * min(depth, INDENTED_DEPTH_MAX)


def shown_pieces(pieces: Iterable[Piece], size: int, length_max: int) -> tuple[Shown, int]:
    """What a page shows of a text that is made in pieces.

    Args:
      pieces: in order; taken until the page is full.
      size: of the body, in bytes.
      length_max: characters that are shown at most.

    Returns: the text, and how many bytes of the body it does not stand for.
    """
    texts: list[str] = []
    lengths: list[int] = [0]
    ends: list[int] = [0]
    is_whole = True
    for piece in pieces:
        if lengths[-1] > length_max:
            is_whole = False
            break
        texts.append(piece.text)
        lengths.append(lengths[-1] + len(piece.text))
        ends.append(piece.end)
    text = "".join(texts)
    result = shown(text, length_max=length_max, has_lines=True)
    if is_whole and not result.left_out:
        return result, 0
    taken = len(text) - result.left_out
    at = bisect_right(lengths, taken) - 1
    end = ends[at]
    if at + 1 < len(ends):  # within a long piece: a character has one byte at least
        end = min(end + taken - lengths[at], ends[at + 1])
    left_out = max(size - end, 1)
    return Shown(result.segments, left_out), left_out
