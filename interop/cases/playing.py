"""Jobs played once, beside the tests of their cells, which wait for what the jobs tell.

Whatever a job does, each of its cells comes out: as it was told, or failed because the job broke
down or forgot it.
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
"""How long a job may take to stop its peers, and again after they were killed."""


class Playing:
    """A job in a thread of its own; started at once.

    Args:
      job: with the cells that are wanted of it.
      folder: for its files; made here, and removed when the job ends.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        self._job = job
        self._folder = folder
        self._told: dict[str, Cell] = {}
        self._changed = threading.Condition()
        self._has_ended = False
        self._thread = threading.Thread(target=self._play, name=job.name, daemon=True)
        self._thread.start()

    def result(self, cell: Cell) -> Cell:
        """The cell with its verdict; waits until the job has told it."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or cell.name in self._told)
            return self._told[cell.name]

    def end(self, end_peers: Callable[[], None]) -> None:
        """Wait until the job has stopped what it started; kill its peers if it is not done."""
        with self._changed:
            is_done = all(cell.name in self._told for cell in self._job.owed)
        if is_done:
            self._thread.join(END_TIMEOUT_S)
        if self._thread.is_alive():
            end_peers()
            self._thread.join(END_TIMEOUT_S)

    def _play(self) -> None:
        error_text = "its job ended without telling it"
        try:
            self._folder.mkdir(parents=True)
            self._job.play(self._job.owed, self._folder, self._tell)
        except PeerError as error:
            error_text = str(error)
        except Exception as error:  # noqa: BLE001 - a job's top; its cells tell what it was
            error_text = f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            for cell in failed(self._job.owed, error_text):
                if cell.name not in self._told:
                    self._tell(cell)
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()

    def _tell(self, cell: Cell) -> None:
        with self._changed:
            before = self._told.get(cell.name)
            if before is None or before.verdict is not Verdict.FAILED:  # a failure is final
                self._told[cell.name] = cell
                self._changed.notify_all()


class Plays:
    """The jobs of one test process: each is played when its first cell is asked for, one at a time.

    Args:
      jobs: with the cells that are wanted of them.
      folder: the jobs' folders are made in it.
      end_peers: kills the processes that a job waits for, when the run ends early.
    """

    def __init__(
        self, jobs: Iterable[Job], folder: Path, end_peers: Callable[[], None] = end_all
    ) -> None:
        self._jobs = {cell.name: job for job in jobs for cell in job.owed}
        self._folder = folder
        self._end_peers = end_peers
        self._playings: dict[str, Playing] = {}
        self._last: Playing | None = None

    def result(self, cell: Cell) -> Cell:
        """The cell with its verdict; its job is played if it has not been."""
        job = self._jobs[cell.name]
        playing = self._playings.get(job.name)
        if playing is None:
            self.close()
            name = f"{len(self._playings):03}-{_file_name(job.name)}"
            playing = self._playings[job.name] = self._last = Playing(job, self._folder / name)
        return playing.result(cell)

    def close(self) -> None:
        """Wait for the job under way, or end it when it still owes cells."""
        if self._last is not None:
            self._last.end(self._end_peers)
            self._last = None


def _file_name(name: str) -> str:
    """A job's name as a part of its folder's."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")[:60]
