"""A broker's settings that differ from RocketMQ's defaults, by the keys of broker.conf. Pure.

The defaults are those of RocketMQ 5.5.0, from `common/keys`: other versions may have others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ..common.config import KnownKey
from ..common.known_keys import read_keys

_ABSENT: Final = frozenset({"", "-", "null"})
"""Texts of a value that is not set: a broker's in Java may say null."""


class Difference(msgspec.Struct, frozen=True, rename="camel"):
    """A setting that is not as RocketMQ has it by default.

    Attributes:
      value: as the broker tells it.
      default: "": none is set; None: the key is not known.
      is_known: the key is in RocketMQ 5.5.0, in an earlier version, or trocket's own. RocketMQ's
        brokers also tell fields that no file sets, such as isInBrokerContainer.
    """

    key: str
    value: str
    default: str | None
    is_known: bool = True


def differences(settings: Mapping[str, str]) -> list[Difference]:
    """The settings that differ, sorted by key.

    Settings whose default depends on the machine, such as brokerIP1, are left out.

    Args:
      settings: as `Admin.broker_config` gives them.
    """
    known = read_keys("netty", "store", "broker")
    found = []
    for key in sorted(settings):
        value, fact = settings[key], known.get(key)
        if fact is None:
            found.append(Difference(key, value, None, is_known=False))
        elif _is_fixed(fact) and not _is_same(fact, value):
            found.append(Difference(key, value, "" if fact.default == "-" else fact.default))
    return found


def _is_fixed(fact: KnownKey) -> bool:
    """Whether the default is the same on every machine."""
    return not ("(" in fact.default or fact.default.startswith("$"))


def _is_same(fact: KnownKey, value: str) -> bool:
    if value.strip() in _ABSENT or fact.default == "-":
        return value.strip() in _ABSENT and fact.default == "-"
    if fact.kind in ("bool", "enum"):
        return value.strip().lower() == fact.default.lower()
    if fact.kind in ("int", "long", "double"):
        try:
            return float(value) == float(fact.default)
        except ValueError:
            return False
    return value == fact.default
