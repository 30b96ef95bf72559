"""Plays what the tests of replication look at, several pairs of brokers side by side."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import pytest

TOGETHER = 3
"""Cells played at a time: mostly they wait."""


class Cell(Protocol):
    """What one test looks at; to be hashed."""

    def play(self, folder: Path) -> str:
        """Run it in a new folder and return a description."""


@pytest.fixture(scope="module")
def plays(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Cell, Future[str]]]:
    """All cells that a module is asked for, some of them under way."""
    folder = tmp_path_factory.mktemp("plays")
    items = (item for item in request.session.items if isinstance(item, pytest.Function))
    asked = [item for item in items if item.module is request.module and has_cell(item)]
    cells: list[Any] = [item.callspec.params["cell"] for item in asked]
    pool = ThreadPoolExecutor(TOGETHER)
    try:
        yield {
            cell: pool.submit(cell.play, folder / str(number)) for number, cell in enumerate(cells)
        }
    finally:
        pool.shutdown(cancel_futures=True)


def has_cell(item: pytest.Function) -> bool:
    """Whether a test looks at a cell."""
    return hasattr(item, "callspec") and "cell" in item.callspec.params
