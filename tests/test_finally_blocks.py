"""No `return`, `break` or `continue` leaves a `finally` block: it would drop the exception there.

Python 3.14 warns of it when it compiles the module (PEP 765); ruff's B012 does not see those below
an `if`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from .test_tidy import EVERYTHING, name

LOOPS = (ast.For, ast.AsyncFor, ast.While)
OWN_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def jumps(node: ast.AST, *, in_loop: bool = False) -> Iterator[int]:
    """The lines of statements that leave `node`."""
    if isinstance(node, OWN_SCOPES):
        return
    if isinstance(node, ast.Return) or (
        isinstance(node, (ast.Break, ast.Continue)) and not in_loop
    ):
        yield node.lineno
    for child in ast.iter_child_nodes(node):
        yield from jumps(child, in_loop=in_loop or isinstance(node, LOOPS))


def jumps_out_of_finally(source: str) -> list[int]:
    if "finally" not in source:  # it need not be parsed
        return []
    blocks = [
        statement
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Try, ast.TryStar))
        for statement in node.finalbody
    ]
    return sorted({line for statement in blocks for line in jumps(statement)})


@pytest.mark.slow
def test_no_statement_leaves_a_finally_block() -> None:
    found = {name(path): jumps_out_of_finally(path.read_text("utf-8")) for path in EVERYTHING}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if b: return", [6]),
        ("with b: return", [6]),
        ("for c in b: break", []),
        ("continue", [6]),
        ("def d(): return", []),
    ],
)
def test_what_leaves_a_finally_block(body: str, expected: list[int]) -> None:
    source = f"def a(b):\n for each in b:\n  try:\n   b()\n  finally:\n   {body}\n"
    assert jumps_out_of_finally(source) == expected
