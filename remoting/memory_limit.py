"""The default of a server's memory budget, derived from the memory of the machine."""

from __future__ import annotations

from functools import cache
from typing import Final

from ..common.connection_policy import BUDGET_MIN
from ..common.machine import usable_memory
from .memory_budget import BUDGET_DEFAULT_MAX

BUDGET_PARTS: Final = 4
"""A server's connections get this part of the memory; the rest is for its tables, the allocations
of one turn (three times the largest frame), and the kernel's cache of the log."""


@cache  # the answer is in a dozen files, and one process may have hundreds of servers
def default_budget() -> int:
    """Bytes of a server's memory budget if its configuration does not set one.

    A quarter of the memory that the process may use, from BUDGET_MIN to BUDGET_DEFAULT_MAX.
    """
    return budget_of(usable_memory())


def budget_of(memory: int | None) -> int:
    """The default budget on a machine that lets the process use `memory` bytes; None: unknown."""
    if memory is None:
        return BUDGET_DEFAULT_MAX
    return min(max(memory // BUDGET_PARTS, BUDGET_MIN), BUDGET_DEFAULT_MAX)
