"""SQL92 filters, without Java: results, error texts, limits, and the stored form of properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.common.message_properties import properties_to_bytes
from trocket.common.sql92 import expression as sql92
from trocket.common.sql92.expression import (
    EXPRESSION_LENGTH_MAX,
    NESTING_MAX,
    FilterError,
    FilterEvaluationError,
    FilterSyntaxError,
    compile_expression,
)

from .sql92_cases import REFUSED, RESULTS, cases, properties_of

VALUES = {"true": True, "false": False, "null": None}


@pytest.mark.parametrize("expression", RESULTS, ids=ascii)
def test_an_expression_gives_what_rocketmq_gives(expression):
    compiled = compile_expression(expression)
    for result, sets in RESULTS[expression].items():
        for properties in map(properties_of, sets):
            if result == "error":
                with pytest.raises(FilterEvaluationError):
                    compiled.evaluate(properties)
            else:
                assert compiled.evaluate(properties) is VALUES[result], properties


def test_a_message_matches_when_the_result_is_true_and_only_then():
    for expression, properties, result in cases():
        compiled = compile_expression(expression)
        assert compiled.matches(properties) is (result == "true"), (expression, properties)
        if all(properties.values()):
            stored = properties_to_bytes({"TAGS": "t", **properties, "aa": "1", "KEYS": "k"})
            assert compiled.matches(stored) is (result == "true"), (expression, properties)


@pytest.mark.parametrize("expression", REFUSED, ids=lambda text: ascii(text[:40]))
def test_a_wrong_expression_is_refused_with_its_place(expression):
    line, column, reason = REFUSED[expression]
    with pytest.raises(FilterSyntaxError) as refused:
        compile_expression(expression)
    error = refused.value
    assert (error.line, error.column) == (line, column), error
    assert reason in error.reason
    assert str(error) == f"line {line}, column {column}: {error.reason}"
    assert len(str(error)) < 200


def test_both_errors_are_filter_errors_and_value_errors():
    assert issubclass(FilterError, ValueError)
    assert issubclass(FilterSyntaxError, FilterError)
    assert issubclass(FilterEvaluationError, FilterError)


def test_an_expression_knows_its_text_and_its_names():
    text = "a = 1 OR b IS NULL AND NOT c OR -d > 1 OR 'e' = a b"
    compiled = compile_expression(text)
    assert compiled.text == text
    assert compiled.names == {"a", "b", "c", "d"}
    assert repr(compiled) == f"Expression({text!r})"


@pytest.mark.parametrize("names", ["ab", "abcdefghijkl"])
def test_properties_are_found_in_their_stored_form(names):
    expression = " AND ".join(f"{name} = '{number}'" for number, name in enumerate(names))
    compiled = compile_expression(expression)
    right = [b"%s\x01%d" % (name.encode(), number) for number, name in enumerate(names)]
    assert compiled.matches(b"\x02".join(right))
    assert compiled.matches(b"\x02".join([*right, b""]))
    assert compiled.matches(b"\x02".join([b"a\x019", *right])), "the last of a name counts"
    assert compiled.matches(b"\x02".join([*right, b"a\x01"])), "without a value it is none"
    assert not compiled.matches(b"\x02".join([*right, b"a\x019"]))
    assert not compiled.matches(b"\x02".join(right[:-1]))
    assert not compiled.matches(b"")


def test_bytes_that_are_not_utf8_are_replaced_as_in_java():
    compiled = compile_expression("a = '\ufffd' AND b = '\ufffd'")
    assert compiled.matches(b"a\x01\xff\x02b\x01\xe6\x97\x02")


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "c", "aa", "TAGS"]),
        st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1),
    )
)
def test_stored_and_parsed_properties_give_the_same(properties):
    stored = properties_to_bytes(properties)
    for expression in ("a = b", "a IS NULL", "a > b", "a = 1 OR b = 1 OR c = 1 OR TAGS = '1'"):
        compiled = compile_expression(expression)
        assert compiled.matches(stored) is compiled.matches(properties)


def test_an_expression_may_be_as_long_as_the_limit():
    name = "a" * (EXPRESSION_LENGTH_MAX - 4)
    assert compile_expression(f"{name} = 1").matches({name: "1"})
    with pytest.raises(FilterSyntaxError, match="32768 characters, and at most 32767") as refused:
        compile_expression(f"{name}a = 1")
    assert (refused.value.line, refused.value.column) == (1, 1)


NESTED = {
    "NOT": lambda count: "NOT " * count + "TRUE",
    "NOT with brackets": lambda count: "NOT (" * count + "TRUE" + ")" * count,
    "minus": lambda count: "- " * (count - 1) + "a IS NULL",
    "minus a number": lambda count: "- " * (count - 1) + "1 IS NULL",
    "=": lambda count: "TRUE" + " = TRUE" * count,
    "AND in OR in AND": lambda count: (
        "(TRUE OR TRUE AND " * (count // 2) + "TRUE" + ")" * (count // 2)
    ),
}


@pytest.mark.parametrize("nested", NESTED.values(), ids=NESTED)
def test_operators_inside_one_another_have_a_limit(nested):
    assert compile_expression(nested(NESTING_MAX)).evaluate({}) in (None, True, False)
    with pytest.raises(FilterSyntaxError, match="more than 100 operators inside one another"):
        compile_expression(nested(NESTING_MAX + 2))


def test_brackets_and_chains_do_not_count():
    assert compile_expression("(" * 490 + "a" + ")" * 490).evaluate({"a": "x"}) is False
    assert compile_expression(" OR ".join(["a = 1"] * 240)).evaluate({"a": "1"}) is True
    assert compile_expression("+ " * 990 + "a").evaluate({"a": "x"}) is False


def test_compiled_expressions_are_remembered():
    assert compile_expression("a = 1") is compile_expression("a = 1")
    assert compile_expression.size_max == sql92.EXPRESSION_CACHE_SIZE_MAX
    assert 0 < compile_expression.size <= compile_expression.size_max
