"""The insides of compressed bodies, be they compressed by RocketMQ's client or by the program.

A body that grows without end is read in pieces up to a limit, and the result says so. Formats are
known by their first bytes: zlib, gzip, LZ4 frames, Zstandard frames. lz4 and zstandard are imported
at their first use. Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from enum import StrEnum
from importlib import import_module
from typing import Any, Final

import msgspec

from ..remoting.body_compression import DECOMPRESSED_SIZE_MAX, CompressionType, compression_type
from ..remoting.errors import RemoteProtocolError
from ..remoting.sys_flag import COMPRESSED

INSIDE_SIZE_MAX: Final = 24 * 1024 * 1024
"""Bytes that are read from inside a body: six times the largest body that a broker takes by
default. With what is made of them a view stays within 64 MiB."""
KEPT_SIZE: Final = 1024 * 1024
"""Bytes that are kept of what grows beyond that, to be looked at."""
LAYERS_MAX: Final = 3
"""Compressions inside each other that are undone: a client's, a program's, and a library's."""
PARTS_MAX: Final = 256
"""Compressed parts after each other that are read: each costs time, however small it is."""
PIECE_SIZE: Final = 256 * 1024
_ZSTD_INPUT_SIZE: Final = 256
"""Bytes that a Zstandard decompressor gets at once: its output cannot be limited, and a block of 4
bytes may become 128 KiB."""
_WINDOW_SIZE_MAX: Final = 8 * 1024 * 1024
"""Bytes of memory that a Zstandard frame may ask for: what level 19 needs."""


class Packing(StrEnum):
    """A compression."""

    ZLIB = "zlib"
    GZIP = "gzip"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Unreadable(StrEnum):
    """Why the inside of a body is not there, or not whole."""

    TOO_LARGE = "too_large"
    """It grows beyond the limit."""
    MANY_PARTS = "many_parts"
    """More compressed parts follow each other than are read."""
    DAMAGED = "damaged"
    """It cannot be decompressed."""
    CUT_SHORT = "cut_short"
    """Its end is missing."""
    NO_PACKAGE = "no_package"
    """The package lz4 or zstandard is not installed."""
    UNKNOWN_TYPE = "unknown_type"
    """The message's flag names a compression that RocketMQ does not have."""


class Unpacked(msgspec.Struct, frozen=True):
    """What is inside a body.

    Attributes:
      layers: the compressions that were undone, the outermost first; empty: it is not compressed.
      content: the inside; after a failure what was read of it until then, at most KEPT_SIZE bytes.
      failure: of the innermost layer; None: the content is whole.
      detail: what the library says about it, or "".
      limit: bytes that were read at most.
    """

    layers: tuple[Packing, ...]
    content: bytes
    failure: Unreadable | None = None
    detail: str = ""
    limit: int = INSIDE_SIZE_MAX


_NOTHING_READ: Final = (Unreadable.DAMAGED, Unreadable.CUT_SHORT)


class _Failure(Exception):
    """Args: failure; detail."""

    def __init__(self, failure: Unreadable, detail: str = "") -> None:
        super().__init__(detail)
        self.failure = failure
        self.detail = detail


def packing_of(body: bytes) -> Packing | None:
    """The compression that a body's first bytes show; None: none.

    Source: RFC 1950 (the two bytes are a multiple of 31), RFC 1952, RFC 8878, LZ4 Frame Format.
    """
    if body[:3] == b"\x1f\x8b\x08":
        return Packing.GZIP
    if body[:4] == b"\x04\x22\x4d\x18":
        return Packing.LZ4
    if body[:4] == b"\x28\xb5\x2f\xfd":
        return Packing.ZSTD
    # Windows of 512 bytes to 32 KiB, without a preset dictionary.
    if len(body) > 2 and body[0] & 0x8F == 0x08 and body[0] >= 0x18 and not body[1] & 0x20:
        return Packing.ZLIB if (body[0] << 8 | body[1]) % 31 == 0 else None
    return None


_OF_CLIENTS: Final = {
    CompressionType.ZLIB: Packing.ZLIB,
    CompressionType.LZ4: Packing.LZ4,
    CompressionType.ZSTD: Packing.ZSTD,
}


