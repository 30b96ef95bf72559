"""A pytest plugin that makes a test of each cell selected by its options.

With several processes (pytest-xdist) the cells of a job stay in one process: a job runs once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from ..guard import temporary_folder
from ..jobs import Job, OnCell
from ..process import PeerError
from ..providers import BROKERS, Wanted, find_jobs
from ..report.cells import Cell, Kind, Run, Verdict
from ..report.text import SIGNS, explained, printable
from ..versions import collect_versions
from .job_runner import JobRunner

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

JOBS: Final = pytest.StashKey[list[Job]]()
VERSIONS: Final = pytest.StashKey[dict[str, str]]()
RESULT: Final = pytest.StashKey[Cell]()


# ---- collection and execution ------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, which are those of `trocket interop run`."""
    group = parser.getgroup("interop", "cells of trocket.interop")
    some: dict[str, Any] = {"action": "append", "default": [], "metavar": "NAME"}
    default = " and ".join(BROKERS)
    group.addoption("--interop-kind", choices=list(Kind), help="select kinds (all)", **some)
    group.addoption("--interop-broker", help=f"select brokers ({default})", **some)
    group.addoption("--interop-client", help="select clients of scenarios (all)", **some)
    group.addoption("--interop-fault", help="select faults of scenarios (all)", **some)
    group.addoption("--interop-cell", help="select cells with this text in their names", **some)
    group.addoption("--interop-fast", action="store_true", help="leave out slow cells")
    group.addoption("--interop-run", help="report these earlier runs again, run nothing", **some)


def pytest_configure(config: pytest.Config) -> None:
    """Find the jobs. Raises: pytest.UsageError: a broker, client or fault is unknown."""
    _find_jobs(config)
    if config.pluginmanager.has_plugin("pytest_metadata.plugin"):
        from pytest_metadata.plugin import metadata_key

        config.stash[metadata_key].update(config.stash[VERSIONS])


def _find_jobs(config: pytest.Config) -> None:
    option = config.option
    try:
        if option.interop_run:
            run = Run.together(
                [Run.from_json(Path(path).read_bytes()) for path in option.interop_run]
            )
            config.stash[JOBS] = jobs_of_run(run)
            config.stash[VERSIONS] = dict(run.versions)
            return
        wanted = Wanted(
            tuple(option.interop_broker) or BROKERS,
            option.interop_client or None,
            option.interop_fault or None,
            option.interop_fast,
        )
        kinds = [Kind(name) for name in option.interop_kind] or list(Kind)
        jobs = config.stash[JOBS] = find_jobs(kinds, wanted, option.interop_cell)
    except (PeerError, ValueError, OSError) as error:
        raise pytest.UsageError(str(error)) from error
    is_worker = hasattr(config, "workerinput")
    owed = [] if is_worker else [cell for job in jobs for cell in job.owed]
    config.stash[VERSIONS] = collect_versions(wanted.brokers, owed) if owed else {}


def jobs_of_run(run: Run) -> list[Job]:
    """Jobs that report the cells of an earlier run, one for each kind and broker."""
    found: dict[str, list[Cell]] = defaultdict(list)
    for cell in run.cells:
        found[f"{cell.kind} of {cell.broker}"].append(cell)

    def play(owed: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
        for cell in owed:
            on_cell(cell)

    return [Job(name, tuple(cells), play) for name, cells in found.items()]


def test_id(cell: Cell) -> str:
    """The id of a cell's test: its name, limited to characters that pytest leaves unchanged."""
    return "".join(sign if " " <= sign <= "~" and sign != "\\" else "?" for sign in cell.name)


test_id.__test__ = False  # type: ignore[attr-defined]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each cell."""
    if "check_cell" in metafunc.fixturenames:
        cells = [cell for job in metafunc.config.stash[JOBS] for cell in job.owed]
        metafunc.parametrize("check_cell", cells, ids=map(test_id, cells), indirect=True)


@pytest.fixture(scope="session")
def runner(request: pytest.FixtureRequest) -> Iterator[JobRunner]:
    """A runner of the jobs, restricted to the collected cells."""
    items = (item for item in request.session.items if isinstance(item, pytest.Function))
    wanted = {_cell(item).name for item in items if "check_cell" in item.fixturenames}
    chosen = [job.selected(lambda cell: cell.name in wanted) for job in request.config.stash[JOBS]]
    with temporary_folder() as folder:
        made = JobRunner([job for job in chosen if job is not None], folder)
        yield made
        made.close()


def _cell(item: pytest.Function) -> Cell:
    cell: Cell = item.callspec.params["check_cell"]  # type: ignore[assignment]
    return cell


@pytest.fixture
def check_cell(request: pytest.FixtureRequest, runner: JobRunner) -> Callable[[], None]:
    """A function that passes, fails or skips the test with its cell's verdict."""

    def check() -> None:
        node: pytest.Item = request.node
        cell = node.stash[RESULT] = runner.result(request.param)
        if cell.verdict is Verdict.FAILED:
            pytest.fail(explained(cell), pytrace=False)
        if cell.verdict is Verdict.SKIPPED:
            pytest.skip(printable(cell.detail))
        if cell.verdict is Verdict.QUIRK:
            node.user_properties.append(("deliberate difference", printable(cell.detail)))

    return check


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """Keep the cells of a group of jobs in one process."""
    from xdist.scheduler import LoadScopeScheduling

    groups = {
        test_id(cell): job.group or job.name for job in config.stash[JOBS] for cell in job.owed
    }

    class JobsTogether(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            name = nodeid.partition("[")[2].rpartition("]")[0]
            return groups.get(name, nodeid)

    return JobsTogether(config, log)


# ---- reporting ---------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the cell to the report, which carries it to the reporting process."""
    report = yield
    cell = item.stash.get(RESULT, None)
    if cell is not None and report.when == "call":
        report.duration = cell.seconds
        vars(report)["cell"] = msgspec.to_builtins(cell)
    return report


def cell_of(report: pytest.TestReport) -> Cell | None:
    """The cell attached to a report; None: the test did not run to its end."""
    fields = getattr(report, "cell", None)
    return None if fields is None else msgspec.convert(fields, Cell)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, object] | None:
    """Count deliberate differences as a category of their own."""
    cell = cell_of(report)
    if cell is None or cell.verdict is not Verdict.QUIRK:
        return None
    return "quirk", SIGNS[Verdict.QUIRK], ("QUIRK", {"yellow": True})


def pytest_report_header(config: pytest.Config) -> str:
    """Print the versions."""
    versions = ", ".join(f"{name} {version}" for name, version in config.stash[VERSIONS].items())
    return f"versions: {printable(versions)}"


@pytest.hookimpl(optionalhook=True)
def pytest_metadata(metadata: dict[str, object], config: pytest.Config) -> None:
    """Show only the versions in the page's table (see `pytest_configure`)."""
    metadata.clear()
