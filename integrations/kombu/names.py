"""Names of kombu's queues and exchanges as names of RocketMQ's topics and groups.

RocketMQ allows letters, digits, `_`, `-`, `%` and `|`; Celery's queues have dots and `@`, too.
Pure.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

NAME_LENGTH_MAX: Final = 100
"""Longest name. RocketMQ allows 127 for topics and 120 for groups; a namespace is added to it."""

EXCHANGE_PREFIX: Final = "kombu-exchange-"
"""Begins the topics of exchanges; a queue's topic has the queue's name."""

_ESCAPED: Final = re.compile(r"[^A-Za-z0-9_-]|_(?=x)")
_HASH_LENGTH: Final = 16


def queue_name(queue: str, prefix: str = "") -> str:
    """The topic of a queue; its consumer group has the same name.

    Letters, digits, `_` and `-` stay; every other character becomes `_xHH` for each byte of its
    UTF-8, as in `celery_x40host`. So two queues never share a topic, unless their names are longer
    than NAME_LENGTH_MAX: then the end is replaced by a hash.

    Args:
      prefix: begins the name, as it is.
    """
    return _shortened(prefix + _ESCAPED.sub(_escape, queue))


def exchange_topic(exchange: str, prefix: str = "") -> str:
    """The topic of an exchange whose messages go to all queues that are bound to it."""
    return _shortened(prefix + EXCHANGE_PREFIX + _ESCAPED.sub(_escape, exchange))


def routing_tag(routing_key: str) -> str:
    """The tag of a message on an exchange's topic; brokers filter by it."""
    return _shortened(_ESCAPED.sub(_escape, routing_key)) or "-"


def _escape(match: re.Match[str]) -> str:
    return "".join(f"_x{byte:02X}" for byte in match[0].encode())


def _shortened(name: str) -> str:
    if len(name) <= NAME_LENGTH_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{name[: NAME_LENGTH_MAX - _HASH_LENGTH - 1]}-{digest}"
