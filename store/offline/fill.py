"""Records for a hole of the log: placeholders for the lost messages, filler for the rest.

A placeholder is a message without a body at the very queue offset of a lost one, so that consumers
see each loss at its place and no offset is given out twice. Filler is records that are in no queue
(marked as rolled back). Everything is a valid record, for Apache's broker too; a file's end gets a
blank. Pure.

Source of the layout rules: RocketMQ 5.3.3 store/CommitLog.java (END_FILE_MIN_BLANK_LENGTH: 8
bytes stay free behind the last record of a file).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...common.topic_names import SCHEDULE_TOPIC
from ...remoting.errors import LocalProtocolError
from ...remoting.message_codec import (
    PROPERTIES_SIZE_MAX,
    RECORD_PREFIX,
    RECORD_SIZE_MIN,
    encode_record,
    record_topic,
)
from ...remoting.sys_flag import TRANSACTION_ROLLBACK_TYPE
from ..log.commit_log import blank
from ..log.log_reader import Hole
from .losses import Lost

FILLER_TOPIC = "TROCKET_REPAIRED"
MARK = b"TROCKET_LOST\x011\x02"
"""The property by which a consumer recognizes a placeholder."""

FILLER_SIZE_MAX = 1024 * 1024
BLANK_SIZE_MIN = RECORD_PREFIX.size
STRETCH_MAX = 32_000
"""Bytes by which a placeholder may be lengthened: with empty properties, which readers skip."""

_HEAD_SIZE = RECORD_SIZE_MIN - 1 - 2
_FILLER_SIZE = RECORD_SIZE_MIN + len(FILLER_TOPIC)
_FILLER_SIZE_SHORT = RECORD_SIZE_MIN + 1


class UnfillableError(Exception):
    """No valid records can be put into the hole; `str()` says why."""


class Stamp(NamedTuple):
    """The fields that all records of one hole share."""

    timestamp_ms: int
    host: bytes


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A message in place of a lost one.

    Attributes:
      at: physical offset.
      size: bytes of the record.
      marked: it has the placeholder property.
      more: (topic, queue offset) of the light queues that the record is in, too.
    """

    at: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    marked: bool
    more: tuple[tuple[str, int], ...] = ()

    def to_bytes(self, stamp: Stamp) -> bytes:
        properties = _properties(self.topic, self.queue_id, self.more, self.marked)
        bare = _size(self.topic, properties)
        return encode_record(
            self.topic,
            self.queue_id,
            self.queue_offset,
            self.at,
            b"",
            properties + b"\x02" * (self.size - bare),
            born_timestamp_ms=stamp.timestamp_ms,
            born_host=stamp.host,
            store_timestamp_ms=stamp.timestamp_ms,
            store_host=stamp.host,
        )


@dataclass(frozen=True, slots=True)
class Filler:
    """Records in no queue over `size` bytes from `at` on."""

    at: int
    size: int

    def to_bytes(self, stamp: Stamp) -> Iterator[bytes]:
        """The records, at most about `FILLER_SIZE_MAX` each."""
        at, rest = self.at, self.size
        while rest:
            size = rest if rest <= FILLER_SIZE_MAX else FILLER_SIZE_MAX
            # What is left must be large enough for a record.
            if 0 < rest - size < _FILLER_SIZE:
                size -= _FILLER_SIZE
            topic = FILLER_TOPIC if size >= _FILLER_SIZE else FILLER_TOPIC[:1]
            body = bytes(size - _size(topic, b""))
            yield encode_record(
                topic, 0, 0, at, body, b"",
                born_timestamp_ms=stamp.timestamp_ms, born_host=stamp.host,
                store_timestamp_ms=stamp.timestamp_ms, store_host=stamp.host,
                # Records of rolled back transactions are in no queue and no index.
                sys_flag=TRANSACTION_ROLLBACK_TYPE,
            )  # fmt: skip
            at += size
            rest -= size


@dataclass(frozen=True, slots=True)
class Blank:
    """A file's end without records: `size` bytes from `at` on."""

    at: int
    size: int

    def to_bytes(self) -> bytes:
        """Its 8 bytes; readers ignore the bytes after them."""
        return blank(self.size)


Piece = Placeholder | Filler | Blank


