"""Sends that wait for slaves: hundreds on one report, timeouts, no slave to wait for."""

from __future__ import annotations

import pytest
import trio

from trocket.common.clock import ManualClock
from trocket.store.config import BrokerRole, MessageStoreConfig
from trocket.store.ha.slave import HaSlave
from trocket.store.status import PutMessageStatus
from trocket.store.writing.durability import SlaveAcks
from trocket.store.writing.waiters import OffsetWaiters

from ..support import bodies, open_store, put, send
from .support import caught_up, fill, group

OK = PutMessageStatus.PUT_OK
TIMEOUT = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
NO_SLAVE = PutMessageStatus.SLAVE_NOT_AVAILABLE
SYNC = BrokerRole.SYNC_MASTER


def acks(**changes):
    config = MessageStoreConfig()
    for name, value in changes.items():
        setattr(config, name, value)
    return SlaveAcks(config, ManualClock())


def test_waiters_are_called_in_order_as_far_as_it_is_safe():
    waiters, outcomes = OffsetWaiters(1.0), []
    for offset in (0, 10, 10, 20):
        waiters.add(
            offset, lambda outcome, offset=offset: outcomes.append((offset, outcome)), now_s=0
        )
    waiters.release(0, "no")
    assert outcomes == []
    waiters.release(11, "yes")
    assert outcomes == [(0, "yes"), (10, "yes"), (10, "yes")]
    assert waiters
    waiters.expire(0.9, "late")
    assert waiters.deadline_s == 1.0
    waiters.expire(1.0, "late")
    assert outcomes[3:] == [(20, "late")]
    waiters.add(5, outcomes.append, now_s=0)
    waiters.fail("failed")
    assert outcomes[4:] == ["failed"]
    assert not waiters


@pytest.mark.parametrize(("replicas", "needed"), [(1, 1), (2, 1), (3, 2), (4, 3)])
def test_the_slaves_needed_are_the_replicas_without_the_master_and_one_at_least(replicas, needed):
    assert acks(in_sync_replicas=replicas).needed == needed


def test_the_acked_offset_is_that_of_the_needed_slaves():
    state, outcomes = acks(in_sync_replicas=3), []
    state.wait(100, outcomes.append)
    state.report("a", 150)
    assert (state.acked_offset, outcomes) == (0, [])
    state.report("b", 100)
    assert (state.acked_offset, outcomes) == (100, [])
    state.report("b", 101)
    assert (state.acked_offset, outcomes) == (101, [OK])
    state.forget("b")
    state.report("a", 200)
    assert state.acked_offset == 101
    state.wait(50, outcomes.append)
    assert outcomes == [OK, OK]


def test_a_slave_far_behind_is_not_waited_for():
    state = acks(ha_max_gap_not_in_sync=100)
    assert not state.are_enough(0)
    state.report("a", 50)
    assert state.are_enough(149)
    assert not state.are_enough(150)
    state.forget("a")
    assert not state.are_enough(149)


# ---- the store --------------------------------------------------------------------------


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, SYNC])
@pytest.mark.parametrize("sync", [False, True])
def test_a_store_without_slaves_says_what_it_can_promise(role, sync):
    store = open_store(broker_role=role, sync=sync)
    outcomes = []
    _, physical, _ = put(store)
    store.commit()
    store.when_replicated(physical, outcomes.append)
    assert store.answers_later == (sync or role is SYNC)
    assert (outcomes == []) == sync
    store.flusher.flush()
    assert outcomes == [NO_SLAVE if role is SYNC else OK]
    assert bodies(store) == [b"body"]


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, SYNC])
def test_a_failed_fsync_answers_sends_that_wait_for_a_slave_at_once(role):
    store = open_store(broker_role=role, sync=True)
    store.durability.slaves.report("slave", 0)
    _, physical, _ = put(store)
    store.commit()
    outcomes = []
    store.when_replicated(physical, outcomes.append)
    store.disk.fault = lambda name, path: OSError(5, "") if name == "sync" else None
    store.flusher.flush()
    assert outcomes == [PutMessageStatus.FLUSH_DISK_TIMEOUT]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_late_slave_is_answered_once_the_message_is_on_the_device(autojump_clock, fails):
    """Or a power cut takes what was said to be stored: an fsync may be what the slave waits for."""
    store = open_store(broker_role=SYNC, sync=True)
    store.durability.slaves.report("slave", 0)
    outcomes = put_and_wait(store, 2)
    with trio.move_on_after(store.config.slave_timeout / 1000 + 1):
        await store.durability.slaves.expire()
    assert outcomes == []
    if fails:
        store.disk.fault = lambda name, path: OSError(5, "") if name == "sync" else None
    store.flusher.flush()
    assert outcomes == [PutMessageStatus.FLUSH_DISK_TIMEOUT if fails else TIMEOUT] * 2


def test_without_sync_flush_a_failed_fsync_leaves_the_slaves_to_be_waited_for():
    store = open_store(broker_role=SYNC)
    store.durability.slaves.report("slave", 0)
    _, physical, _ = put(store)
    store.commit()
    outcomes = []
    store.when_replicated(physical, outcomes.append)
    store.disk.fault = lambda name, path: OSError(5, "") if name == "sync" else None
    store.flusher.flush()
    assert (store.read_only, outcomes) == (True, [])
    store.durability.slaves.report("slave", store.max_physical_offset)
    assert outcomes == [OK]


# ---- with slaves --------------------------------------------------------------------------


