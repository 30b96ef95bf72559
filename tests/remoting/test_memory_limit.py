"""The memory budget of a server whose configuration names none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trocket.common.connection_policy import BUDGET_MIN
from trocket.remoting.memory_budget import BUDGET_DEFAULT_MAX
from trocket.remoting.memory_limit import budget_of

MIB = 1 << 20
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (800 << 20, resource.RLIM_INFINITY))
from trocket.common.machine import usable_memory
from trocket.remoting.memory_limit import default_budget
print(usable_memory(), default_budget())
"""


@pytest.mark.parametrize(
    ("memory", "budget"),
    [
        (None, BUDGET_DEFAULT_MAX),
        (0, BUDGET_MIN),
        (200 * MIB, BUDGET_MIN),
        (1024 * MIB, 256 * MIB),
        (1 << 40, BUDGET_DEFAULT_MAX),
    ],
)
def test_the_default_budget_is_a_quarter_of_the_memory(memory: int | None, budget: int) -> None:
    assert budget_of(memory) == budget


@pytest.mark.slow
def test_a_limit_of_address_space_counts() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True
    )
    usable, budget = map(int, done.stdout.split())
    assert usable <= 800 * MIB
    assert budget == budget_of(usable)
