"""Store times of large messages from before the start come from their heads, not their bodies."""

from __future__ import annotations

import pytest

from trocket.disk.errors import CorruptRecordError
from trocket.disk.memory_disk import MemoryDisk, MemoryFile
from trocket.disk.position import Position
from trocket.store.message_store import MessageStore
from trocket.store.reading.record_check import TIMED_SIZE_MAX
from trocket.store.status import BoundaryType

from .support import HOST_V6, ROOT, open_store, physical_offset_of, send

COUNT = 40
FILE_SIZE = 1 << 20
READ_MAX = COUNT * 1024
"""Bytes that a search may read; one body has more."""


class Stores:
    """A store that was closed with large messages in it, opened again.

    Attributes:
      times: store times of the messages, ms.
    """

    def __init__(self, **more: object) -> None:
        self.disk = MemoryDisk()
        store = open_store(self.disk, mapped_file_size_commit_log=FILE_SIZE)
        self.times = []
        for _ in range(COUNT):
            store.clock.advance(1000)  # type: ignore[attr-defined]
            store.begin_burst()
            send(store, bytes(TIMED_SIZE_MAX), **more)
            self.times.append(store.store_time_at("T", 0, len(self.times)))
        store.close()
        self.store: MessageStore = open_store(self.disk, mapped_file_size_commit_log=FILE_SIZE)

    def flip(self, number: int, position: int, mask: int = 1) -> None:
        """Change a byte of a message's record."""
        at = physical_offset_of(self.store, number)
        base = at - at % FILE_SIZE
        self.disk.contents[f"{ROOT}/commitlog/{base:020d}"][at - base + position] ^= mask


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all reads from now on."""
    sizes: list[int] = []
    pread = MemoryFile.pread

    def counted(self: MemoryFile, size: int, position: Position) -> bytes:
        sizes.append(size)
        return pread(self, size, position)

    monkeypatch.setattr(MemoryFile, "pread", counted)
    return sizes


@pytest.mark.parametrize("more", [{}, {"born_host": HOST_V6}, {"store_host": HOST_V6}])
def test_a_search_by_time_reads_no_bodies(more: dict[str, bytes], bytes_read: list[int]) -> None:
    stores = Stores(**more)
    for number, time_ms in enumerate(stores.times):
        bytes_read.clear()
        assert stores.store.offset_by_time("T", 0, time_ms) == number
        assert stores.store.offset_by_time("T", 0, time_ms, BoundaryType.UPPER) == number
        assert stores.store.offset_by_time("T", 0, time_ms + 1) == number + 1
        assert stores.store.store_time_at("T", 0, number) == time_ms
        assert sum(bytes_read) < READ_MAX
    assert stores.store.earliest_store_time("T", 0) == stores.times[0]


# Bytes of a record: where its fields begin (docs/formats/commit_log.md).
FIELDS = {
    "size": (3, 1),
    "magic": (7, 1),
    "queue id": (15, 1),
    "queue offset": (27, 1),
    "physical offset": (35, 1),
    "an address of IPv6": (39, 0x10),
    "a larger body": (84, 1),
    "a negative body": (84, 0x80),
    "topic length": (88 + TIMED_SIZE_MAX, 1),
    "topic": (89 + TIMED_SIZE_MAX, 1),
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_damaged_head_has_no_time_and_a_search_passes_nothing_over(field: str) -> None:
    stores, damaged = Stores(), COUNT // 2  # which a search meets first
    position, mask = FIELDS[field]
    stores.flip(damaged, position, mask)
    with pytest.raises(CorruptRecordError, match=f"message {damaged} of queue 0 of topic T"):
        stores.store.store_time_at("T", 0, damaged)
    for number, time_ms in enumerate(stores.times):
        found = stores.store.offset_by_time("T", 0, time_ms)
        assert found == number or (found, number) == (damaged, damaged + 1)


def test_a_damaged_body_is_refused_where_it_is_served_only() -> None:
    stores = Stores()
    stores.flip(3, 100)
    assert stores.store.store_time_at("T", 0, 3) == stores.times[3]
    with pytest.raises(CorruptRecordError, match="message 3 of queue 0 of topic T"):
        stores.store.get_message("T", 0, 3, 1)
