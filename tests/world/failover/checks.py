"""The end of a run: everything heals by itself, and what is there is held against all that was
promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ..broken import Broken
from ..cluster.checks import (
    check_group,
    check_lookups,
    check_slave,
    check_takes_messages,
    wait_for_delayed,
)
from ..cluster.machines import DiskMachine
from .world import HEALED_WITHIN_S

if TYPE_CHECKING:
    from .world import SetCluster

LOOK_S = 0.5
LOOKUPS_S = 10.0
SYNCHRONIZED_S = 3.5


async def start_again(cluster: SetCluster, machine: DiskMachine) -> bool:
    """Start a machine that was ended; False: it says that it cannot."""
    problem = await machine.try_start()
    cluster.note(f"{machine.name} starts: {problem or 'well'}")
    return not problem


async def heal(cluster: SetCluster) -> None:
    """Have no fault any more, and wait until all brokers are in sync."""
    cluster.note("everything heals")
    cluster.network.heal()
    cluster.group.heal()
    for machine in cluster.machines:
        machine.process.go_on()
        machine.clock.wrong_ms = 0
    for machine in cluster.namesrvs:
        if not machine.is_up:
            await machine.start()
    for each in cluster.disk_machines:
        each.disk.heal()
        if each in cluster.brokers and each.is_up and _is_read_only(cluster, each):
            await each.stop()
        if not each.is_up and not await start_again(cluster, each):
            raise Broken("progress", f"{each.name} does not start")
    with trio.move_on_after(HEALED_WITHIN_S):
        while not is_whole(cluster):  # noqa: ASYNC110 - virtual time
            await trio.sleep(LOOK_S)
        return
    raise Broken("progress", f"not healed within {HEALED_WITHIN_S:g} s: {cluster.state()}")


def _is_read_only(cluster: SetCluster, machine: DiskMachine) -> bool:
    broker = cluster.machine_named(machine.name).serving
    return broker is not None and (broker.store.read_only or broker.store.index.is_broken)


def is_whole(cluster: SetCluster) -> bool:
    """Whether all brokers are in sync, and show all that the master has."""
    known = cluster.stored_set()
    if not cluster.has_master() or known is None or len(known.in_sync) < len(cluster.brokers):
        return False
    ends = set()
    for each in cluster.brokers:
        if each.serving is None:
            return False
        store = each.serving.store
        ends |= {
            store.max_physical_offset, store.durability.confirm_offset, store.dispatched_offset
        }  # fmt: skip
    return len(ends) == 1


async def verify(cluster: SetCluster) -> None:
    """All of it. Raises: Broken."""
    await trio.sleep(SYNCHRONIZED_S)
    for peer in (*cluster.producers, *cluster.consumers):
        for channel in list(peer.client._channels.values()):
            channel.close("it may be half open")
        peer.forget()
    await wait_for_delayed(cluster)
    if not is_whole(cluster):
        with trio.move_on_after(HEALED_WITHIN_S):
            while not is_whole(cluster):  # noqa: ASYNC110 - virtual time
                await trio.sleep(LOOK_S)
    known = cluster.stored_set()
    if known is None or len(known.replicas) > len(cluster.brokers):
        raise Broken("identity", f"a broker has another id: {known}")
    master = cluster.master
    queues = cluster.queues_of(master.store)
    cluster.note(f"the queues end at {[len(messages) for messages in queues]}")
    cluster.oracle.hold(queues)
    cluster.oracle.hold_delayed(queues)
    for slave in cluster.slaves:
        check_slave(cluster, slave, queues)
    if cluster.plan.all_ack:
        await check_group(cluster, queues)
    healed_s = trio.current_time()
    for machine in cluster.brokers:
        for queue_id, messages in enumerate(cluster.queues_of(machine.store)):
            while problem := await check_lookups(cluster, machine, queue_id, messages):
                if trio.current_time() > healed_s + LOOKUPS_S:
                    raise Broken("N7", problem)
                await trio.sleep(1)
    await check_takes_messages(cluster)
