"""Ranges of the numbers in headers and bodies: Java's integer types, and narrower ones of requests.

Every numeric field of a request declares one of these ranges. A header with a number out of range
is refused while it is decoded (`headers.decode`), a body by `bodies.out_of_range`. Answers and
files declare INT32 or INT64 only, because those of other versions must be readable. A range that is
a whole Java type has a comment that says why no number in it does harm. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, get_args

import msgspec

from ..common.java_integers import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,64}", re.ASCII)

QUEUE_COUNT_MAX: Final = 65_536
"""Queues of one topic. RocketMQ has no bound; each queue is a folder, a file and a route entry."""


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a numeric field.

    Attributes:
      what: a noun for the number, with its article.
      low, high: the smallest and the greatest number.
      bits: size of Java's type, 32 or 64.
    """

    what: str
    low: int
    high: int
    bits: int

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"

    @property
    def meta(self) -> msgspec.Meta:
        return msgspec.Meta(ge=self.low, le=self.high)

    @property
    def java(self) -> Range:
        return INT32 if self.bits == 32 else INT64

    def has(self, number: int) -> bool:
        return self.low <= number <= self.high

    def refusal(self, number: int) -> str:
        """The predicate of a sentence about the field, which says why a number is refused."""
        return f"is {number}, and {self.what} is in {self}"


INT32: Final = Range("an int", INT32_MIN, INT32_MAX, 32)
INT64: Final = Range("a long", INT64_MIN, INT64_MAX, 64)
"""Java's int and long: the numbers of answers and files."""

