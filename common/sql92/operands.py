"""Operands and operators of a compiled filter, with RocketMQ's semantics.

Each operand is a closure from a message's properties to a value, with its Java type known at
compile time: a property is always a string, and a filter has no arithmetic but the minus sign. So
the conversion of a comparison is chosen once, not per message.

Values: str, int, float, bool; None is SQL's unknown. An operand raises FilterEvaluationError where
Java's evaluation throws. Whether the other operand is still evaluated is part of the result, so the
order of evaluation here is Java's.

Java counterpart: filter/expression/*.java of 5.3.3. Pure.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Final, NoReturn

from .errors import FilterEvaluationError, FilterSyntaxError
from .java_values import boolean_of, compare_doubles, double_of, int32_of, int64_of

NESTING_MAX: Final = 100
"""Most nested operators: each is a call on the stack. A chain of ANDs or ORs counts once, and
brackets do not count. RocketMQ's limit is its thread's stack, some thousands."""

Evaluate = Callable[[Mapping[str, str]], Any]
Compare = Callable[[Any, Any], int]
"""Below 0, 0 or above 0, for two values that are not None."""


class Kind(Enum):
    """An operand's type in Java, when it is not null."""

    STRING = auto()
    INTEGER = auto()
    LONG = auto()
    DOUBLE = auto()
    BOOLEAN = auto()
    NOTHING = auto()
    """Null for every message."""


_NUMBERS: Final = frozenset({Kind.INTEGER, Kind.LONG, Kind.DOUBLE})
_CONVERSIONS: Final[dict[Kind, Callable[[str], Any]]] = {
    Kind.INTEGER: int32_of,
    Kind.LONG: int64_of,
    Kind.DOUBLE: double_of,
    Kind.BOOLEAN: boolean_of,
}
"""The conversion of a string that is compared with a value of this kind."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A part of a filter.

    Attributes:
      kind: of its values.
      evaluate: its value for a message.
      text: its beginning in the expression, for error messages.
      line, column: its position, from 1.
      is_constant: a literal. For RocketMQ a literal with a minus sign is not one.
      is_condition: valid as a condition: comparisons, TRUE, FALSE, NULL.
      is_property: a property's name.
      value: of a literal, or of a number with a sign.
      names: the properties that it reads.
      depth: of nested operators.
    """

    kind: Kind
    evaluate: Evaluate
    text: str
    line: int
    column: int
    is_constant: bool = False
    is_condition: bool = False
    is_property: bool = False
    value: Any = None
    names: frozenset[str] = frozenset()
    depth: int = 0

    def refuse(self, reason: str) -> NoReturn:
        """Raises: FilterSyntaxError: always, with this operand's place."""
        raise FilterSyntaxError(reason, self.line, self.column)


def constant(kind: Kind, value: Any, text: str, line: int, column: int) -> Operand:
    """A literal."""
    return Operand(
        kind,
        lambda properties: value,
        text,
        line,
        column,
        is_constant=True,
        is_condition=kind in (Kind.BOOLEAN, Kind.NOTHING),
        value=value,
    )


def message_property(name: str, line: int, column: int) -> Operand:
    """A property; null where the message does not have it."""
    return Operand(
        Kind.STRING,
        lambda properties: properties.get(name),
        name,
        line,
        column,
        is_property=True,
        names=frozenset((name,)),
    )


def _condition(evaluate: Evaluate, *inner: Operand) -> Operand:
    """A condition over these operands, at the position of the first one.

    Raises: FilterSyntaxError: too many nested operators.
    """
    return _checked_depth(
        replace(
            inner[0],
            kind=Kind.BOOLEAN,
            evaluate=evaluate,
            is_constant=False,
            is_condition=True,
            is_property=False,
            value=None,
            names=frozenset().union(*[each.names for each in inner]),
            depth=1 + max([each.depth for each in inner]),
        )
    )


def _checked_depth(made: Operand) -> Operand:
    if made.depth > NESTING_MAX:
        made.refuse(f"more than {NESTING_MAX} operators inside one another")
    return made


def as_condition(operand: Operand) -> Operand:
    """An operand as a condition: a property alone is false, or null if missing.

    Raises: FilterSyntaxError: neither a condition nor a property.
    """
    if operand.is_condition:
        return operand
    if not operand.is_property:
        operand.refuse(f"{operand.text} alone is not a condition")
    evaluate = operand.evaluate
    # Only a Java Boolean could be true, and properties are strings, "true" too.
    return _condition(lambda p: None if evaluate(p) is None else False, operand)


