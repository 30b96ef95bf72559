"""The file that says where queues ended: read back as written, or not at all."""

from __future__ import annotations

import errno
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.disk.errors import StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.queues.queue_ends import (
    FILE_NAME,
    REBUILD,
    QueueEnds,
    read_queue_ends,
    write_queue_ends,
)

PATH = f"/data/{FILE_NAME}"
KEYS = [("T", 0), ("T", 1), ("%RETRY%g\u4e2d", 2_000_000_000)]
SOME = QueueEnds(
    77,
    400,
    dict(zip(KEYS, (5, REBUILD, 1), strict=True)),
    dict(zip(KEYS, (2, 0, 0), strict=True)),
    log_start=11,
    begins_at=7,
    own_from=5,
)


@given(
    st.integers(-1, 1 << 62),
    st.dictionaries(st.tuples(st.text(), st.integers(0, 1 << 31)), st.integers(-1, 1 << 62)),
    st.integers(0, 1 << 62),
)
def test_what_was_written_is_read_back(offset, ends, begin):
    disk = MemoryDisk()
    written = QueueEnds(offset, 6_000_000, ends, dict.fromkeys(ends, begin), log_start=begin)
    write_queue_ends(disk, "/data", written)
    assert read_queue_ends(disk, "/data") == written


def test_all_of_it_is_read_back():
    assert QueueEnds.from_bytes(SOME.to_bytes()) == SOME


def test_no_file_says_nothing():
    assert read_queue_ends(MemoryDisk(), "/data") is None


def test_a_damaged_file_says_nothing_whichever_byte_is_wrong():
    disk = MemoryDisk()
    write_queue_ends(disk, "/data", SOME)
    whole = bytes(disk.contents[PATH])
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        disk.contents[PATH] = damaged
        assert read_queue_ends(disk, "/data") is None
        disk.contents[PATH] = bytearray(whole[:position])
        assert read_queue_ends(disk, "/data") is None


def test_a_file_of_another_version_is_refused():
    text = b'{"version":2}'
    with pytest.raises(ValueError, match="version 2"):
        QueueEnds.from_bytes(b"%08x\n%s" % (zlib.crc32(text), text))


@pytest.mark.parametrize("operation", ["open", "pwrite", "sync", "rename"])
def test_a_write_that_fails_leaves_the_old_file(operation):
    disk = MemoryDisk()
    write_queue_ends(disk, "/data", SOME)
    disk.fault = lambda name, path: OSError(errno.EIO, "") if name == operation else None
    with pytest.raises(StoreIOError):
        write_queue_ends(disk, "/data", QueueEnds(99, 400, {}))
    disk.fault = None
    assert read_queue_ends(disk, "/data") == SOME


def test_leftovers_of_a_longer_temporary_file_do_no_harm():
    disk = MemoryDisk()
    disk.contents[f"{PATH}.tmp"] = bytearray(5000)
    write_queue_ends(disk, "/data", SOME)
    assert read_queue_ends(disk, "/data") == SOME
