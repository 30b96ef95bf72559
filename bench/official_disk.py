"""The disk under the official benchmark: blocks of log files that nothing reads are freed.

BatchProducer writes some 100 MB a second, and at 75 % of the disk both brokers begin to delete
files. `LogTrimmer` punches holes into the old files of the commit log instead: they keep their
names and sizes, and neither broker notices. Linux only.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from trocket.interop.process import PeerError

KEPT_FILES = 6
"""The newest log files keep their blocks: up to a minute of the fastest program, of which
transactions are checked, queues dispatched and the index is built. A broker of ours whose index is
further behind gives it up and logs an error, which ends the workload (`check_log`)."""

USED_MAX = 0.72
"""Of the disk: at 0.75 brokers begin to delete files (diskMaxUsedSpaceRatio)."""

PUNCH_TIMEOUT_S = 60.0


def old_files(log: Path) -> list[Path]:
    """The files of a commit log but the newest `KEPT_FILES`, by their names of 20 digits."""
    names = sorted(path for path in log.iterdir() if path.name.isdecimal())
    return names[:-KEPT_FILES]


def used_share(folder: Path) -> float:
    """The share of the disk that is in use, as `df` and the brokers count it."""
    usage = shutil.disk_usage(folder)
    return usage.used / max(usage.used + usage.free, 1)


class LogTrimmer:
    """Frees the blocks of old commit log files in one folder.

    Args:
      is_read: consumers read the log, so nothing is freed.
      used: the share of the disk that is in use.
    """

    def __init__(
        self, folder: Path, *, is_read: bool, used: Callable[[Path], float] = used_share
    ) -> None:
        self._folder = folder
        self._is_read = is_read
        self._used = used
        self._freed: set[Path] = set()

    def trim(self) -> None:
        """Free what is old. Raises: PeerError: the disk is so full that brokers would delete."""
        if not self._is_read:
            for log in self._folder.glob("cluster/**/commitlog"):
                for path in old_files(log):
                    self._free(path)
        used = self._used(self._folder)
        if used > USED_MAX:
            raise PeerError(
                f"the disk of {self._folder} is {used:.0%} full; above {USED_MAX:.0%} brokers"
                " begin to delete files: free some space"
            )

    def _free(self, path: Path) -> None:
        if path in self._freed:
            return
        self._freed.add(path)
        # Without the program, or without holes in this file system, the disk stays as full as it
        # is, which `trim` reports in time.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            length = str(path.stat().st_size)
            subprocess.run(
                ["fallocate", "--punch-hole", "--offset", "0", "--length", length, str(path)],
                check=False,
                capture_output=True,
                timeout=PUNCH_TIMEOUT_S,
            )
