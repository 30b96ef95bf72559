"""Series of pulls: binary headers that differ only in queue and offsets, recognised by their bytes.

A consumer sends the same header with each pull of a topic, but for queueId, queueOffset and
commitOffset. So the bytes around these three values are cached, with the fields of one such header.
If another header has the same bytes around them, its other fields are those of the cached one,
because a parser takes the same steps. It is then neither parsed nor converted again, and the
processor of pulls may keep with the series what it derived from the other fields.

Only headers of the usual form are recognised, which Java's and our clients send: the three fields
in this order, their values decimal, without signs and leading zeros, and within Java's limits by
their length. All other headers are parsed field by field.

The series come from peers, and stay as long as the process runs, so they are bounded in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

FIELDS_SIZE_MAX: Final = 2 * 1024
"""Bytes of a header's fields up to which it is cached. The fields of a pull take some 250 bytes,
unless it brings a long expression."""

SERIES_SIZE_MAX: Final = 8 * 1024 * 1024
"""Bytes of all series, enough for some 2,500: each client has one for every topic and group. The
cache is cleared when it is full."""

_SERIES_SIZE: Final = 2_500
"""Bytes of the objects of one series: its key, its fields, and what a processor derived from them,
besides the characters of the fields."""

_QUEUE_ID: Final = b"\0\7queueId\0\0\0"
_QUEUE_OFFSET: Final = b"\0\x0bqueueOffset\0\0\0"
_COMMIT_OFFSET: Final = b"\0\x0ccommitOffset\0\0\0"
"""Name of a field, after its size, and the size of its value without the last byte."""

_QUEUE_ID_SIZE: Final = len(_QUEUE_ID)
_QUEUE_OFFSET_SIZE: Final = len(_QUEUE_OFFSET)
_COMMIT_OFFSET_SIZE: Final = len(_COMMIT_OFFSET)
_REST_SIZE_MIN: Final = 1 + len(_QUEUE_OFFSET) + 1 + len(_COMMIT_OFFSET) + 1
"""Bytes from the last byte of the queue id's size on, at least."""

QUEUE_IDS_MAX: Final = 4_096
"""Queue ids whose numbers are cached, 100 bytes each."""

_QUEUE_ID_DIGITS: Final = 9
_OFFSET_DIGITS: Final = 18
"""Digits up to which a number is within Java's int and long."""


class PullSeries:
    """The pulls whose fields are equal, but for queue and offsets.

    Args:
      fields: of one of the pulls.

    Attributes:
      fields: of one of the pulls.
      derived: what the processor of pulls derived from the fields; None: nothing yet. Only that
        processor reads it.
    """

    __slots__ = ("derived", "fields")

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = fields
        self.derived: object = None


class BinarySeries(PullSeries):
    """A series that is recognised by the bytes of its fields.

    Args:
      around: the bytes of the fields around the three values: up to the last byte of the queue id's
        size, from the end of the queue offset to the last byte of the commit offset's size, and the
        rest.
      fields: of one of the pulls.
    """

    __slots__ = ("_end", "_middle", "_size_min", "_start")

    def __init__(self, around: tuple[bytes, bytes, bytes], fields: Mapping[str, str]) -> None:
        super().__init__(fields)
        self._start, self._middle, self._end = around
        self._size_min = sum(map(len, around)) + len(_QUEUE_OFFSET) + 3

    def values(self, data: bytes, start: int, end: int) -> tuple[bytes, bytes, bytes] | None:
        """The three values of the fields at data[start:end]; None: they are not of this series."""
        if end - start < self._size_min or not data.startswith(self._start, start):
            return None
        at = start + len(self._start)
        first_end = at + 1 + data[at]
        if not data.startswith(_QUEUE_OFFSET, first_end, end - 1):
            return None
        second_at = first_end + _QUEUE_OFFSET_SIZE
        second_end = second_at + 1 + data[second_at]
        if not data.startswith(self._middle, second_end, end - 1):
            return None
        third_at = second_end + len(self._middle)
        third_end = third_at + 1 + data[third_at]
        if end - third_end != len(self._end) or not data.startswith(self._end, third_end):
            return None
        return (
            data[at + 1 : first_end],
            data[second_at + 1 : second_end],
            data[third_at + 1 : third_end],
        )


class PullFields(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The fields of one pull of a series: a Mapping of strings by wire name.

    A msgspec.Struct because its construction takes a third of another class's time.

    Attributes:
      series: the series.
      queue_id, queue_offset, commit_offset: this pull's, >= 0.
    """

    series: PullSeries
    queue_id: int
    queue_offset: int
    commit_offset: int

    def as_dict(self) -> dict[str, str]:
        """The fields in the header's order."""
        return {
            **self.series.fields,
            "queueId": str(self.queue_id),
            "queueOffset": str(self.queue_offset),
            "commitOffset": str(self.commit_offset),
        }

    def __getitem__(self, name: str) -> str:
        return self.as_dict()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.series.fields)

    def __len__(self) -> int:
        return len(self.series.fields)

    get = Mapping.get
    keys = Mapping.keys
    values = Mapping.values
    items = Mapping.items
    __contains__ = Mapping.__contains__
    __eq__ = Mapping.__eq__


