"""The boot of the machine on which a broker last ran: it tells a power cut from a killed process.

What a killed process has written is in the machine's memory, and comes to the device. After a power
cut the last messages may be missing under ASYNC_FLUSH, though other brokers have them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Final

from ...disk.json_config import read_bytes, write_copy
from ...disk.os_disk import Disk

FILE_NAME: Final = "boot.trocket"

UNKNOWN: Final = ""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""Another text after each start of a Linux kernel; containers see their host's."""


def boot_id() -> str:
    """The present boot of this machine; `UNKNOWN` where the system does not say it."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return UNKNOWN


class BootNote:
    """The note of the boot in a data folder.

    Args:
      root: the data folder.
      current: returns the present boot.
    """

    def __init__(self, disk: Disk, root: str, current: Callable[[], str] = boot_id) -> None:
        self._disk = disk
        self._path = str(PurePosixPath(root) / FILE_NAME)
        self._abort = str(PurePosixPath(root) / "abort")
        self._current = current()

    def may_have_lost_messages(self) -> bool:
        """Whether the machine may have lost its power while the broker ran, before its next start.

        Raises: StoreIOError: the note could not be read.
        """
        if not self._disk.exists(self._abort):
            return False
        if self._current == UNKNOWN or not self._disk.exists(self._path):
            return True
        return read_bytes(self._disk, self._path) != self._current.encode()

    def write(self) -> None:
        """Note the present boot. Raises: StoreIOError: it could not be written."""
        folder = str(PurePosixPath(self._path).parent)
        self._disk.make_folder(folder)
        write_copy(self._disk, self._path, self._current.encode(), private=False)
        self._disk.sync_folder(folder)
