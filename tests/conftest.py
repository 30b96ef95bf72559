"""Fixtures that all test folders share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

# Machines that run several things at once make single examples slow, not wrong.
settings.register_profile(
    "trocket", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("trocket")

ROOT = Path(__file__).resolve().parent.parent
INTEROP_ALONE = ("tests/interop/ha/", "tests/interop/spark/")
SHARED = Path(os.environ.get("TROCKET_SHARED", ROOT.parent / "shared"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make interop` gives --matrix; `make test` plays a fast cut of the interop tests."""
    parser.addoption("--matrix", action="store_true", help="also the tests marked `matrix`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--matrix"):
        return
    left_out = [item for item in items if item.get_closest_marker("matrix")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("matrix")]


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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """With several test processes most interop tests run in one of them.

    They share compiled programs, and wait for JVMs most of their time, while another works. Two
    folders that share nothing with the rest go elsewhere: one process would take longer with all
    than another with everything else. (The marker `xdist_group` would say so too, were it not
    without effect in pytest 9.2.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class InteropTogether(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(INTEROP_ALONE):
                return nodeid.rpartition("/")[0]
            return "interop" if nodeid.startswith("tests/interop/") else nodeid

    return InteropTogether(config, log)
