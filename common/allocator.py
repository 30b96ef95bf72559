"""The C allocator: returns freed memory to the system. It does so with glibc only.

glibc keeps what is freed inside its heap for the next allocation, and gives back only the heap's
end. Larger blocks it maps by themselves, and unmaps them when they are freed; but the size from
which it does so rises, up to 32 MiB, to that of each such block that was freed. So after one frame
of 16 MiB all later ones come out of the heap, between blocks that live long. A minute of strangers'
half frames, 96 MiB at a time, left a broker of 35 MB with 215 MB, of which `malloc_trim` gave 180
back: that is no leak, and no connection holds it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from typing import Final

MAP_SIZE_MIN: Final = 8 * 1024 * 1024
"""Bytes of a block that is mapped by itself, for good: twice the largest message (maxMessageSize).
The first touch of a page costs as much as copying it a few times, so the buffers of messages stay
in the heap; what is larger is tables, or a stranger's."""

HEAP_END_MAX: Final = 64 * 1024 * 1024
"""Bytes that may be free at the heap's end before they are given back: glibc's own threshold after
a block of 32 MiB. Senders of messages of 4 MiB need some 20 MiB in each turn."""

TRIM_MIN: Final = 16 * 1024 * 1024
"""Bytes that connections must have given back before the heap is trimmed. Trimming takes 1 to 50 ms
for 100 MiB, and what is needed again costs new pages."""

TRIM_INTERVAL_S: Final = 10.0
"""Seconds between two trims at least."""

OWN_SETTINGS: Final = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables by which an operator sets the thresholds; then they are left alone."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
"""Source: glibc, malloc/malloc.h."""


def fix_thresholds(environment: Mapping[str, str] = os.environ) -> bool:
    """Have glibc map blocks of MAP_SIZE_MIN by themselves, whatever was freed before.

    Args:
      environment: the process's.
    Returns: whether it does.
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
    """Give back all pages of the heap that nothing is on."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # musl and macOS have none
        return


class Trimmer:
    """Trims the heap when much less is held than was.

    Args:
      trim: gives back what is free.
    """

    def __init__(self, trim: Callable[[], None] = trim_heap) -> None:
        self._trim = trim
        self._peak = 0
        self._trimmed_s = -TRIM_INTERVAL_S

    def note(self, held: int, held_max: int, now_s: float) -> None:
        """Trim the heap, if it is time.

        Args:
          held: bytes that are held now, by whatever may hold much and let go of it.
          held_max: the most that was held since the last call.
          now_s: on a clock that never goes back.
        """
        self._peak = max(self._peak, held_max)
        if self._peak - held >= TRIM_MIN and now_s - self._trimmed_s >= TRIM_INTERVAL_S:
            self._trim()
            self._peak = held
            self._trimmed_s = now_s
