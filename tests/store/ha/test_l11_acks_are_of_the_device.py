"""L11. Apache's slave acknowledges what is in its page cache. Under SYNC_FLUSH ours acknowledges
what is on its device (slaveAckAfterFlush), so a power cut of both takes nothing that was answered.
"""

from __future__ import annotations

import pytest
import trio

from trocket.disk.memory_disk import MemoryDisk
from trocket.store.config import BrokerRole
from trocket.store.ha.copier import LogCopier
from trocket.store.status import PutMessageStatus

from ..support import bodies, open_store
from .peers import slave_under_test
from .support import group
from .test_acks import put_and_wait
from .test_copier import record

OLD = record(0, 0, b"old")


class Device:
    """Holds the fsyncs of a slave's log back until the test lets them go."""

    def __init__(self, slave):
        self.may_sync = trio.Event()
        self.began = trio.Event()
        flusher = slave.store.flusher
        flush = flusher.flush_in_thread

        async def slow(*, threaded):
            self.began.set()
            await self.may_sync.wait()
            await flush(threaded=threaded)

        flusher.flush_in_thread = slow


@pytest.mark.parametrize("after_flush", [True, False])
async def test_a_slave_under_sync_flush_acks_after_its_fsync(autojump_clock, after_flush):
    async with slave_under_test(sync=True, slave_ack_after_flush=after_flush) as slave:
        peer = await slave.next_connection()
        await peer.next_word()
        await peer.next_word()
        device = Device(slave)
        await peer.frame(0, OLD)
        await device.began.wait()
        if after_flush:
            assert await peer.next_word() == 0  # it lives
            assert trio.current_time() == pytest.approx(5)
            device.may_sync.set()
        assert await peer.next_word() == len(OLD)
        assert (slave.store.flusher.flushed_offset == len(OLD)) is after_flush


async def test_the_first_report_of_a_connection_is_of_the_device_too(autojump_clock):
    """After a reconnect the log may hold more than the device has."""
    async with slave_under_test(sync=True) as slave:
        peer = await slave.next_connection()
        await peer.next_word()
        await peer.next_word()
        device = Device(slave)
        await peer.frame(0, OLD)
        await device.began.wait()
        await peer.stream.aclose()
        peer = await slave.next_connection()
        assert slave.store.flusher.flushed_offset == 0
        with trio.move_on_after(1) as scope:
            await peer.next_word()
        assert scope.cancelled_caught
        device.may_sync.set()
        await peer.next_word()
        assert await peer.next_word() == len(OLD)
        assert slave.store.flusher.flushed_offset == len(OLD)


def test_what_a_kill_left_in_the_page_cache_is_synced_before_it_is_reported():
    disk = MemoryDisk(journalled=True)
    store = open_store(disk, sync=True, broker_role=BrokerRole.SLAVE)
    LogCopier(store, is_ours=True).take(OLD)
    disk.process_death()
    again = open_store(disk, sync=True, broker_role=BrokerRole.SLAVE)
    assert again.max_physical_offset == len(OLD)
    disk.power_loss()
    assert bodies(open_store(disk, sync=True)) == [b"old"]


async def test_a_power_cut_of_both_takes_nothing_that_was_answered(autojump_clock):
    async with group(role=BrokerRole.SYNC_MASTER, sync=True) as (master, slave, _):
        await trio.sleep(1)
        outcomes = put_and_wait(master.store, 20)
        await trio.sleep(0.1)
        assert outcomes == [PutMessageStatus.PUT_OK] * 20
        put_and_wait(master.store, 5, b"not answered")
        await master.lose_power()
        await slave.lose_power()
        for node in (master, slave):
            assert bodies(await node.start())[:20] == [b"body"] * 20
