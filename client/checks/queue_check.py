"""Checks of what a program gives to the verbs of a consumer for single queues. Pure.

Java counterpart: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NoReturn

from ...remoting.bodies import MessageQueue
from ..errors import ConfigurationError
from .option_check import is_int, is_number, looks_like_seconds
from .shown import shown

_OF_A_TOPIC: Final = "give one of consumer.assignment, or of consumer.queues('orders')"
_ASSIGNED: Final = "give one of consumer.assignment"
_TO_ASSIGN: Final = "write assign(queues), with those of queues('orders'), or subscribe('orders')"


def check_queue(queue: object, hint: str = _OF_A_TOPIC) -> None:
    """Check that something is a queue.

    Args:
      hint: what to give, for the text of the error.

    Raises: ConfigurationError: it is something else, such as the name of a topic.
    """
    if not isinstance(queue, MessageQueue):
        raise ConfigurationError(f"{shown(queue)} is no queue: {hint}")


def check_queues(queues: Iterable[object]) -> None:
    """Check the queues of `assign`. Raises: ConfigurationError: one is something else."""
    for queue in queues:
        check_queue(queue, _TO_ASSIGN)


def check_offset(offset: object) -> None:
    """Check an offset of a queue.

    Raises: ConfigurationError: it is no int, or negative.
    """
    if not is_int(offset):
        raise ConfigurationError(f"the offset is {shown(offset)}: give an int from 0 on")
    if offset < 0:
        raise ConfigurationError(f"the offset {offset} is negative: give one from 0 on")


def check_place(queue: object, offset: object) -> None:
    """Check a queue and an offset in it. Raises: ConfigurationError."""
    check_queue(queue)
    check_offset(offset)


def check_time(name: str, value: object) -> None:
    """Check a time in milliseconds since 1970.

    Raises: ConfigurationError: it is no int, or rather in seconds.
    """
    if is_int(value) and not looks_like_seconds(value):
        return
    hint = f"{name} is {shown(value)}: give an int of milliseconds since 1970"
    if isinstance(value, datetime):
        hint += f": write {int(value.timestamp() * 1000)}"
    elif is_number(value) and looks_like_seconds(value):
        hint += f"; that is in seconds: write {int(value * 1000)}"
    raise ConfigurationError(hint)


def check_offsets(offsets: object) -> None:
    """Check the offsets that a program commits.

    Raises: ConfigurationError: it is no dict of queues and offsets.
    """
    if not isinstance(offsets, Mapping):
        raise ConfigurationError(
            f"commit takes a dict of queues and offsets, and got {shown(offsets)}: write commit()"
            " for all that was polled, or commit({message.queue: message.queue_offset + 1})"
        )
    for queue, offset in offsets.items():
        check_place(queue, offset)


def queues_of(queues: Iterable[MessageQueue], verb: str) -> Iterable[MessageQueue]:
    """The queues that are given to a verb.

    Raises: ConfigurationError: it is a topic, or one queue.
    """
    if isinstance(queues, str | MessageQueue):
        raise ConfigurationError(
            f"{verb} takes a list of queues, and got {shown(queues)}: write"
            f" {verb}(consumer.assignment), or {verb}([queue])"
        )
    return queues


def topics_of(topics: str | Iterable[str]) -> Iterable[str]:
    """The topics that are given to `subscribe`.

    Raises: ConfigurationError: it is neither a topic nor several.
    """
    if isinstance(topics, str):
        return [topics]
    if not isinstance(topics, Iterable):
        raise ConfigurationError(
            f"subscribe takes a topic, and got {shown(topics)}: write subscribe('orders'), or"
            " subscribe({'orders': 'created || paid'})"
        )
    return topics


def refuse_queue(queue: object, *, is_subscribed: bool) -> NoReturn:
    """Refuse what is no assigned queue of a consumer.

    Raises: ConfigurationError: always; the text says whether it is a queue at all.
    """
    check_queue(queue, _ASSIGNED)
    if is_subscribed:
        text = (
            f"{queue} is not assigned to this consumer, or not yet: give one of"
            " consumer.assignment, after a `poll`"
        )
    else:
        text = f"{queue} is not assigned; call `assign` first"
    raise ConfigurationError(text)
