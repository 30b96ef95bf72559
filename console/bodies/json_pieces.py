"""JSON in indented lines, made from its tokens: numbers, names and their order stay as they are.

No tree is made: the tokens of a body of 4 MiB could take GiB. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from .pieces import Piece, new_line

_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"]++')
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})(?:\\u([dD][c-fC-F][0-9a-fA-F]{2}))?|.)")
_LONE_SURROGATES: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_ESCAPED_LENGTH: Final = 12
"""Characters that one character has at most, as two escapes."""
_FIRST_SHOWN: Final = 0xA0
"""The first character beyond ASCII that has a picture."""


class NotJsonError(ValueError):
    """A body is not JSON; the text says why and where."""


class TooDeepError(ValueError):
    """A body is nested too deep to be read."""


def check_json(body: bytes) -> None:
    """Check that a body is one JSON value. Takes no memory, whatever the body.

    Raises: NotJsonError; TooDeepError: nested deeper than the interpreter reads, some
        1,000 levels before Python 3.14.
    """
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise NotJsonError(f"byte {error.start} is no UTF-8") from error
    if b"\\u" in body:
        # msgspec refuses halves of surrogate pairs, which JSON allows.
        body = _LONE_SURROGATES.sub(rb"\\u0041", body)
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        raise NotJsonError(str(error)) from error
    except RecursionError as error:
        raise TooDeepError("nested too deep") from error


def json_pieces(text: str, length_max: int) -> Iterator[Piece]:
    """The tokens of a JSON text in indented lines; escaped letters as letters.

    Args:
      text: checked by `check_json`. Positions of the pieces are in characters of it.
      length_max: characters of one piece that are needed; of a longer one the end may be missing.
    """
    depth = 0
    is_open = False  # the token before opened an array or object
    for match in _TOKEN.finditer(text):
        token = match[0]
        before = new_line(depth) if is_open and token not in "]}" else ""
        if token in "]}":
            depth -= 1
            before = "" if is_open else new_line(depth)
        is_open = token in "[{"
        if is_open:
            depth += 1
        after = ""
        if token == ",":
            after = new_line(depth)
        elif token == ":":
            after = " "
        elif token[0] == '"' and "\\u" in token:
            token = _ESCAPE.sub(_letter, token[: _ESCAPED_LENGTH * (length_max + 1)])
        yield Piece(before + token + after, match.end())


def _letter(match: re.Match[str]) -> str:
    """An escaped letter as it is; every other escape as it stands."""
    if match[1] is None:
        return match[0]
    code, low = int(match[1], 16), match[2]
    if 0xD800 <= code < 0xDC00:
        if low is None:
            return match[0]
        return chr(0x10000 + ((code & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
    if 0xDC00 <= code < 0xE000 or code < _FIRST_SHOWN:
        return match[0]
    return chr(code) + (f"\\u{low}" if low is not None else "")