Mapping.register(PullFields)


class PullSeriesCache:
    """The series of one process.

    Args:
      size_max: bytes of all series.

    Attributes:
      size: approximate bytes of all series.
    """

    __slots__ = ("_last", "_queue_ids", "_series", "_size_max", "size")

    def __init__(self, size_max: int = SERIES_SIZE_MAX) -> None:
        self._series: dict[tuple[bytes, bytes, bytes], BinarySeries] = {}
        self._last: BinarySeries | None = None
        self._queue_ids: dict[bytes, int] = {}
        self._size_max = size_max
        self.size = 0

    def __len__(self) -> int:
        return len(self._series)

    def find(self, data: bytes, start: int, end: int) -> Mapping[str, str] | None:
        """The fields at data[start:end] as PullFields; None: they are of no known series.

        Whatever the bytes are, it reads none after `end`.
        """
        # Pulls of one series come in bursts: the last one's is compared before any is searched.
        series = self._last
        values = None if series is None else series.values(data, start, end)
        if values is None or series is None:
            series = self._search(data, start, end)
            if series is None:
                return None
            values = series.values(data, start, end)
            if values is None:
                return None
            self._last = series
        queue_id, queue_offset, commit_offset = values
        number = self._queue_ids.get(queue_id)
        if number is None:
            number = self._queue_id(queue_id)
        offset = number_of_digits(queue_offset)
        # Equal where the consumer has consumed everything.
        committed = offset if commit_offset == queue_offset else number_of_digits(commit_offset)
        if number is None or offset is None or committed is None:
            return None
        return PullFields(series, number, offset, committed)  # type: ignore[return-value]

    def _search(self, data: bytes, start: int, end: int) -> BinarySeries | None:
        """The series by the bytes around the first fields with the names of the three."""
        at = data.find(_QUEUE_ID, start, end - _REST_SIZE_MIN)
        if at < 0:
            return None
        first_at = at + _QUEUE_ID_SIZE
        at = first_at + 1 + data[first_at] + _QUEUE_OFFSET_SIZE
        if at >= end:
            return None
        second_end = at + 1 + data[at]
        at = data.find(_COMMIT_OFFSET, second_end, end - 1)
        if at < 0:
            return None
        third_at = at + _COMMIT_OFFSET_SIZE
        third_end = third_at + 1 + data[third_at]
        return self._series.get(
            (data[start:first_at], data[second_end:third_at], data[third_end:end])
        )

    def _queue_id(self, digits: bytes) -> int | None:
        """`number_of_digits` of a queue id, which further pulls will have again."""
        number = number_of_digits(digits)
        if number is None or len(digits) > _QUEUE_ID_DIGITS:
            return None
        if len(self._queue_ids) >= QUEUE_IDS_MAX:
            self._queue_ids.clear()
        self._queue_ids[digits] = number
        return number

    def remember(self, data: bytes, start: int, end: int, fields: Mapping[str, str]) -> None:
        """Cache the series of a parsed header, if it is of the usual form.

        Args:
          data, start, end: the position of its fields, which a parser has accepted.
          fields: as the parser read them.
        """
        if end - start > FIELDS_SIZE_MAX:
            return
        places: dict[bytes, tuple[int, int]] = {}
        at = start
        while at < end:
            name_end = at + 2 + (data[at] << 8 | data[at + 1])
            value_start = name_end + 4
            value_end = value_start + int.from_bytes(data[name_end:value_start], "big")
            places[data[at : name_end + 3]] = (value_start, value_end)
            at = value_end
        first, second, third = (
            places.get(name) for name in (_QUEUE_ID, _QUEUE_OFFSET, _COMMIT_OFFSET)
        )
        if first is None or second is None or third is None:
            return
        if second[0] != first[1] + _QUEUE_OFFSET_SIZE + 1 or third[0] < second[1]:
            return
        around = (data[start : first[0] - 1], data[second[1] : third[0] - 1], data[third[1] : end])
        if around in self._series:
            return
        size = _SERIES_SIZE + 2 * (end - start)
        if self.size + size > self._size_max:
            self._series.clear()
            self.size = 0
        self._series[around] = BinarySeries(around, dict(fields))
        self.size += size


def number_of_digits(digits: bytes) -> int | None:
    """A number >= 0 from its digits, if `str` would write the same; None if not."""
    if not digits.isdigit() or len(digits) > _OFFSET_DIGITS or (digits < b"1" and digits != b"0"):
        return None
    return int(digits)
