"""A master's log on its slave, one of them Apache's, or both ours, whatever happens meanwhile.

Without --matrix: 10,000 messages, restarts and kills of both sides. With it: each thing that may
happen by itself, 100,000 messages. Figures are printed (`-s`).
"""

from __future__ import annotations

import time
from concurrent.futures import Future
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
from .java_consumers import JavaConsumers
from .load import Load
from .pair import OURS, OURS_WITH_OURS, ROLES, Pair, Roles

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

FIRST_COUNT = 200
"""Messages that are there when the slave comes."""
FAST_COUNT, MATRIX_COUNT = 10_000, 100_000
FAST_ROLES = [Roles(OURS, "5.5.0"), Roles("5.5.0", OURS), OURS_WITH_OURS]
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

    def play(self, folder: Path) -> str:
        """Replicate while it happens, and compare; what it was, for people."""
        happening = HAPPENINGS[self.name]
        count = FAST_COUNT if self.is_fast else MATRIX_COUNT
        began_s = time.monotonic()
        with Pair(self.roles, folder, keys=happening.keys, relayed=happening.relayed) as pair:
            pair.master.start()
            with pair.ask_master() as master:
                make_tables(master)
                with Load(pair.master.broker_address, FIRST_COUNT) as load:
                    load.wait_share(1.0)
                acknowledged = load.acknowledged
                commit_offsets(master, 3)
            if self.hears_late:
                write_topics(pair.logs[1].parent)
            pair.slave.start_broker()
            # It follows from now on: Apache's 4.9.7 asks for the log after 5 s only.
            wait_copied(pair)
            address = pair.master.broker_address
            with Load(address, count - FIRST_COUNT, first=FIRST_COUNT) as load:
                happening.happen(pair, load)
                load.wait_share(1.0)
            acknowledged += load.acknowledged
            wait_copied(pair)
            file_count = assert_logs_are_equal(pair)
            if not self.hears_late:
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


CELLS = [
    *(
        pytest.param(
            Cell(roles, RESTARTS_AND_KILLS),
            marks=() if roles == FAST_ROLES[0] else pytest.mark.matrix,
        )
        for roles in FAST_ROLES
    ),
    *(
        pytest.param(Cell(roles, name), marks=pytest.mark.matrix)
        for roles in ROLES
        for name in HAPPENINGS
        if name != RESTARTS_AND_KILLS
    ),
]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_slave_is_like_its_master(plays: dict[Cell, Future[str]], cell: Cell) -> None:
    print(f"{cell}:", plays[cell].result(TIMEOUT_S))


CONSUMERS = [
    JavaConsumers(OURS_WITH_OURS, "5.5.0"),
    *(
        pytest.param(cell, marks=pytest.mark.matrix)
        for cell in (
            JavaConsumers(OURS_WITH_OURS, "4.9.7"),
            JavaConsumers(Roles(OURS, "5.5.0"), "5.5.0"),
            JavaConsumers(Roles("5.5.0", OURS), "5.5.0"),
            JavaConsumers(Roles("4.9.7", OURS), "4.9.7"),
        )
    ),
]


@pytest.mark.parametrize("cell", CONSUMERS, ids=str)
def test_java_consumers_read_on_from_the_slave(
    plays: dict[JavaConsumers, Future[str]], cell: JavaConsumers
) -> None:
    print(f"{cell}:", plays[cell].result(TIMEOUT_S))
