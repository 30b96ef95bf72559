"""The runner of jobs: each job runs once, in a thread, while the tests of its cells wait for it.

Every cell of a job gets a verdict: the one that the job reports, or FAILED if the job raised an
error or ended without reporting it.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from ..jobs import Job, failed
from ..process import PeerError, end_all
from ..report.cells import Cell, Verdict

END_TIMEOUT_S = 60.0
"""How long a job may take to stop its peers, and again after they are killed."""


class RunningJob:
    """A job in a separate thread, which starts at once.

    Args:
      job: with its selected cells.
      folder: for its files; created here, and removed when the job ends.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        self._job = job
        self._folder = folder
        self._reported: dict[str, Cell] = {}
        self._changed = threading.Condition()
        self._has_ended = False
        self._thread = threading.Thread(target=self._play, name=job.name, daemon=True)
        self._thread.start()

    def result(self, cell: Cell) -> Cell:
        """The cell with its verdict; waits until the job has reported it."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or cell.name in self._reported)
            return self._reported[cell.name]

    def end(self, end_peers: Callable[[], None]) -> None:
        """Wait for the job to stop its peers; kill them if it has unreported cells or hangs."""
        with self._changed:
            is_done = all(cell.name in self._reported for cell in self._job.owed)
        if is_done:
            self._thread.join(END_TIMEOUT_S)
        if self._thread.is_alive():
            end_peers()
            self._thread.join(END_TIMEOUT_S)

    def _play(self) -> None:
        error_text = "its job ended without reporting it"
        try:
            self._folder.mkdir(parents=True)
            self._job.play(self._job.owed, self._folder, self._report)
        except PeerError as error:
            error_text = str(error)
        except Exception as error:  # noqa: BLE001 - top of a thread; its cells get the error
            error_text = f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            for cell in failed(self._job.owed, error_text):
                if cell.name not in self._reported:
                    self._report(cell)
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()

    def _report(self, cell: Cell) -> None:
        with self._changed:
            before = self._reported.get(cell.name)
            if before is None or before.verdict is not Verdict.FAILED:  # a failure is final
                self._reported[cell.name] = cell
                self._changed.notify_all()


class JobRunner:
    """Runs the jobs of one test process, one at a time, each when its first cell is asked for.

    Args:
      jobs: with their selected cells.
      folder: parent of the jobs' folders.
      end_peers: kills the processes that a job waits for, when the run ends early.
    """

    def __init__(
        self, jobs: Iterable[Job], folder: Path, end_peers: Callable[[], None] = end_all
    ) -> None:
        self._jobs = {cell.name: job for job in jobs for cell in job.owed}
        self._folder = folder
        self._end_peers = end_peers
        self._started: dict[str, RunningJob] = {}
        self._last: RunningJob | None = None

    def result(self, cell: Cell) -> Cell:
        """The cell with its verdict; runs its job if it has not run yet."""
        job = self._jobs[cell.name]
        running = self._started.get(job.name)
        if running is None:
            self.close()
            name = f"{len(self._started):03}-{_file_name(job.name)}"
            running = self._started[job.name] = self._last = RunningJob(job, self._folder / name)
        return running.result(cell)

    def close(self) -> None:
        """Wait for the running job, or end it if it has unreported cells."""
        if self._last is not None:
            self._last.end(self._end_peers)
            self._last = None


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")[:60]
