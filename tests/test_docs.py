"""The documents name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", (ROOT / "docs" / "quirks.md").read_text())


def test_the_quirks_name_their_tests() -> None:
    assert len(NAMED) > 25


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_named_test_exists(path: str, name: str) -> None:
    source = (ROOT / path).read_text() if (ROOT / path).is_file() else ""
    assert re.search(rf"def {name}\(", source), f"{path} has no {name}"