def all_of(operands: Sequence[Operand]) -> Operand:
    """AND. Raises: FilterSyntaxError: an operand is not a condition."""
    return _chain(operands, decided_by=False)


def any_of(operands: Sequence[Operand]) -> Operand:
    """OR. Raises: FilterSyntaxError: an operand is not a condition."""
    return _chain(operands, decided_by=True)


def _chain(operands: Sequence[Operand], *, decided_by: bool) -> Operand:
    conditions = [as_condition(operand) for operand in operands]
    evaluates = tuple([condition.evaluate for condition in conditions])

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        result: bool | None = not decided_by
        for each in evaluates:
            value: bool | None = each(properties)
            if value is decided_by:
                return decided_by
            if value is None:
                result = None
        return result

    return _condition(evaluate, *conditions)


def negation(operand: Operand) -> Operand:
    """NOT. Raises: FilterSyntaxError: the operand is not a condition."""
    condition = as_condition(operand)
    evaluate = condition.evaluate

    def negated(properties: Mapping[str, str]) -> bool | None:
        value = evaluate(properties)
        return None if value is None else not value

    return _condition(negated, condition)


def minus(operand: Operand) -> Operand:
    """The minus sign: the negative of a literal number; null of all others, properties included.

    Raises: FilterSyntaxError: too many nested operators.
    """
    made = replace(operand, is_constant=False, depth=operand.depth + 1)
    if operand.kind in _NUMBERS:
        value = -operand.value
        return _checked_depth(replace(made, evaluate=lambda properties: value, value=value))
    inner = operand.evaluate

    def evaluate(properties: Mapping[str, str]) -> None:
        inner(properties)  # evaluated because it may raise

    made = replace(made, kind=Kind.NOTHING, evaluate=evaluate, value=None)
    return _checked_depth(replace(made, is_condition=False, is_property=False))


def is_null(operand: Operand) -> Operand:
    """IS NULL; never null itself."""
    evaluate = operand.evaluate
    return _condition(lambda p: evaluate(p) is None, operand)


def is_not_null(operand: Operand) -> Operand:
    """IS NOT NULL; never null itself."""
    evaluate = operand.evaluate
    return _condition(lambda p: evaluate(p) is not None, operand)


def equal(left: Operand, right: Operand) -> Operand:
    """The operator `=`: null when only the left one is null, false when only the right one is.

    Raises: FilterSyntaxError: a literal NULL, or TRUE or FALSE before another kind of literal.
    """
    for each in (left, right):
        if each.is_constant and each.kind is Kind.NOTHING:
            each.refuse("NULL cannot be compared: write IS NULL or IS NOT NULL")
    if left.is_constant and right.is_constant and left.is_condition and not right.is_condition:
        left.refuse(f"{left.text} cannot be compared with {right.text}")
    left_evaluate, right_evaluate = left.evaluate, right.evaluate
    compare = _compare_for(left.kind, right.kind)

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        left_value = left_evaluate(properties)
        right_value = right_evaluate(properties)
        if left_value is None:
            return True if right_value is None else None
        if right_value is None:
            return False
        return compare(left_value, right_value) == 0

    return _condition(evaluate, left, right)


def not_equal(left: Operand, right: Operand) -> Operand:
    """The operator `<>`: NOT of `=`. Raises: FilterSyntaxError: as `equal`."""
    return negation(equal(left, right))


def less(left: Operand, right: Operand) -> Operand:
    """The operator `<`. Raises: FilterSyntaxError: see `_order`."""
    return _order(left, right, operator.lt)


def less_or_equal(left: Operand, right: Operand) -> Operand:
    """The operator `<=`. Raises: FilterSyntaxError: see `_order`."""
    return _order(left, right, operator.le)


def greater(left: Operand, right: Operand) -> Operand:
    """The operator `>`. Raises: FilterSyntaxError: see `_order`."""
    return _order(left, right, operator.gt)


def greater_or_equal(left: Operand, right: Operand) -> Operand:
    """The operator `>=`. Raises: FilterSyntaxError: see `_order`."""
    return _order(left, right, operator.ge)


