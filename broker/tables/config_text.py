"""Text of the broker's state files: `config/*.json` as RocketMQ writes it.

fastjson's pretty form: one member a line, tabs, unquoted numbers as keys, empty maps as `{}`. Files
of Apache 5.5.0 that are read and written again are the same byte for byte.

Java counterpart: common/ConfigManager.java with RemotingSerializable.toJson of 5.5.0. Pure;
`disk/json_config.py` puts the text on disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from ...common.steps import STEP_ITEMS, Steps, in_parts
from ...remoting.bodies import Body, DataVersion

TOPICS: Final = "topics.json"
SUBSCRIPTION_GROUPS: Final = "subscriptionGroup.json"
CONSUMER_OFFSETS: Final = "consumerOffset.json"
DELAY_OFFSETS: Final = "delayOffset.json"
CONSUMER_FILTERS: Final = "consumerFilter.json"
QUEUE_MAPPINGS: Final = "topicQueueMapping.json"
REQUEST_MODES: Final = "messageRequestMode.json"
CONSUMER_ORDERS: Final = "consumerOrderInfo.json"


@dataclass(frozen=True, slots=True)
class Written:
    """A value that is already encoded, for the depth at which it is inserted.

    Attributes:
      parts: the text in UTF-8, in parts so that a large one is joined once.
    """

    parts: Sequence[bytes]


Json = (
    Written
    | str
    | int
    | bool
    | None
    | Mapping[str, "Json"]
    | Mapping[int, "Json"]
    | Sequence["Json"]
)

T = TypeVar("T")

_encode = msgspec.json.encode
_SCALARS: Final = frozenset((str, int, bool, type(None)))


def pretty(value: Json) -> bytes:
    """A value as fastjson's pretty form, UTF-8.

    Args:
      value: maps, sequences, strings, whole numbers and booleans; keys are strings or whole
          numbers.
    """
    parts: list[bytes] = []
    _append(value, b"\n\t", parts)
    return b"".join(parts)


def written(body: Body, *, depth: int) -> Written:
    """A body as fastjson's pretty form: members sorted by name, without those that are None.

    Args:
      body: an instance of a body class.
      depth: the number of maps around it.
    """
    parts: list[bytes] = []
    _append(_sorted(msgspec.to_builtins(body)), b"\n" + b"\t" * (depth + 1), parts)
    return Written(parts)


def next_version(version: DataVersion, now_ms: int) -> DataVersion:
    """The version of a table after a change, as a new object.

    Args:
      version: the table's before the change.
      now_ms: the wall clock, ms since 1970.
    """
    return DataVersion(
        timestamp=now_ms, counter=version.counter + 1, state_version=version.state_version
    )


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value) if value[name] is not None}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _append(value: Json, indent: bytes, parts: list[bytes]) -> None:
    if type(value) in _SCALARS:  # first: isinstance with an abstract class takes 0.5 us
        parts.append(_scalar(value))  # type: ignore[arg-type]
    elif isinstance(value, Mapping):
        if not value:
            parts.append(b"{}")
            return
        separator = b"{"
        for key, member in value.items():
            parts += (separator, indent, _key(key), b":")
            _append(member, indent + b"\t", parts)
            separator = b","
        parts += (indent[:-1], b"}")
    elif isinstance(value, Sequence) and not isinstance(value, str):
        if not value:
            parts.append(b"[]")
            return
        separator = b"["
        for item in value:
            parts += (separator, indent)
            _append(item, indent + b"\t", parts)
            separator = b","
        parts += (indent[:-1], b"]")
    elif isinstance(value, Written):
        parts += value.parts
    else:
        parts.append(_scalar(value))


@lru_cache(maxsize=256)
def _key(key: str | int) -> bytes:
    """An encoded key; cached, because bodies have few different keys."""
    return _scalar(key)


def _scalar(value: str | int | bool | None) -> bytes:
    return b"%d" % value if type(value) is int else _encode(value)


def written_in_steps(
    table: Mapping[str, T], write: Callable[[str, T], bytes], *, depth: int = 1
) -> Steps[Written]:
    """Steps that encode a table one level below the top, or deeper, as `pretty` would.

    Args:
      table: value by name; it must not change meanwhile.
      write: encodes a member, name and value, in at most a few hundred bytes.
      depth: the number of maps around the table.
    """
    if not table:
        return Written((b"{}",))
    indent = b"\n" + b"\t" * (depth + 1)
    parts: list[bytes] = []
    for names in in_parts(list(table), STEP_ITEMS):
        parts.append((b"," if parts else b"{") + indent)
        parts.append((b"," + indent).join([write(name, table[name]) for name in names]))
        yield
    parts.append(indent[:-1] + b"}")
    return Written(parts)


def member(name: str, value: Written) -> bytes:
    """A member of a map: its name and its value, which is encoded for its depth."""
    return b"".join((_scalar(name), b":", *value.parts))


class WrittenBodies:
    """Encoded members of a table, cached from one save of the table to the next.

    A table of thousands of topics is saved at each change; only changed members are encoded again.
    A body counts as changed when it is another object, so bodies must be replaced, never changed in
    place.
    """

    def __init__(self) -> None:
        self._texts: dict[str, tuple[Body, bytes]] = {}

    def write(self, table: Mapping[str, Body]) -> Steps[Written]:
        """Steps that encode a table one level below the top; it must not change meanwhile."""
        texts: dict[str, tuple[Body, bytes]] = {}

        def text_of(name: str, body: Body) -> bytes:
            known = self._texts.get(name)
            if known is None or known[0] is not body:
                text = member(name, written(body, depth=2))
                known = body, text
            texts[name] = known
            return known[1]

        text = yield from written_in_steps(table, text_of)
        self._texts = texts  # without what the table had before
        return text


def page(table: Mapping[str, T], *, begin: int, count: int) -> dict[str, T]:
    """One page of a table, in the order of its names.

    Args:
      table: value by name.
      begin: index of the first name; negative counts as 0.
      count: names at most; negative counts as 0.
    """
    begin, count = max(begin, 0), max(count, 0)
    return {name: table[name] for name in itertools.islice(sorted(table), begin, begin + count)}
