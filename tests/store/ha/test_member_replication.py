"""A master and a slave of ours in controller mode, on a network that can do them harm."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from trocket.disk.memory_disk import MemoryDisk
from trocket.store.config import BrokerRole
from trocket.store.ha.epochs import EpochFile, Epochs
from trocket.store.ha.member import SetMember
from trocket.store.writing.in_sync_acks import ConfirmedCopy, InSyncAcks

from ...kit import TrioClock
from ..support import ROOT, small_config
from .support import Network, Node, caught_up, fill, log_bytes
from .test_replication import assert_same

SOON_S = 0.1


async def until(holds, within_s):
    """Wait until a condition holds, in virtual time."""
    with trio.fail_after(within_s):
        while not holds():  # noqa: ASYNC110 - a store has no event for each of its numbers
            await trio.sleep(0.001)


def place(disk, number, *, epoch, **more):
    """A member whose epochs are those on its disk."""
    file = EpochFile(disk, f"{ROOT}/epochFileCheckpoint")
    file.load()
    return SetMember(number, epoch, file, **more)


class Pair:
    """A master and a slave.

    Attributes:
      cuts: the offsets at which the slave's log must be cut.
      may_confirm: whether the master's lease holds.
    """

    def __init__(self, nursery, **changes):
        self.network = Network(nursery)
        self.cuts = []
        self.may_confirm = True
        disks = [MemoryDisk(journalled=True) for _ in range(2)]
        role = changes.pop("role", BrokerRole.ASYNC_MASTER)
        self.master = Node(
            nursery, self.network, role, disks[0], place(disks[0], 1, epoch=1), **changes
        )
        cut = self.cuts.append
        self.slave = Node(
            nursery,
            self.network,
            BrokerRole.SLAVE,
            disks[1],
            place(disks[1], 2, epoch=1, on_cut=cut),
            **changes,
        )

    async def elect(self, epoch):
        """Start the master in an epoch."""
        self.master.member.in_sync = InSyncAcks(
            small_config(),
            TrioClock(),
            1,
            frozenset([1, 2]),
            may_confirm=lambda: self.may_confirm,
        )
        await self.master.start()
        file = self.master.member.epochs
        file.load()
        if epoch > file.epochs.last_number:
            file.save(file.epochs.append(epoch, self.master.store.max_physical_offset))
        self.master.member.epoch = epoch

    async def start_slave(self):
        self.slave.member.in_sync = ConfirmedCopy()
        await self.slave.start()

    async def caught_up(self):
        """Wait until the slave has all, and both know that it is confirmed, if it may be."""
        await caught_up(self.master.store, self.slave.store)
        if self.may_confirm:
            end = self.master.store.max_physical_offset
            for node in (self.master, self.slave):
                holds = lambda node=node: node.store.durability.confirm_offset == end  # noqa: E731
                await until(holds, 60)


@asynccontextmanager
async def pair(**changes):
    """A master in epoch 1, and its slave."""
    async with trio.open_nursery() as nursery:
        both = Pair(nursery, **changes)
        await both.elect(1)
        await both.start_slave()
        yield both
        nursery.cancel_scope.cancel()


async def test_a_slave_has_the_masters_log_and_epochs(autojump_clock):
    async with pair() as both:
        fill(both.master.store, 150)
        await both.caught_up()
        for epoch in (2, 3, 4):
            await both.master.stop()
            await both.elect(epoch)
            fill(both.master.store, 20 * (epoch - 2))
            await both.caught_up()
        assert_same(both.master.store, both.slave.store)
        theirs = both.master.member.epochs.epochs
        await until(lambda: both.slave.member.epochs.epochs == theirs, 10)
        assert len(both.master.member.epochs.epochs) == 3  # nothing was written in epoch 2
        assert both.cuts == []


async def test_an_idle_slave_is_in_step_at_once(autojump_clock):
    async with pair() as both:
        await until(lambda: both.master.ha.state().slaves, SOON_S)
        (state,) = both.master.ha.state().slaves
        assert (state.controller_id, state.ack_offset) == (2, 0)


async def test_a_slave_soon_knows_that_the_last_message_is_confirmed(autojump_clock):
    async with pair() as both:
        for _ in range(3):
            await trio.sleep(1)
            fill(both.master.store, 1)
            end = both.master.store.max_physical_offset
            await until(lambda end=end: both.slave.store.durability.confirm_offset == end, SOON_S)


@pytest.mark.parametrize("away_s", [0.5, 30])
async def test_a_returning_slave_is_in_step_within_3_s(autojump_clock, away_s):
    """A slave that was killed; the master waits for its return."""
    async with pair() as both:
        fill(both.master.store, 5)
        await both.caught_up()
        await both.slave.kill()
        await trio.sleep(away_s)
        fill(both.master.store, 5)
        await both.start_slave()
        with trio.fail_after(3):
            await both.caught_up()


async def test_a_broken_connection_is_made_again_within_3_s(autojump_clock):
    async with pair() as both:
        for _ in range(3):
            fill(both.master.store, 5)
            await both.caught_up()
            both.network.cut()
            fill(both.master.store, 5)
            with trio.fail_after(3):
                await both.caught_up()


@pytest.mark.parametrize("piece_size", [1, 7, 40])
async def test_pieces_of_any_size_make_the_same_log(autojump_clock, piece_size):
    async with pair() as both:
        both.network.piece_size = piece_size
        fill(both.master.store, 9)
        await both.caught_up()
        assert_same(both.master.store, both.slave.store)


@pytest.mark.parametrize("cut_after", [3, 25, 40, 1000, 1100])
async def test_a_connection_cut_anywhere_goes_on(autojump_clock, cut_after):
    async with pair() as both:
        fill(both.master.store, 3)
        both.network.cut_after = cut_after
        with trio.fail_after(10):
            await both.caught_up()
        assert_same(both.master.store, both.slave.store)


@pytest.mark.parametrize("only_master", [1, 60])
async def test_a_slave_with_bytes_that_its_master_lost_must_be_cut(autojump_clock, only_master):
    """A power cut of a master under ASYNC_FLUSH, and its election in a new epoch."""
    async with pair(flush_interval_commit_log=3_600_000) as both:
        fill(both.master.store, 20)
        await both.caught_up()
        both.master.store.flusher.flush()
        at = both.master.store.max_physical_offset
        fill(both.master.store, 30, topic="U")
        await both.caught_up()
        end = both.slave.store.max_physical_offset
        await both.master.lose_power()
        await both.elect(2)
        fill(both.master.store, only_master, topic="V")
        await until(lambda: both.cuts, 60)
        assert both.cuts[0] == at
        assert both.slave.store.max_physical_offset == end


@pytest.mark.parametrize("only_master", [1, 60])
async def test_within_one_epoch_the_bytes_decide(autojump_clock, only_master):
    """A master loses its power, and is started again in its epoch: the lists are the same (F7)."""
    async with pair(flush_interval_commit_log=3_600_000) as both:
        fill(both.master.store, 20)
        await both.caught_up()
        both.master.store.flusher.flush()
        at = both.master.store.max_physical_offset
        both.may_confirm = False
        fill(both.master.store, 30, topic="U")
        await both.caught_up()
        await both.master.lose_power()
        await both.elect(1)
        fill(both.master.store, only_master, topic="V")
        await until(lambda: both.cuts, 60)
        # The records that part begin alike: the same size and magic.
        assert at <= both.cuts[0] < at + 12


async def test_confirmed_bytes_that_the_master_lost_are_never_cut(autojump_clock):
    async with pair(flush_interval_commit_log=3_600_000) as both:
        fill(both.master.store, 20)
        await both.caught_up()
        await both.master.lose_power()
        await both.elect(1)
        fill(both.master.store, 60, topic="V")
        before = log_bytes(both.slave.store)
        await until(lambda: "and is confirmed up to" in both.slave.ha.state().problem, 60)
        assert both.cuts == []
        assert log_bytes(both.slave.store) == before


async def test_a_slave_of_another_set_keeps_its_messages(autojump_clock):
    async with trio.open_nursery() as nursery:
        one, other = Pair(nursery), Pair(nursery)
        for both in (one, other):
            await both.elect(1)
            await both.start_slave()
        fill(one.master.store, 10)
        fill(other.master.store, 5, topic="Other")
        for both in (one, other):
            await both.caught_up()
            await trio.sleep(0.1)
        # The name server of the other set, or its configuration, names the wrong master.
        one.network.master = other.master.ha
        one.network.cut()
        before = log_bytes(one.slave.store)
        await trio.sleep(20)
        assert "it is of another set" in one.slave.ha.state().problem
        assert one.cuts == []
        assert log_bytes(one.slave.store) == before
        assert one.slave.member.epochs.epochs == Epochs([(1, 0)])
        nursery.cancel_scope.cancel()
