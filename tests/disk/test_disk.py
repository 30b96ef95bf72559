"""The machine's disk and its twin in memory keep one contract."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from trocket.disk.errors import StoreIOError, StoreLockedError
from trocket.disk.json_config import save_json, save_secret_json
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import OsDisk, explain, total_memory_bytes


@pytest.fixture(params=["machine", "memory"])
def place(request, tmp_path):
    """(disk, a folder that exists on it)."""
    if request.param == "machine":
        return OsDisk(), str(tmp_path)
    disk = MemoryDisk()
    disk.make_folder("/here")
    return disk, "/here"


def test_written_bytes_are_read_back_and_seen_through_a_map(place):
    disk, folder = place
    file = disk.open(f"{folder}/f", create=True)
    file.allocate(8192)
    view = file.map()
    file.pwrite(b"abc", 8189)
    assert file.pread(10, 8188) == b"\0abc"
    assert bytes(view[8189:]) == b"abc"
    assert file.size() == 8192
    assert view.readonly
    assert file.next_data(8189) == 8189
    assert file.next_data(8192) == 8192
    file.sync()
    view.release()
    assert file.close()


def test_a_resized_file_is_zeros(place):
    disk, folder = place
    file = disk.open(f"{folder}/f", create=True)
    file.resize(100)
    file.pwrite(b"x" * 100, 0)
    file.resize(10)
    file.resize(20)
    assert file.pread(99, 0) == b"x" * 10 + bytes(10)
    assert file.close()


def test_a_missing_file_is_an_error_with_its_path(place):
    disk, folder = place
    with pytest.raises(StoreIOError, match=f"{folder}/none"):
        disk.open(f"{folder}/none")


def test_names_are_listed_renamed_and_removed(place):
    disk, folder = place
    disk.make_folder(f"{folder}/a/b")
    disk.make_folder(f"{folder}/a/b")
    for name in ("2", "1"):
        disk.open(f"{folder}/a/b/{name}", create=True).close()
    assert disk.list(f"{folder}/a") == ["b"]
    assert disk.list(f"{folder}/a/b") == ["1", "2"]
    assert disk.list(f"{folder}/none") == []
    assert disk.is_folder(f"{folder}/a/b")
    assert not disk.is_folder(f"{folder}/a/b/1")
    disk.rename(f"{folder}/a/b/1", f"{folder}/a/b/2")
    assert disk.list(f"{folder}/a/b") == ["2"]
    disk.sync_folder(f"{folder}/a/b")
    disk.unlink(f"{folder}/a/b/2")
    disk.unlink(f"{folder}/a/b/2")
    disk.open(f"{folder}/a/b/3", create=True).close()
    disk.remove_folder(f"{folder}/a")
    disk.remove_folder(f"{folder}/a")
    assert not disk.exists(f"{folder}/a")


def test_a_lock_is_taken_once_and_given_back(place):
    disk, folder = place
    path = f"{folder}/lock"
    disk.lock(path)
    with pytest.raises(StoreLockedError):
        disk.lock(path)
    file = disk.open(path)
    assert file.pread(10, 0) == b"lock"
    disk.unlock(path)
    disk.lock(path)
    disk.unlock(path)
    disk.unlock(path)


def test_errors_say_what_to_do():
    assert "free some space" in explain(OSError(errno.ENOSPC, ""))
    assert explain(OSError(errno.EBADF, "")) == os.strerror(errno.EBADF)


def test_the_machine_has_memory():
    assert total_memory_bytes() > 1 << 26


def test_a_power_cut_undoes_what_was_not_synced_from_its_end():
    disk = MemoryDisk(journalled=True)
    file = disk.open("/f", create=True)
    file.resize(10)
    file.pwrite(b"a", 0)
    file.sync()
    file.pwrite(b"b", 1)
    file.pwrite(b"cc", 1)
    disk.power_loss(kept_writes=1)
    assert file.pread(4, 0) == b"ab\0\0"
    file.pwrite(b"d", 0)
    disk.power_loss()
    assert file.pread(4, 0) == b"ab\0\0"


def test_a_power_cut_needs_a_journal():
    with pytest.raises(ValueError, match="journalled"):
        MemoryDisk().power_loss()


def test_a_full_device_is_an_error_and_no_signal():
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    file = OsDisk().open("/dev/full")
    with pytest.raises(StoreIOError, match="free some space"):
        file.pwrite(b"x", 0)
    file.close()


def test_what_was_read_of_a_hole_stays_a_hole(tmp_path, monkeypatch):
    # The kernel counts cached pages of preallocated blocks as data, so it is asked only once.
    file = OsDisk().open(str(tmp_path / "file"), create=True)
    file.resize(1 << 20)
    file.pwrite(b"x", 0)
    first = file.next_data(1 << 16)
    file.pread(1 << 17, 1 << 16)
    monkeypatch.setattr(os, "lseek", lambda fd, position, how: position)
    assert file.next_data(1 << 16) == first
    file.pwrite(b"x", 1 << 18)
    assert file.next_data(1 << 16) == 1 << 16
    file.close()


def test_a_renamed_file_replaces_what_a_link_names_and_keeps_its_permissions(tmp_path):
    real = tmp_path / "elsewhere" / "topics.json"
    real.parent.mkdir()
    real.write_bytes(b"old")
    real.chmod(0o640)
    link = tmp_path / "topics.json"
    link.symlink_to(real)
    save_json(OsDisk(), str(link), b"{}")
    assert link.is_symlink()
    assert real.read_bytes().startswith(b"{}")
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert [each.name for each in real.parent.iterdir()] == ["topics.json"]


def test_a_renamed_file_never_replaces_a_pipe(tmp_path):
    pipe, new = tmp_path / "pipe", tmp_path / "new"
    os.mkfifo(pipe)
    new.write_bytes(b"text")
    with pytest.raises(StoreIOError, match="not a regular file"):
        OsDisk().rename(str(new), str(pipe))
    assert pipe.is_fifo()


def test_a_file_with_secrets_stays_private_whatever_it_replaces(tmp_path):
    path = tmp_path / "auth.json"
    path.write_bytes(b"old")
    path.chmod(0o644)
    save_secret_json(OsDisk(), str(path), b"{}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_file_that_may_not_be_written_is_opened_for_reading_and_refuses_writes(
    number, tmp_path, monkeypatch
):
    (tmp_path / "file").write_bytes(b"kept")
    real_open = os.open

    def only_reading(path, flags, *args, **kwargs):
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(number, os.strerror(number))
        return real_open(path, flags, *args, **kwargs)

    disk = OsDisk()
    monkeypatch.setattr(os, "open", only_reading)
    file = disk.open(str(tmp_path / "file"))
    assert file.pread(10, 0) == b"kept"
    for change in (lambda: file.pwrite(b"x", 0), lambda: file.allocate(9), lambda: file.resize(1)):
        with pytest.raises(StoreIOError, match=os.strerror(number)):
            change()
    assert str(tmp_path / "file") in str(disk.unwritable_below(str(tmp_path)))
    assert disk.unwritable_below(f"{tmp_path}/fil") is None
    with pytest.raises(StoreIOError, match=os.strerror(number)):
        disk.open(str(tmp_path / "new"), create=True)
    lock = str(tmp_path / "lock")
    for _ in range(2):  # without a lock file, and with one
        disk.lock(lock)
        with pytest.raises(StoreLockedError):
            OsDisk().lock(lock)
        assert not disk.hold_lock(lock)
        disk.unlock(lock)
        (tmp_path / "lock").write_bytes(b"lock")
    file.close()
    assert (tmp_path / "file").read_bytes() == b"kept"
