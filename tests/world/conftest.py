"""Settings that the simulation turns off, restored for other tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """`quiet` of `search.py` silences the package's logger for the whole process."""
    logger = logging.getLogger("trocket")
    level = logger.level
    yield
    logger.setLevel(level)
