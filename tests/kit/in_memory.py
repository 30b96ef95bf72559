"""Folders in memory, for tests of which the disk's time would be the most."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

MEMORY = Path("/dev/shm")
"""A file system in memory, on Linux; in containers it is often too small."""
FREE_MIN = 1 << 30


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """A new folder, which is removed at the end; on the disk where there is no other place."""
    is_there = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    has_room = is_there and shutil.disk_usage(MEMORY).free >= FREE_MIN
    with TemporaryDirectory(prefix="trocket-", dir=MEMORY if has_room else None) as folder:
        yield Path(folder)
