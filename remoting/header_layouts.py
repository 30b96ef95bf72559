"""Header layouts: where the fields of binary headers stand, remembered by size.

A client's headers of one kind differ only in their values, seldom in the sizes of these. So the
layout of the last header of each size is kept; whether another one has the same is a comparison of
two big integers: all bytes that are not of a value must be equal.

What is kept comes from peers, for as long as the process runs. It is bounded in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

FIELDS_SIZE_MAX: Final = 16 * 1024
"""Bytes of the fields of one header whose layout is remembered. A send's fields are some 300 bytes,
and its properties seldom more than a few KiB; larger ones are walked each time."""

LAYOUTS_SIZE_MAX: Final = 8 * 1024 * 1024
"""Bytes of all layouts of the process, then they are forgotten: one of each size of some 1,500
sends, which have 20 fields."""

_PLACE_SIZE: Final = 250
"""Bytes of one field's name, slice, its two ends, and their tuple."""


class HeaderLayout:
    """The places of the fields of one header.

    Attributes:
      mask: all bits of bytes that are of no value, little-endian.
      frame: those bytes.
      places: the name of each field, and where its value stands.
      size: about how many bytes this object takes.
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
    """The layouts of one process.

    Args:
      size_max: bytes of all layouts.

    Attributes:
      by_size: the layout by the fields' size in bytes; for reading.
      size: about how many bytes they take.
    """

    __slots__ = ("_size_max", "by_size", "size")

    def __init__(self, size_max: int = LAYOUTS_SIZE_MAX) -> None:
        self._size_max = size_max
        self.by_size: dict[int, HeaderLayout] = {}
        self.size = 0

    def remember(self, fields: bytes, places: Sequence[tuple[str, slice]]) -> None:
        """Keep a header's layout, unless its fields are larger than FIELDS_SIZE_MAX or not ASCII.

        Args:
          fields: all fields of the header, as they came.
          places: the name of each field, and where its value stands in `fields`.
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