def fill_hole(hole: Hole, lost: list[Lost], file_size: int) -> list[Piece]:
    """The records for a hole, from its start to its end without gaps.

    Lost messages with a known place keep it, and their size; if that leaves no room for the others,
    all are packed one after the other.

    Args:
      hole: [start, end); the end is a record's start.
      lost: the messages that were in it.
      file_size: bytes of a log file.

    Raises:
      UnfillableError: there is no room.
    """
    messages = _messages(hole, lost, file_size)
    for keep, marked in ((True, True), (False, True), (False, False)):
        pieces = _Filling(hole, messages, file_size, keep, marked).pieces()
        if pieces is not None:
            return pieces
    raise UnfillableError(
        f"no valid records fit into the {hole.end - hole.start} bytes at {hole.start}: "
        f"{len(messages)} lost messages need placeholders of {RECORD_SIZE_MIN} bytes and more"
    )


def fixed_bytes(pieces: list[Piece], stamp: Stamp) -> Iterator[tuple[int, bytes]]:
    """(physical offset, bytes) of all writes; the caller zeroes the rest of a blank."""
    for piece in pieces:
        if isinstance(piece, Filler):
            at = piece.at
            for record in piece.to_bytes(stamp):
                yield at, record
                at += len(record)
        elif isinstance(piece, Placeholder):
            yield piece.at, piece.to_bytes(stamp)
        else:
            yield piece.at, piece.to_bytes()


def _messages(hole: Hole, lost: list[Lost], file_size: int) -> list[Placeholder]:
    """The messages in the order of their places, unknown ones as -1."""
    by_place: dict[tuple[int, int], list[Lost]] = {}
    alone: list[Lost] = []
    for entry in lost:
        inside = hole.start <= entry.physical_offset <= hole.end - entry.size
        whole = entry.physical_offset % file_size + entry.size <= file_size - BLANK_SIZE_MIN
        if entry.physical_offset >= 0 and inside and whole:
            by_place.setdefault((entry.physical_offset, entry.size), []).append(entry)
        else:
            alone.append(entry)
    found: list[tuple[tuple[int, int, int], Placeholder]] = []
    end = hole.start
    for (at, size), entries in sorted(by_place.items()):
        # Units of several queues at one place are one record, of light queues too.
        main = _main_of(entries)
        if at < end or main is None or _smallest(main) > size:
            alone += entries  # they contradict each other
            continue
        end = at + size
        found.append(((at, 1, 0), replace(main, at=at, size=size)))
    later = _later_places(by_place, {message.at for _, message in found})
    for entry in alone:
        places = later.get((entry.topic, entry.queue_id), [])
        number = bisect_right(places, (entry.queue_offset, -1))
        before = places[number][1] if number < len(places) else entry.before
        order = (min(before, entry.before), 0, entry.queue_offset)
        single = Placeholder(-1, 0, entry.topic, entry.queue_id, entry.queue_offset, False)
        found.append((order, single))
    found.sort(key=lambda pair: pair[0])
    return [message for _, message in found]


