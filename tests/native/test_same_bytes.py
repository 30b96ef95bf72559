"""One traffic, served by the C extension and by pure Python: every byte that leaves is the same.

Answers, commit log, queues, index and tables are compared, of recorded requests and of generated
ones (`traffic.py`). `TROCKET_NATIVE_RUNS=500` plays more seeds, `TROCKET_NATIVE_SEED=7` others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from trocket import native

from .traffic import KINDS

ROOT: Final = Path(__file__).resolve().parent.parent.parent
RUNS: Final = int(os.environ.get("TROCKET_NATIVE_RUNS", "1"))
SEED: Final = int(os.environ.get("TROCKET_NATIVE_SEED", "1"))
TURNS: Final = 25

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(native.extension is None, reason=native.choice.description),
]


def start(kind: str, golden: str, *, pure: bool) -> subprocess.Popen[str]:
    """A process that plays; see `player`. Sets have the same order in both."""
    arguments = (str(SEED), str(RUNS), str(TURNS), kind, golden)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.native.player", *arguments],
        cwd=ROOT,
        env=os.environ | {"TROCKET_PURE": "1" if pure else "", "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        text=True,
    )


def assert_same(kind: str, golden: str) -> int:
    """Play twice; returns the number of sessions, or fails with the first difference."""
    with start(kind, golden, pure=False) as one, start(kind, golden, pure=True) as other:
        assert one.stdout is not None
        assert other.stdout is not None
        assert json.loads(one.stdout.readline()) == {"native": True}
        assert json.loads(other.stdout.readline()) == {"native": False}
        count = 0
        for ours, theirs in zip(one.stdout, other.stdout, strict=True):
            compare(json.loads(ours), json.loads(theirs))
            count += 1
    assert (one.returncode, other.returncode) == (0, 0)
    return count


def compare(ours: dict[str, object], pure: dict[str, object]) -> None:
    if ours == pure:
        return
    answers = zip(ours["answers"], pure["answers"], strict=True)  # type: ignore[call-overload]
    turns = [turn for turn, (one, other) in enumerate(answers) if one != other]
    files = dict(set(ours["files"].items()) ^ set(pure["files"].items()))  # type: ignore[attr-defined]
    pytest.fail(
        f"{ours['name']}: answers differ in the turns {turns[:10]}, and so do the files "
        f"{sorted(files)}; again: TROCKET_NATIVE_SEED={str(ours['name']).split()[-1]} "
        "pytest tests/native/test_same_bytes.py"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_generated_traffic(kind: str) -> None:
    print(f"{RUNS} sessions of {kind} traffic from seed {SEED}")
    assert assert_same(kind, "") == RUNS


def test_recorded_traffic(golden: Path) -> None:
    assert assert_same("", str(golden)) >= 10
