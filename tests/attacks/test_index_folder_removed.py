"""The index folder was removed while a broker ran: no checkpoint was written until a restart.

Without a checkpoint nothing is deleted by age, and a start after a kill reads all the log.
"""

from __future__ import annotations

import shutil

import pytest

from trocket.common.clock import ManualClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import OsDisk
from trocket.store.services import checkpoint_now

from ..store.support import open_store, send

TIME_MAX = 1 << 62


def send_keys(store, numbers: range) -> None:
    for number in numbers:
        send(store, b"%d" % number, properties=b"KEYS\x01k%d\x02" % number)


def finish_index(store) -> None:
    while not store.index.is_idle:
        store.index.work(60.0)
        store.index.finish_full_files()


def found(store, count: int) -> list[int]:
    return [len(store.query_by_key("T", f"k{n}", 9, 0, TIME_MAX).buffers) for n in range(count)]


@pytest.mark.parametrize("what", ["folder", "newest", "oldest"])
@pytest.mark.parametrize("make_disk", [OsDisk, MemoryDisk])
async def test_the_index_is_made_again_and_checkpoints_go_on(tmp_path, caplog, make_disk, what):
    disk, root = make_disk(), str(tmp_path / "store")
    store = open_store(disk, root=root, clock=ManualClock())
    send_keys(store, range(120))
    finish_index(store)
    await checkpoint_now(store)
    before = store.checkpoints.current.dispatched_offset
    names = disk.list(f"{root}/index")
    assert len(names) > 2
    if what == "folder":
        disk.remove_folder(f"{root}/index")
        shutil.rmtree(f"{root}/index", ignore_errors=True)
    else:
        disk.unlink(f"{root}/index/{names[-1 if what == 'newest' else 0]}")
    assert caplog.text == ""
    send_keys(store, range(120, 150))
    await checkpoint_now(store)
    assert "was removed while the broker runs" in caplog.text
    finish_index(store)
    await checkpoint_now(store)
    assert store.checkpoints.current.dispatched_offset == store.dispatched_offset > before
    assert found(store, 150) == [1] * 150
    caplog.clear()
    store.close()
    again = open_store(disk, root=root, clock=ManualClock())
    assert found(again, 150) == [1] * 150
    assert caplog.text == ""
    again.close()
