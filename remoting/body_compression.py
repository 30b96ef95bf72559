"""Compression of bodies by `sys_flag`: LZ4 frames, Zstandard frames, zlib streams.

Java counterpart: `CompressorFactory`, `CompressionType` and the three compressors of RocketMQ
5.3.3 common/compression; 4.9 has zlib only. Pure. lz4 and zstandard are imported at their first
use, because a client can be installed without them.

A compressed body comes from a peer, so decompression is bounded, and raises `RemoteProtocolError`
only. Deviation: nothing may follow a Zstandard frame (Apache writes one frame per body).
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from importlib import import_module
from typing import Any

from .errors import MissingPackageError, RemoteProtocolError
from .sys_flag import COMPRESSED, COMPRESSION_TYPE_MASK, COMPRESSION_TYPE_SHIFT

DECOMPRESSED_SIZE_MAX = 64 * 1024 * 1024
"""Bytes a body may inflate to: four times the largest frame (Apache: no limit)."""

COMPRESSION_LEVEL = 5
"""The default of Apache's producers (`rocketmq.message.compressLevel`); LZ4 ignores it."""


class CompressionType(IntEnum):
    """The compression of a body; the number is in bits 8 to 10 of `sys_flag`."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The bits of `sys_flag` for this compression: 0x101, 0x201 or 0x301."""
        return COMPRESSED | self << COMPRESSION_TYPE_SHIFT


def compression_type(sys_flag: int) -> CompressionType:
    """The compression that a `sys_flag` names; 0, of versions without types, is zlib.

    Raises:
      RemoteProtocolError: types 4 to 7 are not defined.
    """
    number = (sys_flag & COMPRESSION_TYPE_MASK) >> COMPRESSION_TYPE_SHIFT
    try:
        return CompressionType(number or CompressionType.ZLIB)
    except ValueError:
        raise RemoteProtocolError(f"unknown compression type {number}") from None


def compress(body: bytes, kind: CompressionType, level: int = COMPRESSION_LEVEL) -> bytes:
    """Compress a body.

    Args:
      body: any bytes.
      level: 0 to 9 for zlib, 1 to 22 for Zstandard; LZ4 ignores it.

    Raises:
      MissingPackageError: lz4 or zstandard is not installed.
    """
    if kind == CompressionType.LZ4:
        frame = _package("lz4.frame", kind)
        packed: bytes = frame.compress(
            body,
            block_size=frame.BLOCKSIZE_MAX4MB,
            block_linked=False,
            store_size=False,
        )
        return packed
    if kind == CompressionType.ZSTD:
        zstd_packed: bytes = _package("zstandard", kind).ZstdCompressor(level=level).compress(body)
        return zstd_packed
    return zlib.compress(body, level)


def decompress(body: bytes, sys_flag: int, *, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """Decompress a body.

    Args:
      body: compressed bytes.
      sys_flag: names the compression; its lowest bit is ignored.
      size_max: bytes that it may decompress to.

    Raises:
      RemoteProtocolError: it is damaged, cut short, would be larger, or the type is unknown.
      MissingPackageError: lz4 or zstandard is not installed.
    """
    kind = compression_type(sys_flag)
    if kind == CompressionType.LZ4:
        return _inflate_lz4(body, size_max)
    if kind == CompressionType.ZSTD:
        return _inflate_zstd(body, size_max)
    return _inflate_zlib(body, size_max)


def _package(name: str, kind: CompressionType) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingPackageError(f"a body compressed with {kind.name}", "compression") from error


def _inflate_zlib(body: bytes, size_max: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(body, size_max + 1)
    except zlib.error as error:
        raise RemoteProtocolError(f"the body is not a zlib stream: {error}") from error
    _check_end(len(inflated), size_max, at_end=inflater.eof)
    return inflated


def _inflate_lz4(body: bytes, size_max: int) -> bytes:
    frame = _package("lz4.frame", CompressionType.LZ4)
    # Several frames may follow each other: Apache's reader reads to the end of the input.
    parts: list[bytes] = []
    size = 0
    rest = body
    while rest:
        inflater = frame.LZ4FrameDecompressor()
        try:
            inflated: bytes = inflater.decompress(rest, max_length=size_max - size + 1)
        except RuntimeError as error:
            raise RemoteProtocolError(f"the body is not an LZ4 frame: {error}") from error
        size += len(inflated)
        _check_end(size, size_max, at_end=inflater.eof)
        parts.append(inflated)
        rest = inflater.unused_data or b""
    return b"".join(parts)


def _inflate_zstd(body: bytes, size_max: int) -> bytes:
    zstandard = _package("zstandard", CompressionType.ZSTD)
    try:
        declared = zstandard.frame_content_size(body)
        if declared > size_max:
            _check_end(declared, size_max, at_end=False)
        if declared == 0:
            return b""
        # Without a declared size one buffer of size_max is reserved, but not touched.
        inflated: bytes = zstandard.ZstdDecompressor().decompress(
            body, max_output_size=size_max, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise RemoteProtocolError(
            f"the body is not a Zstandard frame of at most {size_max} bytes: {error}"
        ) from error
    return inflated


def _check_end(size: int, size_max: int, *, at_end: bool) -> None:
    if size > size_max:
        raise RemoteProtocolError(f"the body inflates to more than {size_max} bytes")
    if not at_end:
        raise RemoteProtocolError("the compressed body is cut short")
