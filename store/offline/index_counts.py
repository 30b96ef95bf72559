"""Detection of an index file's slot and entry counts from the file itself.

The file's size gives one equation for two numbers. Usual numbers are tried first; otherwise the
first entry, of which only the position is unknown, is searched for. Every candidate must explain
the chains of the file's first entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from ...common.java_hash import hash_prefix, index_key_hash_after
from ...common.message_properties import KEYS_NAME, TAGS_NAME, UNIQUE_KEY_NAME, find_property
from ...disk.os_disk import Disk, DiskFile
from ...disk.position import START, Position
from ...remoting.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK_TYPE
from ..config import MessageStoreConfig
from ..format import ENTRY, ENTRY_SIZE, INDEX_HEAD, INDEX_HEADER_SIZE, SLOT_SIZE
from ..log.commit_log import CommitLog
from ..log.log_reader import LogRecord, record_at
from .log_walk import LogWalk

TRIED_COUNT = 200
"""Entries whose chains a candidate must explain."""

NUMBERS_MAX = 20_000
"""Numbers tried for an entry that was found."""

_CHUNK = 1024 * 1024
_HASH_AND_OFFSET = 12

_topic_hash = lru_cache(maxsize=10_000)(hash_prefix)


class IndexCounts(NamedTuple):
    """maxHashSlotNum and maxIndexNum of a file."""

    slot_count: int
    index_count_max: int

    @property
    def file_size(self) -> int:
        entries = self.index_count_max * ENTRY_SIZE
        return INDEX_HEADER_SIZE + self.slot_count * SLOT_SIZE + entries


class Header(NamedTuple):
    """An index file's header; field by field as in the file."""

    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int


def read_header(file: DiskFile) -> Header:
    """The header; zeros where the file is too short for one.

    Raises:
      StoreIOError: the file cannot be read.
    """
    raw = file.pread(INDEX_HEADER_SIZE, START).ljust(INDEX_HEADER_SIZE, b"\0")
    return Header(*INDEX_HEAD.unpack(raw))


def key_hashes(record: LogRecord) -> list[int]:
    """The hashes under which the index keeps a record: unique key first, then its keys.

    Source: RocketMQ 5.3.3 store/index/IndexService.java buildIndex.
    """
    if record.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK_TYPE:
        return []
    properties = record.properties
    unique, keys = find_property(properties, UNIQUE_KEY_NAME), find_property(properties, KEYS_NAME)
    if unique is None and keys is None:
        return []
    prefix = _topic_hash(f"{record.topic}#")
    found = []
    if unique is not None:
        found.append(index_key_hash_after(prefix, str(unique, "utf-8", "replace")))
    if keys is not None:
        words = str(keys, "utf-8", "replace").split(" ")
        found += [index_key_hash_after(prefix, word) for word in words if word]
    return found


def tag_hash(record: LogRecord) -> int | None:
    """The hash of a record's tag, which 5.5.0 indexes too; None when it has none.

    Source: the class file of RocketMQ 5.5.0 store/index/IndexService buildIndex.
    """
    tags = find_property(record.properties, TAGS_NAME)
    if tags is None:
        return None
    return index_key_hash_after(_topic_hash(f"{record.topic}#T#"), str(tags, "utf-8", "replace"))


def find_counts(
    disk: Disk,
    paths: Iterable[str],
    given: IndexCounts | None,
    log: CommitLog,
) -> IndexCounts | None:
    """The counts of a store's index files.

    Args:
      paths: the files, oldest first.
      given: the configured counts; None: not configured.

    Returns: None when there is no file, or no counts explain one.

    Raises:
      StoreIOError: a file cannot be read.
    """
    if given is not None:
        return given
    config = MessageStoreConfig()
    usual = IndexCounts(config.max_hash_slot_num, config.max_index_num)
    for path in paths:
        file = disk.open(path)
        try:
            header, size = read_header(file), file.size()
            # No file says how many slots it has, so its size and its entries must show it.
            if size == usual.file_size:
                return usual
            if header.index_count <= 1:
                header = _guessed_header(header, log)
            for counts in _candidates(file, header, size, log):
                if counts.file_size == size and _explains(file, counts, header):
                    return counts
        finally:
            file.close()
    return None


