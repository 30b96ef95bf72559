"""The lock file was removed while a broker ran, and a second broker opened the folder."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

import pytest

from trocket.common.clock import ManualClock
from trocket.disk.errors import StoreLockedError
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import OsDisk
from trocket.store.offline.read_only import ReadOnlyDisk
from trocket.store.services import checkpoint_now

from ..store.support import open_store, send


def open_in(root: str, *, disk=None):
    return open_store(disk or OsDisk(), clock=ManualClock(), root=root)


AS_APACHE = """
import fcntl, sys
with open(sys.argv[1], "wb") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError:
        print("locked", flush=True)
    else:
        print("taken", flush=True)
        sys.stdin.read()
"""
"""Another process that locks the file as Java does, and nothing else."""


@pytest.fixture
def apache():
    """Starts processes that lock a file as Apache's broker does; says how that went."""
    with ExitStack() as started:

        def lock(path: str) -> str:
            process = subprocess.Popen(
                [sys.executable, "-c", AS_APACHE, path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            started.enter_context(process)  # closes its standard input, and waits for its end
            assert process.stdout is not None
            return process.stdout.readline().strip()

        yield lock


@pytest.mark.parametrize("disk", [OsDisk, ReadOnlyDisk])
def test_the_folder_stays_locked_without_its_lock_file(tmp_path, disk):
    root = str(tmp_path / "store")
    store = open_in(root)
    store.disk.unlink(f"{root}/lock")
    with pytest.raises(StoreLockedError):
        disk().lock(f"{root}/lock")
    store.close()
    other = disk()
    other.lock(f"{root}/lock")
    other.unlock(f"{root}/lock")


async def test_the_next_checkpoint_makes_the_lock_file_again(tmp_path, caplog, apache):
    root = str(tmp_path / "store")
    store = open_in(root)
    await checkpoint_now(store)
    assert caplog.text == ""
    store.disk.unlink(f"{root}/lock")
    await checkpoint_now(store)
    assert f"{root}/lock was removed or replaced" in caplog.text
    assert apache(f"{root}/lock") == "locked"
    send(store)
    store.close()
    assert apache(f"{root}/lock") == "taken"


async def test_a_store_whose_folder_another_broker_took_takes_no_more(tmp_path, caplog, apache):
    root = str(tmp_path / "store")
    store = open_in(root)
    send(store)
    store.disk.unlink(f"{root}/lock")
    assert apache(f"{root}/lock") == "taken"
    await checkpoint_now(store)
    assert store.read_only
    assert "another process took it" in store.trouble
    store.close()


def test_the_twin_in_memory_holds_its_lock_too():
    disk = MemoryDisk()
    disk.lock("/data/lock")
    assert not disk.hold_lock("/data/lock")
    disk.unlink("/data/lock")
    with pytest.raises(StoreLockedError):
        disk.lock("/data/lock")
    assert disk.hold_lock("/data/lock")
    assert disk.exists("/data/lock")
