"""Faults of the test plan that only replication has: docs/ha.md says what becomes of each."""

from __future__ import annotations

import struct
from random import Random
from typing import TYPE_CHECKING

import trio

from trocket.store.config import BrokerRole, MessageStoreConfig
from trocket.store.message_store import MessageStore

from ..machine_disk import ROOT
from .cluster_operator import may_lose_local, start_again
from .faults_of_machines import everyone, some_time
from .machines import BROKER_PORT, FILE_SIZE, NAMESRV_PORT, BrokerMachine
from .network import LOG, Block
from .oracle import QUEUES, TOPIC
from .process import Process

if TYPE_CHECKING:
    from .cluster import Cluster

REPORT = struct.Struct(">q")
FOR_EVER = (1 << 63) - 1
HELLO = -1
HA_PORT = BROKER_PORT + 1


def _slave_that_is_up(cluster: Cluster, random: Random) -> BrokerMachine | None:
    up = [each for each in cluster.slaves if each.is_up and each.store.max_physical_offset > 0]
    return random.choice(up) if up else None


async def slave_ahead(cluster: Cluster, random: Random) -> bool:
    """A slave comes back with messages that its master never had: it is refused, and keeps them."""
    async with everyone(cluster):
        slave = _slave_that_is_up(cluster, random)
        if slave is None:
            return False
        cluster.lead_astray()
        await slave.stop()
        cluster.wounds += 1
        config = MessageStoreConfig(
            store_path_root_dir=ROOT,
            mapped_file_size_commit_log=FILE_SIZE,
            mapped_file_size_consume_queue=20 * 10,
            mapper_file_size_batch_consume_queue=46 * 10,
            max_hash_slot_num=20,
            max_index_num=60,
            enabled_append_prop_crc=True,
        )
        store = MessageStore(config, clock=slave.clock, disk=slave.disk)
        store.load()
        for number in range(random.randint(1, 3)):
            store.put_message(
                TOPIC, random.randrange(QUEUES), b"x%d" % number, b"", born_timestamp_ms=1,
                born_host=bytes(8), store_host=bytes(8), tags_code=0,
            )  # fmt: skip
        store.commit()
        end = store.max_physical_offset
        store.close()
        cluster.note(f"{slave.name} has a diverged log up to {end}")
        await start_again(cluster, slave)
    await some_time(random, 4)
    return True


async def slave_too_old(cluster: Cluster, random: Random) -> bool:
    """A slave was away for so long that its master has deleted what it needs."""
    async with everyone(cluster):
        slave, master = _slave_that_is_up(cluster, random), cluster.master
        if slave is None or not master.is_up:
            return False
        await slave.stop()
        cluster.note(f"{slave.name} is away")
        producer = random.choice(cluster.producers)
        end = slave.store.max_physical_offset
        with trio.move_on_after(20):
            while master.is_up and master.store.max_physical_offset < end + 2 * FILE_SIZE:
                await producer.send()
                await trio.sleep(0.01)  # no slave may be there to answer
        # From now on any message may be gone, whether or not anybody got it.
        cluster.oracle.min_offsets = [FOR_EVER] * QUEUES
        master.disk.used_percent = 87
        master.store.config.clean_file_forcibly_enable = True
        with trio.move_on_after(20):
            while True:
                if not master.is_up or master.store.min_physical_offset > end:
                    break
                await trio.sleep(0.5)
        master.store.config.clean_file_forcibly_enable = False
        master.disk.used_percent = 10
        await trio.sleep(4)  # a look that has begun goes on
        cluster.oracle.min_offsets = [master.store.min_offset(TOPIC, n) for n in range(QUEUES)]
        begin = master.store.min_physical_offset
        cluster.note(f"{master.name}'s log begins at {begin}, {slave.name}'s ends at {end}")
        await start_again(cluster, slave)
    return begin > end


