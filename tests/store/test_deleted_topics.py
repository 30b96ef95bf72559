"""The file that names deleted topics."""

from __future__ import annotations

import pytest

from trocket.disk.memory_disk import MemoryDisk
from trocket.store.queues import deleted_topics
from trocket.store.queues.deleted_topics import FILE_NAME, DeletedTopics

PATH = f"/s/{FILE_NAME}"


def loaded(disk: MemoryDisk) -> DeletedTopics:
    deleted = DeletedTopics(disk, "/s")
    deleted.load()
    return deleted


def test_what_is_noted_is_known_to_the_next_process() -> None:
    disk = MemoryDisk()
    deleted = loaded(disk)
    assert (deleted.known_from, list(deleted.names)) == (None, [])
    deleted.begin(7)
    deleted.begin(9)
    deleted.add(["B", "A"], log_end=20)
    deleted.remove(["B", "C"])
    again = loaded(disk)
    assert (again.known_from, list(again.names)) == (7, ["A"])


def test_without_a_beginning_deletions_are_known_from_the_first_one_on() -> None:
    disk = MemoryDisk()
    loaded(disk).add(["A"], log_end=20)
    assert loaded(disk).known_from == 20


@pytest.mark.parametrize("data", [b"", b"\0" * 50, b"00000000\n{}", b'a3bb189e\n{"version":2}'])
def test_a_damaged_file_counts_as_none(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    disk.contents[PATH] = bytearray(data)
    assert loaded(disk).known_from is None
    assert "cannot be used" in caplog.text


def test_the_oldest_deletions_are_forgotten_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deleted_topics, "DELETED_COUNT_MAX", 3)
    disk = MemoryDisk()
    deleted = loaded(disk)
    for topic in "ABCDE":
        deleted.add([topic], log_end=1)
    assert list(loaded(disk).names) == ["C", "D", "E"]
