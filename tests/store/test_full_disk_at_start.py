"""A store that was killed and is opened on a full disk serves what it has."""

from __future__ import annotations

import errno
import logging
from itertools import count

import pytest

from trocket.store.disk.memory_disk import MemoryDisk
from trocket.store.disk.os_disk import WHAT_TO_DO

from .support import bodies, open_store, put, send

TAKES_ROOM = {"pwrite", "allocate", "resize", "make_folder", "create"}


def killed(messages: int = 3) -> MemoryDisk:
    """The disk of a store that was killed with messages in two queues."""
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(messages):
        send(store, b"%d" % number, queue_id=number % 2)
    disk.process_death()
    return disk


class FullDisk:
    """Calls that take room fail, from one of them on.

    Args:
      disk: whose calls.
      number: the error.
      first: how many of them succeed before.
    """

    def __init__(self, disk: MemoryDisk, number: int, first: int = 0) -> None:
        self.calls = count()
        self._disk, self._number, self._first = disk, number, first
        disk.fault = self._check

    def _check(self, operation: str, path: str) -> OSError | None:
        is_new = path not in self._disk.contents and path not in self._disk.folders
        if operation == "open":
            operation = "create"
        if operation not in TAKES_ROOM or (operation in {"create", "make_folder"} and not is_new):
            return None
        return OSError(self._number, "full") if next(self.calls) >= self._first else None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_killed_store_on_a_full_disk_serves_reads_and_says_what_to_do(number, caplog):
    disk = killed()
    before = {path: bytes(text) for path, text in disk.contents.items()}
    FullDisk(disk, number)
    with caplog.at_level(logging.ERROR):
        store = open_store(disk)
    assert bodies(store) == [b"0", b"2"]
    assert store.read_only
    refusal, *_ = put(store)
    assert "start the broker again" in refusal.remark
    assert {path: bytes(text) for path, text in disk.contents.items()} == before
    store.close()
    assert not any("reboot" in each.getMessage() for each in caplog.records)
    assert not any(WHAT_TO_DO[errno.ENOSPC] in each.getMessage() for each in caplog.records)


@pytest.mark.parametrize("first", range(12))
def test_a_disk_that_fills_up_during_a_start_loses_nothing(first):
    disk = killed()
    FullDisk(disk, errno.ENOSPC, first)
    store = open_store(disk)
    assert bodies(store) == [b"0", b"2"]
    assert bodies(store, queue_id=1) == [b"1"]
    store.close()
    disk.fault = None
    store = open_store(disk)
    assert not store.read_only
    send(store, b"new")
    assert bodies(store) == [b"0", b"2", b"new"]
    assert bodies(store, queue_id=1) == [b"1"]
    store.close()


def test_a_queue_that_must_be_built_again_is_built_in_memory():
    disk = killed(messages=40)
    for path in [path for path in disk.contents if path.startswith("/data/consumequeue/")]:
        disk.unlink(path)
    FullDisk(disk, errno.ENOSPC)
    store = open_store(disk)
    assert bodies(store) == [b"%d" % number for number in range(0, 40, 2)]
    store.close()
