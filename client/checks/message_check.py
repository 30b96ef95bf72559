"""Checks of a message's fields when it is created, so that a mistake shows in the line that has it.

Brokers and consumers accept most of these mistakes silently: a key that is no string breaks the
send much later, a tag with `||` can never be selected, and of two delays one is ignored. Pure.

Java counterpart: none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from math import isfinite
from typing import Final, Protocol, TypeGuard

from ...common.delay_levels import MESSAGE_DELAY_LEVEL, delay_levels_ms
from ...common.message_properties import split_keys
from ..errors import MessageRefusedError

DELAY_LEVEL_MAX: Final = len(delay_levels_ms(MESSAGE_DELAY_LEVEL))
"""Levels of RocketMQ's default messageDelayLevel."""

SECONDS_SINCE_1970: Final = (1e8, 1e11)
"""1973 to 5138 in seconds: a time in milliseconds in this range was meant in seconds."""
_INT32: Final = range(-(2**31), 2**31)


class Fields(Protocol):
    """The fields of a Message, of any type: programs without type checking set anything."""

    @property
    def topic(self) -> object: ...
    @property
    def tags(self) -> object: ...
    @property
    def keys(self) -> object: ...
    @property
    def properties(self) -> object: ...
    @property
    def delay_level(self) -> object: ...
    @property
    def delay_s(self) -> object: ...
    @property
    def deliver_at_ms(self) -> object: ...
    @property
    def sharding_key(self) -> object: ...
    @property
    def flag(self) -> object: ...
    @property
    def wait_store_ok(self) -> object: ...


def check_message(message: Fields) -> None:
    """Check all fields but the body, whose type depends on the producer's serializer.

    Raises: MessageRefusedError: a field has a wrong type or value; the text says what to write.
    """
    # Fields with their default, and the usual types, are passed over: each send pays for this.
    if message.topic.__class__ is not str and not isinstance(message.topic, str):
        raise _wrong("topic", message.topic, "give the name of a topic as str")
    if message.tags is not None:
        _check_tags(message.tags)
    if message.keys.__class__ is not str and message.keys != ():
        _check_keys(message.keys)
    if message.properties:
        _check_properties(message.properties)
    if message.delay_level or message.delay_s is not None or message.deliver_at_ms is not None:
        _check_delays(message)
    if message.sharding_key is not None and not isinstance(message.sharding_key, str):
        raise _wrong("sharding_key", message.sharding_key, "give a str, or None")
    if message.flag and (not _is_int(message.flag) or message.flag not in _INT32):
        raise _wrong("flag", message.flag, "give an int of 32 bits")
    if message.wait_store_ok is not True and message.wait_store_ok is not False:
        raise _wrong("wait_store_ok", message.wait_store_ok, "give True or False")


def check_delay_level(level: int, level_max: int) -> None:
    """Check that the brokers' delay table has a level.

    Raises: MessageRefusedError: it does not.
    """
    if level > level_max:
        raise MessageRefusedError(
            f"delay_level={level}: brokers have {level_max} levels, of which the last is 2 h by"
            " default. For a delay in seconds use delay_s (brokers of 5.x); for a longer table"
            " raise delay_level_max here and messageDelayLevel in the brokers"
        )


def _check_tags(tags: object) -> None:
    if not isinstance(tags, str):
        raise _wrong("tags", tags, "give one tag as str, or None")
    if "||" in tags:
        raise _wrong(
            "tags", tags, "a message has one tag; only a subscription has several, with ||"
        )
    if tags != tags.strip():
        raise _wrong("tags", tags, "remove the spaces around it: no subscription selects it")


def _check_keys(keys: object) -> None:
    if isinstance(keys, str):
        return
    hint = "give one key as str, or a list of them"
    if _is_number(keys):
        raise _wrong("keys", keys, f"{hint}: write keys='{keys}'")
    if not isinstance(keys, list | tuple | Sequence) or isinstance(keys, bytes):
        raise _wrong("keys", keys, hint)
    for key in keys:
        if not isinstance(key, str):
            raise _wrong("keys", keys, f"{key!r} is not a str; {hint}: write '{key}'")
        if split_keys(key) != [key]:
            raise _wrong("keys", keys, f"the key {key!r} is empty or has a blank")


def _check_properties(properties: object) -> None:
    if not isinstance(properties, dict | Mapping):
        raise _wrong("properties", properties, "give a dict of str to str")
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise MessageRefusedError(
                f"the property {name!r}: {value!r} of the message: names and values are str, such"
                f" as {str(name)!r}: {str(value)!r}"
            )


def _check_delays(message: Fields) -> None:
    level, delay_s, at_ms = message.delay_level, message.delay_s, message.deliver_at_ms
    if not _is_int(level) or level < 0:
        hint = (
            f"give 1 to {DELAY_LEVEL_MAX}, or 0 for no delay; for a delay in seconds write delay_s"
        )
        raise _wrong("delay_level", level, hint)
    if delay_s is not None and not (_is_number(delay_s) and isfinite(delay_s) and delay_s >= 0):
        hint = "give a number of seconds from 0 on, or None"
        if isinstance(delay_s, timedelta):
            hint += f": write delay_s={delay_s.total_seconds():g}"
        raise _wrong("delay_s", delay_s, hint)
    if at_ms is not None:
        _check_time(at_ms)
    if (level != 0) + (delay_s is not None) + (at_ms is not None) > 1:
        raise MessageRefusedError(
            f"the message has several delays (delay_level={level}, delay_s={delay_s},"
            f" deliver_at_ms={at_ms}): give one of them"
        )


def _check_time(at_ms: object) -> None:
    hint = "give an int of milliseconds since 1970, or None"
    if isinstance(at_ms, datetime):
        hint += f": write deliver_at_ms={int(at_ms.timestamp() * 1000)}"
    elif _is_number(at_ms) and isfinite(at_ms) and at_ms >= 0:
        if SECONDS_SINCE_1970[0] <= at_ms < SECONDS_SINCE_1970[1]:
            hint += f", and this is in seconds: write deliver_at_ms={int(at_ms * 1000)}"
        elif _is_int(at_ms):
            return
        else:
            hint += f": write deliver_at_ms={int(at_ms)}"
    raise _wrong("deliver_at_ms", at_ms, hint)


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _wrong(name: str, value: object, hint: str) -> MessageRefusedError:
    return MessageRefusedError(f"{name}={value!r} of the message: {hint}")
