"""State files off the event loop: changes made together are written together."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trocket.common.steps import Steps, one_step
from trocket.disk.errors import StoreIOError
from trocket.disk.json_config import save_text, unsealed
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.state_file import StateFile
from trocket.disk.state_files import StateFiles

PATH = "/home/kvConfig.json"
WAIT_S = 10


def content(disk: MemoryDisk) -> bytes:
    return bytes(disk.contents[PATH])


class SlowDisk(MemoryDisk):
    """A disk whose first folder fsync waits until it may go on; counts those of /home."""

    def __init__(self) -> None:
        super().__init__()
        self.threaded = True
        self.may_go_on = threading.Event()
        self.fsyncs = 0

    def sync_folder(self, path: str) -> None:
        self.may_go_on.wait(WAIT_S)
        self.fsyncs += path == "/home"
        super().sync_folder(path)


class Values:
    """A table of values, in a file."""

    def __init__(self, disk: MemoryDisk, *, is_lazy: bool = False) -> None:
        self.values = ["0"]
        self.files = StateFiles(disk, "/home", save_text)
        later = self.files.later if self.files.may_put_off else None
        encode = one_step(lambda: ",".join(self.values).encode())
        self.file = StateFile(
            "kvConfig.json", "values", self.files.save, encode, later, is_lazy=is_lazy
        )

    @asynccontextmanager
    async def being_saved(self) -> AsyncIterator[trio.Nursery]:
        async with trio.open_nursery() as services:
            services.start_soon(self.files.run, [self.file])
            async with trio.open_nursery() as nursery:
                yield nursery
            services.cancel_scope.cancel()

    async def save(self) -> None:
        self.file.changed()
        await self.file.saved()


async def test_a_saved_change_is_in_the_file() -> None:
    disk = MemoryDisk()
    await Values(disk).save()
    assert content(disk) == b"0"


def test_nothing_is_written_when_nothing_changed() -> None:
    disk = MemoryDisk()
    assert not Values(disk).file.persist_changed()
    assert not disk.exists(PATH)


async def test_changes_that_come_during_a_write_are_written_once_together() -> None:
    disk = SlowDisk()
    table = Values(disk)
    async with table.being_saved() as nursery:
        nursery.start_soon(table.save)
        await wait_all_tasks_blocked()
        for number in range(1, 50):
            table.values.append(str(number))
            nursery.start_soon(table.save)
        await wait_all_tasks_blocked()
        disk.may_go_on.set()
    assert disk.fsyncs == 2
    assert content(disk) == ",".join(map(str, range(50))).encode()


async def test_a_save_that_was_cut_short_is_made_up_for() -> None:
    disk = MemoryDisk()
    disk.threaded = True
    table = Values(disk)
    with trio.CancelScope() as scope:

        def encode() -> Steps[bytes]:
            scope.cancel()
            yield
            return b"never written"

        table.file = StateFile(
            "kvConfig.json", "values", table.files.save, encode, table.files.later
        )
        table.file.changed()
        await table.files.run()
    assert not disk.exists(PATH)
    assert table.file.is_dirty
    assert not table.file.is_put_off


async def test_a_failed_save_is_reported_and_tried_again_with_the_next() -> None:
    disk = MemoryDisk()
    table = Values(disk)
    disk.fault = lambda name, path: OSError(30, "read-only")
    with pytest.raises(StoreIOError, match="Read-only"):
        await table.save()
    disk.fault = lambda name, path: None
    assert table.file.persist_changed()
    assert content(disk) == b"0"


async def test_a_text_made_in_steps_does_not_replace_what_was_saved_meanwhile() -> None:
    disk = MemoryDisk()
    disk.threaded = True
    files = StateFiles(disk, "/home")

    def encode() -> Steps[bytes]:
        yield
        files.save("kvConfig.json", b"newer")
        return b"older"

    file = StateFile("kvConfig.json", "things", files.save, encode, files.later)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(files.run)
        file.changed()
        await file.saved()
        nursery.cancel_scope.cancel()
    assert unsealed(content(disk)) == (b"newer", True)


async def test_a_lazy_file_is_saved_after_what_must_come_before_once_that_allows_it(
    autojump_clock: object,
) -> None:
    disk = MemoryDisk()
    table = Values(disk, is_lazy=True)
    came_before: list[bool] = []

    async def before() -> bool:
        await trio.lowlevel.checkpoint()
        came_before.append(disk.exists(PATH))
        if len(came_before) == 1:
            raise StoreIOError("log", "no fsync")
        return len(came_before) > 2

    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.files.run_lazy, table.file, lambda: 5.0, before)
        await trio.sleep(6)
        assert came_before == []  # nothing changed
        table.file.changed()
        assert not disk.exists(PATH)
        await trio.sleep(10)
        assert came_before == [False, False]
        assert not disk.exists(PATH)
        await trio.sleep(5)
        assert came_before == [False, False, False]
        assert content(disk) == b"0"
        await trio.sleep(10)
        assert len(came_before) == 3
        nursery.cancel_scope.cancel()
