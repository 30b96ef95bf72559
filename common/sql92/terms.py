"""The terms of an expression: the parts that must all be true for a message to be taken. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from .errors import FilterEvaluationError
from .expression import compile_expression
from .parser import TOKEN, without_comments


class TermResult(StrEnum):
    """Why a term is not true for a message."""

    FALSE = "FALSE"
    UNKNOWN = "UNKNOWN"
    """A property that it reads is missing."""
    ERROR = "ERROR"
    """A property cannot be compared as the term demands; RocketMQ takes that for false."""


class FailedTerm(NamedTuple):
    """A term of an expression, and why a message does not match it."""

    text: str
    result: TermResult


def and_terms(text: str) -> list[str]:
    """The operands of an expression's outermost ANDs, from the left, without outer brackets.

    Args:
      text: an expression that `compile_expression` takes.

    Returns: of an expression whose outermost operator is another one, the expression.
    """
    found: list[str] = []
    todo = [without_comments(text)]
    while todo:
        part = _unbracketed(todo.pop())
        pieces = _split(part)
        if len(pieces) > 1:
            todo += reversed(pieces)
        else:
            found.append(part)
    return found


def failed_term(text: str, properties: Mapping[str, str]) -> FailedTerm | None:
    """The first term of an expression that is not true for a message's properties; None: all are.

    Raises: FilterSyntaxError: the expression cannot be compiled.
    """
    if compile_expression(text).matches(properties):
        return None
    for term in and_terms(text):
        try:
            value = compile_expression(term).evaluate(properties)
        except FilterEvaluationError:
            return FailedTerm(term, TermResult.ERROR)
        if value is not True:
            return FailedTerm(term, TermResult.FALSE if value is False else TermResult.UNKNOWN)
    return FailedTerm(text, TermResult.FALSE)


def _split(part: str) -> list[str]:
    """The operands of ANDs outside of brackets; one, if an OR is outside of them, too."""
    depth = begin = 0
    is_between = False
    pieces: list[str] = []
    for token in TOKEN.finditer(part):
        word = token[0].upper()
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth:
            continue
        if word == "OR":
            return [part]
        if word == "BETWEEN":
            is_between = True
        elif word == "AND" and is_between:
            is_between = False
        elif word == "AND":
            pieces.append(part[begin : token.start()].strip())
            begin = token.end()
    return [*pieces, part[begin:].strip()]


def _unbracketed(part: str) -> str:
    """The text without brackets that are around all of it."""
    begin, end = 0, len(part)
    pairs = _bracket_pairs(part)
    while True:
        while begin < end and part[begin].isspace():
            begin += 1
        while end > begin and part[end - 1].isspace():
            end -= 1
        if pairs.get(begin) != end - 1:
            return part[begin:end]
        begin, end = begin + 1, end - 1


def _bracket_pairs(part: str) -> dict[int, int]:
    """Position of each opening bracket to that of its closing one."""
    pairs: dict[int, int] = {}
    open_at: list[int] = []
    for token in TOKEN.finditer(part):
        if token[0] == "(":
            open_at.append(token.start())
        elif token[0] == ")" and open_at:
            pairs[open_at.pop()] = token.start()
    return pairs
