"""Faults that the network of a set and the state of its controllers have."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import trio

from ..cluster.faults_of_machines import some_time
from ..cluster.network import LOG, REMOTING, Block
from .checks import start_again

if TYPE_CHECKING:
    from .world import SetCluster

SECONDS = (1.0, 2.5, 4.0, 7.0, 12.0)


def _names(machines: object) -> frozenset[str]:
    return frozenset(each.name for each in machines)  # type: ignore[attr-defined]


async def _apart(
    cluster: SetCluster, random: Random, one: frozenset[str], other: frozenset[str]
) -> bool:
    seconds = random.choice(SECONDS)
    cluster.note(f"{sorted(one)} and {sorted(other)} are apart for {seconds} s")
    blocks = (Block(one, other, None), Block(other, one, None))
    cluster.network.block(*blocks)
    await trio.sleep(seconds)
    cluster.network.unblock(*blocks)
    return True


async def master_with_clients(cluster: SetCluster, random: Random) -> bool:
    """{master, clients, name servers} | {slaves, controllers}."""
    others = _names([*cluster.slaves, *cluster.controllers])
    if random.random() < 0.5:
        others |= _names(cluster.namesrvs)
    return await _apart(cluster, random, frozenset({cluster.master.name}), others)


async def master_with_controllers(cluster: SetCluster, random: Random) -> bool:
    """{master, controllers} | {slaves}."""
    here = frozenset({cluster.master.name}) | _names(cluster.controllers)
    return await _apart(cluster, random, here, _names(cluster.slaves))


async def answers_lost(cluster: SetCluster, random: Random) -> bool:
    """Controllers get requests, and do them; their answers do not arrive for a while."""
    brokers = _names(random.sample(cluster.brokers, random.randint(1, len(cluster.brokers))))
    seconds = random.choice(SECONDS)
    cluster.note(f"answers of controllers to {sorted(brokers)} are lost for {seconds} s")
    block = Block(_names(cluster.controllers), brokers, REMOTING)
    cluster.network.block(block)
    await trio.sleep(seconds)
    cluster.network.unblock(block)
    return True


async def two_leaders(cluster: SetCluster, random: Random) -> bool:
    """A controller that leads does not reach the state, and serves brokers meanwhile."""
    leaders = [each for each in cluster.controllers if each.leads]
    if cluster.plan.controllers == 1 or not leaders:
        return False
    name = leaders[0].name
    seconds = random.choice(SECONDS)
    cluster.note(f"{name}, which leads, does not reach the state for {seconds} s")
    cluster.group.cut.add(name)
    await trio.sleep(seconds)
    cluster.group.cut.discard(name)
    return True


async def no_quorum(cluster: SetCluster, random: Random) -> bool:
    """The state has no quorum for a while."""
    if cluster.plan.controllers == 1:
        return False
    seconds = random.choice((2.0, 6.0, 15.0))
    cluster.note(f"the state has no quorum for {seconds} s")
    cluster.group.has_quorum = False
    await trio.sleep(seconds)
    cluster.group.has_quorum = True
    return True


async def slow_state(cluster: SetCluster, random: Random) -> bool:
    """The state is slow; many requests get no answer in time, and are done."""
    if cluster.plan.controllers == 1:
        return False
    cluster.group.slow_s = random.choice((0.1, 0.4, 2.0))
    cluster.note(f"the state takes up to {cluster.group.slow_s} s each way")
    await some_time(random, 8.0)
    cluster.group.slow_s = 0.0
    return True


async def state_answers_lost(cluster: SetCluster, random: Random) -> bool:
    """What controllers ask the state for is done, and the answer is lost."""
    if cluster.plan.controllers == 1:
        return False
    cluster.group.loses = random.choice((0.3, 0.7))
    cluster.note(f"the state loses {cluster.group.loses} of its answers")
    await some_time(random, 8.0)
    cluster.group.loses = 0.0
    return True


async def controller_disk(cluster: SetCluster, random: Random) -> bool:
    """A controller's disk is full, or its fsyncs fail, for a while."""
    controller = random.choice(cluster.controllers)
    async with controller.lock:
        if not controller.is_up:
            return False
        if random.random() < 0.5:
            controller.disk.fill_up()
            cluster.note(f"{controller.name}'s disk is full")
        else:
            controller.disk.fail_all(errno.EIO, frozenset({"sync", "sync_folder"}))
            cluster.note(f"fsyncs of {controller.name} fail")
        await some_time(random, 6.0)
        controller.disk.heal()
    return True


async def growth_unanswered(cluster: SetCluster, random: Random) -> bool:
    """A slave joins the in-sync set again, the master never hears it, loses the slave and dies."""
    master, slaves = cluster.master, cluster.slaves
    known = cluster.stored_set()
    if known is None or not master.is_up or not all(each.is_up for each in slaves):
        return False
    here, there = frozenset({master.name}), _names(slaves)
    log = (Block(here, there, LOG), Block(there, here, LOG))
    answers = Block(_names(cluster.controllers), here, REMOTING)
    cluster.network.block(*log)
    cluster.note(f"{sorted(there)} leave the set of {master.name}")
    await _until(cluster, lambda size: size == 1)
    cluster.network.unblock(*log)
    # The set grows at a look of the master, which asks the controller and hears nothing.
    await trio.sleep(round(random.random() * 0.3, 2))
    cluster.network.block(answers)
    await _until(cluster, lambda size: size > 1)
    cluster.network.block(*log)
    cluster.note(f"{sorted(there)} are back in it, and away")
    await some_time(random, 2.0, at_least_s=0.3)
    async with master.lock:
        master.die()
        cluster.note(f"{master.name} is dead")
        await master.finish(None, random)
        cluster.network.unblock(answers, *log)
        await some_time(random, 4.0, at_least_s=2.0)
        await start_again(cluster, master)
    return True


async def _until(cluster: SetCluster, is_so: Callable[[int], bool]) -> None:
    with trio.move_on_after(9):
        while not is_so(_size(cluster)):  # noqa: ASYNC110 - virtual time
            await trio.sleep(0.01)


def _size(cluster: SetCluster) -> int:
    known = cluster.stored_set()
    return 0 if known is None else len(known.in_sync)
