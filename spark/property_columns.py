r"""The properties of many records at once: a map column, and single properties as columns.

The rules are those of `common.message_properties.properties_from_bytes`: items end at 0x02, a
name ends at the first 0x01, an item without both a name and a value is dropped, and a name given
twice has its last value at its first place.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .arrow import as_text, slices

_NAMES_IN_A_MASK: Final = 62
"""Different names that a mask in one int64 can hold, a bit each."""

_ITEM, _NAME = 2, 1
"""The bytes that end an item and a name."""


class PropertyColumns:
    """The items of n records, in the records' order.

    Args:
      data: the records' bytes.
      begins, ends: positions of each record's encoded properties in `data`, rising; the byte before
        each begin belongs to the same record (the length's low byte).
    """

    def __init__(self, data: pa.Buffer, begins: np.ndarray, ends: np.ndarray) -> None:
        self._count = len(begins)
        rows = np.flatnonzero(ends > begins)
        if len(rows) < self._count:
            begins, ends = begins[rows], ends[rows]
        if len(rows):
            # Drop the optional separator at the end: it would start another, empty item.
            ends = ends - (np.frombuffer(data, np.uint8)[ends - 1] == _ITEM)
        # Include the byte before each record and make it a separator: every item then follows one.
        packed = slices(data, begins - 1, ends)
        fronts = np.frombuffer(packed.buffers()[1], np.int32, len(rows) + 1) if len(rows) else _ZERO
        size = int(fronts[-1])
        raw = np.frombuffer(packed.buffers()[2] or b"", np.uint8, size).copy()
        raw[fronts[:-1]] = _ITEM
        self._buffer = pa.py_buffer(raw)
        item_at, after, item_end, has_name = _items(raw)
        good = has_name & (after > item_at + 1) & (item_end > after + 1)
        first_item = np.searchsorted(item_at, fronts)
        if not good.all():
            first_item = np.concatenate([[0], np.cumsum(good)])[first_item]
            item_at, after, item_end = item_at[good], after[good], item_end[good]
        self._item_at, self._after, self._item_end = item_at, after, item_end
        if len(rows) < self._count:
            counts = np.zeros(self._count + 1, np.int32)
            counts[rows + 1] = np.diff(first_item)
            first_item = np.cumsum(counts)
        self._offsets = first_item.astype(np.int32)
        self._drop_repeated()

    @cached_property
    def _names(self) -> pa.DictionaryArray:
        names = slices(self._buffer, self._item_at + 1, self._after).dictionary_encode()
        # Different invalid UTF-8 may decode to one string, so names are encoded a second time.
        texts = as_text(names.dictionary).dictionary_encode()
        codes = texts.indices.take(names.indices)
        return pa.DictionaryArray.from_arrays(codes, texts.dictionary)

    @cached_property
    def _values(self) -> pa.BinaryArray:
        return slices(self._buffer, self._after + 1, self._item_end)

    def _row_of_item(self) -> np.ndarray:
        return np.repeat(np.arange(self._count), np.diff(self._offsets))

    def _drop_repeated(self) -> None:
        """Drop repeated names of a record; the last value moves to the first place."""
        if not len(self._item_at):
            return
        codes = self._names.indices.to_numpy()
        kind_count = len(self._names.dictionary)
        if kind_count <= _NAMES_IN_A_MASK:
            bits = np.left_shift(np.int64(1), codes.astype(np.int64))
            filled = np.flatnonzero(np.diff(self._offsets))
            begins = self._offsets[:-1][filled]
            # Without repeated names, the sum of a record's bits equals their union.
            sums, unions = np.add.reduceat(bits, begins), np.bitwise_or.reduceat(bits, begins)
            rows = filled[sums != unions]
        else:
            pairs, times = np.unique(
                self._row_of_item() * np.int64(kind_count) + codes, return_counts=True
            )
            rows = np.unique(pairs[times > 1] // kind_count)
        if not len(rows):
            return
        keep = np.ones(len(codes), np.bool_)
        valued = np.arange(len(codes))
        for row in rows:
            first: dict[int, int] = {}
            for item in range(self._offsets[row], self._offsets[row + 1]):
                place = first.setdefault(int(codes[item]), item)
                if place != item:
                    keep[item] = False
                    valued[place] = item
        total = np.concatenate([[0], np.cumsum(keep)])
        self._offsets = total[self._offsets].astype(np.int32)
        self._names = self._names.take(pa.array(np.flatnonzero(keep)))
        self._values = self._values.take(pa.array(valued[keep]))

    def map_column(self) -> pa.MapArray:
        """Each record's properties; a record without any has an empty map."""
        names = self._names.dictionary.take(self._names.indices)
        return pa.MapArray.from_arrays(pa.array(self._offsets), names, as_text(self._values))

    def column(self, name: str) -> pa.StringArray:
        """One property of each record; null if it is missing."""
        found = pc.index(self._names.dictionary, pa.scalar(name)).as_py()
        if found < 0:
            return pa.nulls(self._count, pa.string())
        items = np.flatnonzero(self._names.indices.to_numpy() == found)
        if len(items) == self._count:
            return as_text(self._values.take(pa.array(items)))
        places = np.full(self._count, -1, np.int64)
        places[self._row_of_item()[items]] = items
        return as_text(self._values.take(pa.array(places, mask=places < 0)))


def _items(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Find the items in bytes in which a separator precedes each item.

    Returns: for each item the position of the separator before it, the end of its name, its end,
    and whether it has a name; if it has none, its value is meaningless.
    """
    marks = np.flatnonzero(raw <= _ITEM)
    kinds = raw[marks]
    if not kinds.all():
        marks = marks[kinds != 0]
        kinds = raw[marks]
    if len(marks) % 2 == 0 and (kinds[0::2] == _ITEM).all() and (kinds[1::2] == _NAME).all():
        # Fast path, nearly always taken: item and name marks alternate, so each item has a name.
        item_at, after = marks[0::2], marks[1::2]
        return item_at, after, np.append(item_at, len(raw))[1:], np.ones(len(after), np.bool_)
    before = np.flatnonzero(kinds == _ITEM)
    item_at = marks[before]
    after = np.append(marks, len(raw))[before + 1]
    has_name = np.append(kinds == _NAME, False)[before + 1]
    return item_at, after, np.append(item_at, len(raw))[1:], has_name


_ZERO: Final = np.zeros(1, np.int32)
