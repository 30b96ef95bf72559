"""Faults of the test plan that a network has."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import trio
import trio.lowlevel

from .faults_of_machines import pick, some_time
from .network import LOG, Block, Connection, Endpoint
from .process import Process

if TYPE_CHECKING:
    from .cluster import Cluster

FLOOD = 30
"""Connections of a flood; a broker takes 10,000, which would only cost time here."""


def _names(cluster: Cluster) -> frozenset[str]:
    names = [each.name for each in cluster.machines]
    names += [each.name for each in cluster.producers]
    names += [each.name for each in cluster.consumers]
    return frozenset(names)


async def _blocked(cluster: Cluster, random: Random, *blocks: Block) -> bool:
    seconds = random.choice((0.5, 2.0, 5.0, 9.0))
    for block in blocks:
        sources, targets = sorted(block.sources), sorted(block.targets)
        cluster.note(f"nothing gets from {sources} to {targets} for {seconds} s: {block.kind}")
    cluster.network.block(*blocks)
    await trio.sleep(seconds)
    cluster.network.unblock(*blocks)
    return True


def _parts(cluster: Cluster, random: Random) -> tuple[frozenset[str], frozenset[str]]:
    """Some machine, and some others or all of them."""
    one = frozenset({pick(cluster, random).name})
    others = sorted(_names(cluster) - one)
    if random.random() < 0.5:
        others = random.sample(others, random.randint(1, len(others)))
    return one, frozenset(others)


async def partition_two_way(cluster: Cluster, random: Random) -> bool:
    """A machine and others do not reach each other."""
    one, others = _parts(cluster, random)
    return await _blocked(cluster, random, Block(one, others, None), Block(others, one, None))


async def partition_one_way(cluster: Cluster, random: Random) -> bool:
    """What a machine sends does not arrive; or what is sent to it."""
    one, others = _parts(cluster, random)
    if random.random() < 0.5:
        one, others = others, one
    return await _blocked(cluster, random, Block(one, others, None))


async def partition_from_namesrvs(cluster: Cluster, random: Random) -> bool:
    """Brokers and clients are cut off from one or both name servers."""
    namesrvs = frozenset(
        each.name for each in random.sample(cluster.namesrvs, random.randint(1, 2))
    )
    others = sorted(_names(cluster) - frozenset(each.name for each in cluster.namesrvs))
    cut = frozenset(random.sample(others, random.randint(1, len(others))))
    return await _blocked(cluster, random, Block(namesrvs, cut, None), Block(cut, namesrvs, None))


async def partition_of_log(cluster: Cluster, random: Random) -> bool:
    """Slaves do not get the log, and all else gets through."""
    slaves = random.sample(cluster.slaves, random.randint(1, len(cluster.slaves)))
    cut = frozenset(each.name for each in slaves)
    others = frozenset(each.name for each in cluster.brokers) - cut
    return await _blocked(cluster, random, Block(cut, others, LOG), Block(others, cut, LOG))


def _connections(cluster: Cluster, random: Random) -> list[Connection]:
    """Open connections: those of the log, or those of one machine, or one."""
    is_open = [
        each
        for each in cluster.network.connections
        if not any(end.is_closed or end.is_reset for end in each.ends)
    ]
    choice = random.randrange(3)
    if choice == 0:
        return [each for each in is_open if each.kind == LOG]
    if choice == 1:
        name = pick(cluster, random).name
        return [each for each in is_open if name in (end.process.machine for end in each.ends)]
    return random.sample(is_open, min(1, len(is_open)))


async def delay(cluster: Cluster, random: Random) -> bool:
    """Bytes take long."""
    connections = _connections(cluster, random)
    delay_s = random.choice((0.05, 0.4, 2.0))
    cluster.note(f"{len(connections)} connections take {delay_s} s")
    for connection in connections:
        connection.delay_s = delay_s
    await some_time(random, 5)
    for connection in connections:
        connection.delay_s = 0.0
    return bool(connections)


async def one_byte_segments(cluster: Cluster, random: Random) -> bool:
    """Each byte comes alone."""
    connections = _connections(cluster, random)
    cluster.note(f"{len(connections)} connections have segments of one byte")
    for connection in connections:
        connection.is_bytewise = True
    await some_time(random, 2)
    for connection in connections:
        connection.is_bytewise = False
    return bool(connections)


async def reset_mid_frame(cluster: Cluster, random: Random) -> bool:
    """Connections break in the middle of what is sent next."""
    connections = _connections(cluster, random)
    cluster.note(f"{len(connections)} connections break in the middle")
    for connection in connections:
        connection.reset_after = random.randrange(400)
    await some_time(random, 5)
    for connection in connections:
        connection.reset_after = None
    return bool(connections)


async def half_open(cluster: Cluster, random: Random) -> bool:
    """One end learns that the connection is broken, the other never."""
    connections = _connections(cluster, random)
    cluster.note(f"{len(connections)} connections are half open")
    for connection in connections:
        connection.is_lost = True
        random.choice(connection.ends).reset()
    await trio.lowlevel.checkpoint()
    return bool(connections)


async def reorder(cluster: Cluster, random: Random) -> bool:
    """What is sent on one connection overtakes what is sent on another."""
    connections = [each for each in cluster.network.connections if each.delay_s < 0.1]
    cluster.note(f"{len(connections)} connections overtake each other")
    for connection in connections:
        connection.delay_s = round(random.random() * 0.5, 2)
    await some_time(random, 5)
    for connection in connections:
        connection.delay_s = 0.0
    return bool(connections)


async def connection_flood(cluster: Cluster, random: Random) -> bool:
    """Many connections that say nothing, half of something, or nonsense."""
    machine = pick(cluster, random)
    if not machine.is_up:
        return False
    process = Process("flood", "10.0.3.1")
    ports = [port for host, port in cluster.network.listeners if host == machine.host]
    if not ports:
        return False
    cluster.note(f"{FLOOD} connections to {machine.name}")
    endpoints: list[Endpoint] = []
    with trio.move_on_after(5):
        for _ in range(FLOOD):
            try:
                port = random.choice(ports)
                endpoint = await cluster.network.connect(process, machine.host, port)
            except OSError:
                break
            endpoints.append(endpoint)
            data = random.choice((b"", b"\0\0\1", b"\0\0\0\x20\0\0\0\x10{", random.randbytes(40)))
            cluster.network.send(endpoint, data)
        await some_time(random, 5)
    for endpoint in endpoints:
        endpoint.close()
    return bool(endpoints)
