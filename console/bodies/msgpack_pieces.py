"""MessagePack in indented lines, written as JSON where JSON can say it. No tree is made. Pure.

Source: https://github.com/msgpack/msgpack/blob/master/spec.md.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from .json_pieces import TooDeepError
from .pieces import Piece, new_line

_BYTES_SHOWN_MAX: Final = 64
"""Bytes of a binary value that are shown; its size is shown too."""


class NotMsgpackError(ValueError):
    """A body is not MessagePack; the text says why and where."""


def check_msgpack(body: bytes) -> None:
    """Check that a body is one value of MessagePack. Takes no memory, whatever the body.

    Raises: NotMsgpackError; TooDeepError: nested deeper than the interpreter reads, some
        1,000 levels before Python 3.14.
    """
    try:
        msgspec.msgpack.decode(body, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        raise NotMsgpackError(str(error)) from error
    except RecursionError as error:
        raise TooDeepError("nested too deep") from error


_NUMBERS: Final = {
    0xCA: struct.Struct(">f"),
    0xCB: struct.Struct(">d"),
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
_WORDS: Final = {0xC0: "null", 0xC2: "false", 0xC3: "true"}
_EXT_SIZES: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_LENGTH_SIZES: Final = {
    0xC4: 1,
    0xC5: 2,
    0xC6: 4,  # bin
    0xC7: 1,
    0xC8: 2,
    0xC9: 4,  # ext
    0xD9: 1,
    0xDA: 2,
    0xDB: 4,  # str
    0xDC: 2,
    0xDD: 4,
    0xDE: 2,
    0xDF: 4,  # array, map
}


class _Reader:
    """Values of a body, one after the other.

    Attributes:
      at: where the next one begins, in bytes.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.at = 0

    def value(self) -> tuple[str, int, bool]:
        """The next value: its text, or "[" or "{"; its items; whether they are keys and values."""
        code = self._int(1)
        if code < 0x80:
            return str(code), 0, False
        if code >= 0xE0:
            return str(code - 0x100), 0, False
        if code < 0x90:
            return "{", code & 0x0F, True
        if code < 0xA0:
            return "[", code & 0x0F, False
        if code < 0xC0:
            return self._string(code & 0x1F), 0, False
        if code in _WORDS:
            return _WORDS[code], 0, False
        if code in _NUMBERS:
            number = _NUMBERS[code]
            (value,) = number.unpack(self._take(number.size))
            return str(value), 0, False
        if code in _EXT_SIZES:
            return self._ext(_EXT_SIZES[code]), 0, False
        count = self._int(_LENGTH_SIZES[code])
        if code >= 0xDE:
            return "{", count, True
        if code >= 0xDC:
            return "[", count, False
        read: Callable[[int], str]
        if code <= 0xC6:
            read = self._binary
        elif code <= 0xC9:
            read = self._ext
        else:
            read = self._string
        return read(count), 0, False

    def _take(self, size: int) -> bytes:
        found = self._body[self.at : self.at + size]
        self.at += size
        return found

    def _int(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def _string(self, size: int) -> str:
        return json.dumps(self._take(size).decode("utf-8", "replace"), ensure_ascii=False)

    def _binary(self, size: int) -> str:
        raw = self._take(size)
        more = " …" if size > _BYTES_SHOWN_MAX else ""
        return f"<{size} B: {raw[:_BYTES_SHOWN_MAX].hex(' ')}{more}>"

    def _ext(self, size: int) -> str:
        (kind,) = struct.unpack(">b", self._take(1))
        return f"<type {kind}, {self._binary(size)[1:]}"


def msgpack_pieces(body: bytes) -> Iterator[Piece]:
    """A value of MessagePack in indented lines.

    Args:
      body: checked by `check_msgpack`.
    """
    reader = _Reader(body)
    # Of each level: what closes it, its items that are still to come, whether a key comes next
    # (None: it has no keys).
    levels: list[tuple[str, int, bool | None]] = []
    before = ""
    while True:
        text, count, is_map = reader.value()
        if text in ("[", "{") and count:
            close = "}" if is_map else "]"
            levels.append((close, count * 2 if is_map else count, True if is_map else None))
            yield Piece(before + text, reader.at)
            before = new_line(len(levels))
            continue
        if text in ("[", "{"):
            text += "}" if is_map else "]"
        yield Piece(before + text, reader.at)
        while levels:
            close, left, is_key = levels.pop()
            if left > 1:
                levels.append((close, left - 1, None if is_key is None else not is_key))
                before = ": " if is_key else "," + new_line(len(levels))
                break
            yield Piece(new_line(len(levels)) + close, reader.at)
        else:
            return
