"""Random SQL92 filters and property sets. Pure: the same seed gives the same ones.

Most expressions compile, many do not. They use all kinds of numbers, strings and keywords, and edge
cases more often than chance would.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

SETS_PER_EXPRESSION = 4

Pair = tuple[str, dict[str, str]]
"""An expression and the properties of a message."""


def _words(text: str) -> list[str]:
    return text.split()


NAMES = ["a", "b", "c", "A", "$x", "_y1", "price", "Not1"]
INTEGERS = _words("0 1 5 10 12 0L 1l 10L 2147483647 2147483648 3l")
INTEGERS_ODD = _words("007 9223372036854775807 9223372036854775808 9223372036854775807L 1LL")
DOUBLES = _words("1. .5 1.5 1e3 1E-3 10.0 5.e1 1.7976931348623157e308 0.1 2147483648.0 007.5")
DOUBLES_ODD = _words("0.0 0. 1e400 1e-400 4.9e-324 2e-324 0e0 1.8e308")
VALUES = [
    *_words("0 1 5 10 -5 +7 007 -0 --1 + - 1_0 1,0 00000000000000000000012 1L dd"),
    *_words("2147483647 2147483648 -2147483648 -2147483649 9223372036854775807"),
    *_words("9223372036854775808 -9223372036854775808 -9223372036854775809"),
    *_words("1.0 1.5 5. .5 . -0.0 0.0 1e3 1E+3 1e 1e400 -1e400 1e-400 4.9e-324 1d 1.5F"),
    *_words("NaN -NaN nan Infinity -Infinity inf 0x10 0x1p3 0X.8P+1f 0x1.p-2 0xp1 -0x1p9999"),
    *_words("0x1p-9999 true TRUE tRuE false null abc ABC ab bc b it's '' %"),
    *["", " ", " 12", "12 ", "\t3\n", "1 2", " true", "a b", "\x01"],
    # Digits of other scripts, below and above U+FFFF; digits that are no decimals; a minus sign.
    *["\uff11\uff12", "\u0663", "\U0001d7d9", "\xb2", "\u2167", "\u22121", "1\u0660"],
    *["日本", "é", "e\u0301", "\U0001f600", "\u0130", "\xa012"],
]
SPACES = [" ", " ", " ", " ", "  ", "\t", "\n", "\r\n", "\f", "/**/", "/* ' */", "--x\n", " --'\r"]
RUBBISH = [
    *_words("( ) , ' = <> < > <= >= != == + - -- /* . ; x 1 NOT AND OR IS NULL IN BETWEEN TRUE"),
    *_words("LIKE CONTAINS '' 'a' / * \" \\ 1.5 $ é §"),
    # Unicode's case folding makes an "s" and a "k" of letters in the last two.
    *["\0", "\v", "\xa0", "i\u017f", "\u212a"],
]


class Expressions:
    """A generator of random expressions. Args: seed: the same one gives the same expressions."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pairs(self, expression_count: int) -> list[Pair]:
        """This many expressions, each with `SETS_PER_EXPRESSION` property sets."""
        return [
            (expression, self.properties())
            for expression in [self.expression() for _ in range(expression_count)]
            for _ in range(SETS_PER_EXPRESSION)
        ]

    def properties(self) -> dict[str, str]:
        """A property set; values often repeat, so that comparisons can be true."""
        pick = self._random
        few = [pick.choice(VALUES) for _ in range(2)]
        if pick.random() < 0.4:
            few = [pick.choice(["1", "2", "5", "10", "12", "true", "abc", "0.5"])] * 2
        count = pick.randint(0, len(NAMES))
        return {name: pick.choice([*few, self._value()]) for name in pick.sample(NAMES, count)}

    def _value(self) -> str:
        pick = self._random
        if pick.random() < 0.7:
            return pick.choice(VALUES)
        if pick.random() < 0.5:
            return "".join(pick.choices("0123456789+-.eExXpPdDfFlL _NaI", k=pick.randint(1, 7)))
        return str(
            pick.choice([pick.randint(-20, 20), pick.uniform(-20, 20), pick.getrandbits(64)])
        )

    def expression(self) -> str:
        pick = self._random
        depth = pick.choice([0, 0, 1, 1, 2, 3, 5])
        tokens = self._any(depth) if pick.random() < 0.2 else self._condition(depth)
        if pick.random() < 0.1:
            for _ in range(pick.randint(1, 3)):
                self._damage(tokens)
        return "".join(self._spaced(tokens))

    def _damage(self, tokens: list[str]) -> None:
        pick = self._random
        place = pick.randint(0, len(tokens))
        what = pick.random()
        if what < 0.5:
            tokens.insert(place, pick.choice(RUBBISH))
        elif what < 0.75:
            del tokens[place : place + 1]
        elif what < 0.9:
            tokens[place : place + 1] = [pick.choice(RUBBISH)]
        else:
            del tokens[place:]

    def _spaced(self, tokens: list[str]) -> Iterator[str]:
        pick = self._random
        for token in tokens:
            if token.isalpha() and token.isupper() and len(token) > 1:
                token = pick.choice([token, token, token.lower(), token.title()])
            yield token
            # Without a space some tokens merge, for both parsers alike.
            if pick.random() < 0.95:
                yield pick.choice(SPACES)

    def _name(self) -> list[str]:
        return [self._random.choice(NAMES)]

    def _number(self) -> list[str]:
        pick = self._random
        kind = pick.choices([INTEGERS, DOUBLES, INTEGERS_ODD, DOUBLES_ODD], [6, 4, 0.15, 0.15])[0]
        sign = pick.choice([[], [], [], ["-"], ["+"], ["-", "-"]])
        return [*sign, pick.choice(kind)]

    def _string(self) -> list[str]:
        value = self._value().replace("'", "''")
        return [f"'{value}'"]

    def _literal(self) -> list[str]:
        pick = self._random
        kind = pick.randrange(4)
        if kind == 0:
            return self._number()
        if kind == 1:
            return self._string()
        return self._name() if pick.random() < 0.6 else [pick.choice(["TRUE", "FALSE", "NULL"])]

    def _strings(self) -> list[str]:
        tokens = ["(", *self._string()]
        for _ in range(self._random.choice([0, 1, 2, 4, 5, 8])):
            tokens += [",", *self._string()]
        return [*tokens, ")"]

    def _condition(self, depth: int) -> list[str]:
        pick = self._random
        if depth > 0:
            kind = pick.randrange(5)
            if kind == 0:
                return ["NOT", "(", *self._condition(depth - 1), ")"]
            if kind == 1:
                right = pick.choice(["TRUE", "FALSE", *NAMES])
                return ["(", *self._condition(depth - 1), ")", *self._equality(), right]
            tokens = self._condition(depth - 1)
            for _ in range(pick.choice([1, 1, 1, 2, 4])):
                tokens += [pick.choice(["AND", "OR"]), *self._condition(depth - 1)]
            return ["(", *tokens, ")"] if kind == 2 else tokens
        return self._comparison()

    def _equality(self) -> list[str]:
        return [self._random.choice(["=", "<>"])]

    def _order(self) -> list[str]:
        return [self._random.choice(["<", "<=", ">", ">="])]

    def _negated(self) -> list[str]:
        return ["NOT"] if self._random.random() < 0.4 else []

    def _comparison(self) -> list[str]:
        pick = self._random
        name = self._name()
        kind = pick.randrange(11)
        if kind == 0:
            return [*name, *self._order(), *self._number()]
        if kind == 1:
            return [*self._number(), *self._order(), *name]
        if kind == 2:
            return [*name, *self._order(), *self._name()]
        if kind == 3:
            return [*name, *self._equality(), *self._literal()]
        if kind == 4:
            return [*self._literal(), *self._equality(), *self._literal()]
        if kind == 5:
            return [*name, "IS", *self._negated(), "NULL"]
        if kind == 6:
            return [*name, *self._negated(), "IN", *self._strings()]
        if kind == 7:
            return [*name, *self._negated(), "BETWEEN", *self._bound(), "AND", *self._bound()]
        if kind in (8, 9):
            search = pick.choice([["''"], ["'b'"], ["'1'"], self._string()])
            left = name if pick.random() < 0.8 else self._literal()
            word = pick.choice(["CONTAINS", "STARTSWITH", "ENDSWITH"])
            return [*left, *self._negated(), word, *search]
        return [pick.choice(["TRUE", "FALSE", "NULL", *NAMES])]

    def _bound(self) -> list[str]:
        return self._name() if self._random.random() < 0.3 else self._number()

    def _any(self, depth: int) -> list[str]:
        """An expression that follows the grammar only; its types may be wrong."""
        pick = self._random
        if depth <= 0:
            return self._literal()
        inner = self._any(depth - 1)
        kind = pick.randrange(10)
        if kind == 0:
            return ["(", *inner, ")"]
        if kind == 1:
            return [pick.choice(["NOT", "-", "+"]), *inner]
        if kind == 2:
            return [*inner, "IS", *self._negated(), "NULL"]
        if kind == 3:
            word = pick.choice(["CONTAINS", "STARTSWITH", "ENDSWITH"])
            return [*inner, *self._negated(), word, *self._string()]
        if kind == 4:
            return [*inner, *self._negated(), "IN", *self._strings()]
        if kind == 5:
            bounds = [*self._any(depth - 2), "AND", *self._any(depth - 2)]
            return [*inner, *self._negated(), "BETWEEN", *bounds]
        word = pick.choice(["=", "=", "<>", "<", "<=", ">", ">=", "AND", "OR"])
        return [*inner, word, *self._any(depth - 1)]
