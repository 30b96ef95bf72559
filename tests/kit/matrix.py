"""Cases of which `make test` plays some, and `make interop`, with `--matrix`, all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest


def some_of(cases: Sequence[Any], is_fast: Callable[[Any], bool]) -> list[Any]:
    """The cases of a parametrized test; those that are not fast get the mark `matrix`.

    Args:
      cases: values, or tuples of values.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if is_fast(case) else pytest.mark.matrix,
        )
        for case in cases
    ]


def first_of(cases: Sequence[Any]) -> list[Any]:
    """The cases of a parametrized test, of which only the first is fast."""
    return some_of(cases, lambda case: case is cases[0])
