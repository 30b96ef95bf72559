"""A master and its slaves, in virtual time: the same bytes, whatever happens to either."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio

from tests.store.queue_differences import differences
from trocket.store.config import BrokerRole
from trocket.store.retention_service import Retention
from trocket.store.status import PutMessageStatus
from trocket.store.store_state import StoreEvent

from ..support import ROOT, bodies, put, send
from .support import caught_up, fill, group, log_bytes


def assert_same(master, slave):
    """Byte-equal logs, and queues that are what the log says."""
    assert slave.max_physical_offset == master.max_physical_offset
    assert log_bytes(slave) == log_bytes(master)
    assert list(differences(slave.log, slave.queue_store, slave.config)) == []
    assert slave.topics() == master.topics()
    for topic, queue_ids in master.topics().items():
        for queue_id in queue_ids:
            assert bodies(slave, topic, queue_id) == bodies(master, topic, queue_id)


@pytest.mark.parametrize("sync", [False, True])
async def test_a_slave_has_every_file_byte_for_byte(autojump_clock, sync):
    async with group(sync=sync) as (master, slave, _):
        fill(master.store, 300)
        await caught_up(master.store, slave.store)
        fill(master.store, 300, 3000, topic="U")
        await caught_up(master.store, slave.store)
        await trio.sleep(1)
        assert len(log_bytes(master.store)) > 10
        assert_same(master.store, slave.store)
        assert len(slave.store.query_by_key("U", "k7", 8, 0, 1 << 60).buffers) == 1


@pytest.mark.slow
@pytest.mark.parametrize("piece_size", [1, 7, 12, 4096])
async def test_the_pieces_in_which_bytes_arrive_do_not_matter(autojump_clock, piece_size):
    async with group(mapped_file_size_commit_log=4096) as (master, slave, network):
        network.piece_size = piece_size
        fill(master.store, 8, 900)
        await caught_up(master.store, slave.store)
        assert_same(master.store, slave.store)


@pytest.mark.slow
async def test_a_connection_may_break_at_any_byte(autojump_clock):
    """From the first byte of the master's first answer to the last of two records."""
    async with group() as (master, slave, network):
        cut = 0
        while cut < 12 + 12 + 12 + 2 * 110 + 5:
            network.cut()
            await trio.sleep(0.1)
            fill(master.store, 2, 0)
            network.cut_after = cut
            await caught_up(master.store, slave.store)
            cut += 1
        assert_same(master.store, slave.store)
        assert len(network.connects) > cut


@pytest.mark.slow
async def test_what_is_committed_is_there_within_the_delay_of_the_link(autojump_clock):
    """No polling: Apache's sender polls every 100 ms."""
    async with group() as (master, slave, network):
        network.delay_s = 0.001
        await trio.sleep(10)
        for _ in range(5):
            began_s = trio.current_time()
            send(master.store, b"pushed")
            while slave.store.max_physical_offset < master.store.max_physical_offset:
                await slave.store.activity.wait_for_more()
            assert trio.current_time() - began_s == pytest.approx(0.001)
            await trio.sleep(3)


@pytest.mark.slow
async def test_a_slow_link_only_makes_it_late(autojump_clock):
    async with group() as (master, slave, network):
        network.piece_size, network.delay_s = 1000, 0.05
        sent = fill(master.store, 200)
        await trio.sleep(2)
        behind = master.store.max_physical_offset - slave.store.max_physical_offset
        assert 100_000 < behind < master.store.max_physical_offset
        await caught_up(master.store, slave.store)
        assert_same(master.store, slave.store)
        assert len(sent) == sum(len(bodies(slave.store, "T", q)) for q in range(3))


async def test_a_half_open_link_is_given_up_by_both_after_20_s(autojump_clock):
    async with group() as (master, slave, network):
        await trio.sleep(0.1)
        network.is_half_open = True
        fill(master.store, 3)
        await trio.sleep(14.9)
        assert (slave.ha.state().is_connected, len(master.ha.state().slaves)) == (True, 1)
        await trio.sleep(5.1)
        assert (slave.ha.state().is_connected, len(master.ha.state().slaves)) == (False, 0)
        assert "haHousekeepingInterval" in slave.ha.state().problem
        network.is_half_open = False
        await caught_up(master.store, slave.store)
        assert_same(master.store, slave.store)


@pytest.mark.slow
async def test_both_say_that_they_live_and_an_idle_link_stays(autojump_clock):
    async with group() as (master, slave, network):
        fill(master.store, 3)
        await trio.sleep(600)
        assert len(network.connects) == 1
        (state,) = master.ha.state().slaves
        assert (state.ack_offset, state.behind, state.is_in_sync) == (
            master.store.max_physical_offset, 0, True,
        )  # fmt: skip
        assert slave.ha.state().last_read_s < 5.1


