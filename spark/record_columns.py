"""Vectorized decoder: from stored records, in a log file or a pull's answer, to Arrow columns.

The positions of fields are derived from `remoting.record_schema`; numpy gathers the heads, and
Arrow copies bodies, topics and properties out of the buffer, so that only compressed bodies need a
Python object per record. `tests/spark/test_record_columns.py` compares it with `decode_record`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ..common.message_properties import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQUE_KEY
from ..common.topic_names import (
    DLQ_TOPIC_PREFIX,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    is_system_topic,
)
from ..remoting.body_compression import decompress
from ..remoting.errors import MissingPackageError, RemoteProtocolError
from ..remoting.hosts import host_text
from ..remoting.message_id import encode_offset_id
from ..remoting.record_schema import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_LENGTH,
    RECORD,
    RECORD_HEADS,
    RECORD_PREFIX,
    RECORD_SIZE_MIN,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
)
from ..remoting.sys_flag import COMPRESSED
from .arrow import as_text, dtype_of, repeated, slices, timestamps, with_rows
from .columns import PropertiesAs
from .property_columns import PropertyColumns

_HEADS: Final = tuple(
    dtype_of(RECORD, until="body_length", context={"sys_flag": kind << 4}) for kind in range(4)
)
"""The head's type by the address families of its hosts, `(sys_flag >> 4) & 3`."""
_HEAD_SIZES: Final = np.array([dtype.itemsize for dtype in _HEADS])
_LENGTHS: Final = TOPIC_LENGTH_V1.size + PROPERTIES_LENGTH.size
_HEX: Final = np.array([b"%02X" % byte for byte in range(256)], "S2")

assert [dtype.itemsize for dtype in _HEADS] == [head.size for head in RECORD_HEADS]


def walk(data: bytes, at: int, stop: int) -> tuple[np.ndarray, int]:
    """Find the positions of records by their sizes and magic numbers only.

    Args:
      data: consecutive records.
      at: the position of the first.
      stop: only records that begin before this position.

    Returns: the positions of the records that end within `data`, and the position after the last.
    """
    starts: list[int] = []
    append, unpack, end = starts.append, RECORD_PREFIX.unpack_from, len(data)
    last = min(stop - 1, end - RECORD_SIZE_MIN)
    while at <= last:
        size, magic = unpack(data, at)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_SIZE_MIN or at + size > end:
            break
        append(at)
        at += size
    return np.array(starts, np.int64), at


def is_blank(data: bytes, at: int, remaining: int) -> bool:
    """Whether the blank record that fills a file begins at `at`, with `remaining` bytes left."""
    if at + RECORD_PREFIX.size > len(data):
        return False
    size, magic = RECORD_PREFIX.unpack_from(data, at)
    return bool(magic == MAGIC_BLANK and size == remaining)


class _Layout(NamedTuple):
    """The positions of the parts of n records in their buffer."""

    body_at: np.ndarray
    body_end: np.ndarray
    topic_at: np.ndarray
    topic_end: np.ndarray
    ends: np.ndarray
    is_good: np.ndarray
    """Whether the lengths add up; if not, the other fields are meaningless."""

    @property
    def properties_at(self) -> np.ndarray:
        """The positions of the properties, which end with the record."""
        return self.topic_end + PROPERTIES_LENGTH.size


def _where(mask: np.ndarray, values: np.ndarray, other: int) -> np.ndarray:
    return values if mask.all() else np.where(mask, values, other)


