"""The call of pytest on the cells, and the run that results from it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Final

import psutil
import pytest

from ...common.clock import SystemClock
from ..report.cells import Cell, Run, Verdict
from .plugin import JOBS, VERSIONS, cell_of, test_id

ENDED = "the run ended before this cell was reached"
PLUGINS: Final = (
    "xdist.plugin",
    "pytest_metadata.plugin",
    "pytest_html.plugin",
    f"{__package__}.plugin",
)
"""No plugins of the environment are loaded: they might change the order or read other settings."""
NO_AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"


@dataclass(frozen=True)
class Options:
    """The options of the call.

    Attributes:
      interop: options of `plugin`.
      parallel: test processes; 1: this process runs everything.
      junit, html: files to write.
    """

    interop: Sequence[str]
    parallel: int = 1
    junit: Path | None = None
    html: Path | None = None

    def arguments(self) -> list[str]:
        """The command line of pytest."""
        words = ["-c", str(Path(__file__).with_name("pytest.ini")), "-q", "--tb=no", "-rN"]
        # pytest would load a conftest.py of the folder in which the command is run.
        words.append("--noconftest")
        words += [word for name in PLUGINS for word in ("-p", name)]
        if self.parallel > 1:
            words += ["-n", str(self.parallel), "--dist", "loadscope"]
        if self.junit is not None:
            words.append(f"--junitxml={self.junit.absolute()}")
        if self.html is not None:
            words += [f"--html={self.html.absolute()}", "--self-contained-html"]
        return [*words, *self.interop, "--pyargs", f"{__package__}.test_cells"]


def call(options: Options) -> tuple[Run, bool]:
    """Run the tests and return the run, and whether a signal ended it early.

    Raises:
      RuntimeError: pytest ended with an internal or usage error, which it has printed.
      ModuleNotFoundError: a package of the extra `interop` is not installed.
    """
    for name in PLUGINS:
        import_module(name)  # pytest would hide which package is missing
    collector = _CellCollector()
    with _environment(NO_AUTOLOAD, "1"), _term_as_ctrl_c():
        status = pytest.main(options.arguments(), plugins=[collector])
    if status in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        raise RuntimeError(f"pytest ended with {pytest.ExitCode(status).name}")
    return collector.run(), status == pytest.ExitCode.INTERRUPTED


class _CellCollector:
    """A plugin of the reporting process: collects the cells of all processes."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._started_at = datetime.fromtimestamp(SystemClock().wall_ms() / 1000, UTC)
        self._owed: dict[str, Cell] = {}
        self._found: dict[str, Cell] = {}
        self._versions: dict[str, str] = {}
        self._has_workers = False

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Take the expected cells from the jobs."""
        self._versions = session.config.stash[VERSIONS]
        owed = (cell for job in session.config.stash[JOBS] for cell in job.owed)
        self._owed = {test_id(cell): cell for cell in owed}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self) -> None:
        """Record that xdist's workers run the tests."""
        self._has_workers = True

    def pytest_keyboard_interrupt(self) -> None:
        """Interrupt the test processes now; xdist would wait for ten seconds."""
        # The guard, also a child of this process, ignores SIGINT.
        for child in psutil.Process().children() if self._has_workers else ():
            with contextlib.suppress(psutil.NoSuchProcess):
                child.send_signal(signal.SIGINT)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the cell of a test; without one its process has crashed."""
        name = report.nodeid.partition("[")[2].rpartition("]")[0]
        cell = cell_of(report)
        if cell is None and report.failed and name in self._owed:
            detail = report.longreprtext
            cell = replace(self._owed[name], verdict=Verdict.FAILED, detail=detail)
        if cell is not None:
            self._found[name] = cell

    def run(self) -> Run:
        """All cells in the order of the matrix; cells that were not reached are skipped."""
        started_at = self._started_at.isoformat(timespec="seconds").replace("+00:00", "Z")
        cells = (
            self._found.get(name, replace(cell, verdict=Verdict.SKIPPED, detail=ENDED))
            for name, cell in self._owed.items()
        )
        return Run(started_at, time.monotonic() - self._began_s, self._versions, tuple(cells))


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextlib.contextmanager
def _term_as_ctrl_c() -> Iterator[None]:
    """Handle SIGTERM like SIGINT while entered: pytest ends and writes its reports."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
