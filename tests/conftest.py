"""Fixtures that all test folders share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Machines that run several things at once make single examples slow, not wrong.
settings.register_profile(
    "trocket", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("trocket")

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("TROCKET_SHARED", ROOT.parent / "shared"))


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of bytes recorded from Apache brokers and clients.

    It stands beside the checkout (`../shared/golden`), or where TROCKET_SHARED points.
    """
    folder = SHARED / "golden"
    if not folder.is_dir():
        message = f"the golden recordings are missing: no folder {folder}; set TROCKET_SHARED"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return folder
