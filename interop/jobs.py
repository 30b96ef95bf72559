"""What every part of the harness gives to pytest (see `cases`): jobs that end in cells.

A job is what is started and stopped together, mostly one broker with what is asked of it. Jobs know
before they start which cells they will give, so that a job that breaks down fails those it still
owed, and a selection leaves out jobs that owe nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .report.cells import Cell, Verdict

Tell = Callable[[Cell], None]
"""Called with each cell as soon as it is known, from whichever thread."""


@dataclass(frozen=True)
class Job:
    """One job.

    Attributes:
      name: for people: "scenarios of java-5.5.0 on trocket".
      owed: the cells it will give, their verdict SKIPPED; a selection may have taken some out.
      play: called as `play(owed, folder, tell)` with the cells that are wanted and a folder of its
        own that is removed afterwards. It leaves no process behind, whatever it raises.
      group: jobs of one group share something that is played once, so one process plays them all.
    """

    name: str
    owed: tuple[Cell, ...]
    play: Callable[[Sequence[Cell], Path, Tell], None]
    group: str = ""

    def selected(self, wanted: Callable[[Cell], bool]) -> Job | None:
        """The same job for a part of its cells; None when none is wanted."""
        owed = tuple(cell for cell in self.owed if wanted(cell))
        return replace(self, owed=owed) if owed else None


def failed(cells: Sequence[Cell], detail: str) -> list[Cell]:
    """These cells as failures for one reason."""
    return [replace(cell, verdict=Verdict.FAILED, detail=detail) for cell in cells]
