"""mypy tells the store's time from the time of day."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
from trocket.common.clock import Clock, StoreTimeMs, WallTimeMs
from trocket.store.message_store import MessageStore

def due(now_ms: WallTimeMs) -> None: ...
def reach(store_time_ms: StoreTimeMs) -> None: ...

def program(clock: Clock, store: MessageStore) -> None:
    due(clock.wall_ms())
    due(store.wall_time_ms)
    reach(store.store_time_ms)
    due(store.store_time_ms)  # wrong
    reach(store.wall_time_ms)  # wrong
    reach(clock.wall_ms())  # wrong
    due(0)  # wrong
"""


@pytest.mark.slow
def test_mypy_rejects_the_stores_time_where_the_time_of_day_is_wanted(tmp_path: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    program = tmp_path / "two_clocks.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(program)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    found = re.findall(r"two_clocks\.py:(\d+): error: .* \[arg-type\]", done.stdout)
    wrong = [
        number for number, line in enumerate(PROGRAM.split("\n"), 1) if line.endswith("# wrong")
    ]
    assert [int(number) for number in found] == wrong, done.stdout + done.stderr
