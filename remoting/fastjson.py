"""fastjson's dialect of JSON, in which RocketMQ writes its bodies.

fastjson extends JSON: the keys of a map may be bare integers (`{0:"a"}`) or objects
(`{{"queueId":1}:{...}}`), and its reader also accepts single quotes, bare names, comments and
trailing commas. `loads` reads all of these; well-formed JSON takes a fast path. `dumps` writes the
same form as fastjson, without null members.

Not done: references such as `{"$ref": "$.a"}` (they are read as plain objects); dates, `new`,
`Set[` and `@type`, which RocketMQ never writes.

Source: recordings of 4.9.7 (fastjson 1) and 5.5.0 (fastjson 2); the grammar of fastjson's reader.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from typing import Final

import msgspec

from .errors import LocalProtocolError, RemoteProtocolError
from .fastjson_reader import DEPTH_MAX, read, read_in_steps
from .fastjson_reader import FrozenObject as FrozenObject

SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of a document, at most: no frame is longer."""
TOLERANT_SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes of a document that is not plain JSON, at most, if only its reader waits for it: a file, or
the answer to an administrator's request. Reading takes up to 0.4 s per MiB."""
REQUEST_TOLERANT_SIZE_MAX: Final = 32 * 1024
"""The same for a request to a server, header or body: it blocks the loop for up to 15 ms. Clients
of all languages send plain JSON; requests from scripts are short. The registration of a broker with
static topics is longer, and is read in steps."""
CONTAINERS_MAX: Final = 1_000_000
"""Objects and arrays in a document, at most: one takes some 60 times its two bytes in memory."""


def loads(document: bytes | str, *, tolerant_size_max: int | None = None) -> object:
    """Read a document as fastjson would.

    Args:
      document: JSON or fastjson's dialect, bytes are UTF-8; at most SIZE_MAX bytes.
      tolerant_size_max: bytes, at most, of a document that is not plain JSON; None:
        TOLERANT_SIZE_MAX.
    Returns: dict, list, str, int, float, bool or None. A key of a dict is a str, an int if it was
      bare, or a FrozenObject. NaN is None.
    Raises: RemoteProtocolError: it is malformed, too large or nested too deep.
    """
    data = document if isinstance(document, bytes) else document.encode("utf-8", "surrogatepass")
    openers = check_size(data)
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        if tolerant_size_max is None:
            tolerant_size_max = TOLERANT_SIZE_MAX
            value = _loads_queue_keys(data)
            if value is not None:
                return value
        # The tolerant reader takes up to 0.4 s per MiB, and peers choose what they send.
        if len(data) > tolerant_size_max:
            raise RemoteProtocolError(
                f"not plain JSON, and of {len(data)} bytes; the limit for that is "
                f"{tolerant_size_max}"
            ) from None
        return read(_text(data))
    # msgspec reads deep values, but code that walks them by recursion would fail.
    if openers > DEPTH_MAX and _is_deeper(value, DEPTH_MAX):
        raise RemoteProtocolError(f"JSON is nested deeper than {DEPTH_MAX}")
    return value


def loads_in_steps(document: bytes) -> Generator[None, None, object]:
    """Read a document that is not plain JSON in steps of a few milliseconds.

    Args:
      document: UTF-8, at most TOLERANT_SIZE_MAX bytes.
    Returns: a generator that yields between the steps, and returns what `loads` does.
    Raises: RemoteProtocolError: as `loads`.
    """
    if len(document) > TOLERANT_SIZE_MAX:
        raise RemoteProtocolError(
            f"not plain JSON, and of {len(document)} bytes; the limit for that is "
            f"{TOLERANT_SIZE_MAX}"
        )
    return read_in_steps(_text(document))


_TOPIC, _BROKER_NAME, _QUEUE_ID = (
    rb'"topic":"(?P<topic>[^"\\]*+)"',
    rb'"brokerName":"(?P<broker>[^"\\]*+)"',
    rb'"queueId":(?P<queue>-?[0-9]{1,10}+)',
)
_QUEUE_KEYS: Final = [
    re.compile(rb"(?<=[{,])\{" + b",".join(members) + rb"\}:")
    for members in ((_BROKER_NAME, _QUEUE_ID, _TOPIC), (_TOPIC, _BROKER_NAME, _QUEUE_ID))
]
"""A MessageQueue as the key of a map, as Java writes it, and as we do. They do not match inside of
a string: the quote after the bracket would end the string, and no letter follows that."""
_MARKED: Final = rb'"\\u0000\g<broker>\\u0000\g<queue>\\u0000\g<topic>":'
_NUL: Final = "\0"
_STEP_ITEMS: Final = 100
"""Items of a list in one step: such as the progress of a hundred groups."""


def _loads_queue_keys(data: bytes) -> object:
    """Read a document that is plain JSON but for maps with queues as their keys, much faster.

    Returns: as `loads`; None: it is no such document.
    """
    marked = _marked(data)
    return None if marked is None else _with_queue_keys(marked)


def loads_queue_keys_in_steps(data: bytes) -> Generator[None, None, object]:
    """Read a document that is plain JSON but for maps with queues as their keys, in steps.

    Args:
      data: UTF-8, as `check_size` allows. The first step takes 20 ms per MiB: it is not for what
        clients send to a server.
    Returns: a generator that yields between the steps, and returns what `loads` does; None: it is
      no such document.
    """
    marked = _marked(data)
    yield
    if marked is None or not isinstance(marked, dict):
        return None if marked is None else _with_queue_keys(marked)
    read: dict[object, object] = {}
    for key, member in marked.items():
        at = _key(key)
        if not isinstance(member, list):
            read[at] = _with_queue_keys(member)
            continue
        items: list[object] = []
        read[at] = items
        for begin in range(0, len(member), _STEP_ITEMS):
            items.extend(_with_queue_keys(each) for each in member[begin : begin + _STEP_ITEMS])
            yield
    return read


