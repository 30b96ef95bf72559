"""Fixtures that all test folders share."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from trocket import native

from . import second_try
from .own_log import SLOW_TURNS, broker_threads, own_lines
from .traced_memory import traced_memory

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

    from trocket.testing import Broker

# Machines that run several things at once make single examples slow, not wrong.
settings.register_profile(
    "trocket", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
# `make check`, between two commits: a fifth of the examples.
settings.register_profile("quick", settings.get_profile("trocket"), max_examples=20)
settings.load_profile("trocket")

ROOT = Path(__file__).resolve().parent.parent
NEED_JAVA = {"java", "spark"}
"""Fixtures that start, or promise, a JVM."""
THREADS = pytest.StashKey[set[threading.Thread]]()
"""Of brokers that ran before a test."""
SHARED = Path(os.environ.get("TROCKET_SHARED", ROOT.parent / "shared"))


# A shell that runs a command in the background lets it ignore Ctrl-C, and children inherit that:
# tests of Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with a name server, in a thread of this process: the module's own."""
    from trocket.testing import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def traced() -> Iterator[Callable[[], int]]:
    """Bytes that the test holds: other threads stand still."""
    with traced_memory() as memory:
        yield memory


@pytest.fixture
def slow_turns_unlogged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of this process do not warn of slow turns, where a test compares all that a command
    prints: how long a turn takes depends on what else the machine does."""
    monkeypatch.setattr(logging.getLogger(SLOW_TURNS), "disabled", True)


@pytest.fixture
def caplog(
    caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> Iterator[pytest.LogCaptureFixture]:
    """Pytest's own, without what other tests' brokers log, and without slow turns."""
    slow_turns = request.node.get_closest_marker("slow_turns") is not None
    with own_lines(caplog.handler, request.node.stash[THREADS], slow_turns=slow_turns):
        yield caplog


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make interop` gives --matrix; `make test` plays a fast cut of the interop tests."""
    parser.addoption("--matrix", action="store_true", help="also the tests marked `matrix`")


def pytest_configure(config: pytest.Config) -> None:
    second_try.register(config)


def pytest_report_header() -> str:
    """Which implementation of the hot path is tested."""
    return f"trocket: {native.choice.description}"


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Keep bytes that are no text out of names: compressed ones have the time of day in them.

    Workers that start in different seconds would not agree on the tests.
    """
    if isinstance(val, bytes) and not (val.isascii() and val.decode().isprintable()):
        return argname
    return None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what needs Java: the interop tests, and those that ask for a fixture with a JVM."""
    fixtures = getattr(item, "fixturenames", ())
    test: Any = getattr(item, "obj", None)
    if "autojump_clock" in fixtures and "autojump_clock" not in signature(test).parameters:
        # pytest-trio looks for a clock among the arguments of the test alone.
        raise pytest.UsageError(f"{item.nodeid} waits in real time: it needs autojump_clock itself")
    if item.get_closest_marker("interop") or NEED_JAVA.intersection(fixtures):
        item.add_marker("java")


@pytest.hookimpl(tryfirst=True)  # before the test's fixtures start theirs
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[THREADS] = broker_threads()


@pytest.hookimpl(trylast=True)  # in the order that pytest-randomly makes
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [] if config.getoption("--matrix") else matrix_tests(items)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("matrix")]
    if hasattr(config, "workerinput"):
        from .distribution import longest_first

        items[:] = longest_first(items)


def pytest_collection_finish() -> None:
    """Take what collecting made, which stays to the end, out of the garbage collector's sight.

    It is 350,000 objects, and each full collection during the tests would visit them all: an eighth
    of the time of a simulation.
    """
    gc.freeze()


def matrix_tests(items: list[pytest.Item]) -> list[pytest.Item]:
    return [item for item in items if item.get_closest_marker("matrix")]


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
    """How the tests are divided among several test processes (`make test`)."""
    from .distribution import UnitScheduling

    # As collected, which is longest first; xdist would begin with the units of the most tests.
    config.option.loadscopereorder = False
    return UnitScheduling(config, log)
