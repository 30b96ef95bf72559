"""The reader of log files that judges both brokers: where it says that a log ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from trocket.disk.memory_disk import MemoryDisk
from trocket.interop.log_on_disk import read_log

from ..store.support import ROOT, open_store, send

PROPERTIES = b"TAGS\x01tag\x02"


@pytest.mark.parametrize(
    ("torn", "count"),
    [(0, 3), (1, 3), (len(PROPERTIES), 3), (len(PROPERTIES) + 1, 2), (len(PROPERTIES) + 9, 2)],
    ids=["nothing", "last byte", "all properties", "their length", "body"],
)
def test_a_torn_record_is_one_if_what_apache_checks_is_whole(tmp_path: Path, torn, count):
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(3):
        send(store, b"%d whole" % number, topic="T", properties=PROPERTIES)
    end = store.max_physical_offset
    store.close()
    (tmp_path / "commitlog").mkdir()
    for path, data in disk.contents.items():
        if path.startswith(f"{ROOT}/commitlog/"):
            data = bytearray(data)
            if Path(path).name == f"{0:020d}":
                data[end - torn : end] = bytes(torn)
            (tmp_path / "commitlog" / Path(path).name).write_bytes(data)
    records = read_log(tmp_path)
    assert [record.place for record in records] == [("T", 0, number) for number in range(count)]
