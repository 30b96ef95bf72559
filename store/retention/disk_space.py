"""Disk usage of the store, and the decision to delete files or to refuse sends.

Java counterpart: DefaultMessageStore.CleanCommitLogService.isSpaceToDelete of 5.3.3, with the same
three levels: over `diskMaxUsedSpaceRatio` expired files are deleted at any hour, over
`diskSpaceCleanForciblyRatio` the oldest files are deleted, over `diskSpaceWarningLevelRatio` sends
are refused. Apache silently limits the last two to 85 and 90; here the configured values apply.
Apache's ratios are of the whole partition, including other programs' files, and are meant for a
disk that only the broker uses. A laptop's disk is often 91 % full with 50 GB free: at their
defaults the last two apply here only while less than `diskFreeBytesEnough` is free.

`decide` is pure; only `measure` reads the disk.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...disk.os_disk import Disk
from ..config import MessageStoreConfig

CLEAN_RATIO_DEFAULT = 85
WARNING_RATIO_DEFAULT = 90
"""RocketMQ's defaults, for which `diskFreeBytesEnough` applies."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Partition:
    """The partition of a folder of the store.

    Attributes:
      used, free: bytes; see `disk.Space`.
    """

    folder: str
    used: int
    free: int

    @property
    def used_percent(self) -> int:
        """0 to 100, rounded up; 0 where the file system does not report it.

        Source: RocketMQ 5.3.3 common/UtilAll.java getDiskPartitionSpaceUsedPercent.
        """
        return -(-self.used * 100 // max(self.used + self.free, 1))

    def excess(self, percent: int) -> int:
        """Bytes above this percentage."""
        return max(self.used - (self.used + self.free) * percent // 100, 0)


@dataclass(frozen=True, slots=True)
class DiskUse:
    """The disk usage of the store.

    Attributes:
      partitions: of the commit log's folder, then of the data folder.
      own_bytes: of the store's files; -1 if not counted (`storeBytesMax` is 0).
    """

    partitions: tuple[Partition, ...]
    own_bytes: int = -1


@dataclass(frozen=True, slots=True)
class SpaceDecision:
    """Actions against a full disk, each with its reason; "": not necessary.

    Attributes:
      reclaim: why expired files are deleted at any hour.
      clean: why the oldest files are deleted, expired or not.
      excess: with `clean`, bytes of the commit log to delete.
      refuse: why sends are refused, and what to do; for remarks.
    """

    reclaim: str = ""
    clean: str = ""
    excess: int = 0
    refuse: str = ""


def measure(disk: Disk, config: MessageStoreConfig) -> DiskUse:
    """Read the disk usage; may be slow, and may run in a worker thread.

    Raises:
      StoreIOError: it could not be read.
    """
    root, log_folder = config.store_path_root_dir, config.commit_log_folder
    partitions = []
    for folder in (log_folder, root):
        if disk.exists(folder):
            space = disk.space(folder)
            partitions.append(Partition(folder, space.used, space.free))
    own_bytes = -1
    if config.store_bytes_max:
        own_bytes = disk.used_bytes(root)
        if not log_folder.startswith(root.rstrip("/") + "/"):
            own_bytes += disk.used_bytes(log_folder)
    return DiskUse(tuple(partitions), own_bytes)


def decide(use: DiskUse, config: MessageStoreConfig, *, next_file_bytes: int) -> SpaceDecision:
    """The actions for a disk usage.

    Args:
      next_file_bytes: size of the next commit log file; 0 when it exists already.
    """
    reclaim, clean, refuse = "", "", ""
    excess = 0
    clean_ratio = config.disk_space_clean_forcibly_ratio
    warning_ratio = config.disk_space_warning_level_ratio
    enough = config.disk_free_bytes_enough
    for partition in use.partitions:
        percent = partition.used_percent
        if percent > config.disk_max_used_space_ratio:
            reclaim = reclaim or _over(partition, "diskMaxUsedSpaceRatio")
        is_log = partition.folder == config.commit_log_folder
        for ratio, default, key in (
            (clean_ratio, CLEAN_RATIO_DEFAULT, "diskSpaceCleanForciblyRatio"),
            (warning_ratio, WARNING_RATIO_DEFAULT, "diskSpaceWarningLevelRatio"),
        ):
            by_default = ratio == default and enough > 0
            if percent <= ratio or (by_default and partition.free >= enough):
                continue
            over = partition.excess(ratio)
            if by_default:
                over = min(over, enough - partition.free)
            # On another partition than the log's only queue files are freed: one log file a pass.
            excess = max(excess, over if is_log else 1)
            clean = clean or _over(partition, key)
            if key == "diskSpaceWarningLevelRatio":
                refuse = refuse or _refusal(partition, ratio, enough if by_default else 0)
    limit = config.store_bytes_max
    if limit and use.own_bytes + next_file_bytes > limit:
        clean = clean or (
            f"the store takes {_size(use.own_bytes)} of storeBytesMax={_size(limit)} and needs "
            "room for the next file"
        )
        excess = max(excess, use.own_bytes + next_file_bytes - limit)
    if limit and use.own_bytes > limit:
        refuse = refuse or (
            f"this broker's store takes {_size(use.own_bytes)}, more than "
            f"storeBytesMax={_size(limit)} allows, and nothing more may be deleted for now; raise "
            "storeBytesMax, or allow older messages to be deleted (cleanFileForciblyEnable, "
            "fileReservedTime). Sends are accepted again once there is room"
        )
    return SpaceDecision(reclaim, clean, excess, refuse)


def _over(partition: Partition, key: str) -> str:
    return f"{key}: the disk of {partition.folder} is {partition.used_percent} % full"


def _refusal(partition: Partition, ratio: int, enough: int) -> str:
    low = f" with less than diskFreeBytesEnough={_size(enough)} free" if enough else ""
    return (
        f"the disk of {partition.folder} is {partition.used_percent} % full, "
        f"{_size(partition.free)} are free; more than diskSpaceWarningLevelRatio={ratio} % is "
        f"not allowed{low}. Free some space there or change the limit; sends are accepted again "
        "once there is room"
    )


def _size(count: int) -> str:
    value = float(count)
    for unit in _UNITS[:-1]:
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_UNITS[-1]}"
