"""`trocket broker` on a disk that is full while a file exists: for machines that may not mount.

Used as `python quota_broker.py FULL_FILE broker -c FILE`. While FULL_FILE is there nothing gets a
new block: no file is made, and none is written to behind its blocks.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

BLOCK_SIZE = 512
"""Of `st_blocks`, whatever the file system's own is."""


def limit(full_file: str) -> None:
    """Have the calls of this process fail that would need a block."""
    make, write, allocate = os.open, os.pwrite, os.posix_fallocate

    def full() -> None:
        if Path(full_file).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def limited_open(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT and not Path(path).exists():
            full()
        return make(path, flags, *more, **named)

    def limited_write(fd: int, data: Any, position: int) -> int:
        if position + len(data) > os.fstat(fd).st_blocks * BLOCK_SIZE:
            full()
        return write(fd, data, position)

    def limited_allocate(fd: int, position: int, size: int) -> None:
        full()
        allocate(fd, position, size)

    os.open, os.pwrite, os.posix_fallocate = (
        limited_open, limited_write, limited_allocate,
    )  # fmt: skip


if __name__ == "__main__":
    limit(sys.argv[1])
    from trocket.cli.main import main

    sys.exit(main(sys.argv[2:]))
