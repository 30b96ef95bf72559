"""Attributes of topics and groups, and their changes in the form `+key=value,-key`.

A request carries changes, not values: `+key=value` sets, `-key` removes. `TOPIC_ATTRIBUTES` lists
the attributes of topics, `GROUP_ATTRIBUTES` those of groups.

Java counterpart: common/attribute/{AttributeParser,AttributeUtil}.java and
common/{TopicAttributes,SubscriptionGroupAttributes}.java of 5.5.0. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...common.java_integers import INT64_MAX
from ...remoting.errors import RequestRefused
from ...remoting.response_codes import ResponseCode


@dataclass(frozen=True, slots=True)
class Attribute:
    """The definition of an attribute.

    Args:
      changeable: whether it may be changed after creation.
      values: the values it may have; empty: a whole number from `low` to `high`.
      unserved: those of them that this broker does not support yet.
    """

    name: str
    changeable: bool
    values: tuple[str, ...] = ()
    unserved: tuple[str, ...] = ()
    low: int = -1
    high: int = INT64_MAX

    def refuse(self, value: str) -> str | None:
        """Why the attribute may not have this value; None: it may."""
        if self.values:
            if value not in self.values:
                return f"value is not in set: [{', '.join(self.values)}]"
            if value in self.unserved:
                return f"{self.name}={value} is not supported by this broker"
        elif not _is_long(value):
            return f'For input string: "{value}"'
        elif not self.low <= int(value) <= self.high:
            return f"value is not in range({self.low}, {self.high})"
        return None


def _is_long(value: str) -> bool:
    digits = value[1:] if value[:1] in ("-", "+") else value
    return len(digits) <= 19 and digits.isascii() and digits.isdigit()


MESSAGE_TYPE: Final = "message.type"
QUEUE_TYPE: Final = "queue.type"
BATCH_CQ: Final = "BatchCQ"
"""The queue type of topics that store a producer's batch as one record."""

TOPIC_ATTRIBUTES: Final[dict[str, Attribute]] = {
    attribute.name: attribute
    for attribute in (
        Attribute(QUEUE_TYPE, changeable=False, values=(BATCH_CQ, "SimpleCQ")),
        Attribute(
            "cleanup.policy",
            changeable=False,
            values=("DELETE", "COMPACTION"),
            unserved=("COMPACTION",),
        ),
        Attribute(
            MESSAGE_TYPE,
            changeable=True,
            values=(
                *("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY"),
                *("LITE", "MIXED"),
            ),
            unserved=("LITE",),
        ),
        Attribute("reserve.time", changeable=True),
    )
}
"""Every attribute that a topic may have, by key."""


def unserved_attributes(attributes: Mapping[str, str]) -> list[str]:
    """Those of a topic's attributes that this broker does not serve, as `name=value`.

    Args:
      attributes: value by name, of a topic that another broker made.
    """
    return [
        f"{name}={value}"
        for name, value in attributes.items()
        if name in TOPIC_ATTRIBUTES and value in TOPIC_ATTRIBUTES[name].unserved
    ]


PRIORITY_FACTOR: Final = "priority.factor"
PRIORITY_FACTOR_MAX: Final = 100

GROUP_ATTRIBUTES: Final[dict[str, Attribute]] = {
    PRIORITY_FACTOR: Attribute(PRIORITY_FACTOR, changeable=True, low=0, high=PRIORITY_FACTOR_MAX)
}
"""Every attribute that a group may have, by key; those of lite topics are not served."""


def _refused(reason: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, reason)


def parse_attributes(text: str | None) -> dict[str, str]:
    """Read the changes of a CreateTopicRequestHeader.

    Args:
      text: such as `+message.type=FIFO,-reserve.time`; empty or None: no change.
    Returns: value by key, the key with its sign, "" for removals.
    Raises: RequestRefused: SYSTEM_ERROR with RocketMQ's words.
    Source: AttributeParser.parseToMap.
    """
    changes: dict[str, str] = {}
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        if equals:
            value = value.partition("=")[0]
            if "+" not in key:
                raise _refused(f"add/alter attribute format is wrong: {key}")
        elif "-" not in key:
            raise _refused(f"delete attribute format is wrong: {key}")
        if key in changes:
            raise _refused(f"key duplication: {key}")
        changes[key] = value
    return changes


def alter_attributes(
    current: Mapping[str, str],
    changes: Mapping[str, str],
    *,
    is_new: bool,
    allowed: Mapping[str, Attribute],
) -> dict[str, str]:
    """Apply changes to the attributes of a topic or a group.

    Args:
      current: value by key, no signs.
      changes: value by key with its sign, as `parse_attributes` gives them.
      is_new: the topic or group is being created; then only `+` is allowed, also for attributes
        that cannot be changed later.
      allowed: every attribute that it may have, by key.
    Returns: value by key afterwards, a new dict.
    Raises: RequestRefused: SYSTEM_ERROR with RocketMQ's words; nothing was changed.
    Source: AttributeUtil.alterCurrentAttributes.
    """
    after = dict(current)
    seen: set[str] = set()
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        _check_key(key, seen)
        if sign == "+":
            _check_allowed(key, allowed, is_new=is_new)
            reason = allowed[key].refuse(value)
            if reason is not None:
                raise _refused(reason)
            after[key] = value
        elif is_new:
            raise _refused(f"only add attribute is supported while creating topic. key: {key}")
        elif sign != "-":
            raise _refused(f"wrong format key: {key}")
        elif key not in current:
            raise _refused(f"attempt to delete a nonexistent key: {key}")
        else:
            _check_allowed(key, allowed, is_new=False)
            del after[key]
    return after


def _check_key(key: str, seen: set[str]) -> None:
    if not key or "+" in key or "-" in key:
        raise _refused("kv string format wrong.")
    if key in seen:
        raise _refused(f"alter duplication key. key: {key}")
    seen.add(key)


def _check_allowed(key: str, allowed: Mapping[str, Attribute], *, is_new: bool) -> None:
    attribute = allowed.get(key)
    if attribute is None:
        raise _refused(f"unsupported key: {key}")
    if not is_new and not attribute.changeable:
        raise _refused(f"attempt to update an unchangeable attribute. key: {key}")
