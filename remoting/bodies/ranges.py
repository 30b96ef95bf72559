"""Range checks: numbers of a body outside of the ranges that its members declare. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from ..number_fields import range_of

Check = Callable[[Any], str | None]
"""Takes a value; returns the path of the first bad number in it with what is wrong, or None."""


def out_of_range(body: msgspec.Struct) -> str | None:
    """The first number of a body that is out of its member's range.

    Returns: a string that names the member, the number and the range; None: all are in range.
    """
    check = _check_of_struct(type(body))
    fault = None if check is None else check(body)
    return None if fault is None else f"the member {fault.removeprefix('.')}"


@cache
def _check_of_struct(kind: type[msgspec.Struct]) -> Check | None:
    checks = [
        (field.name, field.encode_name, check)
        for field in msgspec.structs.fields(kind)
        if (check := _check_of(field.type)) is not None
    ]

    def check_struct(value: Any) -> str | None:
        for attribute, name, check in checks:
            fault = check(getattr(value, attribute))
            if fault is not None:
                return f".{name}{fault}"
        return None

    return check_struct if checks else None


def _check_of(kind: Any) -> Check | None:
    """The check of a member of this type; None: it has no number with a range."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _check_of_number(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _check_of_struct(kind)
    # Built once for a type: a body without such numbers then costs nothing.
    checks = [_check_of(part) for part in get_args(kind)]
    if origin in (Union, UnionType):
        check = next((check for check in checks if check is not None), None)
        return None if check is None else lambda value: None if value is None else check(value)
    if origin in (list, set) and checks[0] is not None:
        each = checks[0]
        return lambda values: _first_fault(each, enumerate(values))
    if origin is dict and checks[1] is not None:
        of_value = checks[1]
        return lambda table: _first_fault(of_value, table.items())
    return None


def _check_of_number(kind: Any) -> Check | None:
    declared = range_of(kind)
    if declared is None or (declared.low, declared.high) == (declared.java.low, declared.java.high):
        return None  # reading the body has checked Java's type
    return lambda number: None if declared.has(number) else f" {declared.refusal(number)}"


def _first_fault(check: Check, items: Iterable[tuple[object, Any]]) -> str | None:
    for place, value in items:
        fault = check(value)
        if fault is not None:
            return f"[{place}]{fault}"
    return None
