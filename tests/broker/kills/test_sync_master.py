"""SYNC_MASTER as two processes under load, and kill -9 at a seeded moment (M2, docs/ha.md).

What was answered SEND_OK is on the slave at exactly the place that the answer names, when the
master and its disk are gone; and on both, when both were killed.

`make test` plays each happening once, `make interop` twice, and `HA_KILLS=200` more. A moment that
fails is the one in the test's name: `HA_KILLS=200 pytest tests/broker/kills -k "[137]"` plays it
again, with the same brokers, messages and number of answers before the kill.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from trocket.interop.trocket_peer import TrocketBroker

from ...kit.matrix import some_of
from ...kit.waiting import wait_until
from .checks import (
    check_files,
    check_goes_on,
    check_keys,
    check_messages,
    check_prefix,
    log_end,
    read_all,
)
from .load import NO_SLAVE, OK, TOGETHER, Load
from .machines import NameServer, Pair

pytestmark = pytest.mark.slow

MOMENTS = range(int(os.environ.get("HA_KILLS", "8")))
EMPTY_SLAVES = range(len(MOMENTS) // 4)


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a name server."""
    server = NameServer(tmp_path_factory.mktemp("namesrv") / "namesrv")
    yield server.address
    server.close()


class Moment:
    """A pair under load, and what a seed makes of it.

    Attributes:
      checked: messages that were answered and compared with what a survivor has.
    """

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair = pair
        self.random = Random(seed)
        self.load = Load(pair.master.broker_address, str(seed))
        self.checked = 0

    def comes(self) -> None:
        """Let the load go on until the moment."""
        self.load.wait_for(OK, self.random.randrange(1, 500))
        self.load.pass_time(self.random.random() * 0.02)

    # ---- what happens ------------------------------------------------------------------------

    def master_is_lost(self) -> None:
        """Its process and its disk; the slave runs on, and then is made the master."""
        self.comes()
        lost = self.pair.lose_master()
        self.load.end()
        self.check(self.pair.slave)
        self._take_over(lost)

    def both_are_killed(self) -> None:
        """One after the other, at once; they come back, and then the master is lost."""
        self.comes()
        pair = self.pair
        for broker in self.random.sample([pair.master, pair.slave], 2):
            broker.kill_broker()
        self.load.end()
        check_files(pair.master_store)
        check_files(pair.slave_store)
        check_prefix(pair.slave_store, pair.master_store)
        pair.master.start_broker()
        pair.slave.start_broker()
        pair.has_slave()
        for broker in (pair.master, pair.slave):
            self.check(broker)
        self._take_over(pair.lose_master())

    def slave_is_killed(self) -> None:
        """The master goes on without it, until it is back; and then is lost."""
        self.comes()
        self.pair.slave.kill_broker()
        self.load.wait_for(NO_SLAVE, self.random.randrange(1, 200))
        self.load.together = 1  # the master is no longer slowed down
        self.pair.slave.start_broker()
        self.load.together = TOGETHER
        self.comes()
        lost = self.pair.lose_master()
        self.load.end()
        self.check(self.pair.slave)
        self._take_over(lost)

    def slave_is_lost(self) -> None:
        """Its process and its disk; an empty one takes its place, and then the master is lost."""
        self.comes()
        self.pair.slave.kill_broker()
        shutil.rmtree(self.pair.slave_store)
        self.load.wait_for(NO_SLAVE, self.random.randrange(1, 200))
        self.load.together = 1
        self.pair.slave.start_broker()
        self.load.together = TOGETHER
        self.comes()
        lost = self.pair.lose_master()
        self.load.end()
        self._take_over(lost)

    def old_master_returns(self) -> None:
        """As the slave of the one that took over; where it has more than that, it is refused."""
        self.comes()
        pair = self.pair
        pair.master.kill_broker()
        self.load.end()
        self._stop_slave()
        end, old_end = log_end(pair.slave_store), log_end(pair.master_store)
        check_prefix(pair.slave_store, pair.master_store)
        promoted = pair.promote("SYNC_MASTER")
        found = self.check(promoted)
        check_goes_on(promoted.broker_address, NO_SLAVE, found)
        old = pair.demote_old_master()
        if old_end == end:
            pair.has_slave(promoted)
            assert read_all(old.broker_address) == read_all(promoted.broker_address)
        else:
            self._is_refused(old, end, old_end)
            self.check(old)  # and it keeps what it has
        for broker in (old, promoted):
            broker.stop_broker()
        check_files(pair.master_store, is_stopped=True)
        check_files(pair.slave_store, is_stopped=True)

    # ---- what must hold ----------------------------------------------------------------------

    def check(self, broker: TrocketBroker) -> set[tuple[str, int, int]]:
        """What was answered is on a broker that runs; the places that it has."""
        found = read_all(broker.broker_address)
        self.checked += check_messages(self.load, found)
        return set(found)

    def _is_refused(self, old: TrocketBroker, end: int, old_end: int) -> None:
        """The old master says where its log parts from the new one's, which was `end` long."""
        log = old.folder / "broker.err"
        ahead = f"this log ends at {old_end}, the master's ends at "
        parts = "this log differs from the master's from offset "
        wait_until(
            lambda: re.search(f"({ahead}|{parts}).*\n", log.read_text()) is not None,
            f"{old_end} is not refused by {end}",
        )
        _, _, offset = log.read_text().partition(parts)
        if offset:  # two records that part begin alike: their size and magic
            assert end <= int(offset.split()[0]) < end + 12

    def _stop_slave(self) -> None:
        self.random.choice([self.pair.slave.stop_broker, self.pair.slave.kill_broker])()
        check_files(self.pair.slave_store)

    def _take_over(self, lost: Path) -> None:
        """The slave's disk is whole, and with another role it is the master."""
        pair = self.pair
        self._stop_slave()
        check_prefix(pair.slave_store, lost)
        role, code = self.random.choice([("SYNC_MASTER", NO_SLAVE), ("ASYNC_MASTER", OK)])
        promoted = pair.promote(role)
        found = self.check(promoted)
        check_keys(self.load, promoted.broker_address)
        check_goes_on(promoted.broker_address, code, found)
        promoted.stop_broker()
        check_files(pair.slave_store, is_stopped=True)


