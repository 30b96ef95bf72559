"""Comparison of a slave's log with its master's, and the search for the first difference.

A slave that followed another master, or whose master lost messages in a power cut (ASYNC_FLUSH),
has other messages at the same offsets. With Apache's brokers replication then either stops for
ever, or continues with different logs (L14). trocket's brokers compare the last bytes of the
slave's log when it connects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from zlib import crc32

import trio

from ...disk.position import Position
from ..log.commit_log import CommitLog

CHECKED_SIZE = 8 * 1024 * 1024
"""Bytes compared at the end of a slave's log: more than the longest usual record (maxMessageSize, 4
MiB) with its head, whose timestamp distinguishes two attempts to send one message."""

STEP_SIZE = 64 * 1024
"""Bytes compared at a time in the search for the first difference."""

QUESTIONS_MAX = 100
"""Checksums that a slave may ask for at one connection: 1 + log2 of the largest log in steps."""

_SLICE = 1024 * 1024

IsSame = Callable[[int, int], Awaitable[bool]]
"""Whether both logs have the same bytes in [start, end), or cannot be compared there."""


async def checksum(log: CommitLog, start: int, end: int) -> int | None:
    """CRC32 of [start, end) of a log; None when it does not have all of these bytes.

    Other tasks run after every MiB.

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


async def first_difference(same: IsSame, begin: int, end: int) -> int | None:
    """Physical offset of the first byte in which two logs differ; None: their ends are the same.

    A binary search, which assumes that logs differ in every step after the first difference.

    Args:
      begin, end: the range to compare, physical offsets.
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
    # Everything before `low` is the same: search byte by byte from there.
    while high - low > 1:
        middle = (low + high) // 2
        if await same(low, middle):
            low = middle
        else:
            high = middle
    return low
