r"""The properties of many records at once: a map column, and single properties as columns.

The rules are those of `remoting.message_properties.properties_from_bytes`: items end at 0x02, a
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
"""So many different names fit the bits of one number each."""

_ITEM, _NAME = 2, 1
"""The bytes that end an item and a name."""


class PropertyColumns:
    """The items of n records, in the records' order.

    Args:
      data: the records' bytes.
      begins, ends: of each record's encoded properties in `data`, rising; before each begin lies a
        byte that belongs to the same record (the length's low byte).
    """

    def __init__(self, data: pa.Buffer, begins: np.ndarray, ends: np.ndarray) -> None:
        self._count = count = len(begins)
        # Each with the byte before it, which becomes a separator: now every item follows one.
        packed = slices(data, begins - 1, ends)
        offsets = np.frombuffer(packed.buffers()[1], np.int32, count + 1) if count else _NONE
        size = int(offsets[-1]) if count else 0
        raw = np.frombuffer(packed.buffers()[2] or b"", np.uint8, size).copy()
        fronts = offsets[:-1] if count else _NONE
        raw[fronts] = _ITEM
        self._raw = raw
        marks = np.flatnonzero(raw <= _ITEM)
        marks = marks[raw[marks] != 0]
        is_item = raw[marks] == _ITEM
        # Of each item: the mark before it, the next one, and the next that ends an item.
        before = np.flatnonzero(is_item)
        item_at = marks[before]
        item_end = np.append(item_at, size)[1:]
        after = np.append(marks, size)[before + 1]
        has_name = np.append(~is_item, False)[before + 1]
        name_begin, value_begin = item_at + 1, after + 1
        good = has_name & (after > name_begin) & (item_end > value_begin)
        self._spans = np.stack([name_begin, after, value_begin, item_end], axis=1)[good]
        # Which of them stand in the columns, and which has the value of each.
        self._items = self._valued = np.arange(len(self._spans))
        first_item = np.searchsorted(item_at, fronts)
        total = np.concatenate([[0], np.cumsum(good)])
        self._offsets = np.append(total[first_item], total[-1]).astype(np.int32)
        self._drop_repeated()

    @cached_property
    def _both(self) -> pa.BinaryArray:
        """Names and values in turn."""
        spans = self._spans
        buffer = pa.py_buffer(self._raw)
        return slices(buffer, spans[:, 0::2].reshape(-1), spans[:, 1::2].reshape(-1))

    @cached_property
    def _names(self) -> pa.DictionaryArray:
        names = self._both.take(pa.array(2 * self._items)).dictionary_encode()
        # Names that differ only in bytes that are no UTF-8 are one.
        texts = as_text(names.dictionary).dictionary_encode()
        codes = texts.indices.take(names.indices)
        return pa.DictionaryArray.from_arrays(codes, texts.dictionary)

    @cached_property
    def _values(self) -> pa.BinaryArray:
        return self._both.take(pa.array(2 * self._valued + 1))

    def _row_of_item(self) -> np.ndarray:
        return np.repeat(np.arange(self._count), np.diff(self._offsets))

    def _drop_repeated(self) -> None:
        """Make each name of a record stand once."""
        if not len(self._spans):
            return
        codes = self._names.indices.to_numpy()
        kind_count = len(self._names.dictionary)
        if kind_count <= _NAMES_IN_A_MASK:
            bits = np.left_shift(np.int64(1), codes.astype(np.int64))
            filled = np.flatnonzero(np.diff(self._offsets))
            begins = self._offsets[:-1][filled]
            # Bits that stand once add up to what they are together.
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
        valued = self._valued.copy()
        for row in rows:
            first: dict[int, int] = {}
            for item in range(self._offsets[row], self._offsets[row + 1]):
                place = first.setdefault(int(codes[item]), item)
                if place != item:
                    keep[item] = False
                    valued[place] = item
        total = np.concatenate([[0], np.cumsum(keep)])
        self._items, self._valued = self._items[keep], valued[keep]
        self._offsets = total[self._offsets].astype(np.int32)
        del self._names

    def map_column(self) -> pa.MapArray:
        """Each record's properties; a record without any has an empty map."""
        names = self._names.dictionary.take(self._names.indices)
        return pa.MapArray.from_arrays(pa.array(self._offsets), names, as_text(self._values))

    def column(self, name: str) -> pa.StringArray:
        """One property of each record; null where it has none."""
        found = pc.index(self._names.dictionary, pa.scalar(name)).as_py()
        if found < 0:
            return pa.nulls(self._count, pa.string())
        items = np.flatnonzero(self._names.indices.to_numpy() == found)
        rows = self._row_of_item()[items]
        places = np.full(self._count, -1, np.int64)
        places[rows] = items
        indices = pa.array(places, mask=places < 0)
        return as_text(self._values.take(indices))


_NONE: Final = np.zeros(0, np.int64)
