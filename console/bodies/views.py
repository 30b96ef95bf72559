"""A body in each of its views, with what was left out and why a view could not be made. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from ...operations.unpacking import Unpacked, unpacked
from ..shown_text import SHOWN_LENGTH_MAX, Shown, shown
from .json_pieces import NotJsonError, TooDeepError, check_json, json_pieces
from .msgpack_pieces import NotMsgpackError, check_msgpack, msgpack_pieces
from .pieces import shown_pieces

HEX_ROW: Final = 16
"""Bytes of a line."""
HEX_SIZE_MAX: Final = 4096
"""Bytes that a page shows: 256 lines."""


class ViewKind(StrEnum):
    """A way to show a body."""

    TEXT = "text"
    JSON = "json"
    MSGPACK = "msgpack"
    HEX = "hex"


class ViewProblem(StrEnum):
    """Why a body is shown as text, not as was asked."""

    NOT_JSON = "not_json"
    NOT_MSGPACK = "not_msgpack"
    TOO_DEEP = "too_deep"


class HexRow(msgspec.Struct, frozen=True):
    """Bytes in a line.

    Attributes:
      offset: of the first one in the body.
      hex: their digits, with blanks between them.
      text: them as ASCII, with a dot for what has no picture.
    """

    offset: int
    hex: str
    text: str


class BodyView(msgspec.Struct, frozen=True, kw_only=True):
    """A body, or a part of one, as a page shows it.

    Attributes:
      kind: what it is shown as; TEXT if there is a problem.
      size: bytes of the body.
      offset: where the part begins, in bytes; 0 but for TEXT and HEX.
      shown: the text; without segments for HEX.
      rows: of HEX.
      left_out: bytes after the part that are not shown.
      problem: why it is not shown as was asked; None: it is.
      detail: what is wrong and where, from the decoder; "": nothing more is known.
    """

    kind: ViewKind
    size: int
    offset: int = 0
    shown: Shown = Shown(())
    rows: tuple[HexRow, ...] = ()
    left_out: int = 0
    problem: ViewProblem | None = None
    detail: str = ""


class OpenedBody(msgspec.Struct, frozen=True):
    """A body, what is inside it, and one view of that.

    Attributes:
      size: of the body as stored, in bytes.
      inside: what was undone to read it.
      best: the view that suits it.
      view: the one that was asked for, or the best.
    """

    size: int
    inside: Unpacked
    best: ViewKind
    view: BodyView


def opened(
    body: bytes,
    sys_flag: int = 0,
    *,
    kind: ViewKind | None = None,
    is_as_stored: bool = False,
    offset: int = 0,
    length_max: int = SHOWN_LENGTH_MAX,
) -> OpenedBody:
    """A body as a page shows it.

    Args:
      body: as the message has it.
      sys_flag: of the message: whether a client compressed the body.
      kind: the view; None: the best.
      is_as_stored: nothing is decompressed.
      offset: of the first byte that is shown, for TEXT and HEX; what is outside counts as the end.
      length_max: characters that are shown at most.
    """
    inside = Unpacked((), body) if is_as_stored else unpacked(body, sys_flag)
    best = best_kind(inside.content)
    view = view_of(inside.content, kind or best, offset=offset, length_max=length_max)
    return OpenedBody(len(body), inside, best, view)


def best_kind(content: bytes) -> ViewKind:
    """The view that suits a body: text that reads as JSON is JSON, what is no text is hex."""
    first = content.lstrip()[:1]
    try:
        if first in (b"{", b"["):
            check_json(content)
            return ViewKind.JSON
    except TooDeepError:
        return ViewKind.JSON
    except NotJsonError:
        pass
    if _is_text(content):
        return ViewKind.TEXT
    # Nearly every byte is a value of MessagePack: only maps and arrays count.
    if 0x80 <= content[0] < 0xA0 or 0xDC <= content[0] <= 0xDF:
        try:
            check_msgpack(content)
        except (NotMsgpackError, TooDeepError):
            return ViewKind.HEX
        return ViewKind.MSGPACK
    return ViewKind.HEX


_CONTROLS: Final = bytes(code for code in range(32) if code not in b"\t\n\r\f\x1b")


def _is_text(content: bytes) -> bool:
    if len(content) != len(content.translate(None, _CONTROLS)):
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def view_of(
    content: bytes, kind: ViewKind, *, offset: int = 0, length_max: int = SHOWN_LENGTH_MAX
) -> BodyView:
    """A view of what is inside a body. Args: as `opened`."""
    if kind is ViewKind.HEX:
        return _hex_view(content, offset)
    if kind is ViewKind.TEXT:
        return _text_view(content, offset, length_max)
    try:
        if kind is ViewKind.JSON:
            return _json_view(content, length_max)
        check_msgpack(content)
    except TooDeepError:
        return _fallback(content, length_max, ViewProblem.TOO_DEEP, "")
    except NotJsonError as error:
        return _fallback(content, length_max, ViewProblem.NOT_JSON, str(error))
    except NotMsgpackError as error:
        return _fallback(content, length_max, ViewProblem.NOT_MSGPACK, str(error))
    text, left_out = shown_pieces(msgpack_pieces(content), len(content), length_max)
    return BodyView(kind=kind, size=len(content), shown=text, left_out=left_out)


def _json_view(content: bytes, length_max: int) -> BodyView:
    check_json(content)
    text = content.decode()
    result, left_out = shown_pieces(json_pieces(text, length_max), len(text), length_max)
    if left_out:  # in characters
        left_out = len(text[len(text) - left_out :].encode())
    return BodyView(
        kind=ViewKind.JSON,
        size=len(content),
        shown=Shown(result.segments, left_out),
        left_out=left_out,
    )


def _text_view(content: bytes, offset: int, length_max: int) -> BodyView:
    begin = min(max(offset, 0), len(content))
    result = shown(content[begin:], length_max=length_max, has_lines=True)
    return BodyView(
        kind=ViewKind.TEXT,
        size=len(content),
        offset=begin,
        shown=result,
        left_out=result.left_out,
    )


def _fallback(content: bytes, length_max: int, problem: ViewProblem, detail: str) -> BodyView:
    view = _text_view(content, 0, length_max)
    return msgspec.structs.replace(view, problem=problem, detail=detail)


_PRINTABLE: Final = bytes(code if 0x20 <= code < 0x7F else 0x2E for code in range(256))


def _hex_view(content: bytes, offset: int) -> BodyView:
    begin = min(max(offset, 0), len(content)) // HEX_ROW * HEX_ROW
    end = min(begin + HEX_SIZE_MAX, len(content))
    rows = []
    for at in range(begin, end, HEX_ROW):
        row = content[at : min(at + HEX_ROW, end)]
        rows.append(HexRow(at, row.hex(" "), row.translate(_PRINTABLE).decode()))
    return BodyView(
        kind=ViewKind.HEX,
        size=len(content),
        offset=begin,
        rows=tuple(rows),
        left_out=len(content) - end,
    )
