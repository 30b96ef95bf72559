"""Every field of a request, set to values that a client should not send.

The fields are those that `grpc_protocol/schema.py` declares, so a new one is tried without a line
here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ...grpc_protocol.enums import ENUMS
from ...grpc_protocol.schema import MESSAGES

TOO_LONG: Final = 300
"""Characters: more than any name may have."""

_TYPE: Final = re.compile(r"([*?]?)(\w+)(?:@\w+)?")
_ENUMS: Final = frozenset(each.__name__ for each in ENUMS)
_ABSENT: Final = object()

_STRINGS: Final[Mapping[str, Any]] = {
    "absent": _ABSENT,
    "empty": "",
    "blank": "  ",
    "too long": "a" * TOO_LONG,
    "with a control character": "a\x01b",
    "of other letters": "grün/♥",
}
_INT32S: Final[Mapping[str, Any]] = {
    "absent": _ABSENT,
    "0": 0,
    "-1": -1,
    "the greatest": (1 << 31) - 1,
    "the least": -(1 << 31),
}
_INT64S: Final[Mapping[str, Any]] = {
    "absent": _ABSENT,
    "-1": -1,
    "the greatest": (1 << 63) - 1,
    "the least": -(1 << 63),
}
_TIMES: Final[Mapping[str, Any]] = {
    "absent": _ABSENT,
    "0": {},
    "negative": {"seconds": -5},
    "with too many nanoseconds": {"seconds": 15, "nanos": 2_000_000_000},
    "with negative nanoseconds": {"seconds": 15, "nanos": -1},
    "the greatest": {"seconds": (1 << 63) - 1},
    "the least": {"seconds": -(1 << 63)},
    "beyond the range of protobuf": {"seconds": 400_000_000_000},
}
_MAPS: Final[Mapping[str, Any]] = {
    "an empty name": {"": "v"},
    "an empty value": {"k": ""},
    "a blank name": {" ": "v"},
    "a control character in a name": {"a\x02b": "v"},
    "a control character in a value": {"k": "a\x01b"},
    "a line's end in a value": {"k": "a\nb"},
    "a long value": {"k": "v" * 20_000},
    "a long name": {"k" * 20_000: "v"},
    "200 entries": {f"k{number}": "v" for number in range(200)},
    "other letters": {"grün": "♥"},
}
VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "string": _STRINGS,
    "bytes": {"absent": _ABSENT, "a zero": b"\0"},
    "int32": _INT32S,
    "int64": _INT64S,
    "bool": {"false": False, "true": True},
    "float": {"0": 0.0, "-1": -1.0, "not a number": float("nan")},
    "Timestamp": _TIMES,
    "Duration": _TIMES,
    "map": _MAPS,
}
"""By type: what a field is set to, with the words for it."""

_WRONG_ENUM: Final[Mapping[str, Any]] = {"absent": _ABSENT, "unspecified": 0, "unknown": 99}


def wrong_fields(
    message: str, right: Mapping[str, Any], left_out: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Requests in which one field is wrong, each with the words for it.

    Args:
      message: its name in the schema.
      right: the fields of a good request.
      left_out: paths such as `endpoints` that are not tried, nor what is inside of them.
    """
    for path, value, words in _wrong(message, right, (), frozenset(left_out)):
        yield f"{'.'.join(path)} {words}", _with(right, path, value)


def _wrong(
    message: str, right: Mapping[str, Any], above: tuple[str, ...], left_out: frozenset[str]
) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    for name, (_, declared) in MESSAGES[message].items():
        path = (*above, name)
        if ".".join(part for part in path if part != "0") in left_out:
            continue
        found = _TYPE.fullmatch(declared)
        assert found is not None, declared
        mark, kind = found.groups()
        value = right.get(name, _ABSENT)
        if mark == "*":
            yield path, [], "empty"
            items = value if isinstance(value, list) and value else None
            if kind not in VALUES and kind not in _ENUMS:
                yield path, [{}], "with an empty one"
                if items is not None:
                    yield from _wrong(kind, items[0], (*path, "0"), left_out)
                continue
            for words, one in _values(kind).items():
                if one is not _ABSENT:
                    yield path, [one], f"with one {words}"
        elif kind in VALUES or kind in _ENUMS:
            for words, one in _values(kind).items():
                if one is not _ABSENT or value is not _ABSENT:
                    yield path, one, words
        else:
            if value is not _ABSENT:
                yield path, _ABSENT, "absent"
            yield path, {}, "empty"
            inner = value if isinstance(value, Mapping) else {}
            yield from _wrong(kind, inner, path, left_out)


def _values(kind: str) -> Mapping[str, Any]:
    return _WRONG_ENUM if kind in _ENUMS else VALUES[kind]


def _with(right: Any, path: tuple[str, ...], value: Any) -> Any:
    """A copy of a request with the value at a path."""
    name, *rest = path
    if isinstance(right, list):
        inner = value if not rest else _with(right[0], tuple(rest), value)
        return [inner, *right[1:]]
    changed = dict(right)
    if rest:
        changed[name] = _with(changed.get(name, {}), tuple(rest), value)
    elif value is _ABSENT:
        changed.pop(name, None)
    else:
        changed[name] = value
    return changed
