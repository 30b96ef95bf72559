"""Saving: changes made together are written together."""

from __future__ import annotations

import threading

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trocket.namesrv.saving import Saver
from trocket.store.disk.memory_disk import MemoryDisk
from trocket.store.errors import StoreIOError

PATH = "/home/kvConfig.json"


def content(disk):
    file = disk.open(PATH)
    return file.pread(file.size(), 0)


async def test_a_saved_change_is_in_the_file():
    disk = MemoryDisk()
    saver = Saver(disk, PATH, lambda: b"new")
    await saver.save()
    assert content(disk) == b"new"


async def test_nothing_is_written_when_nothing_changed():
    disk = MemoryDisk()
    saver = Saver(disk, PATH, lambda: b"new")
    await saver.save_rest()
    assert not disk.exists(PATH)


class SlowDisk(MemoryDisk):
    """A disk whose first folder fsync waits until it may go on; counts those of /home."""

    def __init__(self):
        super().__init__()
        self.threaded = True
        self.may_go_on = threading.Event()
        self.fsyncs = 0

    def sync_folder(self, path):
        self.may_go_on.wait(10)
        self.fsyncs += path == "/home"
        super().sync_folder(path)


async def test_changes_that_come_during_a_write_are_written_once_together():
    disk = SlowDisk()
    values = ["0"]
    saver = Saver(disk, PATH, lambda: ",".join(values).encode())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.save)
        await wait_all_tasks_blocked()
        for number in range(1, 50):
            values.append(str(number))
            nursery.start_soon(saver.save)
        await wait_all_tasks_blocked()
        disk.may_go_on.set()
    assert disk.fsyncs == 2
    assert content(disk) == ",".join(map(str, range(50))).encode()


async def test_a_cancelled_save_is_made_up_for():
    disk = SlowDisk()
    values = ["0"]
    saver = Saver(disk, PATH, lambda: ",".join(values).encode())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.save)
        await wait_all_tasks_blocked()
        values.append("1")
        with trio.CancelScope() as scope:
            scope.cancel()
            await saver.save()
        disk.may_go_on.set()
    assert content(disk) == b"0"
    await saver.save_rest()
    assert content(disk) == b"0,1"


class BrokenDisk(MemoryDisk):
    """A disk on which no folder can be made until it is mended."""

    broken = True

    def make_folder(self, path):
        if self.broken:
            raise StoreIOError(path, "read-only")
        super().make_folder(path)


async def test_a_failed_save_is_told_and_tried_again_with_the_next():
    disk = BrokenDisk()
    saver = Saver(disk, PATH, lambda: b"new")
    with pytest.raises(StoreIOError, match="read-only"):
        await saver.save()
    disk.broken = False
    await saver.save_rest()
    assert content(disk) == b"new"
