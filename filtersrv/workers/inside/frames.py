"""The protocol of the pipes between filter server and worker.

A frame is a head and `size` bytes. An answer has the number of its request; the first answer,
READY, has 0. The worker answers each request with one frame, and sends nothing else:

| request | content | answers |
|---|---|---|
| START | settings, see `pack_settings` | READY: the protections, see `launcher.report`; EXPLAINED |
| COMPILE | NAME, class name, source in Java | DONE: classes; REFUSED |
| LOAD | NAME, class name, source in Python or compiled classes | DONE; REFUSED |
| BATCH | COUNT, group; then COUNT MESSAGE frames | BITS; FAILED |

Compiled classes are NAME, size (uint32), name, bytes for each class; only Java reads and writes
them. REFUSED, FAILED and EXPLAINED have a message. BITS has one bit for each message, the first in
the lowest bit of the first byte. Numbers are big-endian, strings UTF-8.

The other side is `java/trocket/filtersrv/Frames.java`. Standard library only: workers import this.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False  # importing typing would take as long as all other imports together
if TYPE_CHECKING:
    from collections.abc import Iterable

HEAD = struct.Struct(">BII")
"""Kind, number, and size of the content that follows."""

START, COMPILE, LOAD, BATCH, MESSAGE = 1, 2, 3, 4, 5
READY, EXPLAINED, DONE, REFUSED, BITS, FAILED = 16, 17, 18, 19, 20, 21

NAME = struct.Struct(">H")
"""The size of a class name."""

COUNT = struct.Struct(">I")
"""The number of messages of a batch."""

MESSAGE_HEAD = struct.Struct(">iqqiiqqiqiiBBHI")
"""Queue id, queue offset, physical offset, flag, sys flag, born and store time (ms since 1970),
reconsume times, prepared transaction offset, store size, body CRC; then the sizes of born host,
store host, topic and properties. These follow in this order, and then the body to the end."""

SETTINGS_BYTES_MAX = 65_536
"""Largest size of START, which has about thirty short lines; JVM options are the longest."""

TEXT_BYTES_MAX = 4_096
"""Largest size of a string in an answer: enough for the first errors of a compiler."""

CLASSES_BYTES_MAX = 1_048_576
"""Largest size of compiled classes; they are usually smaller than the source (64 KiB)."""


def frame(kind: int, number: int, content: bytes = b"") -> bytes:
    """One frame, head and content."""
    return HEAD.pack(kind, number, len(content)) + content


def text_frame(kind: int, number: int, text: str) -> bytes:
    """A frame with a message, cut where it is too long."""
    return frame(kind, number, text.encode("utf-8", "replace")[:TEXT_BYTES_MAX])


def pack_named(class_name: str, content: bytes) -> bytes:
    """The content of COMPILE and LOAD."""
    name = class_name.encode()
    return NAME.pack(len(name)) + name + content


def unpack_named(content: bytes) -> tuple[str, bytes]:
    """The reverse of `pack_named`."""
    (size,) = NAME.unpack_from(content)
    return str(content[NAME.size : NAME.size + size], "utf-8"), content[NAME.size + size :]


def pack_settings(settings: Iterable[tuple[str, str]]) -> bytes:
    """The content of START: entries `name=value`, separated by zero bytes; names can be repeated.

    Args:
      settings: names, which are those of `protections.Settings`, and values without zero bytes.
    """
    return "\0".join([f"{name}={value}" for name, value in settings]).encode(
        "utf-8", "surrogateescape"
    )


def unpack_settings(content: bytes) -> dict[str, list[str]]:
    """The reverse of `pack_settings`."""
    settings: dict[str, list[str]] = {}
    for entry in content.decode("utf-8", "surrogateescape").split("\0"):
        name, _, value = entry.partition("=")
        settings.setdefault(name, []).append(value)
    return settings


def pack_bits(decisions: Iterable[bool]) -> bytes:
    bits = 0
    count = 0
    for decision in decisions:
        bits |= decision << count
        count += 1
    return bits.to_bytes(bits_size(count), "little")


def unpack_bits(content: bytes, count: int) -> list[bool]:
    """The reverse of `pack_bits`."""
    bits = int.from_bytes(content, "little")
    return [bool(bits >> index & 1) for index in range(count)]


def bits_size(count: int) -> int:
    """The size of BITS, in bytes, for a number of messages."""
    return (count + 7) // 8
