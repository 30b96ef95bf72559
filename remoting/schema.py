"""Derivation of `struct.Struct` objects for the hot path from `construct` declarations.

Every binary structure of trocket is declared once, with construct. Parsing with construct takes
some 80 times as long as a `struct` call, so the code that runs per message uses a `struct.Struct`
that is derived from the declaration's fixed part; property tests compare the two. Pure.

A fixed part consists of integer fields (`Int32sb`, …), `Bytes(n)`, and these wrapped in `Const`,
`Rebuild`, `Default` or nested in a `Struct`. A `Bytes(lambda this: …)` is fixed if its length can
be computed from the given `context`.

Not done: bit fields, strings, arrays; no structure on RocketMQ's hot path has them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import construct


def derive_struct(
    schema: construct.Construct,
    *,
    until: str | None = None,
    context: Mapping[str, int] | None = None,
) -> struct.Struct:
    """The `struct.Struct` of a declaration's leading fixed fields.

    Args:
      schema: a `construct.Struct`; all its fields big-endian (or all little-endian).
      until: name of the last field, at the top level; None: all fields.
      context: values of earlier fields that lengths depend on, such as `{"sys_flag": 0x10}`.

    Returns: a struct whose values come in the order of `field_names(schema, until=until)`.

    Raises:
      ValueError: a field has no fixed size or an unsupported kind, byte orders are mixed, or there
        is no field `until`. Always a mistake in the declaration.
    """
    order = ""
    formats: list[str] = []
    for _, field in _leaves(schema, until):
        text = _format_of(field, context or {})
        if text[0] in "<>":
            if order and text[0] != order:
                raise ValueError(f"mixed byte orders in {schema!r}")
            order, text = text[0], text[1:]
        formats.append(text)
    return struct.Struct((order or ">") + "".join(formats))


def field_names(schema: construct.Construct, *, until: str | None = None) -> tuple[str, ...]:
    """The names of the fields of `derive_struct`, in its order.

    Raises:
      ValueError: there is no field `until`.
    """
    return tuple(name for name, _ in _leaves(schema, until))


def _leaves(
    schema: construct.Construct, until: str | None
) -> Iterator[tuple[str, construct.Construct]]:
    for named in schema.subcons:
        field = _unwrapped(named)
        if isinstance(field, construct.Struct):
            yield from _leaves(field, None)
        else:
            yield named.name or "", field
        if until is not None and named.name == until:
            return
    if until is not None:
        raise ValueError(f"{schema!r} has no field {until!r}")


def _unwrapped(field: construct.Construct) -> construct.Construct:
    wrappers = (construct.Renamed, construct.Const, construct.Rebuild, construct.Default)
    while isinstance(field, wrappers):
        field = field.subcon
    return field


def _format_of(field: construct.Construct, context: Mapping[str, int]) -> str:
    if isinstance(field, construct.FormatField):
        # l and i are the same in standard sizes; one spelling, so that formats can be compared.
        return str(field.fmtstr).replace("l", "i").replace("L", "I")
    if isinstance(field, construct.Bytes):
        length: Any = field.length
        if callable(length):
            try:
                length = length(construct.Container(context))
            except (KeyError, AttributeError) as error:
                raise ValueError(f"the length of {field!r} needs {error}") from error
        return f"{int(length)}s"
    raise ValueError(f"{field!r} has no fixed struct format")
