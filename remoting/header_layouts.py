"""HeaderLayouts: a cache of the field positions in binary headers, by the headers' size.

A client's headers of one kind differ only in their values, and seldom in the values' sizes. So the
layout of the last header of each size is cached. A comparison of two big integers shows whether
another header has the same layout: all bytes outside of the values must be equal.

The layouts come from peers, and stay as long as the process runs, so they are bounded in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

FIELDS_SIZE_MAX: Final = 16 * 1024
"""Bytes of a header's fields up to which its layout is cached. A send's fields are some 300 bytes,
and its properties seldom more than a few KiB; larger headers are parsed each time."""

LAYOUTS_SIZE_MAX: Final = 8 * 1024 * 1024
"""Bytes of all layouts, enough for some 1,500 sizes of sends with 20 fields; the cache is cleared
when it is full."""

_PLACE_SIZE: Final = 250
"""Bytes of one field's name, its slice with both ends, and their tuple."""


class HeaderLayout:
    """The positions of the fields of one header.

    Attributes:
      mask: all bits of the bytes outside of values, little-endian.
      frame: those bytes.
      places: the name of each field, and the position of its value.
      size: approximate bytes of this object.
    """

    __slots__ = ("frame", "mask", "places", "size")

    def __init__(self, fields: bytes, places: Sequence[tuple[str, slice]]) -> None:
        mask = bytearray(b"\xff" * len(fields))
        for _, place in places:
            mask[place] = bytes(place.stop - place.start)
        self.mask = int.from_bytes(mask, "little")
        self.frame = int.from_bytes(fields, "little") & self.mask
        self.places = tuple(places)
        self.size = (
            2 * len(fields) + _PLACE_SIZE * (1 + len(places)) + sum(len(name) for name, _ in places)
        )


class HeaderLayouts:
    """The cached layouts of one process.

    Args:
      size_max: bytes of all layouts.

    Attributes:
      by_size: the layout by the fields' size in bytes; read-only.
      size: approximate bytes of all layouts.
    """

    __slots__ = ("_size_max", "by_size", "size")

    def __init__(self, size_max: int = LAYOUTS_SIZE_MAX) -> None:
        self._size_max = size_max
        self.by_size: dict[int, HeaderLayout] = {}
        self.size = 0

    def remember(self, fields: bytes, places: Sequence[tuple[str, slice]]) -> None:
        """Cache a header's layout, unless its fields are larger than FIELDS_SIZE_MAX or not ASCII.

        Args:
          fields: all fields of the header, encoded.
          places: the name of each field, and the position of its value in `fields`.
        """
        if len(fields) > FIELDS_SIZE_MAX or not fields.isascii():
            return
        layout = HeaderLayout(fields, places)
        old = self.by_size.get(len(fields))
        if old is not None:
            self.size -= old.size
        elif self.size + layout.size > self._size_max:
            self.by_size.clear()
            self.size = 0
        self.by_size[len(fields)] = layout
        self.size += layout.size
