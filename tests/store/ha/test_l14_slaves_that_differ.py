"""L14. Apache's slave that is ahead of its master stands still for ever; one that is different but
not longer is fed from a wrong boundary, and no error is logged. A new slave gets the last file
only. Here the ends of both logs are compared, a slave that differs is refused with the offset where
it parts, and a new slave gets the whole log."""

from __future__ import annotations

import pytest
import trio

from trocket.store.config import BrokerRole
from trocket.store.ha.wire import REFUSED

from ..support import bodies, send
from .peers import master_under_test
from .support import caught_up, fill, group, log_bytes
from .test_replication import assert_same


async def part(master, slave, common, only_slave, only_master, **more):
    """Let the master lose its power with less on its device than its slave has, and go on."""
    fill(master.store, common)
    await caught_up(master.store, slave.store)
    master.store.flusher.flush()
    at = master.store.max_physical_offset
    fill(master.store, only_slave, topic="U")
    await caught_up(master.store, slave.store)
    await master.lose_power()
    await master.start()
    assert master.store.max_physical_offset == at
    fill(master.store, only_master, topic="V", **more)
    return at


@pytest.mark.parametrize(
    ("common", "only_slave", "only_master"),
    [
        pytest.param(0, 1, 1, id="all"),
        pytest.param(100, 1, 1, id="one record"),
        pytest.param(100, 1, 300, id="more on the master"),
        pytest.param(100, 300, 300, id="several files"),
    ],
)
async def test_a_slave_that_differs_is_refused_with_the_offset_where_it_parts(
    autojump_clock, common, only_slave, only_master
):
    async with group(flush_interval_commit_log=3_600_000) as (master, slave, _):
        at = await part(master, slave, common, only_slave, only_master)
        end = slave.store.max_physical_offset
        before = log_bytes(slave.store)
        await trio.sleep(20)
        problem = slave.ha.state().problem
        parts_at = int(problem.partition("from offset ")[2].split()[0])
        # The records that part begin alike: the same size and magic.
        assert at <= parts_at < at + 12
        assert f"and ends at {end}" in problem
        assert "make this broker the master; otherwise stop it, empty its store" in problem
        assert log_bytes(slave.store) == before
        assert not slave.ha.state().is_connected


async def test_a_slave_ahead_is_refused_by_its_master(autojump_clock, caplog):
    async with group(flush_interval_commit_log=3_600_000) as (master, slave, _):
        at = await part(master, slave, 10, 10, 0)
        end = slave.store.max_physical_offset
        await trio.sleep(6)
        assert f"this log ends at {end}, the master's ends at {at}" in slave.ha.state().problem
        assert f"its log ends at {end}, this one at {at}" in caplog.text
        assert len(bodies(slave.store, "U")) > 0


async def test_a_slave_that_is_emptied_gets_everything(autojump_clock):
    async with group(flush_interval_commit_log=3_600_000) as (master, slave, _):
        await part(master, slave, 100, 10, 100)
        await slave.stop()
        slave.disk.contents.clear()
        await slave.start()
        await caught_up(master.store, slave.store)
        assert slave.store.min_physical_offset == 0
        assert_same(master.store, slave.store)


async def test_without_the_check_it_is_as_apaches(autojump_clock):
    """What the check is for: the slave's log is then no copy of anything."""
    changes = {"flush_interval_commit_log": 3_600_000, "ha_log_check_enable": False}
    async with group(**changes) as (master, slave, _):
        await part(master, slave, 100, 1, 50)
        send(master.store)
        await trio.sleep(6)
        assert log_bytes(slave.store) != log_bytes(master.store)


@pytest.mark.slow
async def test_under_sync_flush_a_masters_power_cut_makes_no_difference(autojump_clock):
    """A slave is sent only what its master keeps."""
    async with group(sync=True) as (master, slave, network):
        network.delay_s = 0.01
        for _ in range(20):
            fill(master.store, 5)
            await trio.sleep(0.013)
            await master.lose_power()
            await master.start()
            assert master.store.max_physical_offset >= slave.store.max_physical_offset
            slave.ha.set_master(f"192.0.2.1:{trio.current_time()}")
        await caught_up(master.store, slave.store)
        assert_same(master.store, slave.store)


async def test_a_slave_takes_everything_a_new_one_too(autojump_clock):
    async with group(role=BrokerRole.SYNC_MASTER, slave_count=2) as (master, slaves, _):
        await slaves[1].stop()
        fill(master.store, 300)
        await slaves[1].start()
        for slave in slaves:
            await caught_up(master.store, slave.store)
            assert slave.store.min_physical_offset == 0
            assert_same(master.store, slave.store)


async def test_a_slave_from_before_our_first_byte_is_refused_with_that(autojump_clock, caplog):
    """Apache's waits for ever."""
    async with master_under_test() as master:
        fill(master.store, 100)
        first = master.store.log.file_size
        del master.store.log.files[0]
        peer = master.connect()
        await peer.words(-1, 1111)
        assert await peer.next_frame() == (first, REFUSED, b"")
        assert await peer.is_closed()
        assert f"its log ends at 1111, this one begins at {first}" in caplog.text