def _later_places(
    by_place: dict[tuple[int, int], list[Lost]], kept: set[int]
) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """For each queue (queue offset, physical offset) of the messages that keep their places."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for (at, _), entries in by_place.items():
        if at in kept:
            for entry in entries:
                key = (entry.topic, entry.queue_id)
                found.setdefault(key, []).append((entry.queue_offset, at))
    for places in found.values():
        places.sort()
    return found


def _main_of(entries: list[Lost]) -> Placeholder | None:
    """The record of all these units; None when one record cannot have them all."""
    entries = sorted(entries, key=lambda entry: (entry.topic.startswith("%LMQ%"), entry))
    main, *rest = entries
    for entry in rest:
        if entry.queue_id != (0 if entry.topic.startswith("%LMQ%") else main.queue_id):
            return None
    more = tuple((entry.topic, entry.queue_offset) for entry in rest)
    return Placeholder(-1, 0, main.topic, main.queue_id, main.queue_offset, False, more)


def _properties(
    topic: str, queue_id: int, more: tuple[tuple[str, int], ...], marked: bool
) -> bytes:
    properties = b""
    if topic == SCHEDULE_TOPIC:
        # Delivered without these, it would stop the delivery of its level.
        properties += f"REAL_TOPIC\x01{FILLER_TOPIC}\x02REAL_QID\x010\x02".encode()
        properties += f"DELAY\x01{queue_id + 1}\x02".encode()
    if more:
        topics = ",".join(name for name, _ in more)
        offsets = ",".join(str(offset) for _, offset in more)
        properties += f"INNER_MULTI_DISPATCH\x01{topics}\x02".encode()
        properties += f"INNER_MULTI_QUEUE_OFFSET\x01{offsets}\x02".encode()
    return properties + MARK if marked else properties


def _size(topic: str, properties: bytes) -> int:
    return _HEAD_SIZE + len(record_topic(topic)[1]) + 2 + len(properties)


def _size_of(message: Placeholder, marked: bool) -> int:
    properties = _properties(message.topic, message.queue_id, message.more, marked)
    return _size(message.topic, properties)


def _smallest(message: Placeholder) -> int:
    try:
        return _size_of(message, False)
    except LocalProtocolError:
        return PROPERTIES_SIZE_MAX * 4


class _Filling:
    """One attempt to lay out a hole.

    Args:
      keep: leave messages at their known places.
      marked: mark each placeholder; with `keep`, where it fits.
    """

    def __init__(
        self, hole: Hole, messages: list[Placeholder], file_size: int, keep: bool, marked: bool
    ) -> None:
        self._hole = hole
        self._messages = messages
        self._file_size = file_size
        self._keep = keep
        self._marked = marked
        self._pieces: list[Piece] = []
        self._next = 0

    def pieces(self) -> list[Piece] | None:
        """The pieces; None if there is no room with these options."""
        at, hole = self._hole.start, self._hole
        while at < hole.end:
            file_end = at - at % self._file_size + self._file_size
            end = min(file_end, hole.end)
            if not self._fill(at, end, end == file_end):
                return None
            at = end
        return self._pieces if self._next == len(self._messages) else None

    def _fill(self, at: int, end: int, at_file_end: bool) -> bool:
        """Lay out a range within one file; False: no room."""
        start = at
        usable = end - BLANK_SIZE_MIN if at_file_end else end
        while self._next < len(self._messages):
            message = self._messages[self._next]
            known = message.at if self._keep else -1
            if known >= end:
                break
            limit = self._next_known(end, usable)
            if known >= 0:
                if known < at or not self._close_gap(at, known, start):
                    return False
                at, limit = known, known + message.size
            placed = self._sized(message, at, limit)
            if placed is None:
                if known >= 0 or limit < usable:
                    return False
                break  # into the next file
            self._pieces.append(placed)
            self._next += 1
            at += placed.size
        if at_file_end:
            if at == start and start % self._file_size == 0 and end - at >= _FILLER_SIZE + 8:
                self._pieces.append(Filler(at, _FILLER_SIZE))  # a file begins with a record
                at += _FILLER_SIZE
            self._pieces.append(Blank(at, end - at))
            return end - at >= BLANK_SIZE_MIN
        return self._close_gap(at, end, start)

    def _next_known(self, end: int, usable: int) -> int:
        if self._keep:
            for message in self._messages[self._next :]:
                if message.at >= 0:
                    return message.at if message.at < end else usable
        return usable

    def _sized(self, message: Placeholder, at: int, limit: int) -> Placeholder | None:
        """The placeholder at a place; None when it does not fit before `limit`."""
        marked = self._marked
        size = _size_of(message, marked)
        if at + size > limit and self._keep:
            marked = False
            size = _size_of(message, marked)
        if at + size > limit:
            return None
        if self._keep and message.at >= 0 and message.size - size <= STRETCH_MAX:
            size = message.size
        return replace(message, at=at, size=size, marked=marked)

    def _close_gap(self, at: int, end: int, start: int) -> bool:
        """Fill [at, end), if necessary by lengthening the record before it."""
        gap = end - at
        if gap == 0:
            return True
        if gap >= _FILLER_SIZE:
            self._pieces.append(Filler(at, gap))
            return True
        last = self._pieces[-1] if at > start and self._pieces else None
        if isinstance(last, Placeholder):
            self._pieces[-1] = replace(last, size=last.size + gap)
            return True
        if gap >= _FILLER_SIZE_SHORT:
            self._pieces.append(Filler(at, gap))
            return True
        return False