async def fake_ack(cluster: Cluster, random: Random) -> bool:
    """Somebody who is no slave reports what he cannot have, while those who are may be away."""
    master = cluster.master
    slaves = frozenset(each.name for each in cluster.slaves)
    block = Block(slaves, frozenset({master.name}), LOG)
    are_away = random.random() < 0.6
    if are_away:
        cluster.network.block(block)
    liar = Process("liar", "10.0.3.2")
    sent = 0
    with trio.move_on_after(1 + round(random.random() * 4, 2)):
        while True:
            try:
                endpoint = await cluster.network.connect(liar, master.host, HA_PORT)
            except OSError:
                await trio.sleep(0.3)
                continue
            words = random.choice(
                ((FOR_EVER,), (0, FOR_EVER), (HELLO, FOR_EVER), (HELLO, 0, 0, FOR_EVER), (-7,))
            )
            for word in words:
                cluster.network.send(endpoint, REPORT.pack(word))
                sent += 1
                await trio.sleep(random.choice((0, 0.1)))
            await trio.sleep(0.2)
            endpoint.close()
    cluster.note(f"{sent} lies were sent to {master.name}, slaves away: {are_away}")
    if are_away:
        cluster.network.unblock(block)
    return sent > 0


async def wrong_master(cluster: Cluster, random: Random) -> bool:
    """A slave is sent somewhere else for its master's log."""
    slave = random.choice(cluster.slaves)
    target = random.choice(
        (
            ("10.0.9.9", HA_PORT),
            (cluster.master.host, BROKER_PORT),
            (cluster.namesrvs[0].host, NAMESRV_PORT),
            (slave.host, BROKER_PORT),
        )
    )
    cluster.note(f"{slave.name} takes {target} for its master's haListenPort")
    redirects = cluster.network.redirects
    redirects[slave.name, HA_PORT] = target
    _break_logs_of(cluster, slave)
    await some_time(random, 4, at_least_s=3)
    redirects.pop((slave.name, HA_PORT), None)
    _break_logs_of(cluster, slave)
    return True


def _break_logs_of(cluster: Cluster, slave: BrokerMachine) -> None:
    for connection in cluster.network.connections:
        names = [end.process.machine for end in connection.ends]
        if slave.name in names and len(set(names)) == 2:
            cluster.network.break_off(connection)


async def two_masters(cluster: Cluster, random: Random) -> bool:
    """An operator makes a slave the master while the old one, cut off, still takes messages. One of
    them gives way in the end, and what only that one has is lost (docs/ha.md: there is no failover
    by itself). It is refused with the offset, and nothing of the two is ever mixed."""
    async with everyone(cluster):
        old = cluster.master
        up = [each for each in cluster.slaves if each.is_up]
        if not up or not old.is_up:
            return False
        new = max(up, key=lambda each: each.store.max_physical_offset)
        winner, loser = random.choice(((old, new), (new, old)))
        cut = frozenset({old.name})
        others = frozenset(each.name for each in cluster.brokers) - cut
        blocks = (Block(cut, others, None), Block(others, cut, None))
        cluster.network.block(*blocks)
        cluster.lead_astray()
        cluster.wounds += 1
        await new.stop()
        number = new.broker_id
        new.role, new.broker_id = cluster.master_role, 0
        cluster.oracle.losers.add(loser.address)
        started = await start_again(cluster, new)
        cluster.note(f"{old.name} and {new.name} are masters, {winner.name} will stay")
        if started and winner is new:
            cluster.master = new
            may_lose = may_lose_local(cluster)
            if not cluster.plan.is_sync_master:  # no slave is promised to have anything
                may_lose = lambda each: True  # noqa: E731
            lost = cluster.oracle.lose(cluster.queues_of(new.store), may_lose)
            cluster.note(f"{lost} messages were not on {new.name}")
        await some_time(random, 4, at_least_s=1)
        cluster.network.unblock(*blocks)
        if loser.is_up:
            await loser.stop()
        loser.role, loser.broker_id = BrokerRole.SLAVE, number
        cluster.wounds += 1
        cluster.oracle.repeats += 1
        await start_again(cluster, loser)
        if not winner.is_up:
            await start_again(cluster, winner)
    return True