def put_and_wait(store, count, body=b"body"):
    """Put messages, each with its own commit; returns the list that their outcomes will be in."""
    outcomes = []
    for _ in range(count):
        _, physical, _ = put(store, body)
        store.on_visible(store.commit())
        store.when_replicated(physical, outcomes.append)
    return outcomes


@pytest.mark.parametrize("sync", [False, True])
async def test_hundreds_of_sends_wait_for_one_report_and_for_the_disk(autojump_clock, sync):
    async with group(role=SYNC, sync=sync) as (master, slave, _):
        await trio.sleep(1)
        reports = []
        acks = master.store.durability.slaves
        report = acks.report
        acks.report = lambda sender, offset: (reports.append(offset), report(sender, offset))
        tasks = trio.lowlevel.current_statistics().tasks_living
        outcomes = put_and_wait(master.store, 500)
        assert outcomes == []
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        await caught_up(master.store, slave.store)
        await trio.sleep(0.01)
        assert outcomes == [OK] * 500
        assert len(reports) <= 3


async def test_a_send_is_not_answered_before_both_have_it_on_the_device(autojump_clock):
    async with group(role=SYNC, sync=True) as (master, slave, network):
        await trio.sleep(1)
        network.delay_s = 0.2
        outcomes = put_and_wait(master.store, 1)
        await trio.sleep(0.35)
        end = master.store.max_physical_offset
        assert master.store.flusher.flushed_offset == end
        assert slave.store.flusher.flushed_offset == end
        assert outcomes == []
        await trio.sleep(0.1)
        assert outcomes == [OK]


async def test_a_slave_that_takes_bytes_and_does_not_report_is_waited_for_3_s(autojump_clock):
    async with group(role=SYNC) as (master, _, network):
        await trio.sleep(1)
        network.delay_s = 1000
        outcomes = put_and_wait(master.store, 3)
        await trio.sleep(2.9)
        assert outcomes == []
        later = put_and_wait(master.store, 1)
        await trio.sleep(0.2)
        assert (outcomes, later) == ([TIMEOUT] * 3, [])
        await trio.sleep(2.9)
        assert later == [TIMEOUT]


async def test_what_a_late_report_covers_is_stored_and_was_answered_once(autojump_clock):
    async with group(role=SYNC) as (master, slave, network):
        await trio.sleep(1)
        network.delay_s = 2
        outcomes = put_and_wait(master.store, 2)
        await trio.sleep(10)
        assert outcomes == [TIMEOUT] * 2
        assert len(bodies(slave.store)) == 2


async def test_without_a_slave_a_send_is_answered_at_once_also_after_one_is_gone(autojump_clock):
    async with group(role=SYNC) as (master, slave, network):
        await trio.sleep(1)
        await slave.kill()
        assert put_and_wait(master.store, 1) == [NO_SLAVE]
        await slave.start()
        await caught_up(master.store, slave.store)
        await trio.sleep(0.1)
        network.is_half_open = True  # it is still listed
        outcomes = put_and_wait(master.store, 1)
        await trio.sleep(3.1)
        assert outcomes == [TIMEOUT]
        await trio.sleep(20)
        assert put_and_wait(master.store, 1) == [NO_SLAVE]


async def test_a_slave_that_comes_back_in_time_answers_those_who_wait(autojump_clock):
    async with group(role=SYNC) as (master, slave, network):
        await trio.sleep(1)
        network.delay_s = 0.1
        outcomes = put_and_wait(master.store, 5)
        network.cut()
        await trio.sleep(0.05)
        slave.ha.set_master("192.0.2.9:10912")  # else it waits for 5 s
        await trio.sleep(2)
        assert outcomes == [OK] * 5


async def test_two_slaves_are_waited_for_with_three_replicas(autojump_clock):
    async with group(role=SYNC, slave_count=2, in_sync_replicas=3) as (master, slaves, _):
        await trio.sleep(1)
        outcomes = put_and_wait(master.store, 3)
        await trio.sleep(0.1)
        assert outcomes == [OK] * 3
        await slaves[1].kill()
        assert put_and_wait(master.store, 1) == [NO_SLAVE]
        assert len(bodies(slaves[0].store)) == 3


async def test_a_slave_far_behind_is_not_waited_for_until_it_is_near(autojump_clock):
    async with group(role=SYNC, ha_max_gap_not_in_sync=100_000) as (master, slave, network):
        await slave.stop()
        fill(master.store, 200)
        network.piece_size, network.delay_s = 10_000, 0.1
        await slave.start()
        await trio.sleep(0.5)
        assert put_and_wait(master.store, 1) == [NO_SLAVE]
        (state,) = master.ha.state().slaves
        assert not state.is_in_sync
        await caught_up(master.store, slave.store)
        await trio.sleep(1)
        outcomes = put_and_wait(master.store, 1)
        await trio.sleep(2)
        assert outcomes == [OK]


async def test_sends_that_wait_when_the_master_stops_are_answered(autojump_clock):
    async with group(role=SYNC) as (master, _, network):
        await trio.sleep(1)
        network.delay_s = 1
        outcomes = put_and_wait(master.store, 2)
        await master.stop()
        assert outcomes == [TIMEOUT] * 2


async def test_an_async_master_makes_nothing_for_its_slaves(autojump_clock):
    async with group() as (master, slave, _):
        await trio.sleep(1)
        assert put_and_wait(master.store, 5) == [OK] * 5
        assert not master.store.durability.slaves.is_waited_for
        assert isinstance(slave.ha, HaSlave)
        assert send(master.store) == 5
