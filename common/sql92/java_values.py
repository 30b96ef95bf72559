"""Java's `Integer.valueOf`, `Long.valueOf`, `Double.valueOf` and `Double.compare`.

Python's int() and float() accept other strings: `1_0`, spaces around an integer, `nan`, digits
beyond U+FFFF; and not `1.5f` or `0x1p3`.

Java counterpart: java.lang.Integer, Long, Double, Boolean of Java 17. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar

from ..java_integers import INT32_MAX, INT64_MAX
from .errors import FilterEvaluationError

T = TypeVar("T")

_INT64_DIGITS_MAX: Final = 19
_SAFE_DIGITS_MAX: Final = 9
"""Any number of up to this many ASCII digits fits into an int32."""

_SHORT_TEXT_MAX: Final = 100
"""Longer strings are cached; no usual number is longer."""

_DOUBLE: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEX_DOUBLE: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_JAVA_SPACES: Final = "".join(map(chr, range(0x21)))
"""The characters that String.trim removes."""


def int32_of(text: str) -> int:
    """`Integer.valueOf(text)`. Raises: FilterEvaluationError: no such number."""
    if len(text) <= _SAFE_DIGITS_MAX and text.isdecimal() and text.isascii():
        return int(text)
    return _value_of(_read_int32, text)


def int64_of(text: str) -> int:
    """`Long.valueOf(text)`. Raises: FilterEvaluationError: no such number."""
    if len(text) <= _SAFE_DIGITS_MAX and text.isdecimal() and text.isascii():
        return int(text)
    return _value_of(_read_int64, text)


def double_of(text: str) -> float:
    """`Double.valueOf(text)`. Raises: FilterEvaluationError: no such number."""
    return _value_of(_read_double, text)


def _value_of(read: Callable[[str], T], text: str) -> T:
    """The result of `read`, cached for long strings."""
    if len(text) <= _SHORT_TEXT_MAX:
        return read(text)
    # An expression may compare one property of 32 kB several hundred times.
    value: T | FilterEvaluationError = _remembered(read, text)
    if isinstance(value, FilterEvaluationError):
        raise value
    return value


@lru_cache(maxsize=16)
def _remembered(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except FilterEvaluationError as error:
        return error


def _read_int32(text: str) -> int:
    return _integer(text, INT32_MAX)


def _read_int64(text: str) -> int:
    return _integer(text, INT64_MAX)


def _integer(text: str, value_max: int) -> int:
    sign = text[:1]
    digits = text[1:] if sign in ("+", "-") else text
    # Java reads UTF-16 units: digits of any script count, but none beyond U+FFFF.
    if not digits.isdecimal() or max(digits) > "\uffff":
        raise FilterEvaluationError(f"{text[:40]!r} is not a whole number")
    if not digits.isascii():
        digits = "".join([str(int(digit)) for digit in digits])
    digits = digits.lstrip("0") or "0"
    if len(digits) <= _INT64_DIGITS_MAX:
        value = -int(digits) if sign == "-" else int(digits)
        if -value_max - 1 <= value <= value_max:
            return value
    raise FilterEvaluationError(f"{text[:40]!r} is beyond {value_max}")


def _read_double(text: str) -> float:
    number = text.strip(_JAVA_SPACES)
    if _DOUBLE.fullmatch(number):
        # `Infinity` has an f too, but never as its last character.
        return float(number[:-1] if number[-1] in "fFdD" else number)
    hexadecimal = _HEX_DOUBLE.fullmatch(number)
    if hexadecimal is None:
        raise FilterEvaluationError(f"{text[:40]!r} is not a number")
    try:
        return float.fromhex(hexadecimal[1])
    except OverflowError:
        return -math.inf if number[0] == "-" else math.inf


def boolean_of(text: str) -> bool:
    """`Boolean.valueOf(text)`: whether it is `true` in any case."""
    return len(text) == len("true") and text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """`Double.compare`: below 0, 0 or above 0. NaN is the greatest, and -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right and left != 0:
        return 0
    if left != left or right != right:
        return (left != left) - (right != right)
    return int(math.copysign(1, left) - math.copysign(1, right))
