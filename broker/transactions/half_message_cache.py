"""HalfMessageCache: the newest half messages, so that a commit need not read them back.

A producer ends most transactions within seconds. The cache holds only half messages that this
process stored and committed, and only of the usual kind, whose final message is the same but for
two properties (`half_messages.usual_half`). All others are read from the log at their end: those of
an earlier process, those written again before a check, and those that no longer fit.

The end of a transaction, and a new copy of its half message, remove it from the cache, so one that
is found has not ended.

Pure. Not thread-safe.
"""

from __future__ import annotations

from typing import Final

import msgspec

CACHE_SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of all cached half messages: 6,000 of 2 KiB. A half message that is not cached costs its
end about 25 us more."""

CACHE_PARTS: Final = 64
"""The cache takes at most this part of the memory budget of the broker's connections."""

_ENTRY_SIZE: Final = 900
"""Bytes of one half message without body and properties: numbers, strings, and its dict entry."""


class CachedHalf(msgspec.Struct, gc=False):
    """A half message that can still be ended, as its end needs it.

    Attributes:
      topic, queue_id, body, properties and what follows them: of the message that a commit stores.
      tags_code: of both messages.
      physical_offset, queue_offset: of the half message.
      unique_key, group: values of UNIQ_KEY and PGROUP.
      waits: whether the answer to a commit waits for disk and slaves.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    born_timestamp_ms: int
    born_host: bytes
    sys_flag: int
    tags_code: int
    physical_offset: int
    queue_offset: int
    unique_key: str
    group: str
    waits: bool


class HalfMessageCache:
    """Half messages by their physical offset, as an end names them.

    They are in two generations of equal size; when the younger one is full, the older is dropped.

    Args:
      size_max: bytes of all, about; 0: the cache stays empty.
    """

    def __init__(self, size_max: int) -> None:
        self._part_max = size_max // 2
        self._young: dict[int, CachedHalf] = {}
        self._old: dict[int, CachedHalf] = {}
        self._young_size = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def add(self, half: CachedHalf) -> None:
        """Add a half message that was committed to the log."""
        size = _ENTRY_SIZE + len(half.body) + len(half.properties)
        if self._young_size + size > self._part_max:
            if size > self._part_max:
                return
            # Two generations in place of an order by age, which would cost a step at each look-up.
            self._old, self._young, self._young_size = self._young, {}, 0
        self._young[half.physical_offset] = half
        self._young_size += size

    def find(self, physical_offset: int) -> CachedHalf | None:
        """The half message at a physical offset, which is any number of a client's."""
        return self._young.get(physical_offset) or self._old.get(physical_offset)

    def remove(self, physical_offset: int) -> None:
        """Remove the half message at a physical offset, if it is there."""
        half = self._young.pop(physical_offset, None)
        if half is None:
            self._old.pop(physical_offset, None)
        else:
            self._young_size -= _ENTRY_SIZE + len(half.body) + len(half.properties)


def cache_size(budget: int) -> int:
    """Bytes of the cache of a broker whose connections have a memory budget of `budget` bytes."""
    return min(budget // CACHE_PARTS, CACHE_SIZE_MAX)