def _guessed_header(header: Header, log: CommitLog) -> Header:
    """The counts of a file that was being filled, if its first entry is of the oldest record."""
    for count, record in enumerate(LogWalk(log).records()):
        if key_hashes(record):
            begin = record.physical_offset
            return header._replace(begin_physical_offset=begin, index_count=2)
        if count == TRIED_COUNT:
            break
    return header


def _candidates(file: DiskFile, header: Header, size: int, log: CommitLog) -> Iterator[IndexCounts]:
    if header.index_count <= 1:
        return
    slots_room = size - INDEX_HEADER_SIZE - header.index_count * ENTRY_SIZE
    if slots_room > 0 and slots_room % SLOT_SIZE == 0:  # a full file's count is its number
        yield IndexCounts(slots_room // SLOT_SIZE, header.index_count)
    record = record_at(log, header.begin_physical_offset)
    hashes = key_hashes(record) if record is not None else []
    for key_hash in hashes[:1]:
        first_entry = ENTRY.pack(key_hash, header.begin_physical_offset, 0, 0)
        for position in _find(file, first_entry):
            yield from _at(position, 1, size)
    if record is None:
        yield from _by_a_later_record(file, header, size, log)


def _by_a_later_record(
    file: DiskFile, header: Header, size: int, log: CommitLog
) -> Iterator[IndexCounts]:
    """Find the entry of the oldest record, and try possible numbers for it."""
    for count, record in enumerate(LogWalk(log).records()):
        hashes = key_hashes(record)
        if hashes:
            entry = ENTRY.pack(hashes[0], record.physical_offset, 0, 0)[:_HASH_AND_OFFSET]
            for position in _find(file, entry):
                for number in range(1, min(header.index_count, NUMBERS_MAX)):
                    yield from _at(position, number, size)
            return
        if count == TRIED_COUNT:
            return


def _at(position: int, number: int, size: int) -> Iterator[IndexCounts]:
    """The counts of a file that has the entry of this number at a position."""
    slots_room = position - number * ENTRY_SIZE - INDEX_HEADER_SIZE
    entries_room = size - INDEX_HEADER_SIZE - slots_room
    if slots_room > 0 and slots_room % SLOT_SIZE == 0 and entries_room % ENTRY_SIZE == 0:
        yield IndexCounts(slots_room // SLOT_SIZE, entries_room // ENTRY_SIZE)


def _find(file: DiskFile, wanted: bytes) -> Iterator[int]:
    position = 0
    while True:
        position = max(file.next_data(Position(position)) - len(wanted), position)
        chunk = file.pread(_CHUNK, Position(position))
        at = chunk.find(wanted)
        while at >= 0:
            yield position + at
            at = chunk.find(wanted, at + 1)
        if len(chunk) < _CHUNK:
            return
        position += len(chunk) - len(wanted) + 1


def _explains(file: DiskFile, counts: IndexCounts, header: Header) -> bool:
    """Whether the chains of the first entries fit these counts."""
    if not 0 < header.index_count <= counts.index_count_max:
        return False
    entries_at = INDEX_HEADER_SIZE + counts.slot_count * SLOT_SIZE
    count = min(header.index_count - 1, TRIED_COUNT)
    raw = file.pread(count * ENTRY_SIZE, Position(entries_at + ENTRY_SIZE))
    if len(raw) < ENTRY_SIZE or ENTRY.unpack_from(raw)[1] != header.begin_physical_offset:
        return False
    raw = raw[: len(raw) // ENTRY_SIZE * ENTRY_SIZE]
    newest: dict[int, int] = {}
    good = 0
    for number, (key_hash, _, _, previous) in enumerate(ENTRY.iter_unpack(raw), 1):
        if key_hash < 0:
            return False
        slot = key_hash % counts.slot_count
        good += previous == newest.get(slot, 0)
        newest[slot] = number
    return count > 0 and good >= count * 0.9  # a few entries may be damaged
