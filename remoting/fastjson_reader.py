"""Tolerant JSON reader, for documents that fastjson reads and a JSON parser refuses.

A compiled pattern splits the text into tokens, and a loop with an explicit stack builds the value.
The time is linear in the text: at most one step for each character, some 0.4 us each. `read` reads
a whole document; `read_in_steps` yields after every STEP_TOKENS tokens, so that an event loop can
run other tasks.

Source: the grammar of fastjson's reader (JSONLexerBase, DefaultJSONParser). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final, NoReturn, TypeAlias

from ..common.java_integers import INT64_MAX, INT64_MIN
from .errors import RemoteProtocolError

DEPTH_MAX: Final = 64
"""Nesting of containers, at most; RocketMQ's bodies have 7 levels."""
STEP_TOKENS: Final = 4_096
"""Tokens per step of `read_in_steps`: some 2 ms."""
_NUMBER_CHARS_MAX: Final = 64  # of one number: a long has 20, a double 24

# Only repeated characters are possessive: before 3.11.5 a possessive group keeps what a failed
# round has taken. Nothing here can match in two ways, so it takes linear time all the same.
_SPACE: Final = r"(?:[ \t\r\n\f\v\ufeff]++|//[^\n]*+(?:\n|\Z)|/\*[^*]*+\*++(?:[^/*][^*]*+\*++)*/)*"
_TOKEN: Final = re.compile(
    _SPACE
    + r"""(?:
        ([{}\[\]:,])
      | "([^"\\]*+)"
      | '([^'\\]*+)'
      | ([+-]?[0-9]++(?![.eE0-9]))
      | ([+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
      | ((?:[^\W\d]|[$_])[\w$.-]*+)
      | "((?:[^"\\]++|\\(?s:.))*+)"
      | '((?:[^'\\]++|\\(?s:.))*+)'
      | (\Z)
    )""".replace(" ", "").replace("\n", "")
)
_DOUBLE_QUOTED, _SINGLE_QUOTED, _INTEGER, _FLOAT, _NAME = range(2, 7)
_DOUBLE_ESCAPED, _SINGLE_ESCAPED, _END = range(7, 10)
"""The pattern's groups; the first one is a punctuation mark."""

_QUOTES: Final = frozenset("\"'")
_SPACES: Final = re.compile(_SPACE)
_WORDS: Final[dict[str, object]] = {"true": True, "false": False, "null": None, "NaN": None}
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|((?s:.)))", re.ASCII)
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


class FrozenObject(Mapping["Key", object]):
    """An object that is the key of a map: immutable and hashable.

    Args:
      members: keys to values; the values are scalars, FrozenObjects, or tuples of these.
    """

    __slots__ = ("_hash", "_members")

    def __init__(self, members: Mapping[Key, object]) -> None:
        self._members = dict(members)
        self._hash = hash(
            frozenset((_salted(key), _salted(value)) for key, value in members.items())
        )

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


def _salted(value: object) -> object:
    """A replacement of a value for hashing: numbers become strings, whose hashes are salted."""
    # Otherwise a peer could send thousands of numbers with the same hash as keys, and each
    # insertion would compare a key with all others.
    if type(value) is str:
        return value
    if isinstance(value, (int, float)):
        whole = int(value)
        return f"#{whole}" if whole == value else f"#{value!r}"
    if isinstance(value, tuple):
        return tuple([_salted(item) for item in value])
    return value


Key: TypeAlias = str | int | FrozenObject
"""A key of an object; an int if it was bare."""

_Container: TypeAlias = Any  # a dict or a list


def read(text: str) -> object:
    """Read a document.

    Returns: dict, list, str, int, float, bool or None. A key of a dict is a str, an int if it was
      bare, or a FrozenObject. NaN is None.
    Raises: RemoteProtocolError: fastjson would not read it, or it is nested too deep; with the
      position in bytes.
    """
    steps = read_in_steps(text)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def read_in_steps(text: str) -> Generator[None, None, object]:
    """Read a document as `read` does; yields after each STEP_TOKENS tokens, returns the value."""
    return _Reader(text).steps()


