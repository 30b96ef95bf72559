"""The comparison of a consume queue's unit with its record.

Recovery compares the last unit that it keeps, serving each unit from before the start, fsck every
unit. The callers decide what to do about a fault.
"""

from __future__ import annotations

from enum import Enum, auto

from ...common.topic_names import SCHEDULE_TOPIC
from ..format import PRE_BLANK_SIZE, Unit
from ..log.log_reader import LogRecord
from .consume_queue_ext import EXT_ADDRESS_MAX
from .projection import Place


class UnitFault(Enum):
    """The difference between a unit and the one that its record should have."""

    MISSING = auto()
    """Zeros, or a blank: it points to nothing."""
    ELSEWHERE = auto()
    """It points to other bytes of the log."""
    EXT = auto()
    """Its tags code is the address of an extension unit, which has to be checked."""
    DELAY = auto()
    """Its delivery time does not match the configured delay levels."""
    TAGS = auto()
    """Its tags code is wrong."""


def unit_fault(unit: Unit, record: LogRecord, place: Place) -> UnitFault | None:
    """The fault of a unit; None when it is correct.

    Args:
      record: whole.
      place: the expected unit, see `Places.place_in`.
    """
    physical_offset, size, tags_code = unit
    if not any(unit) or size == PRE_BLANK_SIZE:
        return UnitFault.MISSING
    if physical_offset != record.physical_offset or size != record.size:
        return UnitFault.ELSEWHERE
    if tags_code == place.tags_code:
        return None
    if tags_code <= EXT_ADDRESS_MAX:
        return UnitFault.EXT
    return UnitFault.DELAY if record.topic == SCHEDULE_TOPIC else UnitFault.TAGS