async def test_a_refused_connection_is_tried_again_every_5_s(autojump_clock):
    async with group() as (master, slave, network):
        await trio.sleep(1)
        await master.stop()
        await trio.sleep(60)
        tries = network.connects[1:]
        assert len(tries) in (11, 12)
        assert {round(b - a, 1) for a, b in pairwise(tries)} == {5.0}
        await master.start()
        fill(master.store, 3)
        await caught_up(master.store, slave.store)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["stop", "kill", "lose_power"])
@pytest.mark.parametrize("who", ["master", "slave"])
@pytest.mark.parametrize("sync", [False, True])
async def test_either_may_end_in_the_middle_and_come_back(autojump_clock, who, end, sync):
    async with group(sync=sync) as (master, slave, network):
        network.piece_size, network.delay_s = 5000, 0.01
        for round_number in range(4):
            fill(master.store, 60, topic=f"T{round_number}")
            await trio.sleep(0.02 + 0.05 * round_number)
            if end == "lose_power" and who == "master" and not sync:
                await trio.sleep(0.6)  # else it may have lost what the slave has
            node = master if who == "master" else slave
            before = slave.store.max_physical_offset
            await getattr(node, end)()
            await node.start()
            if end != "lose_power":
                assert slave.store.max_physical_offset == before
        await caught_up(master.store, slave.store)
        assert_same(master.store, slave.store)
        await slave.stop()
        await slave.start()
        assert_same(master.store, slave.store)


async def test_a_slaves_log_ends_where_a_record_ends_however_it_dies(autojump_clock):
    """So nothing of it is cut at its next start, and the bytes that follow fit."""
    async with group() as (master, slave, network):
        network.piece_size, network.delay_s = 700, 0.01
        fill(master.store, 20, 1500)
        for _ in range(8):
            await trio.sleep(0.033)
            await slave.kill()
            end = slave.store.max_physical_offset
            await slave.start()
            assert slave.store.max_physical_offset == end
            assert slave.store.dispatched_offset == end
        await caught_up(master.store, slave.store)
        assert_same(master.store, slave.store)


async def test_several_slaves_follow_one_master(autojump_clock):
    async with group(slave_count=3) as (master, slaves, _):
        fill(master.store, 200)
        for slave in slaves:
            await caught_up(master.store, slave.store)
            assert_same(master.store, slave.store)
        assert len(master.ha.state().slaves) == 3
        await slaves[1].kill()
        fill(master.store, 20)
        await slaves[1].start()
        await caught_up(master.store, slaves[1].store)
        assert_same(master.store, slaves[1].store)


# ---- where a slave begins ----------------------------------------------------------------


@pytest.mark.parametrize("last_file", [False, True])
@pytest.mark.parametrize("sync", [False, True])
async def test_an_empty_slave_begins_with_the_first_or_the_last_file(
    autojump_clock, last_file, sync
):
    async with group(sync=sync, sync_from_last_file=last_file) as (master, slave, _):
        await slave.stop()
        fill(master.store, 200)
        base = list(master.store.log.files)[-1]
        await slave.start()
        await caught_up(master.store, slave.store)
        first = base if last_file else 0
        assert slave.store.min_physical_offset == first
        assert log_bytes(slave.store) == {
            at: data for at, data in log_bytes(master.store).items() if at >= first
        }
        assert list(differences(slave.store.log, slave.store.queue_store, slave.store.config)) == []


@pytest.mark.parametrize("end", ["stop", "kill", "lose_power"])
async def test_a_slave_that_began_midway_begins_there_again(autojump_clock, end):
    """Its queues do not begin at 0, and not all are known at its last checkpoint."""
    async with group(sync=True, sync_from_last_file=True) as (master, slave, _):
        await slave.stop()
        fill(master.store, 60)
        for queue_id in range(5):
            send(master.store, b"old", topic="Late", queue_id=queue_id)
        fill(master.store, 60)
        await slave.start()
        await caught_up(master.store, slave.store)
        for queue_id in range(5):  # new to the slave, and not the first of their queues
            send(master.store, b"late", topic="Late", queue_id=queue_id)
        await caught_up(master.store, slave.store)
        first = slave.store.min_physical_offset
        assert first > 0
        await getattr(slave, end)()
        await slave.start()
        store = slave.store
        assert not store.read_only
        assert store.min_physical_offset == first
        assert [bodies(store, "Late", queue_id) for queue_id in range(5)] == [[b"late"]] * 5
        assert [store.min_offset("Late", queue_id) for queue_id in range(5)] == [1] * 5
        assert list(differences(store.log, store.queue_store, store.config)) == []
        fill(master.store, 60)
        await caught_up(master.store, store)
        assert list(differences(store.log, store.queue_store, store.config)) == []


