"""The store's keys of broker.conf: RocketMQ's names in snake_case, its types, its defaults.

Java counterpart: store/config/MessageStoreConfig.java of 5.3.3. `mappedFileSizeCommitLog` in a file
is `mapped_file_size_commit_log` here. Sizes are bytes, intervals and timeouts milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ..common.config import Bounds, setting
from ..common.delay_levels import MESSAGE_DELAY_LEVEL

HA_BATCH_SIZE_MAX = 4 * 1024 * 1024 - 12
"""Bytes of the log in one frame to a slave, at most: Apache's slave has a buffer of 4 MiB for a
frame and its header, and stands still for ever when one does not fit."""


class FlushDiskType(Enum):
    """The time of a send's answer: before (ASYNC) or after (SYNC) its bytes are on the device."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class BrokerRole(Enum):
    """The broker's role in its group."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(slots=True)
class MessageStoreConfig:
    """Settings of the store.

    Attributes:
      store_path_commit_log: folder of the commit log; "" = `commitlog` in the data folder.
      mapped_file_size_commit_log: bytes of one commit log file.
      preallocate_commit_log: ours. Reserve a commit log file's blocks when it is made, so that no
        write to it can run out of space; else it takes the bytes that are written, as RocketMQ's.
      mapped_file_size_consume_queue: bytes of one queue file; rounded up to whole 20 B units.
      flush_interval_commit_log: ms between fsyncs of the log under ASYNC_FLUSH.
      flush_interval_consume_queue: ms between scans for queues with a page of units that are in
        memory only; never more than 200. Apache's default is 1000.
      flush_consume_queue_thorough_interval: ms, at most, between writes and fsyncs of the queue
        files and of the checkpoint; ours also come every 10 s, because recovery starts there.
      sync_flush_timeout: ms until a send under SYNC_FLUSH is answered FLUSH_DISK_TIMEOUT.
      enable_consume_queue_ext: write a consume queue extension unit for each message.
      mapped_file_size_consume_queue_ext: bytes of one extension file, at most 2 GiB.
      mapper_file_size_batch_consume_queue: bytes of one batch queue file; rounded up to whole 46 B
        units. (The `mapper` is RocketMQ's.)
      max_message_size: bytes of a body.
      max_filter_message_size: bytes of queue units that one get scans, at least.
      warm_maped_file_enable: fill the next commit log file with zeros before it is used: an fsync
        of bytes written over is two times as fast as one that turns reserved blocks into written
        ones, and every byte of the log is written twice. (The spelling is RocketMQ's.)
      zero_ahead_size: ours. Bytes of zeros that are written behind the end of the log under
        SYNC_FLUSH, for the same reason; 0: none. A warmed file needs none.
      check_crc_on_recover: recompute body checksums of what recovery reads.
      verify_old_records: recompute checksums of messages that were there when the store was opened,
        and compare them with their queue, whenever one is served (ours; RocketMQ does neither).
      enabled_append_prop_crc: end the properties of every record in a checksum of the whole record,
        as RocketMQ 5 does; consumers see it as the property __CRC32#. False: only records whose
        properties hold a NUL byte get it.
      access_message_in_memory_max_ratio: percent of the machine's memory; records this near to the
        end of the log count as in memory.
      max_hash_slot_num, max_index_num: slots and entries of one index file.
      max_msgs_num_batch: most messages that one query by key answers.
      flush_delay_offset_interval: ms between two saves of the progress of delayed messages.
      timer_wheel_enable: accept timer messages (TIMER_DELAY_SEC, TIMER_DELAY_MS,
        TIMER_DELIVER_MS).
      timer_precision_ms: they are delivered at whole multiples of it, never before their time.
      timer_max_delay_sec: the longest delay of a timer message.
      timer_flush_interval_ms: ms between two saves of their delivery progress.
      message_delay_level: durations of the delay levels, blank-separated, first is level 1.
      delete_when: hours of the day, local time, in which expired commit log files are deleted,
        `;`-separated, 0 to 23.
      file_reserved_time: hours after which a commit log file is expired, counted from its newest
        message.
      disk_max_used_space_ratio: percent; where the partition is fuller, expired files are deleted
        at any hour.
      disk_space_clean_forcibly_ratio: percent; where it is fuller, the oldest files are deleted
        even if they are not expired, if `clean_file_forcibly_enable`.
      disk_space_warning_level_ratio: percent; where it is fuller, sends are refused as well.
      clean_file_forcibly_enable: whether messages that are not expired may be deleted for space.
      disk_free_bytes_enough: ours. The last two ratios, left at RocketMQ's 85 and 90, count only
        while less than this is free on the partition, bytes; another ratio counts as it is. 0:
        they always count, as in RocketMQ.
      store_bytes_max: ours. Bytes that the data folder and the commit log may take on disk, at
        least three commit log files; 0: no limit. Over it the oldest files are deleted as over
        `disk_space_clean_forcibly_ratio`; sends are refused where that does not help.
      clean_resource_interval: ms between two retention passes.
      delete_commit_log_files_interval, delete_consume_queue_files_interval: ms between two
        deletions, so that the disk has time for other work.
      delete_file_batch_max: commit log files deleted in one retention pass, at most.
      broker_role: a SYNC_MASTER answers a send when slaves have it, an ASYNC_MASTER does not wait
        for them, a SLAVE takes no sends.
      ha_listen_port: where slaves connect to a master; 0: the broker's listenPort + 1.
      ha_listen_address: ours. Local address to listen on for them; 0.0.0.0 = all. A peer that
        reaches it can copy every message, so the default is this machine only (Apache's listens on
        all addresses).
      ha_allowed_slaves: ours. Addresses and networks that slaves may come from, `;`-separated, such
        as `192.0.2.7;10.0.0.0/8`; "": any.
      ha_tls_enable: ours. Master and slaves speak TLS on that port, and check each other's
        certificate; Apache's brokers cannot.
      ha_tls_cert_path, ha_tls_key_path: PEM files: this broker's certificate, with those between it
        and the authority behind it, and its key, without a password.
      ha_tls_trust_cert_path: PEM file: the authority by which the other side's certificate must be
        signed.
      ha_master_address: `host:port` of the master's haListenPort; "": the name servers know it.
      ha_send_heartbeat_interval: ms without a write after which either side sends a heartbeat.
      ha_housekeeping_interval: ms without a read after which either side closes the connection.
      ha_transfer_batch_size: bytes of the log in one frame. More than 4 MiB - 12 would never fit
        into the buffer of Apache's slave.
      ha_max_gap_not_in_sync: bytes that a slave may be behind and still count as available. (4.x:
        haSlaveFallbehindMax.)
      ha_flow_control_enable, max_ha_transfer_byte_in_second: limit the bytes that each slave is
        sent in a second.
      ha_log_check_enable: ours. A slave compares its log with the master's when it connects, and
        stops where they differ; only where the master is trocket, too.
      slave_timeout: ms until a send to a SYNC_MASTER is answered FLUSH_SLAVE_TIMEOUT.
      in_sync_replicas: brokers, the master among them, that must have a message before a
        SYNC_MASTER answers success. 1 means 2, too: a SYNC_MASTER always waits for a slave (5.x
        does not with 1).
      all_ack_in_sync_state_set: in controller mode, whether a send succeeds only when all of the
        in-sync set have it. RocketMQ: false, with which acknowledged messages can be lost.
      min_in_sync_replicas: in controller mode, sends are refused while fewer are in sync.
      ha_max_time_slave_not_catchup: in controller mode, a slave that did not have the whole log for
        this long leaves the in-sync set.
      async_learner: in controller mode, this broker never joins the in-sync set.
      store_path_epoch_file, store_path_broker_identity: files of controller mode; "":
        `epochFileCheckpoint` and `brokerIdentity` in the data folder.
      sync_from_last_file: whether an empty slave is sent the newest file only, as Apache's master
        does without a controller whatever this key says; else the whole log.
      slave_ack_after_flush: ours. Whether a slave under SYNC_FLUSH acknowledges only bytes that are
        on its device; Apache's acknowledges bytes that it has read.
    """

    store_path_root_dir: str = setting(str(Path.home() / "store"), guarded="is a path of files")
    store_path_commit_log: str = setting("", guarded="is a path of files")
    mapped_file_size_commit_log: int = setting(1024 * 1024 * 1024, minimum=1, clamp=None)
    preallocate_commit_log: bool = True
    mapped_file_size_consume_queue: int = setting(300_000 * 20, minimum=1, clamp=None)
    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext: int = setting(48 * 1024 * 1024, minimum=1, clamp=None)
    mapper_file_size_batch_consume_queue: int = setting(300_000 * 46, minimum=1, clamp=None)
    flush_interval_commit_log: int = setting(500, minimum=1, live=True)
    flush_interval_consume_queue: int = setting(1000, minimum=1, live=True)
    flush_consume_queue_thorough_interval: int = setting(60_000, minimum=1, live=True)
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    sync_flush_timeout: int = setting(5_000, minimum=0)
    max_message_size: int = setting(4 * 1024 * 1024, minimum=1, live=True)
    max_filter_message_size: int = setting(16_000, minimum=1, live=True)
    warm_maped_file_enable: bool = False
    zero_ahead_size: int = setting(1024 * 1024, minimum=0)
    check_crc_on_recover: bool = True
    enabled_append_prop_crc: bool = False
    verify_old_records: bool = setting(True, live=True)
    max_transfer_bytes_on_message_in_memory: int = setting(256 * 1024, minimum=1)
    max_transfer_count_on_message_in_memory: int = setting(32, minimum=1)
    max_transfer_bytes_on_message_in_disk: int = setting(64 * 1024, minimum=1, live=True)
    max_transfer_count_on_message_in_disk: int = setting(8, minimum=1, live=True)
    access_message_in_memory_max_ratio: int = setting(40, minimum=0, maximum=100)
    message_index_enable: bool = True
    max_hash_slot_num: int = setting(5_000_000, minimum=1, clamp=None)
    max_index_num: int = setting(20_000_000, minimum=1, clamp=None)
    max_msgs_num_batch: int = setting(64, minimum=1, live=True)
    offset_check_in_slave: bool = False
    delete_when: str = setting("04", live=True)
    file_reserved_time: int = setting(72, minimum=0, live=True, clamp=None)
    disk_max_used_space_ratio: int = setting(
        75, minimum=1, maximum=100, live=True, clamp=Bounds(10, 95)
    )
    disk_space_clean_forcibly_ratio: int = setting(
        85, minimum=1, maximum=100, live=True, clamp=Bounds(30, 85)
    )
    disk_space_warning_level_ratio: int = setting(
        90, minimum=1, maximum=100, live=True, clamp=Bounds(35, 90)
    )
    clean_file_forcibly_enable: bool = setting(True, live=True)
    disk_free_bytes_enough: int = setting(4 * 1024 * 1024 * 1024, minimum=0, live=True)
    store_bytes_max: int = setting(0, minimum=0, live=True)
    clean_resource_interval: int = setting(10_000, minimum=100, live=True)
    delete_commit_log_files_interval: int = setting(100, minimum=0, live=True)
    delete_consume_queue_files_interval: int = setting(100, minimum=0, live=True)
    delete_file_batch_max: int = setting(10, minimum=1, live=True)
    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    ha_listen_port: int = setting(0, minimum=0, maximum=65_535, clamp=None)
    ha_listen_address: str = setting("127.0.0.1", guarded="decides who can copy the log")
    ha_allowed_slaves: str = setting("", guarded="decides who may copy the log")
    ha_tls_enable: bool = setting(False, guarded="protects the copies of the log")
    ha_tls_cert_path: str = setting("", guarded="is a path of files")
    ha_tls_key_path: str = setting("", guarded="is a path of files")
    ha_tls_trust_cert_path: str = setting("", guarded="is a path of files")
    ha_master_address: str = ""
    ha_send_heartbeat_interval: int = setting(5_000, minimum=1)
    ha_housekeeping_interval: int = setting(20_000, minimum=1)
    ha_transfer_batch_size: int = setting(
        32 * 1024, minimum=1, maximum=HA_BATCH_SIZE_MAX, live=True
    )
    ha_max_gap_not_in_sync: int = setting(256 * 1024 * 1024, minimum=0, live=True)
    ha_flow_control_enable: bool = False
    max_ha_transfer_byte_in_second: int = setting(100 * 1024 * 1024, minimum=1)
    ha_log_check_enable: bool = True
    slave_timeout: int = setting(3_000, minimum=0)
    in_sync_replicas: int = setting(1, minimum=1)
    all_ack_in_sync_state_set: bool = True
    min_in_sync_replicas: int = setting(1, minimum=1)
    ha_max_time_slave_not_catchup: int = setting(15_000, minimum=1)
    async_learner: bool = False
    store_path_epoch_file: str = setting("", guarded="is a path of files")
    store_path_broker_identity: str = setting("", guarded="is a path of files")
    sync_from_last_file: bool = setting(False, live=True)
    slave_ack_after_flush: bool = True
    flush_delay_offset_interval: int = setting(10_000, minimum=1, live=True)
    timer_wheel_enable: bool = True
    timer_precision_ms: int = setting(1_000, minimum=1)
    timer_max_delay_sec: int = setting(3 * 24 * 3600, minimum=1, live=True)
    timer_flush_interval_ms: int = setting(1_000, minimum=1, live=True)
    message_delay_level: str = MESSAGE_DELAY_LEVEL

    @property
    def commit_log_folder(self) -> str:
        return self.store_path_commit_log or f"{self.store_path_root_dir}/commitlog"

    @property
    def epoch_file(self) -> str:
        """Path of the file of epochs, of controller mode."""
        return self.store_path_epoch_file or f"{self.store_path_root_dir}/epochFileCheckpoint"

    @property
    def identity_file(self) -> str:
        """Path of the file with the permanent id, of controller mode."""
        return self.store_path_broker_identity or f"{self.store_path_root_dir}/brokerIdentity"

    @property
    def queue_file_size(self) -> int:
        """Bytes of one queue file: whole units."""
        return -(-self.mapped_file_size_consume_queue // 20) * 20

    @property
    def batch_queue_file_size(self) -> int:
        """Bytes of one batch queue file: whole units."""
        return -(-self.mapper_file_size_batch_consume_queue // 46) * 46
