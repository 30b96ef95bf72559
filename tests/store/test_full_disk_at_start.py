"""A store whose disk is full when it is opened: its messages can be read, and nothing is lost."""

from __future__ import annotations

import errno

import pytest

from trocket.store.disk.memory_disk import MemoryDisk
from trocket.store.errors import StoreIOError
from trocket.store.store_state import StoreState

from .damaged import QUEUE, closed, crashed
from .support import ROOT, bodies, open_store, send

NEEDS_ROOM = {"pwrite", "allocate", "rename"}


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
            assert store.writer.mode.state is StoreState.NO_ROOM
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
