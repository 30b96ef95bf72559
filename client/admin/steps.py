"""Long work on an answer in steps, between which other tasks run."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import anyio.lowlevel

T = TypeVar("T")


async def in_steps(steps: Generator[None, None, T]) -> T:
    """Run all steps with a checkpoint between two of them, under trio or asyncio.

    The answer of a broker with thousands of groups takes a second to read, in which a program
    that serves others would serve none.

    Raises: as the steps.
    """
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await anyio.lowlevel.checkpoint()