HAPPENINGS: list[Callable[[Moment], None]] = [
    Moment.master_is_lost,
    Moment.slave_is_killed,
    Moment.both_are_killed,
    Moment.old_master_returns,
]


def play(folder: Path, namesrv: str, seed: int, happens: Callable[[Moment], None]) -> None:
    """One moment, from the start of a new pair to the check of what is left."""
    keys = {"flushDiskType": "SYNC_FLUSH" if seed % 5 == 4 else "ASYNC_FLUSH"}
    with Pair(folder, namesrv, f"{happens.__name__}-{seed}", keys) as pair:
        pair.start()
        moment = Moment(pair, seed)
        try:
            happens(moment)
        finally:
            pair.master.kill_broker()  # or the load would never end
            moment.load.end()
    assert moment.load.count(OK) > 0
    print(f"{happens.__name__}: {moment.load.story()}; {moment.checked} comparisons")


def fast_ones(moments: range, count: int) -> list[Any]:
    """The moments; of those that HA_KILLS does not ask for, `make test` plays the first ones."""
    return some_of(moments, lambda seed: seed < count or "HA_KILLS" in os.environ)


@pytest.mark.parametrize("seed", fast_ones(MOMENTS, len(HAPPENINGS)))
def test_what_was_answered_ok_outlives_a_kill(tmp_path: Path, namesrv: str, seed: int) -> None:
    play(tmp_path, namesrv, seed, HAPPENINGS[seed % len(HAPPENINGS)])


@pytest.mark.parametrize("seed", fast_ones(EMPTY_SLAVES, 1))
def test_an_empty_slave_gets_what_a_lost_one_answered_for(
    tmp_path: Path, namesrv: str, seed: int
) -> None:
    play(tmp_path, namesrv, seed, Moment.slave_is_lost)