async def test_the_first_record_may_not_be_whole_when_a_slave_ends(autojump_clock):
    async with group(sync_from_last_file=True) as (master, slave, network):
        await slave.stop()
        for _ in range(2):  # the second does not fit into the file of the first
            send(master.store, bytes(40_000))
        base = list(master.store.log.files)[-1]
        assert base > 0
        network.piece_size, network.delay_s = 1000, 0.01
        await slave.start()
        await trio.sleep(0.2)
        assert slave.store.max_physical_offset == 0
        await slave.stop()
        await slave.start()
        assert not slave.store.read_only
        await caught_up(master.store, slave.store)
        assert slave.store.min_physical_offset == base


async def test_a_store_that_was_an_empty_master_may_begin_midway(autojump_clock):
    async with group(sync_from_last_file=True) as (master, slave, _):
        await slave.stop()
        slave.role = BrokerRole.ASYNC_MASTER
        network_master = slave._network.master
        await slave.start()
        await trio.sleep(1)  # its first file is made ahead
        await slave.kill()
        slave.role, slave._network.master = BrokerRole.SLAVE, network_master
        fill(master.store, 100)
        await slave.start()
        await caught_up(master.store, slave.store)
        first = slave.store.min_physical_offset
        assert first > 0
        assert slave.disk.list(f"{ROOT}/commitlog")[0] == f"{first:020d}"
        await slave.kill()
        assert not (await slave.start()).read_only


async def test_a_slave_started_from_a_copy_goes_on_where_the_copy_ends(autojump_clock):
    async with group() as (master, slave, _):
        await slave.stop()
        fill(master.store, 100)
        await master.stop()
        slave.disk.contents = {path: bytearray(d) for path, d in master.disk.contents.items()}
        await master.start()
        fill(master.store, 100)
        await slave.start()
        assert slave.store.max_physical_offset > 0
        await caught_up(master.store, slave.store)
        assert_same(master.store, slave.store)


@pytest.mark.slow
async def test_a_slave_whose_place_has_expired_is_refused_with_advice(autojump_clock, caplog):
    async with group(file_reserved_time=1, delete_when="0;1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;"
                     "17;18;19;20;21;22;23") as (master, slave, _):  # fmt: skip
        fill(master.store, 10)
        await caught_up(master.store, slave.store)
        await slave.stop()
        fill(master.store, 200)
        await trio.sleep(3 * 3600)
        Retention(master.store).clean()
        assert master.store.min_physical_offset > slave.store.max_physical_offset
        await slave.start()
        await trio.sleep(1)
        begins = master.store.min_physical_offset
        assert f"the master's begins at {begins}" in slave.ha.state().problem
        assert "have expired. Stop it, empty its store" in caplog.text


@pytest.mark.slow
async def test_a_slave_has_its_own_retention(autojump_clock):
    async with group() as (master, slave, _):
        slave.changes |= {"store_bytes_max": 3 * 65536, "disk_free_bytes_enough": 0}
        await slave.stop()
        await slave.start()
        for _ in range(10):
            fill(master.store, 60)
            await caught_up(master.store, slave.store)
            await trio.sleep(21)
        assert slave.store.min_physical_offset > 0
        assert master.store.min_physical_offset == 0
        end = slave.store.max_physical_offset
        assert end == master.store.max_physical_offset
        newest = max(log_bytes(slave.store))
        assert log_bytes(slave.store)[newest] == log_bytes(master.store)[newest]


async def test_another_size_of_files_is_refused_by_name(autojump_clock):
    async with group() as (master, slave, _):
        slave.changes["mapped_file_size_commit_log"] = 32 * 1024
        slave.disk.contents.clear()
        slave.disk.process_death()
        await slave.stop()
        slave.disk.contents.clear()
        await slave.start()
        fill(master.store, 100)
        await trio.sleep(1)
        assert "mappedFileSizeCommitLog" in slave.ha.state().problem
        assert slave.store.max_physical_offset <= 32 * 1024


# ---- a slave is read-only, and may be promoted -------------------------------------------


