"""Helpers between numpy and Arrow for the decoders of records and units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..remoting.schema import Layout

_TYPES: Final[dict[str, Any]] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


_CODES: Final = {"h": ">i2", "i": ">i4", "I": ">u4", "q": ">i8"}


def dtype_of(
    layout: Layout, *, until: str | None = None, context: Mapping[str, int] | None = None
) -> np.dtype[Any]:
    """A layout as numpy's type; arguments as of `Layout.struct`."""
    formats = layout.struct(until=until, context=context).format
    types = [
        f"V{count}" if code == "s" else _CODES[code]
        for count, code in re.findall(r"(\d*)([a-zA-Z])", formats)
    ]
    return np.dtype(list(zip(layout.names(until=until), types, strict=True)))


def type_of(kind: str) -> pa.DataType:
    """The Arrow type of a type in DDL: the one that Spark expects of a batch."""
    return _TYPES[kind]


def schema_of(names: Iterable[str], columns: Mapping[str, str]) -> pa.Schema:
    """The schema of a batch: all fields may be null."""
    return pa.schema([pa.field(name, type_of(columns[name])) for name in names])


def slices(buffer: pa.Buffer, begins: np.ndarray, ends: np.ndarray) -> pa.BinaryArray:
    """Pieces of a buffer as an array, without a Python object for any of them.

    Args:
      buffer: less than 2 GiB.
      begins, ends: of n pieces; begins[i] <= ends[i] <= begins[i + 1].
    """
    count = len(begins)
    if not count:
        return pa.array([], pa.binary())
    # One array of offsets holds both: even slots are the pieces, odd slots the gaps between them.
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2], offsets[1::2] = begins, ends
    both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), buffer])
    return both.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def as_text(array: pa.BinaryArray) -> pa.StringArray:
    """Bytes as text; invalid UTF-8 becomes U+FFFD, as in RocketMQ's clients."""
    try:
        return array.cast(pa.string())  # validates UTF-8
    except pa.ArrowInvalid:
        texts = [None if raw is None else str(raw, "utf-8", "replace") for raw in array.to_pylist()]
        return pa.array(texts, pa.string())


def with_rows(array: pa.Array, rows: np.ndarray, values: Sequence[Any]) -> pa.Array:
    """The array with other values in some rows.

    Args:
      rows: indices, rising.
      values: one for each.
    """
    mask = np.zeros(len(array), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(array, pa.array(mask), pa.array(values, array.type))


def repeated(value: Any, kind: str, count: int) -> pa.Array:
    """One value in every row; None: null."""
    return pa.repeat(pa.scalar(value, type_of(kind)), count)


def timestamps(ms: np.ndarray) -> pa.Array:
    """Times in ms since 1970 as Spark's timestamps."""
    return pa.array(ms * 1000, pa.int64()).cast(type_of("timestamp"))
