"""Settings that the simulation turns off, restored for other tests."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def log_level():
    """`quiet` of `search.py` silences the package's logger for the whole process."""
    logger = logging.getLogger("trocket")
    level = logger.level
    yield
    logger.setLevel(level)
