"""The JSON that RocketMQ's bodies are written in: what fastjson reads and writes.

Fastjson goes beyond JSON: the keys of a map may be bare integers (`{0:"a"}`) or whole objects
(`{{"queueId":1}:{...}}`), and its reader also takes single quotes, bare names, comments and
trailing commas. `loads` reads all of these; well-formed JSON takes a quick path. `dumps` writes
what fastjson writes, without the null members, which fastjson leaves out too.

Not done: resolving `{"$ref": "$.a"}` (it stays an object with that member); dates, `new`, `Set[`
and `@type`, which RocketMQ never writes.

Source: recordings of 4.9.7 (fastjson 1) and 5.5.0 (fastjson 2); the grammar of fastjson's reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from .errors import LocalProtocolError, RemoteProtocolError

SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of a document, at most: no frame is longer."""
DEPTH_MAX: Final = 64
"""Containers inside one another, at most; RocketMQ's own bodies have 7."""
TOLERANT_SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes of a document that is not plain JSON, at most: reading one takes some 1.3 s per MiB."""
CONTAINERS_MAX: Final = 1_000_000
"""Objects and arrays in a document, at most: one takes some 60 times its two bytes in memory."""
_NUMBER_CHARS_MAX: Final = 64  # of one number: a long has 20, a double 24

_SPACE: Final = re.compile(r"(?:[ \t\r\n\f\v\ufeff]+|//[^\n]*(?:\n|\Z)|/\*(?s:.*?)\*/)*+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_NAME: Final = re.compile(r"[^\W\d][\w$.-]*|[$_][\w$.-]*")
_PLAIN: Final = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_WORDS: Final[dict[str, object]] = {"true": True, "false": False, "null": None, "NaN": None}
_ESCAPES: Final = {
    **{char: char for char in "\"'\\/"},
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    **{str(digit): chr(digit) for digit in range(8)},
}
_HEX: Final = {length: re.compile(f"[0-9a-fA-F]{{{length}}}", re.ASCII) for length in (2, 4)}


class FrozenObject(Mapping["Key", object]):
    """An object that stands as the key of a map: it cannot be changed, and it can be hashed.

    Args:
      members: keys to values; the values are scalars, FrozenObjects, or tuples of these.
    """

    __slots__ = ("_hash", "_members")

    def __init__(self, members: Mapping[Key, object]) -> None:
        self._members = dict(members)
        self._hash = hash(frozenset(self._members.items()))

    def __getitem__(self, key: Key) -> object:
        return self._members[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenObject):
            return self._members == other._members
        return NotImplemented

    def __repr__(self) -> str:
        return f"FrozenObject({self._members!r})"


Key: TypeAlias = str | int | FrozenObject
"""What may be the key of an object; an int where it stood bare."""


def loads(document: bytes | str) -> object:
    """Read a document as fastjson would.

    Args:
      document: JSON or fastjson's own, UTF-8 when it is bytes; at most SIZE_MAX bytes.
    Returns: dict, list, str, int, float, bool or None. A key of a dict is a str, an int where it
      stood bare, or a FrozenObject. NaN is None.
    Raises: RemoteProtocolError: it is no such document, or is too large or nested too deep.
    """
    data = document if isinstance(document, bytes) else document.encode("utf-8", "surrogatepass")
    openers = check_size(data)
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        if len(data) > TOLERANT_SIZE_MAX:
            raise RemoteProtocolError(
                f"not plain JSON, and of {len(data)} bytes; at most {TOLERANT_SIZE_MAX} are tried"
            ) from None
        return _Parser(_text(data)).document()
    if openers > DEPTH_MAX and _is_deeper(value, DEPTH_MAX):
        raise RemoteProtocolError(f"JSON is nested deeper than {DEPTH_MAX}")
    return value


def check_size(data: bytes) -> int:
    """Refuse a document that would take too much memory, before reading it.

    Returns: the number of brackets that open something, also inside of strings.
    Raises: RemoteProtocolError: more than SIZE_MAX bytes or CONTAINERS_MAX containers.
    """
    if len(data) > SIZE_MAX:
        raise RemoteProtocolError(f"JSON of {len(data)} bytes, at most {SIZE_MAX} are read")
    openers = data.count(b"{") + data.count(b"[")
    if openers > CONTAINERS_MAX:
        raise RemoteProtocolError(f"JSON of more than {CONTAINERS_MAX} objects and arrays")
    return openers


def check_depth(value: object) -> None:
    """Refuse what `loads` would refuse as a part of something greater.

    Raises: ValueError: nested deeper than DEPTH_MAX // 2.
    """
    if value and _is_deeper(value, DEPTH_MAX // 2):
        raise ValueError(f"nested deeper than {DEPTH_MAX // 2}")


def dumps(value: object, *, quote_int_keys: bool = True) -> bytes:
    """Write a document as fastjson would, without whitespace and without null members.

    Args:
      value: what `loads` returns, and msgspec.Structs, enums, tuples and sets; a Struct or a
        FrozenObject may be a key.
      quote_int_keys: true: `{"0":...}`, which every reader takes; false: `{0:...}` as fastjson does
        when nobody asks for standard JSON.
    Returns: UTF-8.
    Raises: LocalProtocolError: a type, a key or a text that cannot be written.
    """
    try:
        if quote_int_keys:
            try:
                return msgspec.json.encode(without_nulls(msgspec.to_builtins(value)))
            except TypeError:
                pass  # object keys: the slow writer knows them
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
    for _ in range(depth_max):
        inner: list[object] = []
        for item in level:
            inner.extend(item.values() if isinstance(item, dict) else item)
        level = [item for item in inner if isinstance(item, (dict, list))]
        if not level:
            return False
    return True


def _write(value: object, quote_int_keys: bool, depth: int, pieces: list[str]) -> None:
    """The slow writer: knows bare and object keys."""
    if depth > DEPTH_MAX:
        raise TypeError(f"nested deeper than {DEPTH_MAX}")
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        separator = "{"
        for key, member in value.items():
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


class _Parser:
    """The tolerant reader; one object reads one document."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._index = 0

    def document(self) -> object:
        value = self._value(1)
        if self._peek() != "":
            raise self._error("there is more after the end")
        return value

    def _error(self, reason: str) -> RemoteProtocolError:
        position = len(self._text[: self._index].encode())
        return RemoteProtocolError(f"JSON cannot be read: {reason}", position)

    def _peek(self) -> str:
        """The next character that means something; "" at the end."""
        space = _SPACE.match(self._text, self._index)
        if space is not None:
            self._index = space.end()
        return self._text[self._index : self._index + 1]

    def _value(self, depth: int) -> object:
        char = self._peek()
        if char in ("{", "["):
            if depth > DEPTH_MAX:
                raise self._error(f"nested deeper than {DEPTH_MAX}")
            self._index += 1
            return self._object(depth) if char == "{" else self._array(depth)
        if char in ('"', "'"):
            return self._string(char)
        number = _NUMBER.match(self._text, self._index)
        if number is not None:
            return self._number(number)
        name = self._name()
        if name not in _WORDS:
            raise self._error("a value is expected" if name is None else "an unknown word")
        return _WORDS[name]

    def _object(self, depth: int) -> dict[Key, object]:
        members: dict[Key, object] = {}
        while True:
            if self._peek() == "}":
                self._index += 1
                return members
            key = self._key(depth)
            if self._peek() != ":":
                raise self._error("a colon is expected")
            self._index += 1
            members[key] = self._value(depth + 1)
            self._separator("}")

    def _array(self, depth: int) -> list[object]:
        items: list[object] = []
        while True:
            if self._peek() == "]":
                self._index += 1
                return items
            items.append(self._value(depth + 1))
            self._separator("]")

    def _separator(self, end: str) -> None:
        char = self._peek()
        if char == ",":
            self._index += 1
        elif char != end:
            raise self._error(f"a comma or {end} is expected")

    def _key(self, depth: int) -> Key:
        start = self._index
        char = self._peek()
        name = None if char in ("{", '"', "'") else self._name()
        if name is not None:
            return name
        key = self._value(depth + 1)
        if isinstance(key, dict):
            return _frozen_object(key)
        if isinstance(key, str) or (isinstance(key, int) and not isinstance(key, bool)):
            return key
        self._index = start
        raise self._error("a key must be a text, an integer or an object")

    def _name(self) -> str | None:
        found = _NAME.match(self._text, self._index)
        if found is None:
            return None
        self._index = found.end()
        return found.group()

    def _number(self, found: re.Match[str]) -> int | float:
        digits = found.group()
        if len(digits) > _NUMBER_CHARS_MAX:
            raise self._error(f"a number of more than {_NUMBER_CHARS_MAX} characters")
        if digits.lstrip("+-").isdigit():
            number: int | float = int(digits)
        else:
            number = float(digits)
            if number in (float("inf"), float("-inf")):
                raise self._error("a number beyond the range of a double")
        self._index = found.end()
        return number

    def _string(self, quote: str) -> str:
        self._index += 1
        pieces: list[str] = []
        plain = _PLAIN[quote]
        while True:
            run = plain.match(self._text, self._index)
            if run is not None:
                pieces.append(run.group())
                self._index = run.end()
            char = self._text[self._index : self._index + 1]
            if char == quote:
                self._index += 1
                return "".join(pieces)
            if char == "":
                raise self._error("a string has no end")
            pieces.append(self._escape())

    def _escape(self) -> str:
        kind = self._text[self._index + 1 : self._index + 2]
        if kind == "u":
            return self._unicode()
        if kind == "x":
            return chr(self._hex(2))
        char = _ESCAPES.get(kind)
        if char is None:
            raise self._error("an unknown escape")
        self._index += 2
        return char

    def _hex(self, length: int) -> int:
        digits = _HEX[length].match(self._text, self._index + 2)
        if digits is None:
            raise self._error(f"an escape needs {length} hex digits")
        self._index += 2 + length
        return int(digits.group(), 16)

    def _unicode(self) -> str:
        first = self._hex(4)
        if not 0xD800 <= first <= 0xDFFF:
            return chr(first)
        if first <= 0xDBFF and self._text.startswith("\\u", self._index):
            second = self._hex(4)
            if 0xDC00 <= second <= 0xDFFF:
                return chr(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
        raise self._error("half of a surrogate pair")


def _frozen_object(members: Mapping[Key, object]) -> FrozenObject:
    return FrozenObject({key: _frozen(member) for key, member in members.items()})


def _frozen(value: object) -> object:
    if isinstance(value, dict):
        return _frozen_object(value)
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return value
