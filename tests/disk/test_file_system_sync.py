"""syncfs: used for many files of a locked folder, where it reports failed writes."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from trocket.disk import file_system_sync
from trocket.disk.errors import StoreIOError
from trocket.disk.file_system_sync import sync_file_system
from trocket.disk.os_disk import SYNC_TOGETHER_COUNT_MIN, OsDisk
from trocket.store.config import MessageStoreConfig
from trocket.store.message_store import MessageStore

EXT4, OVERLAYFS = 0xEF53, 0x794C7630


class Library:
    """A C library whose syncfs is counted."""

    def __init__(self, file_system: int, failure: int = 0) -> None:
        self.synced: list[int] = []
        self._file_system = file_system
        self._failure = failure

    def fstatfs(self, fd: int, found: ctypes.Array[ctypes.c_char]) -> int:
        ctypes.c_long.from_buffer(found).value = self._file_system
        return 0

    def syncfs(self, fd: int) -> int:
        self.synced.append(fd)
        ctypes.set_errno(self._failure)
        return -1 if self._failure else 0


def use(monkeypatch: pytest.MonkeyPatch, library: Library | None) -> Library | None:
    monkeypatch.setattr(file_system_sync, "c_library", lambda: library)
    return library


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_one_call_syncs_all_files_of_the_folders_file_system(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = use(monkeypatch, Library(EXT4))
    (tmp_path / "f").write_bytes(b"f")
    assert sync_file_system(folder, [str(tmp_path / "f"), str(tmp_path / "missing")])
    assert library is not None
    assert library.synced == [folder]


def test_elsewhere_nothing_is_done(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = use(monkeypatch, Library(EXT4))
    assert not sync_file_system(folder, [str(tmp_path), "/proc/self"])  # another file system
    assert library is not None
    assert library.synced == []
    library = use(monkeypatch, Library(OVERLAYFS))
    assert not sync_file_system(folder, [str(tmp_path)])
    assert library is not None
    assert library.synced == []
    use(monkeypatch, None)
    assert not sync_file_system(folder, [str(tmp_path)])


def test_a_failed_write_is_an_error(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Library(EXT4, errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        sync_file_system(folder, [str(tmp_path)])


@pytest.mark.parametrize(
    ("release", "is_used"),
    [("5.8.0-63-generic", True), ("6.1", True), ("5.7.19", False), ("4.4.0", False), ("x", False)],
)
def test_older_kernels_do_not_report_failed_writes(
    release: str, is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    monkeypatch.setattr(file_system_sync.sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: Library(EXT4))
    file_system_sync.c_library.cache_clear()
    assert (file_system_sync.c_library() is not None) is is_used
    file_system_sync.c_library.cache_clear()


def test_a_disk_uses_it_for_many_files_below_a_locked_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = use(monkeypatch, Library(EXT4))
    assert library is not None
    disk = OsDisk()
    paths = [str(tmp_path / str(number)) for number in range(SYNC_TOGETHER_COUNT_MIN)]
    assert not disk.sync_together(paths)
    disk.lock(str(tmp_path / "lock"))
    assert not disk.sync_together(paths[1:])
    assert not disk.sync_together([*paths, "/elsewhere"])
    assert library.synced == []
    assert disk.sync_together(paths)
    assert len(library.synced) == 1
    disk.unlock(str(tmp_path / "lock"))
    assert not disk.sync_together(paths)


@pytest.mark.parametrize("failure", [0, errno.EIO])
def test_a_checkpoint_of_many_queues_relies_on_one_call(
    failure: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = use(monkeypatch, Library(EXT4, failure))
    assert library is not None
    single: list[str] = []
    monkeypatch.setattr(OsDisk, "sync_folder", lambda self, path: single.append(path))
    store = MessageStore(
        MessageStoreConfig(
            store_path_root_dir=str(tmp_path / "store"), mapped_file_size_commit_log=1 << 20
        )
    )
    store.load()
    for queue_id in range(SYNC_TOGETHER_COUNT_MIN):
        store.put_message(
            "T", queue_id, b"body", b"", born_timestamp_ms=1, born_host=bytes(8),
            store_host=bytes(8), tags_code=0,
        )  # fmt: skip
    store.commit()
    store.queue_store.write()
    single.clear()
    paths = store.queue_store.take_unsynced()
    if failure:
        for _ in range(2):  # what was lost is unknown: no later call helps
            with pytest.raises(StoreIOError, match=os.strerror(errno.EIO)):
                store.checkpoints.sync_queues(paths)
        assert store.checkpoints.queues_failed
    else:
        store.checkpoints.sync_queues(paths)
    assert (len(library.synced), single) == (1, [])