def _order(left: Operand, right: Operand, test: Callable[[int, int], bool]) -> Operand:
    """One of `<`, `<=`, `>`, `>=`: null when one side is null.

    Args:
      test: gets the result of the comparison, and 0.
    Raises: FilterSyntaxError: a condition, or a literal that is not a number.
    """
    for each in (left, right):
        if each.is_constant and each.kind not in _NUMBERS:
            each.refuse(f"{each.text} is not a number, so it is neither less nor greater")
        if each.is_condition:
            each.refuse("a condition is neither less nor greater")
    left_evaluate, right_evaluate = left.evaluate, right.evaluate
    compare: Compare
    if left.kind is Kind.STRING and right.kind is Kind.STRING:
        compare = _compare_texts_as_doubles
    else:
        compare = _compare_for(left.kind, right.kind)

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        left_value = left_evaluate(properties)
        if left_value is None:
            return None
        right_value = right_evaluate(properties)
        if right_value is None:
            return None
        return test(compare(left_value, right_value), 0)

    return _condition(evaluate, left, right)


def between(operand: Operand, low: Operand, high: Operand) -> Operand:
    """BETWEEN, both ends included.

    Raises: FilterSyntaxError: as `less`, or the ends are literals in the wrong order.
    """
    made = all_of([greater_or_equal(operand, low), less_or_equal(operand, high)])
    if (
        low.is_constant
        and high.is_constant
        and _compare_for(high.kind, low.kind)(high.value, low.value) < 0
    ):
        low.refuse(f"BETWEEN {low.text} AND {high.text}: the first is above the second")
    return made


def not_between(operand: Operand, low: Operand, high: Operand) -> Operand:
    """NOT BETWEEN; the ends may be in any order. Raises: FilterSyntaxError: see `less`."""
    return any_of([less(operand, low), greater(operand, high)])


def contains(operand: Operand, search: str, *, wanted: bool) -> Operand:
    """CONTAINS, or NOT CONTAINS when not `wanted`."""
    return _search(operand, search, lambda text: search in text, wanted=wanted)


def starts_with(operand: Operand, search: str, *, wanted: bool) -> Operand:
    """STARTSWITH, or NOT STARTSWITH when not `wanted`."""
    return _search(operand, search, lambda text: text.startswith(search), wanted=wanted)


def ends_with(operand: Operand, search: str, *, wanted: bool) -> Operand:
    """ENDSWITH, or NOT ENDSWITH when not `wanted`."""
    return _search(operand, search, lambda text: text.endswith(search), wanted=wanted)


def _search(
    operand: Operand, search: str, found: Callable[[str], bool], *, wanted: bool
) -> Operand:
    """False, never null, for null, for non-strings and for an empty search, also when negated."""
    inner = operand.evaluate
    is_text = operand.kind is Kind.STRING

    def evaluate(properties: Mapping[str, str]) -> bool:
        value = inner(properties)
        return is_text and value is not None and found(value) is wanted

    # An empty search is false without evaluating the operand, which may raise.
    return _condition(evaluate if search else lambda p: False, operand)


def is_in(operand: Operand, texts: Sequence[str], *, wanted: bool) -> Operand:
    """IN, or NOT IN when not `wanted`: null when the property is.

    Raises: FilterSyntaxError: the operand is not a property.
    """
    if not operand.is_property:
        operand.refuse("only a property can be looked for with IN")
    inner = operand.evaluate
    elements = frozenset(texts)

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        value = inner(properties)
        return None if value is None else (value in elements) is wanted

    return _condition(evaluate, operand)


def _compare_for(left: Kind, right: Kind) -> Compare:
    """The comparison of values of these kinds. Where only equality is possible, any non-zero does.

    Source: filter/expression/ComparisonExpression.java __compare, for the types that there are.
    """
    if left is right:
        if left is Kind.DOUBLE:
            return compare_doubles
        return lambda a, b: 0 if a == b else 1 if a > b else -1
    if left is Kind.STRING and right in _CONVERSIONS:
        convert = _CONVERSIONS[right]
        same = _compare_for(right, right)
        return lambda a, b: same(convert(a), b)
    if right is Kind.STRING and left in _NUMBERS:
        convert = _CONVERSIONS[left]
        same = _compare_for(left, left)
        return lambda a, b: same(a, convert(b))
    if left is Kind.BOOLEAN and right is Kind.STRING:
        return _refuse_boolean
    if left in _NUMBERS and right in _NUMBERS:
        if Kind.DOUBLE in (left, right):
            return lambda a, b: compare_doubles(float(a), float(b))
        return _compare_for(left, left)
    return lambda a, b: -1


def _refuse_boolean(left: bool, right: str) -> NoReturn:
    # Java's ClassCastException: it would convert the wrong one of the two.
    raise FilterEvaluationError(f"a condition is compared with the string {right[:40]!r}")


def _compare_texts_as_doubles(left: str, right: str) -> int:
    return compare_doubles(double_of(left), double_of(right))
