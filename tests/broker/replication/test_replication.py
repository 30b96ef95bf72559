"""Brokers in their roles: found by the name server, refused, reported by 907."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing

from trocket.remoting.bodies import HARuntimeInfo

from ...kit import START_MS, Client, send_fields
from ..group import HOST, Node, group

SEND, HA_STATUS = 310, 907


async def status(client: Client) -> HARuntimeInfo:
    answer = await client.ask(HA_STATUS, {})
    assert answer.code == 0
    return HARuntimeInfo.from_body(answer.body)


def log_of(node: Node) -> bytes:
    return bytes(node.disk.contents["/store/commitlog/00000000000000000000"])


async def test_a_slave_is_in_the_route_and_has_its_masters_log(autojump_clock):
    async with group() as made:
        master = await made.master()
        slave = await made.slave()
        client = await master.connect()
        for number in range(100):
            await client.ask(SEND, send_fields(queue_id=number % 4), b"%d" % number)
        await made.has_log(slave, master)
        assert log_of(slave) == log_of(master)
        (broker,) = (await made.route("TBW102")).broker_datas
        assert broker.broker_addrs == {0: master.address, 1: slave.address}
        await master.kill()
        (broker,) = (await made.route("TBW102")).broker_datas
        assert broker.broker_addrs == {1: slave.address}


async def test_two_slaves_follow_one_master(autojump_clock):
    async with group() as made:
        master = await made.master()
        slaves = [await made.slave(1), await made.slave(2)]
        client = await master.connect()
        await client.ask(SEND, send_fields(), b"x")
        for slave in slaves:
            await made.has_log(slave, master)
            assert log_of(slave) == log_of(master)
        (broker,) = (await made.route("TBW102")).broker_datas
        assert sorted(broker.broker_addrs) == [0, 1, 2]
        assert (await status(client)).in_sync_slave_nums == 2


async def test_the_ha_address_that_is_registered_is_broker_ip_2_and_ha_listen_port(autojump_clock):
    async with group() as made:
        await made.master(broker_ip2="192.0.2.77", ha_listen_port=20_000)
        await made.slave()
        await trio.sleep(1)
        assert 20_000 in made.asked
        assert made.nodes[1].running.replication.status().ha_client_runtime_info.master_addr == (
            "192.0.2.77:20000"
        )


@pytest.mark.slow
async def test_ha_master_address_counts_more_than_what_the_name_server_says(autojump_clock):
    async with group() as made:
        master = await made.master(ha_listen_port=20_000)  # where no slave is
        slave = await made.slave(ha_master_address=f"{HOST}:{master.port + 1}")
        client = await master.connect()
        await client.ask(SEND, send_fields(), b"x")
        await made.has_log(slave, master)
        assert log_of(slave) == log_of(master)
        assert 20_000 not in made.asked


async def test_a_slave_that_comes_first_hears_of_its_master_within_ten_seconds(autojump_clock):
    async with group() as made:
        slave = await made.slave(register_name_server_period=60_000)
        await trio.sleep(1)
        master = await made.master()
        client = await master.connect()
        await client.ask(SEND, send_fields(), b"x")
        await made.has_log(slave, master, within_s=9.5)


async def test_a_slave_hears_of_its_master_though_it_need_not_register(autojump_clock):
    async with group() as made:
        await made.slave(force_register=False)
        await trio.sleep(30)
        master = await made.master()
        await trio.sleep(40)
        slave = made.nodes[0]
        assert slave.running.replication.has_master
        assert master.running.replication.status().in_sync_slave_nums == 1


@pytest.mark.slow
async def test_a_master_that_comes_back_is_followed_on(autojump_clock):
    async with group() as made:
        master = await made.master()
        slave = await made.slave()
        client = await master.connect()
        await client.ask(SEND, send_fields(), b"before")
        await made.has_log(slave, master)
        await master.kill()
        await trio.sleep(100)
        assert not slave.running.replication.has_master
        await master.start()
        client = await master.connect()
        await client.ask(SEND, send_fields(), b"after")
        await made.has_log(slave, master)
        assert log_of(slave) == log_of(master)


async def test_a_slave_that_was_stopped_or_killed_goes_on(autojump_clock):
    async with group() as made:
        master = await made.master()
        slave = await made.slave()
        client = await master.connect()
        for end in (slave.stop, slave.kill):
            await client.ask(SEND, send_fields(), b"x")
            await made.has_log(slave, master)
            await end()
            await client.ask(SEND, send_fields(), b"meanwhile")
            await slave.start()
            await made.has_log(slave, master)
            assert log_of(slave) == log_of(master)


async def test_907_of_a_master_names_its_slaves_and_how_far_they_are(autojump_clock):
    async with group() as made:
        master = await made.master()
        client = await master.connect()
        assert json.loads((await client.ask(HA_STATUS, {})).body) == {
            "haClientRuntimeInfo": {
                "lastReadTimestamp": 0, "lastWriteTimestamp": 0, "masterFlushOffset": 0,
                "maxOffset": 0, "transferredByteInSecond": 0,
            },
            "haConnectionInfo": [], "inSyncSlaveNums": 0, "master": True,
            "masterCommitLogMaxOffset": 0,
        }  # fmt: skip
        slave = await made.slave()
        await client.ask(SEND, send_fields(), b"x")
        await made.has_log(slave, master)
        await trio.testing.wait_all_tasks_blocked()
        end = master.running.store.max_physical_offset
        assert end > 0
        info = await status(client)
        (one,) = info.ha_connection_info
        assert (info.master_commit_log_max_offset, info.in_sync_slave_nums) == (end, 1)
        assert (one.addr, one.in_sync, one.diff) == (f"{HOST}:40000", True, 0)
        assert (one.slave_ack_offset, one.transfer_from_where) == (end, end)
        await slave.stop()
        await trio.testing.wait_all_tasks_blocked()
        assert (await status(client)).ha_connection_info == []


async def test_907_of_a_slave_names_its_master(autojump_clock):
    async with group() as made:
        master = await made.master()
        slave = await made.slave()
        client = await master.connect()
        await client.ask(SEND, send_fields(), b"x")
        await made.has_log(slave, master)
        await trio.sleep(2)
        info = await status(await slave.connect())
        one = info.ha_client_runtime_info
        assert (info.master, info.ha_connection_info) == (False, [])
        assert one.master_addr == f"{HOST}:{master.port + 1}"
        assert one.max_offset == master.running.store.max_physical_offset
        now_ms = START_MS + int(trio.current_time() * 1000)
        assert now_ms - 5500 <= one.last_read_timestamp <= now_ms
        await master.kill()
        await trio.testing.wait_all_tasks_blocked()
        one = (await status(await slave.connect())).ha_client_runtime_info
        assert (one.last_read_timestamp, one.last_write_timestamp) == (0, 0)
