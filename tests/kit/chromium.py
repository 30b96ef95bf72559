"""The machine's Chromium: Playwright's download of one is not needed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """The program, or None."""
    for name in NAMES:
        found = shutil.which(name)
        if found is not None:
            return found
    played = Path.home() / ".cache" / "ms-playwright"
    for pattern in ("chromium*/*/headless_shell", "chromium*/*/chrome"):
        for path in sorted(played.glob(pattern)):
            return str(path)
    return None


def chromium_or_skip() -> str:
    """The program; where there is none the test is skipped, and fails in CI."""
    program = find_chromium()
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no Chromium in PATH")
        pytest.skip("no Chromium in PATH, nor one of Playwright's")
    return program
