"""A broker whose disk can be full and whose clock can be stepped while it runs, by files.

    python -m trocket.bench.chaos_broker broker -c FOLDER/broker.conf

It is `trocket broker` but for that: while there is a file `disk-is-full` in the folder of
broker.conf, all that takes room on the disk fails as on a full one (ENOSPC); a number in a file
`clock-is-off` is added to the wall clock, in milliseconds. So a chaos run needs neither a separate
partition nor the right to set the machine's clock.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import trocket.common.clock
import trocket.disk.os_disk
from trocket.cli.main import main
from trocket.common.clock import SystemClock, WallTimeMs
from trocket.testing.disks import EmbeddedFolderDisk

DISK_IS_FULL: Final = "disk-is-full"
CLOCK_IS_OFF: Final = "clock-is-off"
READ_EVERY_S: Final = 0.1
"""The clock is read thousands of times a second, the file no oftener than this."""
TAKES_ROOM: Final = frozenset({"allocate", "pwrite", "resize", "make_folder"})


class FullAtTimes(EmbeddedFolderDisk):
    """The machine's disk, full while there is a file."""

    def __init__(self) -> None:
        super().__init__()
        self.fault = self._refused

    def _refused(self, operation: str, path: str) -> OSError | None:
        if operation in TAKES_ROOM and is_full.exists():
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return None


class Stepped(SystemClock):
    """The machine's clock and what a file says."""

    def __init__(self) -> None:
        self._off_ms = 0
        self._read_s = 0.0

    def wall_ms(self) -> WallTimeMs:
        """Milliseconds since 1970 UTC, and what the file says."""
        now_s = time.monotonic()
        if now_s - self._read_s >= READ_EVERY_S:
            self._read_s = now_s
            with suppress(OSError, ValueError):
                self._off_ms = int(is_off.read_text())
        return WallTimeMs(super().wall_ms() + self._off_ms)


if __name__ == "__main__":
    folder = Path(sys.argv[-1]).parent
    is_full, is_off = folder / DISK_IS_FULL, folder / CLOCK_IS_OFF
    # The command makes its disk and its clock by these names, when it runs.
    trocket.disk.os_disk.OsDisk = FullAtTimes  # type: ignore[misc]
    trocket.common.clock.SystemClock = Stepped  # type: ignore[misc]
    sys.exit(main())