class _Reader:
    """A reader of one document.

    Its state is the kind of token that is expected next: a value, a key, a colon, or a separator.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def steps(self) -> Generator[None, None, object]:
        text, match = self._text, _TOKEN.match
        # The containers around `top`: each with the key of the inner container in it, and whether
        # it is itself a key. `top` is first a list that holds the document.
        stack: list[tuple[_Container, Any, bool]] = []
        top: _Container = []
        key: Any = None
        value: Any = None
        is_key, state = False, "value"
        position, budget = 0, STEP_TOKENS
        while True:
            budget -= 1
            if not budget:
                budget = STEP_TOKENS
                yield
            token = match(text, position)
            if token is None:
                self._refuse_token(position, state)
            mark = token[1]
            is_object = type(top) is dict
            if state == "separator":
                if not stack:
                    return self._document(token, top)
                if mark == ",":
                    position = token.end()
                    state = "key" if is_object else "value"
                    continue
                if mark != ("}" if is_object else "]"):
                    self._refuse(position, f"a comma or {'}' if is_object else ']'} is expected")
            elif state == "colon":
                if mark != ":":
                    self._refuse(position, "a colon is expected")
                position, state = token.end(), "value"
                continue
            elif mark == "{" or (mark == "[" and state == "value"):
                if len(stack) >= DEPTH_MAX:
                    self._refuse(position, f"nested deeper than {DEPTH_MAX}")
                stack.append((top, key, is_key))
                is_key = state == "key"
                top = {} if mark == "{" else []
                position = token.end()
                state = "key" if mark == "{" else "value"
                continue
            elif mark is None:
                kind = token.lastindex or 0
                is_text = kind in (_DOUBLE_QUOTED, _SINGLE_QUOTED)
                value = token[kind] if is_text else self._scalar(token, state)
                position = token.end()
                if state == "key":
                    key, state = value, "colon"
                    continue
                self._put(top, key, value)
                state = "separator"
                continue
            elif not (mark == "}" and state == "key") and not (
                mark == "]" and stack and not is_object
            ):
                self._refuse_place(position, state)
            # The innermost container has ended.
            position = token.end()
            value = top
            top, outer_key, was_key = stack.pop()
            key = _frozen(value) if is_key else outer_key
            if is_key:
                state = "colon"
            else:
                self._put(top, key, value)
                state = "separator"
            is_key = was_key

    def _document(self, token: re.Match[str], holder: list[object]) -> object:
        """The document's value, after checking that no token follows."""
        if token.lastindex != _END:
            self._refuse(token.start(), "there is more after the end")
        return holder[0]

    @staticmethod
    def _put(container: _Container, key: Any, value: Any) -> None:
        if type(container) is dict:
            container[key] = value
        else:
            container.append(value)

    def _scalar(self, token: re.Match[str], state: str) -> Any:
        """The value of a token that is neither a mark nor a string without escapes."""
        kind = token.lastindex or 0
        if kind == _INTEGER:
            return self._integer(token, state)
        if kind == _NAME:
            name = token[kind]
            if state == "key":
                return name
            if name not in _WORDS:
                self._refuse(token.end(), "an unknown word")
            return _WORDS[name]
        if kind == _FLOAT and state == "value":
            return self._float(token)
        if kind not in (_DOUBLE_ESCAPED, _SINGLE_ESCAPED):
            self._refuse_place(token.start(), state)
        return self._text_of(token[kind], token.start(kind))

    def _integer(self, token: re.Match[str], state: str) -> int:
        digits = token[4]
        if len(digits) > _NUMBER_CHARS_MAX:
            self._refuse(token.start(4), f"a number of more than {_NUMBER_CHARS_MAX} characters")
        number = int(digits)
        if state == "key" and not INT64_MIN <= number <= INT64_MAX:
            self._refuse(token.start(4), "a number as a key is beyond the range of a long")
        return number

    def _float(self, token: re.Match[str]) -> float:
        digits = token[5]
        if len(digits) > _NUMBER_CHARS_MAX:
            self._refuse(token.start(5), f"a number of more than {_NUMBER_CHARS_MAX} characters")
        number = float(digits)
        if number in (float("inf"), float("-inf")):
            self._refuse(token.start(5), "a number beyond the range of a double")
        return number

    def _text_of(self, raw: str, start: int) -> str:
        """Decode a string with escapes; `start` is its position in the document."""
        pieces: list[str] = []
        position = 0
        high = 0  # the first half of a surrogate pair
        for found in _ESCAPE.finditer(raw):
            if high and found.start() > position:
                break
            pieces.append(raw[position : found.start()])
            position = found.end()
            code, short, char = found.groups()
            unit = int(code, 16) if code is not None else 0
            if high or 0xD800 <= unit <= 0xDFFF:
                pair_is_whole = 0xDC00 <= unit <= 0xDFFF if high else unit <= 0xDBFF
                if not pair_is_whole:
                    self._refuse(start + position, "half of a surrogate pair")
                if high:
                    pieces.append(chr(0x10000 + ((high - 0xD800) << 10) + (unit - 0xDC00)))
                high = 0 if high else unit
            elif code is not None:
                pieces.append(chr(unit))
            elif short is not None:
                pieces.append(chr(int(short, 16)))
            elif char in _ESCAPES:
                pieces.append(_ESCAPES[char])
            elif char in "ux":
                digits = 4 if char == "u" else 2
                self._refuse(start + found.start(), f"an escape needs {digits} hex digits")
            else:
                self._refuse(start + found.start(), "an unknown escape")
        if high:
            self._refuse(start + position, "half of a surrogate pair")
        pieces.append(raw[position:])
        return "".join(pieces)

    def _refuse_place(self, position: int, state: str) -> NoReturn:
        """Refuse a token that is not allowed in this state."""
        expected = {
            "value": "a value is expected",
            "key": "a key must be a string, an integer or an object",
        }
        self._refuse(position, expected[state])

    def _refuse_token(self, position: int, state: str) -> NoReturn:
        space = _SPACES.match(self._text, position)
        end = position if space is None else space.end()
        if self._text[end : end + 1] in _QUOTES and state in ("value", "key"):
            rest = self._text[end + 1 :]
            self._text_of(rest, end + 1)
            if rest.endswith("\\"):
                self._refuse(len(self._text) - 1, "an unknown escape")
            self._refuse(len(self._text), "a string has no end")
        if state in ("value", "key"):
            self._refuse_place(position, "value")
        if state == "colon":
            self._refuse(position, "a colon is expected")
        self._refuse(position, "a comma or a bracket is expected")

    def _refuse(self, position: int, reason: str) -> NoReturn:
        """Refuse the document; `position` is in characters, spaces after it are skipped."""
        space = _SPACES.match(self._text, position)
        end = position if space is None else space.end()
        raise RemoteProtocolError(
            f"JSON cannot be read: {reason}", len(self._text[:end].encode("utf-8", "surrogatepass"))
        )


def _frozen(value: object) -> Any:
    if isinstance(value, dict):
        return FrozenObject({key: _frozen(member) for key, member in value.items()})
    if isinstance(value, list):
        return tuple([_frozen(item) for item in value])
    return value
