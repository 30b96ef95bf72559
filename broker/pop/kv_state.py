"""The check of a data folder for pop state in RocksDB, which this broker cannot read.

RocketMQ's broker with `popConsumerKVServiceEnable` keeps what consumers popped and did not
acknowledge in the folder `kvStore`, not in the revive topic.

Source: RocketMQ 5.5.0 broker/pop/PopConsumerService.java, PopConsumerRocksdbStore.java.
"""

from __future__ import annotations

from typing import Final

from ...disk.errors import ForeignStateError
from ...disk.os_disk import Disk

KV_FOLDER: Final = "kvStore"


def refuse_kv_state(disk: Disk, root: str) -> None:
    """Refuse a data folder whose kvStore has records.

    Only its files are looked at: a broker that was started with popConsumerKVServiceInit and never
    used it leaves a database without tables and with an empty log.

    Args:
      disk: has the folder.
      root: storePathRootDir.
    Raises:
      ForeignStateError: it may have records; the message says what to do.
      StoreIOError: the folder cannot be read.
    """
    folder = f"{root}/{KV_FOLDER}"
    if not any(_has_records(disk, f"{folder}/{name}") for name in disk.list(folder)):
        return
    raise ForeignStateError(
        folder,
        "RocketMQ's broker keeps popped messages that are not acknowledged here "
        "(popConsumerKVServiceEnable), and this broker cannot read them, so they would never be "
        "delivered again. Start RocketMQ's broker with popConsumerKVServiceInit=true and "
        "popConsumerKVServiceEnable=false, run `mqadmin exportPopRecord -b HOST:PORT` (its option "
        f"-d works the wrong way round), stop the broker, and move {KV_FOLDER} out of the data "
        "folder",
    )


def _has_records(disk: Disk, path: str) -> bool:
    """Whether a file of RocksDB is a table, or a write-ahead log with content."""
    if path.endswith(".sst"):
        return True
    if not path.endswith(".log"):
        return False
    file = disk.open(path)
    try:
        return file.size() > 0
    finally:
        file.close()
