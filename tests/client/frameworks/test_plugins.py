"""Async fixtures with `yield`, in a pytest of their own: each plugin of the user's choice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

TIMEOUT_S = 120
TESTS = 7


@pytest.mark.slow
def test_async_fixtures_of_every_plugin(tmp_path: Path) -> None:
    if find_spec("pytest_asyncio") is None and os.environ.get("CI") != "true":
        pytest.skip("needs pytest-asyncio")
    shutil.copy(Path(__file__).with_name("plugins.py"), tmp_path / "test_plugins.py")
    options = ["-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:randomly"]
    options += ["-o", "asyncio_default_fixture_loop_scope=function", f"--rootdir={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_plugins.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{TESTS} passed" in done.stdout
