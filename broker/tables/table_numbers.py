"""Checks of the numbers in `config/*.json`.

A file that was edited by hand, written by another program or damaged may hold any number. One that
is out of range is replaced before it is used. A warning names file, member, number and replacement,
and the file is written again once the store is open (`table_loading`).

A value that is not a number, or one that does not fit Java's type, makes the whole file unusable:
its `.bak` is then read, or the broker refuses to start (`disk/json_config.py`).

RocketMQ accepts every number that fits its type.
"""

from __future__ import annotations

import logging
from typing import Any, Final, TypeVar

import msgspec

from ...remoting.bodies import (
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    SubscriptionGroupConfig,
    TopicConfig,
)
from ...remoting.number_fields import (
    BROKER_ID,
    GROUP_TRIES,
    INT64,
    MINUTES,
    PERM,
    QUEUE_ID,
    QUEUE_OFFSET,
    Range,
)

logger = logging.getLogger(__name__)

_VERSION_NUMBER: Final = Range("a number of a version", 0, INT64.high, 64)
_VERSION_COUNTER: Final = Range("a number of changes", 0, 1 << 62, 64)
"""Beyond it the counter could reach the end of Java's long."""

Numbers = dict[str, tuple[Range, int]]
"""The allowed range, and the replacement for a number outside of it, by attribute."""

_TOPIC_NUMBERS: Final[Numbers] = {"perm": (PERM, PERM_READ | PERM_WRITE)}
"""`topic_queues` checks the numbers of queues."""

_GROUP_NUMBERS: Final[Numbers] = {
    "retry_max_times": (GROUP_TRIES, 16),
    "broker_id": (BROKER_ID, 0),
    "which_broker_when_consume_slowly": (BROKER_ID, 1),
    "consume_timeout_minute": (MINUTES, 15),
}
"""The ranges are those of requests, so that a number set by a request stays; the replacements are
RocketMQ's defaults. `topic_queues` checks retryQueueNums."""


_Config = TypeVar("_Config", TopicConfig, SubscriptionGroupConfig)


def correct_topics(file: str, table: dict[str, TopicConfig]) -> bool:
    """Replace numbers of topics that are out of range; return whether there were some."""
    return _correct(file, "topic", table, _TOPIC_NUMBERS)


def correct_groups(file: str, table: dict[str, SubscriptionGroupConfig]) -> bool:
    """Replace numbers of groups that are out of range; return whether there were some."""
    return _correct(file, "group", table, _GROUP_NUMBERS)


def _correct(file: str, noun: str, table: dict[str, _Config], numbers: Numbers) -> bool:
    is_corrected = False
    for name, config in table.items():
        changes: dict[str, Any] = {}
        for attribute, (right, used) in numbers.items():
            value = getattr(config, attribute)
            if not right.has(value):
                warn_replaced(file, f"{_member(attribute)} of {noun} {name!r}", value, right, used)
                changes[attribute] = used
        if changes:
            table[name] = msgspec.structs.replace(config, **changes)
            is_corrected = True
    return is_corrected


def _member(attribute: str) -> str:
    first, *rest = attribute.split("_")
    return first + "".join(map(str.title, rest))


def warn_replaced(file: str, what: str, value: int, right: Range, used: object) -> None:
    """Log that a number of a table is outside of its range.

    Args:
      what: names the number, as "perm of topic 'T'".
      value: the number in the table.
      used: its replacement.
    """
    logger.warning(
        "%(file)s: the %(what)s is %(value)s, which is not in %(right)s: %(used)s is used "
        "instead, and the file is written again",
        {"file": file, "what": what, "value": value, "right": right, "used": used},
    )


def correct_version(file: str, version: DataVersion, own: DataVersion) -> DataVersion:
    """Check the version of a table that was read; return it, or `own` if a number is out of range.

    Args:
      file: its name, for the warning.
      own: the table's version before the file was read.
    """
    for what, value, right in (
        ("timestamp", version.timestamp, _VERSION_NUMBER),
        ("counter", version.counter, _VERSION_COUNTER),
        ("stateVersion", version.state_version, _VERSION_NUMBER),
    ):
        if not right.has(value):
            warn_replaced(file, f"{what} of its dataVersion", value, right, "a new version")
            return own
    return version


def whole_number(value: object) -> int:
    """Read a number of a file; as a key of an object it is a string.

    Raises: ValueError: it is not a whole number, or has more than 19 digits and a sign.
    """
    if type(value) is int:
        return value
    if isinstance(value, str) and len(value) <= 20 and value.isascii():
        digits = value.removeprefix("-")
        if digits.isdigit():
            return int(value)
    raise ValueError(f"{str(value)[:40]!r} is not a whole number")


def correct_offsets(file: str, key: str, offsets: dict[int, int]) -> dict[int, int]:
    """Offsets by queue id of one topic@group, with numbers out of range replaced.

    A wrong offset becomes 0: the group consumes the queue from its beginning, so it gets messages
    twice but misses none. A wrong queue id is left out.

    Args:
      file: its name, for the warnings.
      key: topic@group, for the warnings.
    """
    found = {}
    for queue_id, offset in offsets.items():
        if not QUEUE_ID.has(queue_id):
            warn_replaced(file, f"queue id of {key}", queue_id, QUEUE_ID, "nothing")
        elif not QUEUE_OFFSET.has(offset):
            warn_replaced(file, f"offset of {key} queue {queue_id}", offset, QUEUE_OFFSET, 0)
            found[queue_id] = 0
        else:
            found[queue_id] = offset
    return found
