"""A data folder with RocksDB is refused with the commands that export it; nothing is changed."""

from __future__ import annotations

import pytest

from trocket.disk.errors import ForeignStateError
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.offline.fsck import check_store
from trocket.store.recovery.rocksdb import TABLES

from .damaged import closed, snapshot
from .support import ROOT, bodies, open_store


@pytest.mark.parametrize("table", TABLES)
def test_a_table_in_rocksdb_is_refused_with_the_command_that_exports_it(table):
    disk = closed()
    disk.contents[f"{ROOT}/config/{table}/CURRENT"] = bytearray(b"MANIFEST-1\n")
    before = snapshot(disk)
    command = (
        f"mqadmin rocksDBConfigToJson -p {ROOT}/config -t {table} -e {ROOT}/config/{TABLES[table]}"
    )
    for opened in (open_store, lambda disk: check_store(disk, ROOT)):
        with pytest.raises(ForeignStateError, match="RocksDB") as raised:
            opened(disk)
        assert command in str(raised.value)
    assert snapshot(disk) == before


def test_queues_in_rocksdb_are_built_from_the_log_once_they_are_out_of_the_way():
    disk = closed(20, queues=1)
    disk.remove_folder(f"{ROOT}/consumequeue")
    disk.contents[f"{ROOT}/consumequeue/CURRENT"] = bytearray(b"MANIFEST-1\n")
    with pytest.raises(ForeignStateError, match="built again from the commit log"):
        open_store(disk)
    disk.unlink(f"{ROOT}/consumequeue/CURRENT")
    assert len(bodies(open_store(disk))) == 20


def test_a_store_without_rocksdb_is_opened():
    assert not open_store(MemoryDisk()).read_only
