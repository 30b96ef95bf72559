"""Outcomes of puts and gets.

Java counterpart: store/PutMessageStatus.java, store/GetMessageStatus.java of 5.3.3 (the names are
sent as remarks, so they are RocketMQ's; the numbers are ours).
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple, TypeAlias

from .offsets import PhysicalOffset, QueueOffset


class PutMessageStatus(IntEnum):
    """Outcome of a put. The message is stored with PUT_OK and the three FLUSH/SLAVE ones only."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3
    SERVICE_NOT_AVAILABLE = 4
    CREATE_MAPPED_FILE_FAILED = 5
    MESSAGE_ILLEGAL = 6
    PROPERTIES_SIZE_EXCEEDED = 7
    OS_PAGE_CACHE_BUSY = 8
    UNKNOWN_ERROR = 9
    IN_SYNC_REPLICAS_NOT_ENOUGH = 10
    PUT_TO_REMOTE_BROKER_FAIL = 11
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = 12
    WHEEL_TIMER_FLOW_CONTROL = 13
    WHEEL_TIMER_MSG_ILLEGAL = 14
    WHEEL_TIMER_NOT_ENABLE = 15


class PutRefusal(NamedTuple):
    """The answer to a put that stored nothing.

    Attributes:
      status: MESSAGE_ILLEGAL (topic, sizes, an inner batch in a topic without them),
        PROPERTIES_SIZE_EXCEEDED, CREATE_MAPPED_FILE_FAILED or SERVICE_NOT_AVAILABLE.
      remark: what is wrong, and what to do about it; "": the status is enough.
    """

    status: PutMessageStatus
    remark: str = ""


PutResult: TypeAlias = tuple[PutRefusal | None, PhysicalOffset, QueueOffset]
"""(None, physical offset, queue offset), or a refusal with -1 and -1."""

BatchResult: TypeAlias = tuple[PutRefusal | None, list[PhysicalOffset], QueueOffset]
"""(None, physical offset of each message, queue offset of the first), or a refusal with [], -1."""


class GetMessageStatus(IntEnum):
    """Outcome of a get."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    OFFSET_RESET = 9


class BoundaryType(Enum):
    """The choice of a search by time among messages with the same timestamp."""

    LOWER = "lower"
    UPPER = "upper"
