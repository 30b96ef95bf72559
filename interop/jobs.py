"""Jobs: the units of work that parts of the harness give to pytest (see `cases`).

A job starts and stops its processes together, usually one broker and its clients. It declares its
cells before it runs: a job that fails takes its unfinished cells with it, and a selection drops
jobs without cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .report.cells import Cell, Verdict

OnCell = Callable[[Cell], None]
"""Called with each cell as soon as its verdict is known, from any thread."""


@dataclass(frozen=True)
class Job:
    """One job.

    Attributes:
      name: for people: "scenarios on trocket, kill".
      owed: the cells it will report, with the verdict SKIPPED; a selection may have removed some.
      play: called as `play(owed, folder, on_cell)` with the selected cells and a new folder, which
        is removed afterwards. It leaves no process running, whatever it raises.
      group: jobs of one group share a result that is computed once, so one process runs them all.
    """

    name: str
    owed: tuple[Cell, ...]
    play: Callable[[Sequence[Cell], Path, OnCell], None]
    group: str = ""

    def selected(self, wanted: Callable[[Cell], bool]) -> Job | None:
        """This job restricted to some of its cells; None when none is wanted."""
        owed = tuple(cell for cell in self.owed if wanted(cell))
        return replace(self, owed=owed) if owed else None


def failed(cells: Sequence[Cell], detail: str) -> list[Cell]:
    return [replace(cell, verdict=Verdict.FAILED, detail=detail) for cell in cells]
