"""What RocketMQ's SQL92 filter makes of expressions and properties, one table for two tests.

test_expression.py holds our filter to it; tests/interop/test_sql92_oracle.py holds Apache's own
to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypedDict

LONG_MAX = "9223372036854775807"


class Results(TypedDict, total=False):
    """The property sets by result. A text stands for property `a` alone, None for no property."""

    true: Sequence[str | Mapping[str, str] | None]
    false: Sequence[str | Mapping[str, str] | None]
    null: Sequence[str | Mapping[str, str] | None]
    error: Sequence[str | Mapping[str, str] | None]


def ab(a: str, b: str) -> dict[str, str]:
    return {"a": a, "b": b}


EVERY: list[str | None] = [None, "", "0", "1", "true", "x", "NaN"]

RESULTS: dict[str, Results] = {
    # Numbers: a property is read as the literal's type is.
    "a = 1": {
        "true": ["1", "+1", "01", "\u0661", "\uff11", "0" * 5000 + "1"],
        "false": ["0", "-1", "2147483647", "-2147483648"],
        "null": [None],
        "error": [
            "",
            "x",
            "1.0",
            " 1",
            "1 ",
            "1_0",
            "2147483648",
            "-2147483649",
            "\U0001d7d9",
            "1L",
        ],
    },
    "a <> 1": {"true": ["2"], "false": ["1"], "null": [None], "error": ["x"]},
    "1 = a": {"true": ["1"], "false": ["2", None], "error": ["x"]},
    "1 <> a": {"true": ["2", None], "false": ["1"], "error": ["x"]},
    "a = 2147483648": {
        "true": ["2147483648"],
        "false": ["1", LONG_MAX, "-9223372036854775808"],
        "error": ["9223372036854775808", "1.0", "--1", "-", "+"],
    },
    "a = 1L": {"true": ["1"], "error": ["2147483648"]},
    "a = -2147483648": {"true": ["-2147483648"], "false": ["2147483648"]},
    "a = - - 1": {"true": ["1"], "false": ["-1"]},
    "a = + 1": {"true": ["1"]},
    "a = -1": {"true": ["-1"], "false": ["1"]},
    f"a = -{LONG_MAX}": {"true": [f"-{LONG_MAX}"], "null": [None]},
    "a = 1.5": {
        "true": ["1.5", " 1.5\t", "1.5f", "1.5D", "15e-1", "15E-1", "0x1.8p0", "0X3P-1", "+1.50"],
        "false": ["1", "NaN", "-NaN", "Infinity", "0x1p99999", "-0x1p99999", "1e400", "1e-400"],
        "error": ["", " ", ".", "1e", "nan", "inf", "0x1", "1_5", "1.5L", "\u0661", "1,5", "0x.p1"],
        "null": [None],
    },
    "a > 1.5": {"true": ["NaN", "-NaN", "Infinity", "2"], "false": ["1.5", "-Infinity"]},
    "a < 1.5": {"true": ["-Infinity", "-0.0", ".5", "1."], "false": ["NaN", "1.5"]},
    "a > 10": {
        "true": ["11", "+11"],
        "false": ["10", "-11"],
        "null": [None],
        "error": ["", "x", "11.0"],
    },
    "a >= 10": {"true": ["10", "11"], "false": ["9"]},
    "a < 10": {"true": ["9", "-11"], "false": ["10"]},
    "a <= 10": {"true": ["10", "9"], "false": ["11"]},
    "10 < a": {"true": ["11"], "false": ["10"], "null": [None], "error": ["x"]},
    "10 >= a": {"true": ["10", "9"], "false": ["11"], "null": [None]},
    "1 = 1": {"true": EVERY},
    "1 = 1.0": {"true": [None]},
    "1 = 2147483648": {"false": [None]},
    "2 > 1 AND 1.5 > 1 AND 1 < 1.5 AND 2147483648 > 1": {"true": [None]},
    "9007199254740993 = 9007199254740992.0": {"true": [None]},
    # Two properties: less and greater compare numbers, equality compares texts.
    "a > b": {
        "true": [ab("2", "1.5"), ab("10", "9"), ab("NaN", "Infinity"), ab("0.0", "-0.0")],
        "false": [ab("1", "1"), ab("NaN", "-NaN")],
        "null": [None, "1", {"b": "1"}, "x", {"b": "x"}],
        "error": [ab("x", "1"), ab("1", "x"), ab("1", "")],
    },
    "a >= b": {"true": [ab("1", "1.0"), ab("NaN", "-NaN")], "false": [ab("-0.0", "0.0")]},
    "a = b": {
        "true": [None, ab("x", "x"), ab("", "")],
        "false": ["x", ab("1", "1.0"), ab("1", "01")],
        "null": [{"b": "x"}],
    },
    "a <> b": {"true": ["x", ab("1", "1.0")], "false": [None, ab("x", "x")], "null": [{"b": "x"}]},
    # Texts.
    "a = 'x'": {"true": ["x"], "false": ["X", "x ", ""], "null": [None]},
    "a = ''": {"true": [""], "false": ["x"], "null": [None]},
    "a <> 'x'": {"true": ["y"], "false": ["x"], "null": [None]},
    "a = 'it''s'": {"true": ["it's"], "false": ["it''s"]},
    "a = '''''it'''''": {"true": ["''it''"]},
    "a = '1'": {"true": ["1"], "false": ["01"]},
    "a = ' -- /* '": {"true": [" -- /* "]},
    "a = '\n\\n'": {"true": ["\n\\n"]},
    "a = 'é日本\U0001f600'": {"true": ["é日本\U0001f600"], "false": ["e\u0301日本\U0001f600"]},
    "'x' = a": {"true": ["x"], "false": ["y", None]},
    "'1' = 1": {"true": [None]},
    "'x' = 1": {"error": [None]},
    # Truth values.
    "TRUE": {"true": EVERY},
    "FALSE": {"false": EVERY},
    "NULL": {"null": EVERY},
    "a": {"false": ["true", "TRUE", "1", ""], "null": [None]},
    "NOT a": {"true": ["true", "false", ""], "null": [None]},
    "a = TRUE": {"true": ["true", "TRUE", "tRuE"], "false": ["1", "", " true"], "null": [None]},
    "a = FALSE": {"true": ["1", "", "false"], "false": ["True"], "null": [None]},
    "a <> TRUE": {"true": ["x"], "false": ["true"], "null": [None]},
    "TRUE = a": {"error": ["true", "x", ""], "false": [None]},
    "TRUE = TRUE": {"true": [None]},
    "TRUE <> FALSE": {"true": [None]},
    "1 = TRUE": {"false": [None]},
    "1.5 <> FALSE": {"true": [None]},
    "'true' = TRUE": {"true": [None]},
    "'x' = FALSE": {"true": [None]},
    "(a = 1) = TRUE": {"true": ["1"], "false": ["2"], "null": [None], "error": ["x"]},
    "a = 1 = TRUE": {"true": ["1"], "false": ["2"], "null": [None]},
    "(a IS NULL) = b": {"false": ["x"], "error": [ab("x", "true"), {"b": "true"}]},
    "b = (a IS NULL)": {"true": [{"b": "true"}, ab("x", "x")], "false": [{"b": "x"}]},
    "(a = 1) = 1": {"false": ["1", "2"], "null": [None]},
    # Unknown.
    "a IS NULL": {"true": [None], "false": ["", "x"]},
    "a IS NOT NULL": {"true": ["", "x"], "false": [None]},
    "NULL IS NULL": {"true": [None]},
    "1 IS NULL": {"false": [None]},
    "(a = 1) IS NULL": {"true": [None], "false": ["1", "2"], "error": ["x"]},
    "a IS NULL IS NULL": {"false": [None, "x"]},
    "a IS NOT NULL = FALSE": {"true": [None], "false": ["x"]},
    "NOT NULL": {"null": [None]},
    "NULL AND FALSE": {"false": [None]},
    "NULL AND TRUE": {"null": [None]},
    "NULL OR TRUE": {"true": [None]},
    "NULL OR FALSE": {"null": [None]},
    # AND and OR look at the right side only when they need to.
    "a = 1 AND b = 1": {
        "true": [ab("1", "1")],
        "false": ["2", ab("2", "x"), ab("1", "2"), {"b": "2"}],
        "null": ["1", {"b": "1"}, None],
        "error": [ab("1", "x"), ab("x", "2"), {"b": "x"}],
    },
    "a = 1 OR b = 1": {
        "true": ["1", ab("1", "x"), ab("2", "1"), {"b": "1"}],
        "false": [ab("2", "2")],
        "null": ["2", {"b": "2"}, None],
        "error": [ab("2", "x"), ab("x", "1"), {"b": "x"}],
    },
    "a = 1 OR a = 2 AND b = 1": {"true": ["1", ab("2", "1")], "false": [ab("2", "2"), "3"]},
    "(a = 1 OR a = 2) AND b = 1": {"false": [ab("1", "2")], "true": [ab("2", "1")]},
    "a AND b": {"false": ["x", ab("true", "true"), {"b": "x"}], "null": [None]},
    "a OR b": {"false": [ab("true", "true")], "null": ["x", None]},
    "a = 1 AND b = 1 AND c = 1": {"false": [{"c": "2"}, {"b": "2", "c": "x"}], "null": [None]},
    # NOT holds stronger than a comparison.
    "NOT a = TRUE": {"true": ["x", "true"], "null": [None]},
    "NOT (a = 1)": {"true": ["2"], "false": ["1"], "null": [None], "error": ["x"]},
    "NOT NOT (a = 1)": {"true": ["1"], "false": ["2"]},
    "NOT a IS NULL": {"true": [None], "false": ["x"]},
    "NOT TRUE": {"false": [None]},
    # BETWEEN.
    "a BETWEEN 5 AND 10": {
        "true": ["5", "7", "10"],
        "false": ["4", "11"],
        "null": [None],
        "error": ["x", "7.0"],
    },
    "a NOT BETWEEN 5 AND 10": {"true": ["4", "11"], "false": ["5", "10"], "null": [None]},
    "a NOT BETWEEN 10 AND 5": {"true": ["4", "7", "11"]},
    "a BETWEEN 5 AND 5.5": {"true": ["5"], "false": ["4"], "error": ["5.2"]},
    "a BETWEEN 1.5 AND 2147483648": {"true": ["2"], "error": ["2.5"], "false": ["1.2", "1"]},
    "a BETWEEN 5 AND -5": {"false": ["0", "5", "-5"]},
    "a BETWEEN -5 AND 5": {"true": ["0", "5", "-5"], "false": ["6"]},
    "a BETWEEN b AND 5": {"true": [ab("3", "2.5")], "false": [ab("3", "4")], "null": ["3"]},
    "a BETWEEN b AND 9": {"false": ["10"], "error": [ab("x", "1"), ab("1", "x")]},
    "7 BETWEEN a AND b": {"true": [ab("5", "9")], "false": [ab("8", "9"), {"b": "5"}]},
    "a BETWEEN 1 AND 2 AND b BETWEEN 1 AND 2": {"true": [ab("1", "2")], "false": [ab("1", "3")]},
    # IN.
    "a IN ('x', 'y')": {"true": ["x", "y"], "false": ["z", ""], "null": [None]},
    "a NOT IN ('x', 'y')": {"true": ["z", ""], "false": ["x"], "null": [None]},
    "(a) IN ('x')": {"true": ["x"]},
    "a IN ('1','2','3','4','5','6','''')": {"true": ["6", "'"], "false": ["7", "01"]},
    # CONTAINS and its kin are never null, nor is their negation.
    "a CONTAINS 'b'": {"true": ["abc", "b"], "false": ["ABC", "", None]},
    "a NOT CONTAINS 'b'": {"true": ["ac", ""], "false": ["abc", None]},
    "a CONTAINS ''": {"false": EVERY},
    "a NOT CONTAINS ''": {"false": EVERY},
    "a STARTSWITH 'ab'": {"true": ["abc"], "false": ["xab", "a", None]},
    "a NOT STARTSWITH 'ab'": {"true": ["xab"], "false": ["abc", None]},
    "a STARTSWITH ''": {"false": ["x", None]},
    "a ENDSWITH 'bc'": {"true": ["abc"], "false": ["abcd", None]},
    "a NOT ENDSWITH 'bc'": {"true": ["abcd"], "false": ["abc", None]},
    "a NOT ENDSWITH ''": {"false": ["x", None]},
    "'abc' CONTAINS 'b'": {"true": [None]},
    "15 CONTAINS '5'": {"false": [None]},
    "15 NOT CONTAINS '7'": {"false": [None]},
    "TRUE CONTAINS 'T'": {"false": [None]},
    "NULL NOT CONTAINS 'x'": {"false": [None]},
    "(a > b) CONTAINS ''": {"false": [ab("x", "y")]},
    "(a > b) CONTAINS 'x'": {"error": [ab("x", "y")], "false": [None]},
    "a CONTAINS 'b' CONTAINS 'c'": {"false": ["abc"]},
    "a CONTAINS 'b' = TRUE": {"true": ["abc"], "false": ["x", None]},
    # A minus sign before anything but a number gives null.
    "-a IS NULL": {"true": ["5", "x", None]},
    "-a = 5": {"null": ["5", "-5", None]},
    "5 > -a": {"null": ["1", None]},
    "a > -b": {"null": [ab("1", "1"), ab("x", "x"), None]},
    "-'5' IS NULL": {"true": [None]},
    "-TRUE IS NULL": {"true": [None]},
    "-(a > b) IS NULL": {"true": ["1"], "error": [ab("x", "y")]},
    "a > -(b = 1)": {"null": [{"b": "x"}, "1"], "error": [ab("1", "x")]},
    "-5 = 5": {"false": [None]},
    "+a": {"false": ["x"], "null": [None]},
    # Letters, names, spaces, comments.
    "a is Not nUlL aNd a In ('x') Or nOt tRue": {"true": ["x"], "false": ["y", None]},
    "A = 1": {"null": ["1"], "true": [{"A": "1"}]},
    "$a_1 = 1 AND _ = 2 AND $ = 3": {"true": [{"$a_1": "1", "_": "2", "$": "3"}]},
    "ISNULL = 1": {"true": [{"ISNULL": "1"}]},
    "LIKE = 1": {"true": [{"LIKE": "1"}]},
    "a=1AND b=2": {"true": [ab("1", "2")]},
    "a\t=\r\n1\f": {"true": ["1"]},
    "a = /* ' */ 1 -- '\n AND b = 2": {"true": [ab("1", "2")]},
    "a /***/ = /* * / ** */ 1": {"true": ["1"]},
    "a = 1 /* a */ OR b = 1 /* b */": {"true": [{"b": "1", "a": "2"}]},
    "a = --1": {"true": ["1"], "false": ["-1"]},
    "a = --1\n2": {"true": ["2"]},
    "((((a)))) = (((1)))": {"true": ["1"]},
    # What follows a complete expression is not read.
    "a = 1 b = 2": {"true": ["1"], "false": ["2"]},
    "a = 1 )": {"true": ["1"]},
    "a = 1 'x' §": {"true": ["1"]},
    "a = 0L": {"true": ["0"]},
    "a = 007": {"true": ["0"], "false": ["7"]},
    "a = 1.5.5": {"true": ["1.5"], "false": ["1.55"]},
    "a = 1 -- no end of line": {"true": ["1"]},
    "a = 1 LIKE 'x'": {"true": ["1"]},
    "a + 1 = 2": {"false": ["1"], "null": [None]},
    "a = 1e": {"true": ["1"]},
    "a-b": {"false": ["1"], "null": [None]},
    "a i\u017f NULL": {"false": ["x"], "null": [None]},
}

REFUSED: dict[str, tuple[int, int, str]] = {
    "": (1, 1, "ends too early"),
    "  ": (1, 3, "ends too early"),
    "a =": (1, 4, "ends too early"),
    "a = 1 AND\n": (2, 1, "ends too early"),
    "(a = 1": (1, 7, "ends too early"),
    "a IN ('x'": (1, 10, "ends too early"),
    "a IS NOT": (1, 9, "ends too early"),
    "(a = 1 b": (1, 8, "b is not expected"),
    ")": (1, 1, ") is not expected"),
    "AND": (1, 1, "AND is not expected"),
    "a = = 1": (1, 5, "= is not expected"),
    "a NOT b": (1, 7, "b is not expected"),
    "a NOT = 1": (1, 7, "= is not expected"),
    "a IS 1": (1, 6, "1 is not expected"),
    "a IN ()": (1, 7, ") is not expected"),
    "a IN (1)": (1, 7, "1 is not expected"),
    "a IN (b)": (1, 7, "b is not expected"),
    "a CONTAINS b": (1, 12, "b is not expected"),
    "a CONTAINS 1": (1, 12, "1 is not expected"),
    "a BETWEEN 1": (1, 12, "ends too early"),
    "a BETWEEN 1 OR 2": (1, 13, "OR is not expected"),
    "is = 1": (1, 1, "is is not expected"),
    "= 1": (1, 1, "= is not expected"),
    "* = 1": (1, 1, "begin with '*'"),
    "a == 1": (1, 4, "= is not expected"),
    "a != 1": (1, 3, "begin with '!'"),
    'a = "x"': (1, 5, "begin with '\"'"),
    "a = 1 §": (1, 7, "begin with '§'"),
    "a = 1 ;": (1, 7, "begin with ';'"),
    "a = 'x": (1, 5, 'begin with "\'"'),
    "a = 'x''": (1, 8, 'begin with "\'"'),
    "a = 1 /* no end": (1, 7, "begin with '/'"),
    "a\v= 1": (1, 2, "begin with '\\x0b'"),
    "a\xa0= 1": (1, 2, "begin with '\\xa0'"),
    "é = 1": (1, 1, "begin with 'é'"),
    "a = .": (1, 5, "begin with '.'"),
    "a.b = 1": (1, 2, "begin with '.'"),
    # Types.
    "1": (1, 1, "1 alone is not a condition"),
    "'x'": (1, 1, "'x' alone is not a condition"),
    "-a": (1, 2, "a alone is not a condition"),
    "a AND 1": (1, 7, "1 alone is not a condition"),
    "a OR 'x' OR b": (1, 6, "'x' alone is not a condition"),
    "NOT 1": (1, 5, "1 alone is not a condition"),
    "NOT -a": (1, 6, "a alone is not a condition"),
    "-TRUE": (1, 2, "TRUE alone is not a condition"),
    "a > 'x'": (1, 5, "'x' is not a number"),
    "'1' < a": (1, 1, "'1' is not a number"),
    "a >= TRUE": (1, 6, "TRUE is not a number"),
    "a <= NULL": (1, 6, "NULL is not a number"),
    "TRUE < FALSE": (1, 1, "TRUE is not a number"),
    "(a = 1) > 1": (1, 2, "a condition is neither"),
    "a > 1 > 2": (1, 1, "a condition is neither"),
    "NOT a > 1": (1, 5, "a condition is neither"),
    "NOT a BETWEEN 1 AND 2": (1, 5, "a condition is neither"),
    "a = NULL": (1, 5, "write IS NULL"),
    "NULL = a": (1, 1, "write IS NULL"),
    "a <> NULL": (1, 6, "write IS NULL"),
    "NULL = NULL": (1, 1, "write IS NULL"),
    "TRUE = 1": (1, 1, "TRUE cannot be compared with 1"),
    "FALSE <> 'x'": (1, 1, "FALSE cannot be compared with 'x'"),
    "a BETWEEN 10 AND 5": (1, 11, "the first is above the second"),
    "a BETWEEN 1.5 AND 1": (1, 11, "the first is above the second"),
    "a BETWEEN 2147483648 AND 1": (1, 11, "the first is above the second"),
    "a BETWEEN 'x' AND 'y'": (1, 11, "'x' is not a number"),
    "a BETWEEN NULL AND 1": (1, 11, "NULL is not a number"),
    "a NOT BETWEEN 1 AND 'y'": (1, 21, "'y' is not a number"),
    "TRUE BETWEEN 1 AND 2": (1, 1, "TRUE is not a number"),
    "1 IN ('1')": (1, 1, "only a property"),
    "'x' NOT IN ('x')": (1, 1, "only a property"),
    "-a IN ('x')": (1, 2, "only a property"),
    "NOT a IN ('x')": (1, 5, "only a property"),
    "a IN ('x') IN ('y')": (1, 1, "only a property"),
    # Numbers.
    "a = 9223372036854775808": (1, 5, "is greater than 9223372036854775807"),
    "a = -9223372036854775808": (1, 6, "is greater than 9223372036854775807"),
    "a = 9223372036854775808l": (1, 5, "is greater than 9223372036854775807"),
    f"a = {'9' * 5000}": (1, 5, "is greater than 9223372036854775807"),
    "a = 0.0": (1, 5, "is less than 4.9e-324"),
    "a > -0.0": (1, 6, "is less than 4.9e-324"),
    "a = 0e5": (1, 5, "is less than 4.9e-324"),
    "a = 1e-400": (1, 5, "is less than 4.9e-324"),
    "a = 1e400": (1, 5, "is greater than 1.7976931348623157e308"),
}
"""Expressions that are not taken: the line and the column that we name, and part of the reason."""


def properties_of(given: str | Mapping[str, str] | None) -> dict[str, str]:
    """A property set of the table, written out."""
    if given is None:
        return {}
    return {"a": given} if isinstance(given, str) else dict(given)


def cases() -> Iterator[tuple[str, dict[str, str], str]]:
    """Each expression with each of its property sets and the result: true, false, null or error."""
    for expression, results in RESULTS.items():
        for result, sets in results.items():
            for given in sets:  # type: ignore[attr-defined]
                yield expression, properties_of(given), result
