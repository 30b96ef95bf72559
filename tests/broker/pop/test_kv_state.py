"""Data folders in which RocketMQ's broker kept its pop state in RocksDB."""

from __future__ import annotations

import pytest

from trocket.disk.memory_disk import MemoryDisk

from ...kit import embedded_broker


def disk_with(**files: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_folder("/store/kvStore")
    for name, content in files.items():
        disk.contents[f"/store/kvStore/{name.replace('_', '.')}"] = bytearray(content)
    return disk


@pytest.mark.parametrize("files", [{"000008_sst": b"table"}, {"000004_log": b"record"}])
async def test_a_store_with_pop_state_in_rocksdb_is_refused(files: dict[str, bytes]) -> None:
    disk = disk_with(CURRENT=b"MANIFEST-000005\n", **files)
    before = {path: bytes(content) for path, content in disk.contents.items()}
    with pytest.RaisesGroup(pytest.RaisesExc(Exception, match="mqadmin exportPopRecord")):
        async with embedded_broker(disk):
            pytest.fail("it started")
    assert {path: bytes(content) for path, content in disk.contents.items()} == before


async def test_a_database_that_was_never_used_is_ignored() -> None:
    disk = disk_with(CURRENT=b"MANIFEST-000005\n", LOG=b"text", **{"000004_log": b""})
    async with embedded_broker(disk) as broker:
        assert broker.controller.server is not None
