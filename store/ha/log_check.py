"""Whether two logs are the same where both have bytes, and where they part if not.

A slave that followed another master, or outlived a power cut that its master did not get over
without losses (ASYNC_FLUSH), has other messages at the offsets of its new master's. Apache's two
then either stand still for ever, or go on and are never the same again (L14). Ours compare the last
bytes of the slave's log when it connects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from zlib import crc32

import trio

from ..log.commit_log import CommitLog
from ..offsets import Position

CHECKED_SIZE = 8 * 1024 * 1024
"""Bytes compared at the end of a slave's log: the longest usual record (maxMessageSize, 4 MiB) with
its head, where the time is that tells two attempts to send one message apart."""

STEP_SIZE = 64 * 1024
"""Bytes compared at a time while the place is looked for where logs part."""

QUESTIONS_MAX = 100
"""Checksums that a slave may ask for at one connection: 1 + log2 of the largest log in steps."""

_SLICE = 1024 * 1024

Same = Callable[[int, int], Awaitable[bool]]
"""Whether both logs have the same bytes in [start, end), or cannot be compared there."""


async def checksum(log: CommitLog, start: int, end: int) -> int | None:
    """CRC32 of [start, end) of a log; None when it does not have all of it.

    Others have their turn every MiB.

    Raises:
      StoreIOError: a file could not be read.
    """
    crc = 0
    while start < end:
        base = start - start % log.file_size
        size = min(end - start, _SLICE, base + log.file_size - start)
        if base not in log.files:
            return None
        crc = crc32(log.files[base].pread(size, Position(start - base)), crc)
        start += size
        await trio.lowlevel.checkpoint()
    return crc


async def parting_offset(same: Same, begin: int, end: int) -> int | None:
    """Physical offset of the first byte in which two logs differ; None: their ends are the same.

    Logs that differ somewhere are taken to differ in every step behind that.

    Args:
      begin, end: what of the log is there to compare.
    """
    if begin >= end or await same(max(begin, end - CHECKED_SIZE), end):
        return None
    low, high = begin, end
    while high - low > STEP_SIZE:
        middle = (low + high) // 2
        if await same(max(begin, middle - STEP_SIZE), middle):
            low = middle
        else:
            high = middle
    # What lies before `low` is the same, so what begins there tells exactly.
    while high - low > 1:
        middle = (low + high) // 2
        if await same(low, middle):
            low = middle
        else:
            high = middle
    return low
