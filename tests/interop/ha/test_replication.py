"""A master's log on its slave, one of them Apache's, or both ours, whatever happens meanwhile.

Without --matrix: 10,000 messages, restarts and kills of both sides. With it: each thing that may
happen by itself, 100,000 messages. Figures are printed (`-s`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from .alike import (
    assert_logs_are_equal,
    assert_reads_are_equal,
    assert_tables_are_copied,
    commit_offsets,
    make_tables,
    wait_copied,
    write_topics,
)
from .happenings import HAPPENINGS, RESTARTS_AND_KILLS
from .load import Load
from .pair import OURS, OURS_WITH_OURS, ROLES, Pair, Roles

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

FIRST_COUNT = 200
"""Messages that are there when the slave comes."""
FAST_COUNT, MATRIX_COUNT = 10_000, 100_000
FAST_ROLES = [Roles(OURS, "5.5.0"), Roles("5.5.0", OURS), OURS_WITH_OURS]
TOGETHER = 3
"""Cells played at a time: mostly they wait."""
TIMEOUT_S = 900.0
"""For a cell, and those that come before it."""


@dataclass(frozen=True)
class Cell:
    """Who replicates, and what happens meanwhile (by its name)."""

    roles: Roles
    name: str

    def __str__(self) -> str:
        return f"{self.roles}, {self.name}"

    @property
    def is_fast(self) -> bool:
        """Whether it is of the fast cut."""
        return self.name == RESTARTS_AND_KILLS

    @property
    def hears_late(self) -> bool:
        """Whether the slave hears of topics and offsets so late that the fast cut does not wait."""
        return self.is_fast and self.roles.slave != OURS


CELLS = [
    *(Cell(roles, RESTARTS_AND_KILLS) for roles in FAST_ROLES),
    *(
        pytest.param(Cell(roles, name), marks=pytest.mark.matrix)
        for roles in ROLES
        for name in HAPPENINGS
        if name != RESTARTS_AND_KILLS
    ),
]


def play(cell: Cell, folder: Path) -> str:
    """Replicate while it happens, and compare; what it was, for people."""
    happening = HAPPENINGS[cell.name]
    count = FAST_COUNT if cell.is_fast else MATRIX_COUNT
    began_s = time.monotonic()
    with Pair(cell.roles, folder, keys=happening.keys, relayed=happening.relayed) as pair:
        pair.master.start()
        with pair.ask_master() as master:
            make_tables(master)
            with Load(pair.master.broker_address, FIRST_COUNT) as load:
                load.wait_share(1.0)
            acknowledged = load.acknowledged
            commit_offsets(master, 3)
        if cell.hears_late:
            write_topics(pair.logs[1].parent)
        pair.slave.start_broker()
        # Something happens to a slave that follows: Apache's 4.9.7 asks for the log after 5 s only.
        wait_copied(pair)
        address = pair.master.broker_address
        with Load(address, count - FIRST_COUNT, first=FIRST_COUNT) as load:
            happening.happen(pair, load)
            load.wait_share(1.0)
        acknowledged += load.acknowledged
        wait_copied(pair)
        file_count = assert_logs_are_equal(pair)
        if not cell.hears_late:
            # Again: a master that was killed has forgotten what was committed seconds before.
            with pair.ask_master() as master:
                commit_offsets(master, count // 100)
            # First: Apache's slave does not serve topics that it has not heard of.
            assert_tables_are_copied(pair)
        read_count = assert_reads_are_equal(pair, acknowledged)
    assert len(acknowledged) == count
    seconds = time.monotonic() - began_s
    return (
        f"{count} messages acknowledged, {read_count} stored, {file_count} log files equal, "
        f"{seconds:.0f} s; cuts: {len(pair.frames.cuts)}, "
        f"connections through the relay: {pair.frames.connection_count}, "
        f"sends that failed: {len(load.failures)}"
    )


@pytest.fixture(scope="module")
def plays(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Cell, Future[str]]]:
    """All cells that are asked for, some of them under way."""
    folder = tmp_path_factory.mktemp("plays")
    items = (item for item in request.session.items if isinstance(item, pytest.Function))
    cells = [item.callspec.params["cell"] for item in items if item.module is request.module]
    pool = ThreadPoolExecutor(TOGETHER)
    try:
        yield {
            cell: pool.submit(play, cell, folder / str(number)) for number, cell in enumerate(cells)
        }
    finally:
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_slave_is_like_its_master(plays: dict[Cell, Future[str]], cell: Cell) -> None:
    print(f"{cell}:", plays[cell].result(TIMEOUT_S))
