"""What a commit log holds, read from its files alone: what every broker must serve of it."""

from __future__ import annotations

import hashlib
import mmap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trocket.remoting.message_codec import MAGIC_BLANK, RECORD_PREFIX, decode_record

Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Stored:
    """One record: its place, where it is in the log, the SHA-1 of its bytes, and what finds it."""

    place: Place
    physical_offset: int
    sha1: str
    store_timestamp_ms: int
    keys: tuple[str, ...]
    unique: str

    @classmethod
    def of(cls, record: bytes) -> Stored:
        """Of a record's bytes. Raises: RemoteProtocolError: they are no record, or damaged."""
        message = decode_record(record)
        properties = message.properties
        return cls(
            (message.topic, message.queue_id, message.queue_offset),
            message.physical_offset,
            hashlib.sha1(record).hexdigest(),
            message.store_timestamp_ms,
            tuple(properties.get("KEYS", "").split()),
            properties.get("UNIQ_KEY", ""),
        )


def read_log(folder: Path) -> list[Stored]:
    """All records of a store in their order, up to the first bytes that are none."""
    found: list[Stored] = []
    expected = 0
    for path in sorted((folder / "commitlog").iterdir()):
        start = int(path.name)
        assert start == expected, f"{path} should begin at {expected}"
        expected = start + path.stat().st_size
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            whole = False
            for record in _records(data):
                whole = record is None
                if record is not None:
                    found.append(Stored.of(record))
                    assert found[-1].physical_offset < expected
            if not whole:
                break
    return found


def _records(data: mmap.mmap) -> Iterator[bytes | None]:
    """The records of one file; None when its filler is reached: the log goes on in the next."""
    position = 0
    while position + RECORD_PREFIX.size <= len(data):
        size, magic = RECORD_PREFIX.unpack_from(data, position)
        if magic == MAGIC_BLANK:
            yield None
            return
        # A record whose writer was killed half way through is not there.
        if size <= 0 or position + size > len(data) or data[position + size - 1] == 0:
            return
        yield data[position : position + size]
        position += size
    yield None


def by_place(records: Iterable[Stored]) -> dict[Place, Stored]:
    """The same, by topic, queue id and queue offset; each place is held once."""
    records = list(records)
    places = {record.place: record for record in records}
    assert len(places) == len(records), "two records have one place"
    return places


def by_queue(records: Iterable[Stored]) -> dict[tuple[str, int], list[Stored]]:
    """The same, by topic and queue id, in the order of the log."""
    queues: dict[tuple[str, int], list[Stored]] = defaultdict(list)
    for record in records:
        queues[record.place[:2]].append(record)
    return queues
