"""A store whose disk is full or read-only at the start: its messages can be read."""

from __future__ import annotations

import errno
import os

import pytest

from trocket.disk.errors import StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import OsDisk
from trocket.store.store_state import StoreState

from .damaged import QUEUE, closed, crashed
from .support import ROOT, bodies, open_store, send

NEEDS_ROOM = {"pwrite", "allocate", "rename"}
READS = {"pread", "open", "lock", "hold_lock", "space", "used_bytes", "sync", "sync_folder"}


def lost_queues():
    disk, _, _ = crashed(30)
    for path in [path for path in disk.contents if path.startswith(QUEUE)]:
        del disk.contents[path]
    return disk


def torn_tail():
    disk, _, end = crashed(30)
    disk.contents[f"{ROOT}/commitlog/{0:020d}"][end : end + 10] = b"a record t"
    return disk


DISKS = {
    "killed": lambda: crashed(30)[0],
    "killed, queues lost": lost_queues,
    "killed in a write": torn_tail,
    "closed": lambda: closed(30, queues=1),
}


def full_after(disk: MemoryDisk, count: int, number: int) -> None:
    """Let all operations that need room fail, after some of them."""
    done = 0

    def fault(operation: str, path: str) -> OSError | None:
        nonlocal done
        if operation not in NEEDS_ROOM:
            return None
        done += 1
        return OSError(number, "") if done > count else None

    disk.fault = fault


def unwritable(disk: MemoryDisk, number: int) -> None:
    """Let all operations fail that change something, as on a file system mounted read-only."""

    def fault(operation: str, path: str) -> OSError | None:
        is_new = operation == "open" and path not in disk.contents
        exists = operation == "make_folder" and disk.is_folder(path)
        fails = is_new or not (operation in READS or exists)
        return OSError(number, "") if fails else None

    disk.fault = fault


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("make", DISKS.values(), ids=DISKS)
def test_messages_can_be_read_wherever_the_room_ends(make, number, caplog):
    expected = bodies(open_store(make()))
    assert len(expected) == 30
    read_only = 0
    for count in range(200):
        disk = make()
        full_after(disk, count, number)
        store = open_store(disk)
        assert bodies(store) == expected
        is_writable = store.writer.mode.state is StoreState.OPEN
        read_only += not is_writable
        if not is_writable:
            assert store.writer.mode.state is StoreState.UNWRITABLE
            assert "until restart" in store.writer.mode.remark
        store.close()
        disk.fault = None
        again = open_store(disk)
        assert bodies(again) == expected
        assert send(again, b"more") == 30
        again.close()
        if is_writable:
            break
    assert read_only
    assert "reboot" not in caplog.text
    assert "written to the device again" not in caplog.text
    assert "free some space and restart the broker" in caplog.text


def test_another_error_ends_the_start():
    disk = crashed()[0]
    full_after(disk, 0, errno.EIO)
    with pytest.raises(StoreIOError, match="the device failed"):
        open_store(disk)


@pytest.mark.parametrize(
    ("number", "what_to_do"),
    [
        (errno.EROFS, "mount the file system for writing and restart the broker"),
        (errno.EACCES, "give the broker's user the right to write there and restart the broker"),
        (errno.EPERM, "give the broker's user the right to write there and restart the broker"),
    ],
)
@pytest.mark.parametrize("make", DISKS.values(), ids=DISKS)
def test_messages_can_be_read_where_nothing_may_be_written(make, number, what_to_do, caplog):
    expected = bodies(open_store(make()))
    disk = make()
    unwritable(disk, number)
    before = {path: bytes(data) for path, data in disk.contents.items()}
    store = open_store(disk)
    assert bodies(store) == expected
    assert store.writer.mode.state is StoreState.UNWRITABLE
    store.close()
    assert disk.contents == before | {f"{ROOT}/lock": b"lock"}
    assert what_to_do in caplog.text
    disk.fault = None
    again = open_store(disk)
    assert send(again, b"more") == 30
    again.close()


def test_a_file_of_the_store_that_may_not_be_written_makes_it_read_only_and_another_does_not(
    tmp_path, monkeypatch
):
    root = str(tmp_path / "store")
    first = open_store(OsDisk(), store_path_root_dir=root)
    send(first, b"kept")
    first.close()
    (tmp_path / "elsewhere").write_bytes(b"")
    real_open = os.open

    def of_another_user(path, flags, *args, **kwargs):
        name = str(path)
        if flags & os.O_RDWR and ("/consumequeue/" in name or "elsewhere" in name):
            raise OSError(errno.EACCES, "")
        return real_open(path, flags, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", of_another_user)
        second = open_store(OsDisk(), store_path_root_dir=root)
        assert second.writer.mode.state is StoreState.UNWRITABLE
        assert f"{root}/consumequeue/" in second.trouble
        assert bodies(second) == [b"kept"]
        second.close()
        disk = OsDisk()
        disk.open(str(tmp_path / "elsewhere")).close()
        patched.setattr(os, "open", real_open)
        third = open_store(disk, store_path_root_dir=root)
        assert third.trouble == ""
        third.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_start_that_can_neither_write_nor_read_a_message_ends(number, caplog):
    empty = MemoryDisk()
    open_store(empty).close()
    for disk in (MemoryDisk(), empty):
        unwritable(disk, number)
        with pytest.raises(StoreIOError, match=ROOT):
            open_store(disk)
        disk.fault = None
        open_store(disk).close()
    assert "can be read" not in caplog.text