def _marked(data: bytes) -> object:
    """A document with its queues as strings that begin with a NUL, which no other string has."""
    if b"\\u0000" in data or b"\0" in data:
        return None
    plain, found = data, 0
    for pattern in _QUEUE_KEYS:
        plain, count = pattern.subn(_MARKED, plain)
        found += count
    if not found:
        return None
    try:
        value = msgspec.json.decode(plain)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    # A key is one level deeper than the string that stands for it.
    return None if _is_deeper(value, DEPTH_MAX - 1) else value


def _with_queue_keys(value: object) -> object:
    if isinstance(value, dict):
        return {
            _key(key): (_with_queue_keys(member) if isinstance(member, (dict, list)) else member)
            for key, member in value.items()
        }
    if isinstance(value, list):
        return [
            _with_queue_keys(item) if isinstance(item, (dict, list)) else item for item in value
        ]
    return value


def _key(text: str) -> str | FrozenObject:
    if not text.startswith(_NUL):
        return text
    _, broker_name, queue_id, topic = text.split(_NUL)
    return FrozenObject({"brokerName": broker_name, "queueId": int(queue_id), "topic": topic})


def check_size(data: bytes) -> int:
    """Refuse a document that would take too much memory, before reading it.

    Returns: the number of opening brackets, also inside of strings.
    Raises: RemoteProtocolError: more than SIZE_MAX bytes or CONTAINERS_MAX containers.
    """
    if len(data) > SIZE_MAX:
        raise RemoteProtocolError(f"JSON of {len(data)} bytes, the limit is {SIZE_MAX}")
    # Brackets in strings count, too: exact enough for a limit, and much faster than parsing.
    openers = data.count(b"{") + data.count(b"[")
    if openers > CONTAINERS_MAX:
        raise RemoteProtocolError(f"JSON of more than {CONTAINERS_MAX} objects and arrays")
    return openers


def check_depth(value: object) -> None:
    """Refuse a value that `loads` might refuse as a part of a larger document.

    Raises: ValueError: nested deeper than DEPTH_MAX // 2.
    """
    if value and _is_deeper(value, DEPTH_MAX // 2):
        raise ValueError(f"nested deeper than {DEPTH_MAX // 2}")


def dumps(value: object, *, quote_int_keys: bool = True) -> bytes:
    """Write a document as fastjson would, without whitespace and without null members.

    Args:
      value: a result of `loads`, or msgspec.Structs, enums, tuples and sets; a Struct or a
        FrozenObject may be a key.
      quote_int_keys: true: `{"0":...}`, which every reader accepts; false: `{0:...}`, fastjson's
        default.
    Returns: UTF-8.
    Raises: LocalProtocolError: a type, a key or a string cannot be written.
    """
    try:
        if quote_int_keys:
            try:
                return msgspec.json.encode(without_nulls(msgspec.to_builtins(value)))
            except TypeError:
                pass  # object keys, for which the slow writer is needed
        pieces: list[str] = []
        _write(value, quote_int_keys, 0, pieces)
        return "".join(pieces).encode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise LocalProtocolError(f"cannot be written as JSON: {error}") from error


def without_nulls(value: object) -> object:
    """The same dicts and lists without the members of dicts that are None."""
    if isinstance(value, dict):
        return {
            key: without_nulls(member) if isinstance(member, (dict, list)) else member
            for key, member in value.items()
            if member is not None
        }
    if isinstance(value, list):
        return [without_nulls(item) if isinstance(item, (dict, list)) else item for item in value]
    return value


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("JSON is not UTF-8", error.start) from error


def _is_deeper(value: object, depth_max: int) -> bool:
    level = [value] if isinstance(value, (dict, list)) else []
    # Level by level, as recursion is what deep values must not cause.
    for _ in range(depth_max):
        inner: list[object] = []
        for item in level:
            inner.extend(item.values() if isinstance(item, dict) else item)
        level = [item for item in inner if isinstance(item, (dict, list))]
        if not level:
            return False
    return True


def _write(value: object, quote_int_keys: bool, depth: int, pieces: list[str]) -> None:
    """The slow writer, for bare and object keys."""
    if depth > DEPTH_MAX:
        raise TypeError(f"nested deeper than {DEPTH_MAX}")
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        value = {name: getattr(value, field) for name, field in names}
    if isinstance(value, Mapping):
        separator = "{"
        for key, member in value.items():
            # fastjson leaves out null members.
            if member is None:
                continue
            pieces.append(separator)
            _write_key(key, quote_int_keys, depth, pieces)
            pieces.append(":")
            _write(member, quote_int_keys, depth + 1, pieces)
            separator = ","
        pieces.append("}" if separator == "," else "{}")
    elif isinstance(value, (list, tuple, set, frozenset)):
        separator = "["
        for item in value:
            pieces.append(separator)
            _write(item, quote_int_keys, depth + 1, pieces)
            separator = ","
        pieces.append("]" if separator == "," else "[]")
    else:
        pieces.append(msgspec.json.encode(value).decode())


def _write_key(key: object, quote_int_keys: bool, depth: int, pieces: list[str]) -> None:
    if isinstance(key, int) and not isinstance(key, bool):
        pieces.append(f'"{int(key)}"' if quote_int_keys else str(int(key)))
    elif isinstance(key, (str, FrozenObject, msgspec.Struct)):
        _write(key, quote_int_keys, depth + 1, pieces)
    else:
        raise TypeError(f"a {type(key).__name__} cannot be the key of a map")