def unpacked(
    body: bytes,
    sys_flag: int = 0,
    *,
    layers_max: int = LAYERS_MAX,
    limit: int = INSIDE_SIZE_MAX,
) -> Unpacked:
    """What is inside a body, through all of its layers.

    A layer that only looks like a compression, such as text that begins with `x`, is none: where
    nothing can be read at all and no flag says that it is compressed, the body is its content.

    Args:
      body: as stored or as sent.
      sys_flag: the message's; where its bit COMPRESSED is set, a client compressed the body.
      layers_max: compressions that are undone at most.
      limit: bytes that are read of each layer.
    """
    layers: list[Packing] = []
    content = body
    is_flagged = bool(sys_flag & COMPRESSED) and bool(body)
    while len(layers) < layers_max:
        if is_flagged:
            try:
                packing: Packing | None = _OF_CLIENTS[compression_type(sys_flag)]
            except RemoteProtocolError as error:
                return Unpacked((), body, Unreadable.UNKNOWN_TYPE, str(error), limit)
        else:
            packing = packing_of(content)
        if packing is None:
            break
        inside = bytearray()
        try:
            _read(packing, content, inside, limit)
        except _Failure as error:
            if not is_flagged and not inside and error.failure in _NOTHING_READ:
                break
            kept = bytes(inside[:KEPT_SIZE])
            return Unpacked((*layers, packing), kept, error.failure, error.detail, limit)
        layers.append(packing)
        content = bytes(inside)
        is_flagged = False
    return Unpacked(tuple(layers), content, limit=limit)


def as_sent(body: bytes, sys_flag: int) -> Unpacked:
    """A body as its program gave it to the client: what is downloaded. Only what the client
    compressed is undone, up to 64 MiB, as in clients that receive it.

    Args:
      sys_flag: of the message; it says which compression the client used.
    """
    if not sys_flag & COMPRESSED:
        return Unpacked((), body)
    return unpacked(body, sys_flag, layers_max=1, limit=DECOMPRESSED_SIZE_MAX)


def _read(packing: Packing, body: bytes, inside: bytearray, limit: int) -> None:
    """Append what is inside of one layer. Raises: _Failure."""
    for piece in _PIECES[packing](body):
        inside += piece
        if len(inside) > limit:
            raise _Failure(Unreadable.TOO_LARGE)


def _zlib_pieces(body: bytes, wbits: int) -> Iterator[bytes]:
    rest = body
    for _ in range(PARTS_MAX):
        inflater = zlib.decompressobj(wbits)
        while not inflater.eof:
            try:
                piece = inflater.decompress(rest, PIECE_SIZE)
            except zlib.error as error:
                raise _Failure(Unreadable.DAMAGED, str(error)) from error
            rest = inflater.unconsumed_tail
            yield piece
            if not piece and not rest and not inflater.eof:
                raise _Failure(Unreadable.CUT_SHORT)
        rest = inflater.unused_data
        if not rest:
            return
        # Members of gzip may follow each other, streams of zlib do not.
        if wbits == zlib.MAX_WBITS or packing_of(rest) is not Packing.GZIP:
            raise _Failure(Unreadable.DAMAGED, f"{len(rest)} bytes follow the end")
    raise _Failure(Unreadable.MANY_PARTS)


def _lz4_pieces(body: bytes) -> Iterator[bytes]:
    frame = _package("lz4.frame")
    rest = body
    for _ in range(PARTS_MAX):
        inflater = frame.LZ4FrameDecompressor()
        while not inflater.eof:
            try:
                piece: bytes = inflater.decompress(rest, max_length=PIECE_SIZE)
            except (RuntimeError, MemoryError) as error:
                raise _Failure(Unreadable.DAMAGED, str(error)) from error
            rest = b""
            yield piece
            if not inflater.eof and inflater.needs_input:
                raise _Failure(Unreadable.CUT_SHORT)
        rest = inflater.unused_data or b""
        if not rest:
            return
    raise _Failure(Unreadable.MANY_PARTS)


def _zstd_pieces(body: bytes) -> Iterator[bytes]:
    zstandard = _package("zstandard")
    rest = memoryview(body)
    for _ in range(PARTS_MAX):
        inflater = zstandard.ZstdDecompressor(max_window_size=_WINDOW_SIZE_MAX).decompressobj()
        while not inflater.eof:
            if not rest:
                raise _Failure(Unreadable.CUT_SHORT)
            taken, rest = rest[:_ZSTD_INPUT_SIZE], rest[_ZSTD_INPUT_SIZE:]
            try:
                piece: bytes = inflater.decompress(taken)
            except zstandard.ZstdError as error:
                raise _Failure(Unreadable.DAMAGED, str(error)) from error
            yield piece
        left = len(inflater.unused_data)
        rest = memoryview(body)[len(body) - len(rest) - left :]
        if not rest:
            return
    raise _Failure(Unreadable.MANY_PARTS)


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise _Failure(Unreadable.NO_PACKAGE, name.partition(".")[0]) from error


_PIECES: Final[dict[Packing, Callable[[bytes], Iterator[bytes]]]] = {
    Packing.ZLIB: lambda body: _zlib_pieces(body, zlib.MAX_WBITS),
    Packing.GZIP: lambda body: _zlib_pieces(body, zlib.MAX_WBITS | 16),
    Packing.LZ4: _lz4_pieces,
    Packing.ZSTD: _zstd_pieces,
}
