"""The errors of message filters.

ValueError
  FilterError
    FilterSyntaxError        an expression that RocketMQ refuses
    FilterEvaluationError    a message whose properties do not suit an expression
"""

from __future__ import annotations


class FilterError(ValueError):
    """Base of the errors of an expression, or of a message that it is evaluated for."""


class FilterSyntaxError(FilterError):
    """An expression that cannot be compiled.

    Attributes:
      reason: what is wrong, without the place.
      line, column: where, each from 1; a column counts characters.
    """

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {reason}")
        self.reason = reason
        self.line = line
        self.column = column


class FilterEvaluationError(FilterError):
    """An expression has no result for a message: a string is compared with a number."""
