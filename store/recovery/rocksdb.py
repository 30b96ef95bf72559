"""The check of a data folder for queues and tables in RocksDB, which this program cannot read.

Source: RocketMQ 5.5.0 with storeType=defaultRocksDB keeps its consume queues in `consumequeue` as a
database, and topics, groups and offsets in folders below `config`; tools/RocksDBConfigToJsonCommand
writes these tables as JSON. A database has the file CURRENT.
"""

from __future__ import annotations

from typing import Final

from ...disk.errors import ForeignStateError
from ...disk.os_disk import Disk

MARK: Final = "CURRENT"

TABLES: Final = {
    "topics": "topics.json",
    "subscriptionGroups": "subscriptionGroup.json",
    "consumerOffsets": "consumerOffset.json",
}
"""The JSON file of each table that RocketMQ may keep in RocksDB, by the folder's name."""


def refuse_rocksdb(disk: Disk, root: str) -> None:
    """Refuse a data folder with a RocksDB database in the place of queues or tables.

    Raises:
      ForeignStateError: it has one; the message says what to do.
      StoreIOError: the folder cannot be read.
    """
    config, queues = f"{root}/config", f"{root}/consumequeue"
    tables = [name for name in disk.list(config) if disk.exists(f"{config}/{name}/{MARK}")]
    has_queues = disk.exists(f"{queues}/{MARK}")
    if not tables and not has_queues:
        return
    steps = [
        f"`mqadmin rocksDBConfigToJson -p {config} -t {name} -e {config}/{TABLES[name]}`"
        for name in tables
        if name in TABLES
    ]
    parts = [f"the tables {', '.join(tables)}"] if tables else []
    parts += ["the consume queues"] if has_queues else []
    export = f"export the tables with mqadmin first, {', '.join(steps)}; then " if steps else ""
    folders = [f"{config}/{name}" for name in tables] + ([queues] if has_queues else [])
    built = "; the queues are built again from the commit log" if has_queues else ""
    raise ForeignStateError(
        queues if has_queues else f"{config}/{tables[0]}",
        f"{' and '.join(parts)} are in RocksDB (storeType=defaultRocksDB), which this program "
        f"cannot read. While no broker runs, {export}move {', '.join(folders)} out of the data "
        f"folder{built}",
    )
