"""Schemas of queries: from Spark's types to the names of columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .columns import pick

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def picked(schema: StructType, columns: Mapping[str, str], what: str) -> tuple[str, ...]:
    """The names of the columns in a query's schema.

    Raises:
      OptionError: the table has no such column, or with another type.
    """
    return tuple(pick(fields_of(schema), columns, what))


def fields_of(schema: StructType) -> list[tuple[str, str]]:
    """The columns of a schema: (name, type as DDL)."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
