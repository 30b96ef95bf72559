"""The overlay behaves as the disk would, and the disk below never changes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trocket.disk.errors import StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.overlay_disk import PAGE, OverlayDisk

PATHS = ["/d/a", "/d/b", "/d/e/c"]
POSITIONS = st.one_of(st.integers(0, 40), st.integers(PAGE - 20, PAGE + 20), st.just(3 * PAGE))
OPERATIONS = st.one_of(
    st.tuples(st.just("pwrite"), st.sampled_from(PATHS), POSITIONS, st.binary(max_size=50)),
    st.tuples(st.just("zeros"), st.sampled_from(PATHS), POSITIONS, st.integers(1, 2 * PAGE)),
    st.tuples(st.just("resize"), st.sampled_from(PATHS), POSITIONS),
    st.tuples(st.just("allocate"), st.sampled_from(PATHS), POSITIONS),
    st.tuples(st.just("unlink"), st.sampled_from(PATHS)),
    st.tuples(st.just("remove_folder"), st.sampled_from(["/d", "/d/e", "/none"])),
    st.tuples(st.just("rename"), st.sampled_from(PATHS), st.sampled_from(PATHS)),
    st.tuples(st.just("make_folder"), st.sampled_from(["/d/e", "/f"])),
)


def apply(disk, operation):
    name, path, *rest = operation
    if name in ("pwrite", "zeros", "resize", "allocate"):
        disk.make_folder("/d")
        disk.make_folder(path.rpartition("/")[0])
        file = disk.open(path, create=True)
        if name == "pwrite":
            file.pwrite(rest[1], rest[0])
        elif name == "zeros":
            file.pwrite(bytes(rest[1]), rest[0])
        else:
            getattr(file, name)(rest[0])
        file.close()
    elif name == "make_folder":
        disk.make_folder("/d")
        disk.make_folder(path)
    elif name != "rename" or (disk.exists(path) and disk.is_folder(rest[0].rpartition("/")[0])):
        getattr(disk, name)(path, *rest)


def state(disk):
    files = {}
    for path in PATHS:
        if disk.exists(path):
            file = disk.open(path)
            size = file.size()
            files[path] = file.pread(size + 10, 0)
            assert len(files[path]) == size
            assert file.pread(30, PAGE - 10) == files[path][PAGE - 10 : PAGE + 20]
            assert bytes(file.map()) == files[path]
            first = next((at for at, byte in enumerate(files[path]) if byte), size)
            assert file.next_data(0) <= first
    return files, {folder: disk.list(folder) for folder in ("/d", "/d/e", "/f")}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(OPERATIONS, max_size=6), st.lists(OPERATIONS, max_size=12))
def test_it_is_what_the_disk_would_be_and_the_disk_stays_as_it_was(below, above):
    disk, twin = MemoryDisk(), MemoryDisk()
    for operation in below:
        apply(disk, operation)
        apply(twin, operation)
    before = {path: bytes(data) for path, data in disk.contents.items()}
    folders = set(disk.folders)
    overlay = OverlayDisk(disk)
    for operation in above:
        apply(overlay, operation)
        apply(twin, operation)
        assert state(overlay) == state(twin)
    assert disk.contents == before
    assert disk.folders == folders
    if state(overlay) != state(disk):
        assert overlay.changed


def test_reading_is_no_change():
    disk = MemoryDisk()
    disk.open("/d/a", create=True).pwrite(b"text", 0)
    overlay = OverlayDisk(disk)
    assert overlay.open("/d/a").pread(10, 1) == b"ext"
    overlay.make_folder("/d")
    assert not overlay.changed
    with pytest.raises(StoreIOError):
        overlay.open("/d/b")
    assert not overlay.changed


def test_a_removed_file_cannot_be_read_through_an_open_one():
    disk = MemoryDisk()
    disk.open("/d/a", create=True).pwrite(b"text", 0)
    overlay = OverlayDisk(disk)
    file = overlay.open("/d/a")
    overlay.remove_folder("/d")
    with pytest.raises(StoreIOError):
        file.pread(1, 0)
