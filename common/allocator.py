"""The C allocator: returns freed memory to the system. It does so with glibc only.

glibc keeps freed blocks inside its heap for the next allocation, and returns only the heap's end to
the system. Larger blocks are mapped separately, and unmapped when they are freed; but the threshold
rises, up to 32 MiB, to the size of each such block that was freed. So after one frame of 16 MiB all
later ones are allocated on the heap, between long-lived blocks. A minute of incomplete frames from
unknown peers, 96 MiB at a time, left a broker of 35 MB with 215 MB, of which `malloc_trim` returned
180: this is not a leak, and no connection holds it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from typing import Final

MAP_SIZE_MIN: Final = 8 * 1024 * 1024
"""Bytes from which a block is always mapped separately: twice the largest message (maxMessageSize).
The first access to a page costs as much as copying it a few times, so the buffers of messages stay
in the heap; larger blocks are tables, or requests of unknown peers."""

HEAP_END_MAX: Final = 64 * 1024 * 1024
"""Bytes that may be free at the heap's end before they are given back: glibc's own threshold after
a block of 32 MiB. Senders of messages of 4 MiB need some 20 MiB in each turn."""

TRIM_MIN: Final = 16 * 1024 * 1024
"""Bytes that connections must have given back before the heap is trimmed. Trimming takes 1 to 50 ms
for 100 MiB, and memory that is needed again costs new pages."""

TRIM_INTERVAL_S: Final = 10.0
"""Least seconds between two trims."""

OWN_SETTINGS: Final = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables by which an operator sets the thresholds; then they are not changed."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
"""Source: glibc, malloc/malloc.h."""


def fix_thresholds(environment: Mapping[str, str] = os.environ) -> bool:
    """Fix glibc's threshold for separately mapped blocks at MAP_SIZE_MIN.

    Returns: whether glibc accepted it.
    """
    if any(name in environment for name in OWN_SETTINGS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl and macOS have none
        return False
    is_mapping = bool(mallopt(_M_MMAP_THRESHOLD, MAP_SIZE_MIN))
    return bool(mallopt(_M_TRIM_THRESHOLD, HEAP_END_MAX)) and is_mapping


def trim_heap() -> None:
    """Return all unused pages of the heap to the system."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # musl and macOS have none
        return


class Trimmer:
    """Trims the heap when much less memory is in use than before.

    Args:
      trim: returns free memory to the system.
    """

    def __init__(self, trim: Callable[[], None] = trim_heap) -> None:
        self._trim = trim
        self._peak = 0
        self._trimmed_s = -TRIM_INTERVAL_S

    def note(self, held: int, held_max: int, now_s: float) -> None:
        """Trim the heap, if enough memory was freed and the interval has passed.

        Args:
          held: bytes in use now by the connections' buffers.
          held_max: the maximum since the last call.
          now_s: on a monotonic clock.
        """
        self._peak = max(self._peak, held_max)
        if self._peak - held >= TRIM_MIN and now_s - self._trimmed_s >= TRIM_INTERVAL_S:
            self._trim()
            self._peak = held
            self._trimmed_s = now_s