QUEUE_ID: Final = Range("a queue id", 0, INT32_MAX, 32)
"""The topic has the number of its queues, which may exceed QUEUE_COUNT_MAX in an old table."""
ASKED_QUEUE_ID: Final = Range("a queue id", INT32_MIN, INT32_MAX, 32)
"""A query of a missing queue is answered like one of an empty queue."""
QUEUE_ID_OR_ANY: Final = Range("a queue id or -1 for any queue", INT32_MIN, INT32_MAX, 32)
QUEUE_COUNT: Final = Range("a number of queues", 0, QUEUE_COUNT_MAX, 32)
READ_QUEUE_COUNT: Final = Range("a number of queues to read from", 1, QUEUE_COUNT_MAX, 32)
"""Without read queues, every message of a topic would be acknowledged and unreadable."""
WANTED_QUEUE_COUNT: Final = Range("a wish for a number of queues", INT32_MIN, INT32_MAX, 32)
"""Used only by a send that creates a topic, which checks it. RocketMQ's proxy sends 0."""
SETTING: Final = Range("a setting", INT32_MIN, INT32_MAX, 32)
"""A number of a topic that an administrator sets: the broker replaces one that would do harm."""
PERM: Final = Range("a permission", 0, 7, 32)
"""PERM_INHERIT 1, PERM_WRITE 2, PERM_READ 4."""
ROUTE_PERM: Final = Range("a permission", 0, 15, 32)
"""Brokers of 5.x may also have PERM_PRIORITY, 8."""
TOPIC_SYS_FLAG: Final = Range("a topicSysFlag", 0, 3, 32)
"""Bits 1 unit, 2 unit subscription. Source: common/sysflag/TopicSysFlag.java."""
ROUTE_FLAG: Final = Range("a topicSysFlag", INT32_MIN, INT32_MAX, 32)
"""A name server forwards a broker's bits unchanged."""
GROUP_SYS_FLAG: Final = Range("a groupSysFlag", 0, INT32_MAX, 32)
QUEUE_OFFSET: Final = Range("a queue offset", 0, INT64_MAX, 64)
COMMITTED_OFFSET: Final = Range("a queue offset", INT64_MIN, INT64_MAX, 64)
"""An offset outside of its queue is answered with success, and not stored."""
PULL_OFFSET: Final = Range("a queue offset", INT64_MIN, INT64_MAX, 64)
"""A pull outside of its queue is answered with the offset at which to continue; -1: no commit."""
PHYSICAL_OFFSET: Final = Range("a physical offset", INT64_MIN, INT64_MAX, 64)
"""The store refuses an offset at which no message begins."""
TABLE_OFFSET: Final = Range("a queue offset", INT64_MIN, INT64_MAX, 64)
"""A transaction's half message is compared with it."""
TIME_MS: Final = Range("a time in ms since 1970", 0, INT64_MAX, 64)
SEARCHED_TIME_MS: Final = Range("a time in ms since 1970", INT64_MIN, INT64_MAX, 64)
"""For searches of messages; times before 1970 are before every message. -1 may mean the end of a
queue."""
VERSION: Final = Range("a version", INT64_MIN, INT64_MAX, 64)
"""Versions are only compared."""
TIMEOUT_MS: Final = Range("a time-out in ms", INT64_MIN, INT64_MAX, 64)
"""Servers clamp a time-out to their own range."""
INVISIBLE_MS: Final = Range("an invisible time in ms", INT64_MIN, INT64_MAX, 64)
"""How long a popped message is not given to others. The broker uses the nearest time that it can
keep, and its answer says which; timerMaxDelaySec limits it."""
POP_TIME_MS: Final = Range("a time in ms since 1970", INT64_MIN, INT64_MAX, 64)
"""When a pop was sent, or of a receipt. One far in the past has timed out; 0: now."""
INIT_MODE: Final = Range("a place to begin", INT32_MIN, INT32_MAX, 32)
"""0: the first message; anything else: the end."""
POP_SHARE: Final = Range("a number of clients", INT32_MIN, INT32_MAX, 32)
"""Clients that pop from one queue: 0 or less, or more than there are, stands for all."""
MAPPING_INT: Final = Range("a number of a queue mapping", INT32_MIN, INT32_MAX, 32)
MAPPING_LONG: Final = Range("a number of a queue mapping", INT64_MIN, INT64_MAX, 64)
"""The broker compares these with each other and with the topic, and refuses in RocketMQ's words."""
DELAY_MS: Final = Range("a delay in ms", 0, INT64_MAX, 64)
MESSAGE_COUNT: Final = Range("a number of messages", INT32_MIN, INT32_MAX, 32)
BYTE_COUNT: Final = Range("a number of bytes", INT32_MIN, INT32_MAX, 32)
"""Limits of an answer; less than 1 means the limit of the store."""
PAGE_PLACE: Final = Range("a place in a table", INT32_MIN, INT32_MAX, 32)
PAGE_SIZE: Final = Range("a number of entries", INT32_MIN, INT32_MAX, 32)
"""A page begins at the start and is empty when these are negative."""
USER_FLAG: Final = Range("a message's flag", INT32_MIN, INT32_MAX, 32)
"""A number for the application, which RocketMQ does not use."""
MESSAGE_SYS_FLAG: Final = Range("a message's sysFlag", 0, INT32_MAX, 32)
PULL_SYS_FLAG: Final = Range("a pull's sysFlag", 0, INT32_MAX, 32)
REQUEST_SOURCE: Final = Range("a source of requests", INT32_MIN, INT32_MAX, 32)
RECONSUME_TIMES: Final = Range("a number of tries", 0, INT32_MAX, 32)
RECONSUME_TIMES_MAX: Final = Range("a limit of tries", INT32_MIN, INT32_MAX, 32)
"""After this many tries a message becomes a dead letter; with a negative limit at once."""
DELAY_LEVEL: Final = Range("a delay level", INT32_MIN, INT32_MAX, 32)
"""0: the broker chooses; negative: no retry; above the highest level: the highest."""
TRANSACTION_STATE: Final = Range("a transaction's state", 0, 12, 32)
"""Source: common/sysflag/MessageSysFlag.java: 0, 4, 8 or 12."""
CRC32: Final = Range("a CRC32 without its sign bit", 0, INT32_MAX, 32)
BROKER_ID: Final = Range("a broker id", 0, INT64_MAX, 64)
HEARTBEAT_BROKER_ID: Final = Range("a broker id", -1, INT64_MAX, 64)
"""-1: a broker whose controller has not chosen an id yet."""
REPLICA_ID: Final = Range("a controller id", 1, INT64_MAX, 64)
REPLICA_ID_OR_NONE: Final = Range("a controller id or -1", -1, INT64_MAX, 64)
EPOCH: Final = Range("an epoch", 0, INT32_MAX, 32)
CONTROLLER_INT: Final = Range("a number for controllers", INT32_MIN, INT32_MAX, 32)
CONTROLLER_LONG: Final = Range("a number for controllers", INT64_MIN, INT64_MAX, 64)
"""The name server ignores these."""
FACTOR: Final = Range("a factor", 0, INT64_MAX, 64)
MINUTES: Final = Range("a number of minutes", 0, INT32_MAX, 32)
GROUP_TRIES: Final = Range("a limit of tries", -1, INT32_MAX, 32)
HASH: Final = Range("a hash", INT32_MIN, INT32_MAX, 32)
"""Hashes are only compared."""


def parse_integer(text: str) -> int | None:
    """Parse a decimal integer as Java's parseInt does, but in ASCII digits only.

    Python's `int` also accepts white space, underscores and the digits of other scripts.

    Returns: the number, of up to 64 digits; None: the text is not an integer.
    """
    return int(text) if _INTEGER.fullmatch(text) else None


def range_of(kind: Any) -> Range | None:
    """The range that a field's type declares, also in a union with None; None: it has none."""
    for part in (kind, *get_args(kind)):
        for mark in getattr(part, "__metadata__", ()):
            if isinstance(mark, Range):
                return mark
    return None
