"""What the formats share with Spark itself: the schema that a query asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .columns import pick

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def picked(schema: StructType, columns: Mapping[str, str], what: str) -> tuple[str, ...]:
    """The names of the columns that a query's schema has.

    Raises:
      OptionError: a column that there is not, or of another type.
    """
    return tuple(pick(fields_of(schema), columns, what))


def fields_of(schema: StructType) -> list[tuple[str, str]]:
    """The columns of a schema: (name, type as SQL writes it)."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
