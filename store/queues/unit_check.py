"""One check of a consume queue's unit: is it what the record it points to says?

Recovery asks it of the last unit that stays, serving of each unit that was there before the start,
fsck of every one. What they do about a fault is theirs.
"""

from __future__ import annotations

from enum import Enum, auto

from ..format import PRE_BLANK_SIZE, Unit
from ..log.log_reader import LogRecord
from .consume_queue_ext import EXT_ADDRESS_MAX
from .projection import SCHEDULE_TOPIC, Place


class UnitFault(Enum):
    """In what a unit differs from the unit that its record makes."""

    MISSING = auto()
    """Zeros, or a blank: it points to nothing."""
    ELSEWHERE = auto()
    """It points to other bytes of the log."""
    EXT = auto()
    """Its tags code is the address of an extension unit, which has to be looked at."""
    DELAY = auto()
    """Its time of delivery is not that of the configured delay levels."""
    TAGS = auto()
    """It has another tags code."""


def unit_fault(unit: Unit, record: LogRecord, place: Place) -> UnitFault | None:
    """What is wrong with a unit; None when nothing is.

    Args:
      record: a whole one.
      place: in which the record belongs there, see `Places.place_in`.
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
