"""A master's log on its slave, one of them Apache's, or both ours, whatever happens meanwhile.

Without --matrix: 10,000 messages, restarts and kills of both sides. With it: each thing that may
happen by itself, 100,000 messages. Figures are printed (`-s`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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
from .happenings import HAPPENINGS, RESTARTS_AND_KILLS, Happening
from .load import Load
from .pair import OURS, OURS_WITH_OURS, ROLES, Pair, Roles

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

FIRST_COUNT = 200
"""Messages that are there when the slave comes."""
FAST_COUNT, MATRIX_COUNT = 10_000, 100_000
FAST_ROLES = [Roles(OURS, "5.5.0"), Roles("5.5.0", OURS), OURS_WITH_OURS]
TIMEOUT_S = 180.0


def is_late(roles: Roles, happening: Happening) -> bool:
    """Whether the slave hears of topics and offsets so late that the fast cut does not wait."""
    return happening is RESTARTS_AND_KILLS and roles.slave != OURS


def play(roles: Roles, happening: Happening, folder: Path, count: int) -> str:
    """Replicate so many messages while it happens, and compare; what it was, for people."""
    began_s = time.monotonic()
    with Pair(roles, folder, keys=happening.keys, relayed=happening.relayed) as pair:
        pair.master.start()
        with pair.ask_master() as master:
            make_tables(master)
            with Load(pair.master.broker_address, FIRST_COUNT) as load:
                load.wait_share(1.0)
            acknowledged = load.acknowledged
            commit_offsets(master, 3)
        if is_late(roles, happening):
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
        if not is_late(roles, happening):
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
def plays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Roles, Future[str]]]:
    """The fast cut, all of it side by side: mostly it waits."""
    folder = tmp_path_factory.mktemp("plays")
    with ThreadPoolExecutor(len(FAST_ROLES)) as pool:
        yield {
            roles: pool.submit(play, roles, RESTARTS_AND_KILLS, folder / str(number), FAST_COUNT)
            for number, roles in enumerate(FAST_ROLES)
        }


@pytest.mark.parametrize("roles", FAST_ROLES, ids=str)
def test_a_slave_is_like_its_master_after_restarts_and_kills_of_both(
    plays: dict[Roles, Future[str]], roles: Roles
) -> None:
    print(roles, plays[roles].result(TIMEOUT_S))


@pytest.mark.matrix
@pytest.mark.parametrize("name", HAPPENINGS)
@pytest.mark.parametrize("roles", ROLES, ids=str)
def test_a_slave_is_like_its_master_whatever_happens(
    roles: Roles, name: str, tmp_path: Path
) -> None:
    print(f"{roles}, {name}:", play(roles, HAPPENINGS[name], tmp_path, MATRIX_COUNT))
