"""The order in which trio runs the tasks of one moment, from a seed.

trio draws it at random. What it made for hypothesis is used here: `_r`, its source of chance, and
`_ALLOW_DETERMINISTIC_SCHEDULING`, without which the order depends on addresses in memory, too.
Both are one for the process, and other threads may run trio meanwhile (the brokers of session
fixtures do), so they keep their own source: each draw of theirs would change all that follows here.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import trio
import trio.abc


def run_by(seed: int | str, main: Callable[[], Awaitable[Any]], clock: trio.abc.Clock) -> Any:
    """`trio.run` with an order of tasks from a seed.

    Raises: whatever `main` raises, the first of it without the groups around.
    """
    try:
        with order_of(seed):
            return trio.run(main, clock=clock)
    except BaseExceptionGroup as group:
        raise first_of(group) from None


def first_of(error: BaseException) -> BaseException:
    """What happened first, without the groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _RandomOfThread:
    """One thread draws from a seed, all others from what was there before."""

    def __init__(self, seed: int | str, others: Any) -> None:
        self._thread = threading.get_ident()
        self._own = Random(seed)
        self._others = others

    def __getattr__(self, name: str) -> Any:
        is_own = threading.get_ident() == self._thread
        return getattr(self._own if is_own else self._others, name)


@contextmanager
def order_of(seed: int | str) -> Iterator[None]:
    """In this thread, trio's order of tasks depends on the seed and on nothing else."""
    core: Any = trio._core._run
    known = core._r, core._ALLOW_DETERMINISTIC_SCHEDULING
    core._r = _RandomOfThread(seed, core._r)
    core._ALLOW_DETERMINISTIC_SCHEDULING = True
    try:
        yield
    finally:
        core._r, core._ALLOW_DETERMINISTIC_SCHEDULING = known