async def test_a_slave_takes_no_messages(autojump_clock):
    async with group() as (master, slave, _):
        fill(master.store, 3)
        await caught_up(master.store, slave.store)
        refusal, _, _ = put(slave.store)
        assert refusal.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert "slave" in refusal.remark
        assert slave.store.put_batch(
            "T", 0, b"", b"", born_timestamp_ms=1, born_host=bytes(8), store_host=bytes(8)
        )[0] is not None  # fmt: skip
        slave.store.writer.enter(StoreEvent.DISK_FULL, "the disk is full")
        slave.store.writer.enter(StoreEvent.DISK_HAS_ROOM)
        assert put(slave.store)[0].status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        fill(master.store, 3)
        await caught_up(master.store, slave.store)
        assert_same(master.store, slave.store)


async def test_a_slave_becomes_the_master_and_the_master_its_slave(autojump_clock):
    async with group() as (master, slave, network):
        fill(master.store, 100)
        await caught_up(master.store, slave.store)
        await master.kill()
        await slave.stop()
        slave.role, master.role = BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE
        await slave.start()
        fill(slave.store, 100, topic="New")
        assert slave.store.checkpoints.own_from <= slave.store.max_physical_offset
        await master.start()
        await caught_up(slave.store, master.store)
        assert_same(slave.store, master.store)
        assert slave.store.store_time_ms >= slave.store.earliest_store_time("New", 0)
        assert network.master is slave.ha


async def test_a_full_disk_stops_the_copy_and_room_lets_it_go_on(autojump_clock):
    async with group() as (master, slave, _):
        fill(master.store, 10)
        await caught_up(master.store, slave.store)
        slave.store.writer.enter(StoreEvent.DISK_FULL, "the disk is full, says the test")
        fill(master.store, 10)
        await trio.sleep(1)
        assert "the disk is full, says the test" in slave.ha.state().problem
        assert slave.store.max_physical_offset < master.store.max_physical_offset
        slave.store.writer.enter(StoreEvent.DISK_HAS_ROOM)
        await caught_up(master.store, slave.store)
        assert_same(master.store, slave.store)


async def test_a_write_that_fails_undoes_what_came_with_it_and_is_tried_again(autojump_clock):
    async with group() as (master, slave, _):
        fill(master.store, 10)
        await caught_up(master.store, slave.store)
        failures = [OSError(28, "")]
        slave.disk.fault = lambda name, path: (
            failures.pop() if name == "pwrite" and "commitlog" in path and failures else None
        )
        fill(master.store, 10, topic="U")
        await trio.sleep(1)
        assert failures == []
        assert slave.store.max_offset("U", 0) == 0
        await caught_up(master.store, slave.store)
        assert_same(master.store, slave.store)


async def test_a_failed_fsync_of_a_slave_ends_its_copy_for_good(autojump_clock):
    async with group(sync=True) as (master, slave, network):
        fill(master.store, 10)
        await caught_up(master.store, slave.store)
        slave.disk.fault = lambda name, path: (
            OSError(5, "") if name == "sync" and "commitlog" in path else None
        )
        fill(master.store, 10)
        await trio.sleep(1)
        slave.disk.fault = None
        end = slave.store.flusher.flushed_offset
        assert slave.store.read_only
        assert master.store.durability.slaves.acked_offset == end
        connects = len(network.connects)
        await trio.sleep(60)  # the next heartbeat reports it
        assert "read-only" in slave.ha.state().problem
        assert len(network.connects) == connects


async def test_a_change_of_the_masters_address_counts_at_once(autojump_clock):
    async with group() as (master, slave, network):
        await trio.sleep(1)
        slave.ha.set_master("")
        await trio.sleep(30)
        assert len(network.connects) == 1
        assert not slave.ha.state().is_connected
        slave.ha.set_master("192.0.2.2:10912")
        slave.ha.set_master("192.0.2.2:10912")
        fill(master.store, 3)
        await trio.sleep(0.1)
        assert slave.store.max_physical_offset == master.store.max_physical_offset
        assert len(network.connects) == 2
        assert slave.ha.state().master_address == "192.0.2.2:10912"


async def test_a_queue_of_a_deleted_topic_begins_again_on_the_slave_too(autojump_clock, caplog):
    for sync in (False, True):
        async with group(sync=sync) as (master, slave, _):
            fill(master.store, 10)
            await caught_up(master.store, slave.store)
            await trio.sleep(11)  # a checkpoint knows of the old queue
            master.store.delete_topics(["T"])
            sent = [b"again %d" % n for n in range(5)]
            for body in sent:
                send(master.store, body, queue_id=1)
            await caught_up(master.store, slave.store)
            assert bodies(slave.store, "T", 1) == sent
            await slave.kill()
            await slave.start()
            assert bodies(slave.store, "T", 1) == sent
            assert "is rebuilt from the log: it is missing" not in caplog.text
