"""SQL92 filters: `price > 10 AND symbol = 'A'` over a message's properties.

    expression = compile_expression("price > 10 AND symbol = 'A'")
    expression.matches(b"price\x0111\x02symbol\x01A\x02")     # True

The results are RocketMQ's, errors included; docs/quirks.md lists the odd ones.
tests/interop/test_sql92_oracle.py compares them with its classes.

Differences: the two limits below, and half of a surrogate pair in an expression is not found in a
property, where Java compares UTF-16 units.

Java counterpart: filter/SqlFilter.java, broker/filter/ExpressionMessageFilter.java,
MessageEvaluationContext.java of 5.3.3. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..message_properties import find_property, properties_from_bytes
from ..sized_cache import sized_cache
from .errors import FilterError, FilterEvaluationError, FilterSyntaxError
from .operands import NESTING_MAX, Operand

__all__ = [
    "EXPRESSION_CACHE_SIZE_MAX",
    "EXPRESSION_CHARACTER_SIZE",
    "EXPRESSION_LENGTH_MAX",
    "NESTING_MAX",
    "Expression",
    "FilterError",
    "FilterEvaluationError",
    "FilterSyntaxError",
    "compile_expression",
]

EXPRESSION_LENGTH_MAX: Final = 32_767
"""Characters of an expression: the limit of a message's properties in bytes. Most of them may be in
strings; TOKENS_MAX limits the operators. RocketMQ has only the limit of a frame."""

EXPRESSION_CHARACTER_SIZE: Final = 200
"""Most bytes of a compiled expression for each of its characters."""

EXPRESSION_CACHE_SIZE_MAX: Final = 32 * 1024 * 1024
"""Most bytes of cached compiled expressions: about 160,000 characters. RocketMQ's SelectorParser
caches 100 expressions, of any length."""

_NAMES_SOUGHT_MAX: Final = 2
"""With more names than this, all properties are parsed, which was measured to be faster."""


class Expression:
    """A compiled filter; immutable, so it may be shared.

    Attributes:
      names: the properties that it reads.
    """

    __slots__ = ("_evaluate", "_sought", "names", "text")

    def __init__(self, text: str, operand: Operand) -> None:
        self.text = text
        self.names = operand.names
        self._evaluate = operand.evaluate
        self._sought = tuple([(name, name.encode()) for name in sorted(operand.names)])

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """True, false or unknown (None), as SQL has them.

        Raises: FilterEvaluationError: a property cannot be compared as the expression demands.
        """
        result: bool | None = self._evaluate(properties)
        return result

    def matches(self, properties: bytes | Mapping[str, str]) -> bool:
        """Whether a broker gives the message to the consumer: unknown and errors count as false.

        Args:
          properties: as they are stored (common/message_properties.py), or parsed.
        Source: broker/filter/ExpressionMessageFilter.java isMatchedByCommitLog.
        """
        if isinstance(properties, bytes):
            properties = self._read(properties)
        try:
            return self._evaluate(properties) is True
        except FilterEvaluationError:
            return False

    def _read(self, raw: bytes) -> dict[str, str]:
        """At least the properties that the expression reads."""
        if len(self._sought) > _NAMES_SOUGHT_MAX:
            return properties_from_bytes(raw)
        found = {}
        for name, raw_name in self._sought:
            value = find_property(raw, raw_name)
            if value is not None:
                found[name] = str(value, "utf-8", "replace")
        return found


def expression_size(text: str, result: object) -> int:
    """Most bytes of a compiled expression, for the cache."""
    return len(text) * EXPRESSION_CHARACTER_SIZE


@sized_cache(size_max=EXPRESSION_CACHE_SIZE_MAX, size_of=expression_size)
def compile_expression(text: str) -> Expression:
    """Compile an expression. The first call imports lark.

    Raises: FilterSyntaxError: RocketMQ refuses it, too, or it is beyond the limits here.
    """
    if len(text) > EXPRESSION_LENGTH_MAX:
        reason = f"{len(text)} characters, and at most {EXPRESSION_LENGTH_MAX} are taken"
        raise FilterSyntaxError(reason, 1, 1)
    from .parser import parse

    return Expression(text, parse(text))
