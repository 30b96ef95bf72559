"""Plays jobs side by side, each in a folder of its own, and gathers their cells.

A job's thread is one of a few; jobs that must be alone run after all others, one by one. Whatever
happens, each cell that a job owed comes out: as it was told, failed because its job broke down, or
skipped because the run was ended before.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from .jobs import Job, failed
from .process import PeerError, end_all
from .report.cells import Cell, Verdict

ENDED = "the run was ended before"
END_TIMEOUT_S = 30.0
"""How long jobs may take to end after their peers were killed; their threads are left then."""


class Watcher(Protocol):
    """Is told what happens, one call at a time, from the jobs' threads."""

    def job_started(self, job: Job) -> None:
        """A job begins."""

    def cell_told(self, cell: Cell) -> None:
        """A cell is known; a later one of the same name takes its place."""

    def job_ended(self, job: Job, seconds: float) -> None:
        """A job has told all its cells and its folder is gone."""


class Runner:
    """Plays some jobs once. `run` in one thread; `stop` from any, or from a signal handler.

    Args:
      jobs: in the order of the matrix, which is the order of the cells that come out.
      folder: the jobs' folders are made in it, and removed with each job.
      parallel: jobs at a time, at least 1.
      watcher: who is told of progress.
      end_peers: kills the processes that jobs wait for, when the run is to end early.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        folder: Path,
        parallel: int = 2,
        watcher: Watcher | None = None,
        end_peers: Callable[[], None] = end_all,
    ) -> None:
        self._jobs = list(jobs)
        self._folder = folder
        self._parallel = max(1, parallel)
        self._watcher = watcher
        self._end_peers = end_peers
        self._lock = threading.Lock()
        self._told: dict[str, Cell] = {}
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._under_way = 0

    def stop(self) -> None:
        """End the run soon. Does nothing but set a flag, so a signal handler may call it."""
        self._stopping.set()

    @property
    def was_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def run(self) -> tuple[Cell, ...]:
        """Play all jobs; the cells, in the order in which the jobs owe them."""
        together = [job for job in self._jobs if not job.alone]
        alone = [job for job in self._jobs if job.alone]
        self._play_all(together, self._parallel)
        self._play_all(alone, 1)
        return self._cells()

    def _play_all(self, jobs: Iterable[Job], thread_count: int) -> None:
        waiting = deque(enumerate(jobs))
        threads = [
            threading.Thread(target=self._play_waiting, args=(waiting,), daemon=True)
            for _ in range(min(thread_count, len(waiting)))
        ]
        self._under_way = len(threads)
        for thread in threads:
            thread.start()
        deadline_s: float | None = None
        while not self._wait_threads(deadline_s):
            if deadline_s is not None:
                return
            deadline_s = time.monotonic() + END_TIMEOUT_S
            self._end_peers()

    def _wait_threads(self, deadline_s: float | None) -> bool:
        """Whether all threads have ended: by the deadline, or without one, before `stop`."""
        with self._changed:
            while self._under_way:
                if deadline_s is None and self.was_stopped:
                    return False
                rest_s = 0.1 if deadline_s is None else deadline_s - time.monotonic()
                if rest_s <= 0:
                    return False
                # In small steps: a signal handler sets a flag and can notify nobody.
                self._changed.wait(min(rest_s, 0.1))
        return True

    def _play_waiting(self, waiting: deque[tuple[int, Job]]) -> None:
        try:
            while not self.was_stopped:
                try:
                    number, job = waiting.popleft()
                except IndexError:
                    return
                self._play(number, job)
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def _play(self, number: int, job: Job) -> None:
        kind = "alone" if job.alone else "job"
        folder = self._folder / f"{kind}-{number:03}-{_file_name(job.name)}"
        began_s = time.monotonic()
        error_text = "its job ended without telling it"
        with self._lock:
            if self._watcher is not None:
                self._watcher.job_started(job)
        try:
            folder.mkdir(parents=True)
            job.play(job.owed, folder, self._tell)
        except PeerError as error:
            error_text = str(error)
        except Exception as error:  # noqa: BLE001 - a job's top; its cells tell what it was
            error_text = f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        owing = [cell for cell in job.owed if cell.name not in self._told]
        if not self.was_stopped:
            for cell in failed(owing, error_text):
                self._tell(cell)
        with self._lock:
            if self._watcher is not None:
                self._watcher.job_ended(job, time.monotonic() - began_s)

    def _tell(self, cell: Cell) -> None:
        with self._lock:
            if self.was_stopped and cell.verdict is Verdict.FAILED:
                # Its peers may just have been killed: that says nothing about them.
                cell = replace(cell, verdict=Verdict.SKIPPED, detail=ENDED, frames=())
            before = self._told.get(cell.name)
            if before is not None and before.verdict is Verdict.FAILED:
                return
            self._told[cell.name] = cell
            if self._watcher is not None:
                self._watcher.cell_told(cell)

    def _cells(self) -> tuple[Cell, ...]:
        with self._lock:
            cells: dict[str, Cell] = {}
            for job in self._jobs:
                for cell in job.owed:
                    ended = replace(cell, verdict=Verdict.SKIPPED, detail=ENDED)
                    cells[cell.name] = self._told.get(cell.name, ended)
            # What was told and not owed stands at the end.
            return tuple({**cells, **self._told}.values())


def _file_name(name: str) -> str:
    """A job's name as a part of its folder's."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")[:60]
