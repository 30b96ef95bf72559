"""Records and consume queues of a data folder, read without a broker: what brokers must serve."""

from __future__ import annotations

import hashlib
import mmap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..common.message_properties import PROPERTY_KEYS, PROPERTY_UNIQUE_KEY
from ..remoting.errors import RemoteProtocolError
from ..remoting.message import MessageExt
from ..remoting.message_codec import MAGIC_BLANK, RECORD_PREFIX, decode_record
from ..store.format import UNIT

Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Stored:
    """One record: its queue position, physical offset, the SHA-1 of its bytes, and its keys."""

    place: Place
    physical_offset: int
    sha1: str
    store_timestamp_ms: int
    keys: tuple[str, ...]
    unique: str

    @classmethod
    def of(cls, record: bytes) -> Stored:
        """Decode a record. Raises: RemoteProtocolError: the bytes are malformed or damaged."""
        message = decode_record(record)
        properties = message.properties
        return cls(
            (message.topic, message.queue_id, message.queue_offset),
            message.physical_offset,
            hashlib.sha1(record).hexdigest(),
            message.store_timestamp_ms,
            tuple(properties.get(PROPERTY_KEYS, "").split()),
            properties.get(PROPERTY_UNIQUE_KEY, ""),
        )


def read_log(folder: Path) -> list[Stored]:
    """All records of a store in log order (see `read_records`)."""
    return [stored for stored, _ in read_records(folder)]


def read_messages(folder: Path) -> list[MessageExt]:
    """All records of a store in log order, decoded as messages."""
    return [decode_record(record) for _, record in read_records(folder)]


def read_records(folder: Path) -> Iterator[tuple[Stored, bytes]]:
    """All records of a store in log order, up to the first bytes that are not a record.

    A record torn by a kill counts if its body is whole: Apache's broker checksums the body only, so
    it serves a record that was torn behind it, and ours serves what Apache's left.
    """
    expected = 0
    for path in sorted((folder / "commitlog").iterdir()):
        start = int(path.name)
        assert start == expected, f"{path} should begin at {expected}"
        expected = start + path.stat().st_size
        if path.stat().st_size == 0:  # Apache's broker was killed while it made its next file
            return
        # The log continues in the next file only behind a whole last record or the filler.
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            whole = False
            for record in _records(data):
                whole = record is None
                if record is not None:
                    try:
                        stored = Stored.of(record)
                    except RemoteProtocolError:
                        break
                    assert stored.physical_offset < expected
                    yield stored, record
            if not whole:
                break


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit of a consume queue: physical offset and size of its record, and its tags code."""

    physical_offset: int
    size: int
    tags_code: int


def read_queues(folder: Path) -> dict[tuple[str, int], list[Unit]]:
    """The units of each non-empty consume queue, by topic and queue id, in order."""
    queues: dict[tuple[str, int], list[Unit]] = {}
    for path in sorted((folder / "consumequeue").glob("*/*")):
        units: list[Unit] = []
        for file in sorted(path.iterdir()):
            data = file.read_bytes()
            whole = data[: len(data) // UNIT.size * UNIT.size]
            units += [Unit(*fields) for fields in UNIT.iter_unpack(whole) if fields[1] > 0]
        if units:
            queues[path.parent.name, int(path.name)] = units
    return queues


def _records(data: mmap.mmap) -> Iterator[bytes | None]:
    """The records of one file, then None if the log continues in the next file."""
    position = 0
    while position + RECORD_PREFIX.size <= len(data):
        size, magic = RECORD_PREFIX.unpack_from(data, position)
        if magic == MAGIC_BLANK:
            yield None
            return
        if size <= 0 or position + size > len(data):
            return
        yield data[position : position + size]
        position += size
    yield None


def by_place(records: Iterable[Stored]) -> dict[Place, Stored]:
    """Index records by topic, queue id and queue offset, which must be distinct."""
    records = list(records)
    places = {record.place: record for record in records}
    assert len(places) == len(records), "two records have one place"
    return places


def by_queue(records: Iterable[Stored]) -> dict[tuple[str, int], list[Stored]]:
    """Group records by topic and queue id, in log order."""
    queues: dict[tuple[str, int], list[Stored]] = defaultdict(list)
    for record in records:
        queues[record.place[:2]].append(record)
    return queues
