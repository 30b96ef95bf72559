"""How much memory a process may use, as the machine, its control groups and its limits say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trocket.remoting.memory_budget import BUDGET_DEFAULT_MAX, BUDGET_MIN
from trocket.remoting.memory_limit import budget_of, usable_memory

MIB = 1 << 20
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (800 << 20, resource.RLIM_INFINITY))
from trocket.remoting.memory_limit import default_budget, usable_memory
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


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("0::/system.slice/broker.service", {"system.slice/memory.max": "900000000\n"}),
        (
            "0::/a/b",
            {"a/b/memory.max": "max\n", "a/memory.max": "950000000", "memory.max": "900000000"},
        ),
        ("5:cpu,memory:/pod", {"memory/pod/memory.limit_in_bytes": "900000000\n"}),
    ],
)
def test_control_groups_count_with_all_above_them(
    tmp_path: Path, line: str, files: dict[str, str]
) -> None:
    own, mounted = tmp_path / "cgroup", tmp_path / "mounted"
    own.write_text(f"4:pids:/x\n{line}\n")
    for name, text in files.items():
        (mounted / name).parent.mkdir(parents=True, exist_ok=True)
        (mounted / name).write_text(text)
    assert usable_memory(own, mounted) == 900_000_000


@pytest.mark.parametrize("text", ["", "0::/../../etc", "nonsense", "0::/a\x00b"])
def test_nonsense_about_control_groups_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "cgroup").write_text(text)
    assert usable_memory(tmp_path / "cgroup", tmp_path) == usable_memory(tmp_path / "none")
