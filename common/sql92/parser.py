"""The parser of expressions, with the grammar sql92.lark.

Importing lark takes as long as the rest of a broker's start, so only `compile_expression` imports
this module: at the start of a broker with enablePropertyFilter, and never without it.

Java counterpart: filter/parser/SelectorParser.java of 5.3.3. Pure, but for reading the grammar.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, NoReturn

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ..java_integers import INT32_MAX, INT64_MAX
from . import operands
from .errors import FilterSyntaxError
from .operands import Kind, Operand

# Preprocessing of an expression's text: removes comments and limits the tokens.
#
# Both are linear in the text. The parser's lexer would not be: it would search for the end of a
# comment at each minus sign. A token costs it about 10 us.
#
# Java counterpart: SelectorParserTokenManager.java of 5.3.3. Pure.

TOKENS_MAX: Final = 1_000
"""Most names, literals, operators and brackets of an expression: compiling it takes 15 ms at the
worst, evaluating it for the worst message 25 ms, while no other request is served. An IN of 490
strings reaches it. RocketMQ has no limit."""

_MARK: Final = re.compile(r"'(?:[^']|'')*+'?|--|/\*")
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_VISIBLE: Final = re.compile(r"[^\r\n]")
TOKEN: Final = re.compile(r"'(?:[^']|'')*+'?|[A-Za-z_$][A-Za-z0-9_$]*+|[0-9.]++|<>|[<>]=|\S")


def without_comments(text: str) -> str:
    """The text with spaces for each comment, so that tokens keep their line and column.

    A line comment without a line end is two minus signs; a block comment without its end is left
    for the parser to refuse.
    """
    line_ends = max(text.rfind("\n"), text.rfind("\r"))
    pieces: list[str] = []
    position = kept_to = 0
    while (mark := _MARK.search(text, position)) is not None:
        position = mark.end()
        if mark[0] == "--" and position <= line_ends:
            line_end = _LINE_END.search(text, position)
            end = position if line_end is None else line_end.end()
        elif mark[0] == "/*":
            end = text.find("*/", position) + len("*/")
            if end < position:
                break
        else:
            continue
        pieces += (text[kept_to : mark.start()], _VISIBLE.sub(" ", text[mark.start() : end]))
        position = kept_to = end
    return "".join((*pieces, text[kept_to:]))


def check_tokens(text: str) -> None:
    """Refuse a string without comments that has too many tokens.

    Raises: FilterSyntaxError: more than TOKENS_MAX; at the first token above the limit.
    """
    for count, token in enumerate(TOKEN.finditer(text)):
        if count == TOKENS_MAX:
            line = 1 + text.count("\n", 0, token.start())
            column = token.start() - text.rfind("\n", 0, token.start())
            raise FilterSyntaxError(
                f"more than {TOKENS_MAX} names, literals, operators and brackets", line, column
            )


_GRAMMAR: Final = Path(__file__).with_name("sql92.lark")
_END: Final = "$END"
"""lark's name of the text's end."""
_TEXT_SHOWN_MAX: Final = 40


def parse(text: str) -> Operand:
    """Parse an expression's text; text after a complete expression is ignored, as in RocketMQ.

    Raises: FilterSyntaxError: RocketMQ refuses it, too, or it has too many tokens.
    """
    text = without_comments(text)
    check_tokens(text)
    try:
        return _operand(text)
    except UnexpectedToken as error:
        refusal = error
    except UnexpectedCharacters as error:
        raise FilterSyntaxError(_reason(error), error.line, error.column) from None
    if refusal.token.type != _END:
        # RocketMQ stops after a complete expression: `a = 1 b` is `a = 1`. It has read one token
        # more by then, so that must be a valid token.
        try:
            return _ended(refusal)
        except UnexpectedInput:
            pass
    line, column = refusal.line, refusal.column
    if refusal.token.type == _END:
        line = 1 + text.count("\n")
        column = len(text) - text.rfind("\n")
    raise FilterSyntaxError(_reason(refusal), line, column) from None


def _operand(text: str) -> Operand:
    made: Any = _lark().parse(text)
    assert isinstance(made, Operand)
    return made


def _ended(refusal: UnexpectedToken) -> Operand:
    """The operand up to the refused token, as if the text ended there.

    Raises: UnexpectedInput: the expression is not complete.
    """
    parser: Any = refusal.interactive_parser
    made: Any = parser.feed_eof()
    assert isinstance(made, Operand)
    return made


def _reason(error: UnexpectedToken | UnexpectedCharacters) -> str:
    if isinstance(error, UnexpectedCharacters):
        return f"nothing can begin with {error.char!r} here"
    if error.token.type == _END:
        return "the expression ends too early"
    return f"{_shown(error.token)} is not expected here"


def _shown(text: str) -> str:
    return str(text) if len(text) <= _TEXT_SHOWN_MAX else f"{text[:_TEXT_SHOWN_MAX]}…"


def _constant(kind: Kind, value: object, token: Token) -> Operand:
    return operands.constant(kind, value, _shown(token), token.line or 1, token.column or 1)


def _refuse(token: Token, reason: str) -> NoReturn:
    raise FilterSyntaxError(f"{_shown(token)} {reason}", token.line or 1, token.column or 1)


def _integer(found: list[Token]) -> Operand:
    """An Integer where it fits, otherwise a Long; the letter l decides nothing."""
    token = found[0]
    digits = token.rstrip("lL")
    # The length first: Python refuses to read thousands of digits.
    if len(digits) > len(str(INT64_MAX)) or int(digits) > INT64_MAX:
        _refuse(token, f"is greater than {INT64_MAX}")
    value = int(digits)
    return _constant(Kind.INTEGER if value <= INT32_MAX else Kind.LONG, value, token)


def _double(found: list[Token]) -> Operand:
    token = found[0]
    value = float(token)
    # Not a mistake: RocketMQ asks for at least Double.MIN_VALUE, the least one above 0.
    if value == 0:
        _refuse(token, "is less than 4.9e-324; 0 without a point is taken")
    if math.isinf(value):
        _refuse(token, "is greater than 1.7976931348623157e308")
    return _constant(Kind.DOUBLE, value, token)


def _property(found: list[Token]) -> Operand:
    token = found[0]
    return operands.message_property(str(token), token.line or 1, token.column or 1)


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _searches(make: Callable[..., Operand], *, wanted: bool) -> Callable[[list[Any]], Operand]:
    return lambda found: make(found[0], _unquoted(found[1]), wanted=wanted)


def _is_in(wanted: bool) -> Callable[[list[Any]], Operand]:
    return lambda found: operands.is_in(found[0], list(map(_unquoted, found[1:])), wanted=wanted)


_MADE_BY: Final[dict[str, Callable[[list[Any]], Operand]]] = {
    "start": lambda found: operands.as_condition(found[0]),
    "or_expression": operands.any_of,
    "and_expression": operands.all_of,
    "equal": lambda found: operands.equal(*found),
    "not_equal": lambda found: operands.not_equal(*found),
    "is_null": lambda found: operands.is_null(found[0]),
    "is_not_null": lambda found: operands.is_not_null(found[0]),
    "less": lambda found: operands.less(*found),
    "less_or_equal": lambda found: operands.less_or_equal(*found),
    "greater": lambda found: operands.greater(*found),
    "greater_or_equal": lambda found: operands.greater_or_equal(*found),
    "contains": _searches(operands.contains, wanted=True),
    "not_contains": _searches(operands.contains, wanted=False),
    "starts_with": _searches(operands.starts_with, wanted=True),
    "not_starts_with": _searches(operands.starts_with, wanted=False),
    "ends_with": _searches(operands.ends_with, wanted=True),
    "not_ends_with": _searches(operands.ends_with, wanted=False),
    "between": lambda found: operands.between(*found),
    "not_between": lambda found: operands.not_between(*found),
    "is_in": _is_in(wanted=True),
    "is_not_in": _is_in(wanted=False),
    "minus": lambda found: operands.minus(found[0]),
    "negation": lambda found: operands.negation(found[0]),
    "string": lambda found: _constant(Kind.STRING, _unquoted(found[0]), found[0]),
    "integer": _integer,
    "double": _double,
    "true": lambda found: _constant(Kind.BOOLEAN, True, found[0]),
    "false": lambda found: _constant(Kind.BOOLEAN, False, found[0]),
    "null": lambda found: _constant(Kind.NOTHING, None, found[0]),
    "property": _property,
}
"""The operand of each rule of the grammar, from its operands and tokens."""


class _Builder(Transformer[Token, Operand]):
    """The table as a lark transformer; lark calls it at the end of each rule, without recursion."""

    def __init__(self) -> None:
        super().__init__()
        vars(self).update(_MADE_BY)


@cache
def _lark() -> Lark:
    """The parser; tens of milliseconds to make, so made once."""
    grammar = _GRAMMAR.read_text(encoding="utf-8")
    # The basic lexer, not the contextual one: keywords are reserved everywhere.
    return Lark(grammar, parser="lalr", lexer="basic", transformer=_Builder())
