"""CRC property: a checksum of a whole stored record, in the last 20 bytes of its properties.

Java counterpart: `MessageDecoder.createCrc32` and CommitLog's CRC32_RESERVED_LEN (RocketMQ 5.3.3).
Pure. `__CRC32#` 0x01, ten digits, 0x02: the CRC32 & 0x7fffffff of the record without these 20
bytes, least significant digit first, padded with zeros. The record's size and the length of its
properties include the 20 bytes, and are part of the checked bytes.

The body's CRC does not cover head, topic and properties; this one covers everything. Apache writes
it with `enabledAppendPropCRC=true` (default false) and checks it with `forceVerifyPropCRC=true`
only. A client that forwards a received message forwards the old property, too, so without these
settings an undamaged record may have a wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

_NAME = b"__CRC32#\x01"
_NAME_SIZE = len(_NAME)
PROPERTY_CRC_SIZE = _NAME_SIZE + 10 + 1
"""Bytes of the property."""

assert PROPERTY_CRC_SIZE == 20


def crc_property(pieces: Iterable[bytes | bytearray | memoryview]) -> bytes:
    """The property that ends a record.

    Args:
      pieces: the record's bytes, in order, in any number of pieces, without the property; size and
        properties' length already include it, and the properties, if there are any, end with 0x02.

    Returns: `PROPERTY_CRC_SIZE` bytes.

    Source: RocketMQ 5.3.3 common/message/MessageDecoder.java createCrc32.
    """
    value = 0
    for piece in pieces:
        value = crc32(piece, value)
    return b"%s%s\x02" % (_NAME, (b"%010d" % (value & 0x7FFFFFFF))[::-1])


def check_record_crc(
    buffer: bytes | bytearray | memoryview, position: int, total_size: int
) -> bool | None:
    """Whether a record's CRC property, its last 20 bytes, is right.

    Args:
      buffer: holds the whole record at `position`.
      total_size: the record's, from its head.

    Returns: None if the record does not end in such a property.
    """
    end = position + total_size
    crc_at = end - PROPERTY_CRC_SIZE
    if crc_at < position or buffer[crc_at : crc_at + _NAME_SIZE] != _NAME:
        return None
    with memoryview(buffer) as view:
        return bytes(view[crc_at:end]) == crc_property((view[position:crc_at],))