class RecordColumns:
    """n records of one buffer, decoded column by column on demand.

    Args:
      data: the buffer, less than 2 GiB.
      starts: the positions of the records, rising, as `walk` returns them.

    Check `good_count` first: other methods must not see records whose lengths contradict each
    other.
    """

    def __init__(self, data: bytes, starts: np.ndarray) -> None:
        self._data = data
        self._bytes = np.frombuffer(data, np.uint8)
        self._buffer = pa.py_buffer(data)
        self.starts = starts

    def __len__(self) -> int:
        return len(self.starts)

    def first(self, count: int) -> RecordColumns:
        return self if count >= len(self) else self._some(slice(0, count))

    def part(self, begin: int, end: int) -> RecordColumns:
        """The records from `begin` up to `end`."""
        return self if begin <= 0 and end >= len(self) else self._some(slice(begin, end))

    def where(self, mask: np.ndarray) -> RecordColumns:
        return self if mask.all() else self._some(mask)

    def _some(self, rows: slice | np.ndarray) -> RecordColumns:
        """Some of the records, with slices of cached fields: computing them is most of the work."""
        some = RecordColumns(self._data, self.starts[rows])
        known, mine = self.__dict__, some.__dict__
        if "_heads" in known:
            mine["_heads"] = self._heads[rows]
        if "_layout" in known:
            layout = self._layout
            mine["_layout"] = _Layout(*(each[rows] for each in layout))
        if "topics" in known and isinstance(rows, slice):
            mine["topics"] = self.topics[rows]
        return some

    # Fields of the head

    def _gather(self, kind: int, starts: np.ndarray) -> np.ndarray:
        dtype = _HEADS[kind]
        count = max(len(self._data) - dtype.itemsize + 1, 0)
        # A view with overlapping items, one at every byte: indexing it copies whole heads. Plain
        # bytes are copied in one piece, six times as fast as field by field.
        view = np.ndarray((count,), f"V{dtype.itemsize}", self._data, strides=(1,))
        return view[starts].view(dtype)

    @cached_property
    def _heads(self) -> np.ndarray:
        return self._gather(0, self.starts)

    @cached_property
    def _kinds(self) -> np.ndarray:
        return (self._heads["sys_flag"].astype(np.int32) >> 4) & 3

    @cached_property
    def _others(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """(rows, heads) of the records with an IPv6 host."""
        if not self._kinds.any():
            return []
        rows = [np.flatnonzero(self._kinds == kind) for kind in range(1, 4)]
        return [(r, self._gather(k, self.starts[r])) for k, r in enumerate(rows, 1) if len(r)]

    def field(self, name: str) -> np.ndarray:
        """One numeric field of all heads, by the schema's name."""
        found = self._heads[name]
        native = found.astype(found.dtype.newbyteorder("="))
        for rows, heads in self._others:
            native[rows] = heads[name]
        return native

    # Positions of the parts

    @property
    def ends(self) -> np.ndarray:
        """The end position of each record."""
        return self.starts + self._heads["total_size"]

    def good_count(self, base: int | None = None) -> int:
        """The number of valid records before the first invalid one: right lengths and offset.

        Args:
          base: physical offset of the buffer's first byte; None: offsets are not compared.
        """
        good = self._heads["total_size"] >= _HEAD_SIZES[self._kinds] + _LENGTHS
        if base is not None:
            good &= self._heads["physical_offset"] == self.starts + base
        # The positions in an invalid head may be outside of the buffer, so stop before it.
        if not good.all():
            known = int(np.argmin(good))
            return self.first(known).good_count(base) if known else 0
        good = self._layout.is_good
        return self._good_topics() if good.all() else self.first(int(np.argmin(good))).good_count()

    def _good_topics(self) -> int:
        raw = slices(self._buffer, self._layout.topic_at, self._layout.topic_end)
        try:
            self.__dict__["topics"] = raw.cast(pa.string())
            return len(self)
        except pa.ArrowInvalid:
            for row, topic in enumerate(raw.to_pylist()):
                try:
                    topic.decode()
                except UnicodeDecodeError:
                    return row
            raise

    def _short(self, at: np.ndarray) -> np.ndarray:
        """The signed 16-bit number at each position."""
        return (self._bytes[at].view(np.int8).astype(np.int32) << 8) | self._bytes[at + 1]

    def _topic_length(self, at: np.ndarray, wide: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        narrow = self._bytes[at].view(np.int8).astype(np.int32)
        if not wide.any():
            return narrow, at + TOPIC_LENGTH_V1.size
        sizes = np.where(wide, TOPIC_LENGTH_V2.size, TOPIC_LENGTH_V1.size)
        return np.where(wide, self._short(at), narrow), at + sizes

    @cached_property
    def _layout(self) -> _Layout:
        kinds = self._kinds
        head_sizes = _HEAD_SIZES[kinds] if kinds.any() else _HEAD_SIZES[0]
        ends = self.ends
        body_at = self.starts + head_sizes
        body_end = body_at + self.field("body_length")
        wide = self._heads["magic"] == MAGIC_V2
        good = (body_end >= body_at) & (body_end + _LENGTHS + wide <= ends)
        length, topic_at = self._topic_length(_where(good, body_end, 0), wide)
        topic_end = topic_at + length
        good &= (length > 0) & (topic_end + PROPERTIES_LENGTH.size <= ends)
        size = self._short(_where(good, topic_end, 0))
        good &= topic_end + PROPERTIES_LENGTH.size + size == ends
        return _Layout(body_at, body_end, topic_at, topic_end, ends, good)

    # Columns

    @cached_property
    def topics(self) -> pa.StringArray:
        return as_text(slices(self._buffer, self._layout.topic_at, self._layout.topic_end))

    @cached_property
    def properties(self) -> PropertyColumns:
        return PropertyColumns(self._buffer, self._layout.properties_at, self._layout.ends)

    @property
    def body_places(self) -> tuple[np.ndarray, np.ndarray]:
        """The begin and end position of each body in the buffer."""
        return self._layout.body_at, self._layout.body_end

    def head(self, row: int, size: int) -> bytes:
        """The first `size` bytes of a record; fewer if it is shorter."""
        begin = int(self.starts[row])
        return self._data[begin : min(begin + size, int(self.ends[row]))]

    @cached_property
    def bodies(self) -> pa.BinaryArray:
        """The body of each record, as stored."""
        return slices(self._buffer, *self.body_places)

    def inflated(self, on_bad: Callable[[int, str], None]) -> pa.BinaryArray:
        """The body of each record, decompressed.

        Args:
          on_bad: called with (row, reason) if decompression fails; that body stays as stored.

        Raises:
          MissingPackageError: lz4 or zstandard is not installed.
        """
        flags = self.field("sys_flag")
        rows = np.flatnonzero(flags & COMPRESSED)
        if not len(rows):
            return self.bodies
        begins, ends = self.body_places
        bodies: list[bytes] = []
        for row in rows:
            body = self._data[begins[row] : ends[row]]
            try:
                bodies.append(decompress(body, int(flags[row])) if body else body)
            except MissingPackageError:
                raise
            except RemoteProtocolError as error:
                on_bad(int(row), error.reason)
                bodies.append(body)
        return with_rows(self.bodies, rows, bodies)

    def raw_properties(self) -> pa.StringArray:
        """The properties of each record as one string."""
        return as_text(slices(self._buffer, self._layout.properties_at, self._layout.ends))

    def hosts(self, name: str) -> pa.StringArray:
        """`born_host` or `store_host` of each record as `ip:port`."""
        raw = np.ascontiguousarray(self._heads[name])
        fixed = pa.Array.from_buffers(
            pa.binary(raw.dtype.itemsize), len(raw), [None, pa.py_buffer(raw)]
        ).dictionary_encode()  # few hosts, many records
        texts = pa.array([host_text(host) for host in fixed.dictionary.to_pylist()], pa.string())
        column = texts.take(fixed.indices)
        for rows, heads in self._others:
            column = with_rows(column, rows, [host_text(bytes(host)) for host in heads[name]])
        return column

    def message_ids(self) -> pa.StringArray:
        """The broker's id of each message: its store host and physical offset in hex."""
        count = len(self)
        parts = [
            np.ascontiguousarray(field).view(np.uint8).reshape(count, field.dtype.itemsize)
            for field in (self._heads["store_host"], self._heads["physical_offset"])
        ]
        digits = _HEX[np.concatenate(parts, axis=1)]
        width = digits.shape[1] * 2
        places = np.arange(0, (count + 1) * width, width, dtype=np.int32)
        column = pa.Array.from_buffers(
            pa.string(), count, [None, pa.py_buffer(places), pa.py_buffer(digits)]
        )
        for rows, heads in self._others:
            ids = [
                encode_offset_id(bytes(head["store_host"]), int(head["physical_offset"]))
                for head in heads
            ]
            column = with_rows(column, rows, ids)
        return column

    def kinds_of_topics(self) -> pa.StringArray:
        """The kind of each record's topic; see `topic_kind`."""
        topics = self.topics.dictionary_encode()
        kinds = pa.array([topic_kind(topic) for topic in topics.dictionary.to_pylist()])
        return kinds.cast(pa.string()).take(topics.indices)


def topic_kind(topic: str) -> str:
    """The kind of a topic: normal, retry, dlq, half, op, schedule or system."""
    named = {TRANS_HALF_TOPIC: "half", TRANS_OP_HALF_TOPIC: "op", SCHEDULE_TOPIC: "schedule"}
    if topic in named:
        return named[topic]
    if topic.startswith(RETRY_TOPIC_PREFIX):
        return "retry"
    if topic.startswith(DLQ_TOPIC_PREFIX):
        return "dlq"
    return "system" if is_system_topic(topic) else "normal"


_INTS: Final = {
    "queueId": "queue_id",
    "reconsumeTimes": "reconsume_times",
    "sysFlag": "sys_flag",
    "flag": "flag",
    "size": "total_size",
    "magic": "magic",
}
_LONGS: Final = {
    "queueOffset": "queue_offset",
    "commitLogOffset": "physical_offset",
    "preparedTransactionOffset": "prepared_transaction_offset",
}
_PROPERTIES: Final = {"keys": PROPERTY_KEYS, "tags": PROPERTY_TAGS, "uniqKey": PROPERTY_UNIQUE_KEY}
_COLUMNS: Final[dict[str, Callable[[RecordColumns], pa.Array]]] = {
    "topic": lambda records: records.topics,
    "properties": lambda records: records.properties.map_column(),
    "bornTimestamp": lambda records: timestamps(records.field("born_timestamp_ms")),
    "storeTimestamp": lambda records: timestamps(records.field("store_timestamp_ms")),
    "bornHost": lambda records: records.hosts("born_host"),
    "storeHost": lambda records: records.hosts("store_host"),
    "msgId": lambda records: records.message_ids(),
    "bodyCrc": lambda records: pa.array(records.field("body_crc").view(np.int32)),
    "topicKind": lambda records: records.kinds_of_topics(),
    "body": lambda records: records.bodies,
}


def column_of(
    records: RecordColumns, name: str, properties_as: PropertiesAs = PropertiesAs.MAP
) -> pa.Array:
    """A column that depends only on the records' bytes.

    Args:
      name: one of `columns.COMMITLOG`, except brokerName, segment, position and valid; the body
        is as stored.
      properties_as: the type of the column `properties`.
    """
    if name == "properties" and properties_as is PropertiesAs.STRING:
        return records.raw_properties()
    if name in _INTS:
        return pa.array(records.field(_INTS[name]).astype(np.int32, copy=False))
    if name in _LONGS:
        return pa.array(records.field(_LONGS[name]))
    if name in _PROPERTIES:
        return records.properties.column(_PROPERTIES[name])
    return _COLUMNS[name](records)


def constant(value: str | None, records: RecordColumns) -> pa.Array:
    """A column with one string in all rows; None: null."""
    return repeated(value, "string", len(records))
