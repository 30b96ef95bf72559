"""The tags codes of a queue's newest messages, for long polls with a tag filter. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...disk.errors import StoreIOError
from ..format import UNIT
from .consume_queue import ConsumeQueue

NEW_UNITS_MAX: Final = 1_000
"""Units that are scanned; where more are new, all waiting pulls are woken."""


def tags_codes_since(
    queues: Mapping[tuple[str, int], ConsumeQueue], key: tuple[str, int], queue_offset: int
) -> tuple[frozenset[int] | None, int]:
    """The tags codes of a queue's messages from an offset on.

    Args:
      queues: by topic and queue id.
      key: of the queue, which may be missing.
      queue_offset: any number.
    Returns: the codes, or None where the units do not hold them or were not scanned (queues of
      batches and with an extension, units from before the start, more than NEW_UNITS_MAX); and the
      offset at which the queue ends.
    """
    queue = queues.get(key)
    if queue is None:
        return None, queue_offset
    end = queue.max_offset
    lowest = max(queue.min_offset, queue.cold_end)
    if type(queue) is not ConsumeQueue or not lowest <= queue_offset <= end:
        return None, end
    if end - queue_offset > NEW_UNITS_MAX:
        return None, end
    codes: set[int] = set()
    while queue_offset < end:
        try:
            units = queue.read(queue_offset, end - queue_offset)
        except StoreIOError:
            return None, end
        if not units:
            return None, end
        for physical_offset, size, tags_code in UNIT.iter_unpack(units):
            # Zeros: the file was cut, or never written here.
            if not physical_offset and not size:
                return None, end
            codes.add(tags_code)
        queue_offset += len(units) // UNIT.size
    return frozenset(codes), end
