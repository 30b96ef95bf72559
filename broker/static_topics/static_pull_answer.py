"""The answer to a pull from a logic queue: offsets of its physical queue become logic offsets.

A pull that reaches the end of an item continues at the next one.

Source: PullMessageProcessor.rewriteResponseForStaticTopic of 5.5.0. Differences: an offset past the
end of the last item is corrected, where Apache answers PULL_NOT_FOUND and holds the pull; messages
behind the known end of an item are left out, where Apache sends them again and again. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...remoting.bodies import LogicQueueMappingItem, item_after, item_at
from ...remoting.response_codes import ResponseCode


class PullPlace(NamedTuple):
    """The code and the offsets of a pull's answer."""

    code: int
    next_begin_offset: int
    min_offset: int
    max_offset: int


class LogicPlace(NamedTuple):
    """The same in logic offsets, and what the client adds to the messages' physical offsets."""

    code: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    offset_delta: int

    def fields(self) -> dict[str, str]:
        """The answer's fields that have offsets."""
        return {
            "nextBeginOffset": str(self.next_begin_offset),
            "minOffset": str(self.min_offset),
            "maxOffset": str(self.max_offset),
            "offsetDelta": str(self.offset_delta),
        }


def logic_place(
    items: Sequence[LogicQueueMappingItem],
    item: LogicQueueMappingItem,
    offset: int,
    place: PullPlace,
) -> LogicPlace:
    """Rewrite the answer of an item's physical queue.

    Args:
      items: of the logic queue, oldest first.
      item: one of them whose logic offset is decided.
      offset: physical offset that was requested.
      place: of the physical queue's answer. Messages behind a known end are not the logic queue's.
    """
    is_behind = False
    # Messages may be stored behind the end, by sends that were on their way when it moved.
    if item.is_ended and item.gen != items[-1].gen:
        place = place._replace(max_offset=min(place.max_offset, item.end_offset))
        is_behind = offset >= item.end_offset
    if place.code != ResponseCode.SUCCESS or is_behind:
        item, place = _moved(items, item, offset, place)
    next_offset = place.next_begin_offset
    if item.is_ended:
        next_offset = min(next_offset, item.end_offset)
    return LogicPlace(
        place.code,
        item.logic_of(next_offset),
        item.logic_of(place.min_offset),
        max(item.logic_of(place.max_offset), items[-1].last_logic_offset),
        item.offset_delta,
    )


def _moved(
    items: Sequence[LogicQueueMappingItem],
    item: LogicQueueMappingItem,
    offset: int,
    place: PullPlace,
) -> tuple[LogicQueueMappingItem, PullPlace]:
    """The item at which a pull that found nothing continues, and its answer there."""
    is_last = item.gen == items[-1].gen
    earliest = item_at(items, 0)
    is_first = earliest is not None and item.gen == earliest.gen
    if not is_last and offset >= place.max_offset:
        after = item_after(items, item)
        if after is None:  # the logic offset of the next one is being decided
            return item, place._replace(
                code=ResponseCode.PULL_NOT_FOUND, next_begin_offset=place.max_offset
            )
        start = after.start_offset
        return after, PullPlace(ResponseCode.PULL_RETRY_IMMEDIATELY, start, start, start)
    if offset < place.min_offset:
        code = ResponseCode.PULL_OFFSET_MOVED if is_first else ResponseCode.PULL_RETRY_IMMEDIATELY
        return item, place._replace(code=code, next_begin_offset=place.min_offset)
    if is_last and offset > place.max_offset and place.code == ResponseCode.PULL_OFFSET_MOVED:
        return item, place._replace(next_begin_offset=place.max_offset)
    return item, place
