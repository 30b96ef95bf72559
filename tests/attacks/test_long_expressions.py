"""The defect: one SQL92 expression held the loop for seconds.

`a > ---...1` of 32 KB took 7 s of CPU: at each minus sign the lexer looked for a comment's end in
all the rest. What is tested is counted work: that too many tokens are refused before the parser is
asked, that comments are found in one pass, and how often a long property is read for one message.
"""

from __future__ import annotations

import pytest

from trocket.broker.filters.consumer_filter_manager import compile_filter
from trocket.common.sql92 import java_values, parser
from trocket.common.sql92.errors import FilterSyntaxError
from trocket.common.sql92.expression import EXPRESSION_LENGTH_MAX, compile_expression
from trocket.common.sql92.parser import TOKENS_MAX, without_comments

ROOM = EXPRESSION_LENGTH_MAX - 10

HOSTILE = {
    "minus signs": "a > " + "-" * ROOM + "1",
    "plus signs": "a > " + "+" * ROOM + "1",
    "nots": "NOT " * (ROOM // 4) + "a = 1",
    "brackets": "(" * (ROOM // 2) + "a = 1" + ")" * (ROOM // 2),
    "a chain": " OR ".join(["a=1"] * (ROOM // 7)),
    "a chain with a tail": " OR ".join(["a=1"] * (ROOM // 7)) + " b",
    "an IN of many texts": "a IN (" + ",".join(["''"] * (ROOM // 4)) + ")",
    "many names": " OR ".join(f"a{i}=1" for i in range(ROOM // 12)),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_too_many_tokens_are_refused_before_they_are_parsed(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(text: str) -> None:
        raise AssertionError("the parser was asked")

    monkeypatch.setattr(parser, "_operand", parse)
    assert len(text) <= EXPRESSION_LENGTH_MAX
    with pytest.raises(FilterSyntaxError, match=f"more than {TOKENS_MAX} names, literals"):
        compile_expression(text)


def test_as_many_tokens_as_are_allowed_are_compiled() -> None:
    texts = ",".join(["'x'"] * ((TOKENS_MAX - 4) // 2))
    assert compile_expression(f"a IN ({texts})").evaluate({"a": "x"}) is True
    # The length may still be used up by texts and comments.
    assert compile_expression(f"a = '{'-' * ROOM}'").evaluate({"a": "-" * ROOM}) is True
    assert compile_expression("a = 1" + "/**/" * (ROOM // 4)).evaluate({"a": "1"}) is True


def test_a_wrong_expression_is_tried_once() -> None:
    wrong = "a = = 'remembered'"
    first = compile_filter("SQL92", wrong)
    assert isinstance(first, str)
    assert compile_filter("SQL92", wrong) is first


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a --b\n= 1", "a    \n= 1"),
        ("a --b", "a --b"),
        ("a ---\r\n= 1", "a    \r\n= 1"),
        ("'--' --x\n", "'--'    \n"),
        ("'it''s --' --x\n", "'it''s --'    \n"),
        ("a /* b\n*/ = 1", "a     \n   = 1"),
        ("a /*/ = 1", "a /*/ = 1"),
        ("a /***/ = 1", "a       = 1"),
        ("'open --\n", "'open --\n"),
        ("a /* -- */ b\n", "a          b\n"),
        ("a -- /*\n b */", "a      \n b */"),
    ],
)
def test_comments_become_spaces_and_all_else_keeps_its_place(text: str, left: str) -> None:
    assert without_comments(text) == left


@pytest.mark.parametrize(
    ("literal", "value"), [("1", "-" + "0" * 32_000 + "1"), ("1.5", "1" * 32_000)]
)
def test_a_long_property_is_read_once_for_a_message(
    literal: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    for name in ("_read_int32", "_read_double"):

        def counted(text: str, read: object = getattr(java_values, name)) -> object:
            nonlocal reads
            reads += 1
            return read(text)  # type: ignore[operator]

        monkeypatch.setattr(java_values, name, counted)
    expression = compile_expression(" OR ".join([f"a < {literal}"] * 240))
    expression.matches({"a": value})
    assert reads <= 1
