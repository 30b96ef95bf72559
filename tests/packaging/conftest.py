"""Fixtures of the tests that build and install the distributions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.in_memory import folder_in_memory


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """For what a module builds and installs: environments are large, and removed with it."""
    with folder_in_memory() as path:
        yield path
