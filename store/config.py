"""The store's keys of broker.conf: RocketMQ's names in snake_case, its types, its defaults.

Java counterpart: store/config/MessageStoreConfig.java of 5.3.3. `mappedFileSizeCommitLog` in a file
is `mapped_file_size_commit_log` here. Sizes are bytes, intervals and timeouts milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class FlushDiskType(Enum):
    """Whether a send is answered before (ASYNC) or after (SYNC) its bytes are on the device."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class BrokerRole(Enum):
    """What the broker is in its group."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(slots=True)
class MessageStoreConfig:
    """What the store can be told.

    Attributes:
      store_path_root_dir: the data folder.
      store_path_commit_log: folder of the commit log; "" = `commitlog` in the data folder.
      mapped_file_size_commit_log: bytes of one commit log file.
      mapped_file_size_consume_queue: bytes of one queue file; rounded up to whole 20 B units.
      flush_interval_commit_log: ms between fsyncs of the log under ASYNC_FLUSH.
      flush_interval_consume_queue: ms between looks for queues with a page of units that are in
        memory only; never more than 200. Apache's default is 1000.
      flush_consume_queue_thorough_interval: ms, at most, between writes and fsyncs of the queue
        files and of the checkpoint; ours also come every 10 s, because recovery starts there.
      sync_flush_timeout: ms until a send under SYNC_FLUSH is answered FLUSH_DISK_TIMEOUT.
      max_message_size: bytes of a body.
      max_filter_message_size: bytes of queue units that one get looks through, at least.
      check_crc_on_recover: recompute body checksums of what recovery reads.
      access_message_in_memory_max_ratio: percent of the machine's memory; records this near to the
        end of the log count as in memory.
      max_hash_slot_num, max_index_num: slots and entries of one index file.
      max_msgs_num_batch: most messages that one query by key answers.
      message_delay_level: durations of the delay levels, blank-separated, first is level 1.
    """

    store_path_root_dir: str = str(Path.home() / "store")
    store_path_commit_log: str = ""
    mapped_file_size_commit_log: int = 1024 * 1024 * 1024
    mapped_file_size_consume_queue: int = 300_000 * 20
    flush_interval_commit_log: int = 500
    flush_interval_consume_queue: int = 1000
    flush_consume_queue_thorough_interval: int = 60_000
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    sync_flush_timeout: int = 5_000
    max_message_size: int = 4 * 1024 * 1024
    max_filter_message_size: int = 16_000
    check_crc_on_recover: bool = True
    max_transfer_bytes_on_message_in_memory: int = 256 * 1024
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 64 * 1024
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    message_index_enable: bool = True
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    max_msgs_num_batch: int = 64
    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    offset_check_in_slave: bool = False
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

    @property
    def commit_log_folder(self) -> str:
        """Folder of the commit log files."""
        return self.store_path_commit_log or f"{self.store_path_root_dir}/commitlog"

    @property
    def queue_file_size(self) -> int:
        """Bytes of one queue file: whole units."""
        return -(-self.mapped_file_size_consume_queue // 20) * 20
