"""The extension's fuzzer for a few seconds; `make fuzz-native` is the long run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from trocket import native

from .compiler import missing_to_build

ROOT: Final = Path(__file__).resolve().parent.parent.parent
SECONDS: Final = "3"


@pytest.mark.slow
@pytest.mark.skipif(native.extension is None, reason=native.choice.description)
@pytest.mark.skipif(bool(missing_to_build()), reason=missing_to_build())
def test_fuzzing_under_sanitizers_finds_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.native", SECONDS],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if "cannot be fuzzed" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cases in" in done.stdout
