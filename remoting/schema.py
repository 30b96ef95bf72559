"""Layouts: each binary structure is declared once, by the names and formats of its fields. Pure.

The code that runs per message uses the `struct.Struct` of a layout's fixed part.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

I8: Final = "b"
U8: Final = "B"
I16: Final = "h"
U16: Final = "H"
I32: Final = "i"
U32: Final = "I"
I64: Final = "q"

Format: TypeAlias = str | Callable[[Mapping[str, int]], str]
"""What one field is: a format of `struct`, or a function of the earlier fields' values that gives
one. All numbers of RocketMQ are big-endian."""


def bytes_of(size: int) -> Format:
    """The format of `size` bytes."""
    return f"{size}s"


def sized_by(name: str) -> Format:
    """The format of bytes whose number is an earlier field's value."""
    return lambda values: f"{values[name]}s"


class Layout:
    """A structure: `Layout(length=I32, mark=I32)`.

    Attributes:
      fields: formats by name, in the order of the bytes.
    """

    __slots__ = ("fields",)

    def __init__(self, **fields: Format) -> None:
        self.fields: Mapping[str, Format] = fields

    def names(self, *, until: str | None = None) -> tuple[str, ...]:
        """The names of the fields up to `until`, or of all.

        Raises:
          ValueError: there is no field `until`.
        """
        return tuple(self._names(until))

    def struct(
        self, *, until: str | None = None, context: Mapping[str, int] | None = None
    ) -> struct.Struct:
        """The struct of the leading fields, whose values come in the order of `names`.

        Args:
          until: the name of the last field; None: all fields.
          context: values of earlier fields that formats depend on, such as `{"sys_flag": 0x10}`.

        Raises:
          ValueError: there is no field `until`, or a format depends on a value that is not in
            `context`. Always a mistake in the declaration.
        """
        return struct.Struct(">" + "".join(self._formats(until, context or {})))

    def _names(self, until: str | None) -> Iterator[str]:
        for name in self.fields:
            yield name
            if name == until:
                return
        if until is not None:
            raise ValueError(f"the layout of {', '.join(self.fields)} has no field {until!r}")

    def _formats(self, until: str | None, context: Mapping[str, int]) -> Iterator[str]:
        for name in self._names(until):
            format_ = self.fields[name]
            if not isinstance(format_, str):
                try:
                    format_ = format_(context)
                except KeyError as error:
                    raise ValueError(f"the format of {name} depends on {error}") from error
            yield format_
