"""What a run of a benchmark of scale has found: each point is shown, and saved, as it comes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import typer
from rich.console import Console
from rich.progress import (
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from trocket.bench.kit import number_text, table
from trocket.bench.scale_curve import COLUMNS, Curve
from trocket.common.whole_file import replacing

WIDTH: Final = 200


class Record:
    """The curves of a run; they are printed when its block ends, however it ends.

    Args:
      title: names the kind of server, above the table.
      parts: the names of all that will be measured.
      path: a JSON file, which is replaced after each point. A file that exists is continued: the
        points of sizes that are not measured now stay in it. None: nothing is saved.
      facts: of this run, for the file.
    Raises: typer.BadParameter: the file cannot be read, or is not of such a run.
    """

    def __init__(
        self,
        title: str,
        parts: Sequence[str],
        path: Path | None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        self._title = title
        self._path = path
        self._curves: dict[tuple[str, str], Curve] = {}
        self._runs: list[dict[str, Any]] = []
        if path is not None and path.exists():
            self._read(path)
        self._run: dict[str, Any] = {
            "parts": list(parts),
            "python": sys.version.split()[0],
            **(facts or {}),
            "load at the start": os.getloadavg()[0],
        }
        self._runs.append(self._run)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._steps = self._progress.add_task("", total=len(parts), completed=-1)

    def __enter__(self) -> Record:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._progress.update(self._steps, advance=1)
        self._progress.stop()
        Console(width=WIDTH).print(table(COLUMNS, self.curves, self._title))

    @property
    def curves(self) -> list[Curve]:
        """Those of the file and of this run, in the order of their first points."""
        return list(self._curves.values())

    @property
    def status(self) -> int:
        """The exit status of the run: 0 if every curve keeps its claim, else 1."""
        return 0 if all(each.keeps for each in self.curves) else 1

    def begin(self, part: str) -> None:
        """The part before is over, and this one begins."""
        self._progress.update(self._steps, description=part, advance=1)

    def found(self, curve: Curve) -> None:
        """Show and save the last point of a curve, with all others of the run."""
        key = (curve.what, curve.per)
        known = self._curves.get(key)
        self._curves[key] = curve if known is None else known.joined(curve)
        point = curve.points[-1]
        line = f"{curve.what}: {number_text(point.cost)} {curve.unit} at {point.size:,} {curve.per}"
        self._progress.console.print(line, highlight=False, markup=False)
        self._run["load at the end"] = os.getloadavg()[0]
        if self._path is not None:
            whole = {"runs": self._runs, "curves": [each.to_json() for each in self.curves]}
            # Not synced: it need only survive this process, and the disk may be measured now.
            with replacing(self._path, syncs=False) as file:
                file.write(json.dumps(whole, indent=2).encode() + b"\n")

    def _read(self, path: Path) -> None:
        try:
            whole = json.loads(path.read_bytes())
            curves = [Curve.from_json(each) for each in whole["curves"]]
            self._runs = list(whole["runs"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise typer.BadParameter(f"{path} cannot be continued: {error!r}") from error
        self._curves = {(each.what, each.per): each for each in curves}
