"""L15. Two masters after a partition lose writes of one of them. There is no failover by itself;
and when an operator makes the slave the master, the old master does not become its slave unseen:
where it has what the new one has not, it is refused, and nothing of it is overwritten."""

from __future__ import annotations

import pytest
import trio

from trocket.store.config import BrokerRole

from ..support import bodies, put
from .support import caught_up, fill, group, log_bytes


async def swap(master, slave):
    """Make the slave the master, and the old master its slave."""
    await slave.stop()
    await master.kill()
    slave.role, master.role = BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE
    await slave.start()
    fill(slave.store, 5, topic="New")
    await master.start()


@pytest.mark.slow
async def test_a_slave_without_its_master_stays_a_slave(autojump_clock):
    async with group() as (master, slave, _):
        fill(master.store, 5)
        await caught_up(master.store, slave.store)
        await master.kill()
        await trio.sleep(600)
        assert put(slave.store)[0] != 0
        assert len(bodies(slave.store)) > 0


@pytest.mark.slow
async def test_the_old_masters_own_writes_are_kept_and_reported(autojump_clock):
    async with group() as (master, slave, network):
        fill(master.store, 50)
        await caught_up(master.store, slave.store)
        parted_at = master.store.max_physical_offset
        network.is_half_open = True
        fill(master.store, 3, topic="Lost")
        await swap(master, slave)
        network.is_half_open = False
        before = log_bytes(master.store)
        await trio.sleep(60)
        problem = master.ha.state().problem
        assert "this log differs from the master's from offset" in problem
        assert parted_at <= int(problem.partition("from offset ")[2].split()[0]) < parted_at + 12
        assert log_bytes(master.store) == before
        assert len(bodies(master.store, "Lost")) == 1


async def test_an_old_master_without_additional_messages_follows(autojump_clock):
    async with group() as (master, slave, _):
        fill(master.store, 50)
        await caught_up(master.store, slave.store)
        await swap(master, slave)
        await caught_up(slave.store, master.store)
        assert log_bytes(master.store) == log_bytes(slave.store)
