"""The terms of expressions, and which of them a message fails."""

from __future__ import annotations

import pytest

from trocket.common.sql92.errors import FilterSyntaxError
from trocket.common.sql92.terms import FailedTerm, TermResult, and_terms, failed_term


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("a = 1", ["a = 1"]),
        ("a = 1 AND b = 'x AND y'", ["a = 1", "b = 'x AND y'"]),
        ("((a = 1) and (b = 2 AND c = 3))", ["a = 1", "b = 2", "c = 3"]),
        ("a BETWEEN 1 AND 5 AND b = 2", ["a BETWEEN 1 AND 5", "b = 2"]),
        ("a = 1 OR b = 2 AND c = 3", ["a = 1 OR b = 2 AND c = 3"]),
        ("(a = 1 OR b = 2) AND c = 3", ["a = 1 OR b = 2", "c = 3"]),
        ("a = 1 -- AND b = 2\n AND c IN ('x', 'y')", ["a = 1", "c IN ('x', 'y')"]),
        ("(" * 300 + "a = 1" + ")" * 300, ["a = 1"]),
    ],
)
def test_an_expression_is_taken_apart_at_its_outermost_ands(text: str, terms: list[str]) -> None:
    assert and_terms(text) == terms


@pytest.mark.parametrize(
    ("properties", "failed"),
    [
        ({"price": "11", "kind": "x"}, None),
        ({"price": "9", "kind": "x"}, FailedTerm("price > 10", TermResult.FALSE)),
        ({"price": "11", "kind": "y"}, FailedTerm("kind = 'x'", TermResult.FALSE)),
        ({"price": "11"}, FailedTerm("kind = 'x'", TermResult.UNKNOWN)),
        ({"price": "dear", "kind": "x"}, FailedTerm("price > 10", TermResult.ERROR)),
    ],
)
def test_the_first_term_that_is_not_true_is_named(
    properties: dict[str, str], failed: FailedTerm | None
) -> None:
    assert failed_term("price > 10 AND kind = 'x'", properties) == failed


def test_a_bad_expression_has_no_terms() -> None:
    with pytest.raises(FilterSyntaxError):
        failed_term("price >", {})
