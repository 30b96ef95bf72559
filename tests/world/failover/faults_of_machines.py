"""Faults that the processes, the power and the clocks of a set have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

import trio

from trocket.remoting.headers import ElectMasterRequestHeader, encode_header

from ..cluster.faults_of_machines import POWER_KINDS, some_time
from ..cluster.machines import DiskMachine, Machine, NamesrvMachine
from .checks import start_again
from .promises import ELECTED_WITHIN_S

if TYPE_CHECKING:
    from .world import SetCluster

ELECT = 1002


def pick(cluster: SetCluster, random: Random) -> Machine:
    """A machine: often the master, sometimes a controller that leads."""
    choice = random.random()
    if choice < 0.5:
        return cluster.master
    if choice < 0.65:
        return random.choice(cluster.controllers)
    return random.choice(cluster.machines)


async def death(
    cluster: SetCluster, machine: DiskMachine, random: Random, *, power: bool = False
) -> None:
    """Let it die at one of its next writes, or soon."""
    machine.die_after(random.choice((0, 1, 1, 2, 3, 5, 9)), power=power)
    with trio.move_on_after(round(random.random(), 2)):
        await machine.process.ended.wait()
    machine.die(power=power)
    cluster.note(f"{machine.name} is dead")


async def kill(cluster: SetCluster, random: Random) -> bool:
    """kill -9, and a start a while later."""
    machine = pick(cluster, random)
    async with machine.lock:
        if not machine.is_up:
            return False
        if isinstance(machine, DiskMachine):
            await death(cluster, machine, random)
            await machine.finish(None, random)
            await some_time(random, random.choice((0.5, 3.0, 8.0)))
            await start_again(cluster, machine)
        else:
            assert isinstance(machine, NamesrvMachine)
            cluster.note(f"{machine.name} is killed")
            await machine.kill()
            await some_time(random)
            await machine.start()
    return True


async def kill_both(cluster: SetCluster, random: Random) -> bool:
    """kill -9 of the master and another machine at once; they come back one after the other."""
    master = cluster.master
    others = [each for each in cluster.disk_machines if each is not master]
    other = random.choice(others)
    async with both(master, other):
        if not (master.is_up and other.is_up):
            return False
        for machine in (master, other):
            machine.die()
            cluster.note(f"{machine.name} is dead")
            await machine.finish(None, random)
        for machine in random.sample((master, other), 2):
            await some_time(random, 5.0)
            await start_again(cluster, machine)
    return True


async def long_death(cluster: SetCluster, random: Random) -> bool:
    """The master is killed, and away for longer than an election may take."""
    machine = cluster.master
    async with machine.lock:
        if not machine.is_up:
            return False
        await death(cluster, machine, random)
        await machine.finish(None, random)
        await trio.sleep(ELECTED_WITHIN_S + 12)
        await start_again(cluster, machine)
    return True


async def power_loss(cluster: SetCluster, random: Random) -> bool:
    """The plug of a broker or controller is pulled."""
    machine = pick(cluster, random)
    if not isinstance(machine, DiskMachine):
        machine = cluster.master
    async with machine.lock:
        if not machine.is_up or not may_lose_power(cluster, machine):
            return False
        await death(cluster, machine, random, power=True)
        kind = random.choice(POWER_KINDS)
        await machine.finish(kind, random)
        cluster.note(f"{machine.name} lost its power: {kind}")
        await some_time(random, random.choice((0.5, 3.0, 8.0)))
        await start_again(cluster, machine)
    return True


def may_lose_power(cluster: SetCluster, machine: DiskMachine) -> bool:
    """Whether nothing that was confirmed is lost with the memory of one machine."""
    return cluster.plan.is_sync_flush or machine not in cluster.brokers


async def crash_in_recovery(cluster: SetCluster, random: Random) -> bool:
    """kill -9, starts that are killed, and a start."""
    machine = random.choice((cluster.master, random.choice(cluster.disk_machines)))
    async with machine.lock:
        if not machine.is_up:
            return False
        await death(cluster, machine, random)
        await machine.finish(None, random)
        for _ in range(random.randint(1, 3)):
            machine.die_after(random.randrange(30))
            await machine.try_start()
            with trio.move_on_after(round(random.random(), 2)):
                await machine.process.ended.wait()
            machine.die()
            cluster.note(f"{machine.name} dies while it starts")
            await machine.finish(None, random)
        await start_again(cluster, machine)
    return True


async def death_in_change(cluster: SetCluster, random: Random) -> bool:
    """A broker dies in one of the writes of its change of role, which another's death begins."""
    master = cluster.master
    other = random.choice([each for each in cluster.brokers if each is not master])
    async with both(master, other):
        if not (master.is_up and other.is_up):
            return False
        power = cluster.plan.is_sync_flush and random.random() < 0.5
        other.die_after(random.randrange(1, 40), power=power)
        master.die()
        cluster.note(f"{master.name} is dead, {other.name} soon")
        await master.finish(None, random)
        await some_time(random, 3.0)
        await start_again(cluster, master)
        with trio.move_on_after(round(random.random() * 8, 2)):
            await other.process.ended.wait()
        other.die()
        cluster.note(f"{other.name} is dead, by {'power' if power else 'kill'}")
        await other.finish(random.choice(POWER_KINDS) if power else None, random)
        await start_again(cluster, other)
    return True


async def clean_stop(cluster: SetCluster, random: Random) -> bool:
    """SIGTERM, and a start a while later."""
    machine = pick(cluster, random)
    async with machine.lock:
        if not machine.is_up:
            return False
        cluster.note(f"{machine.name} is stopped")
        await machine.stop()
        await some_time(random, 5.0)
        if isinstance(machine, DiskMachine):
            await start_again(cluster, machine)
        else:
            await machine.start()
    return True


async def all_restarted(cluster: SetCluster, random: Random) -> bool:
    """All brokers are killed at once, and come back; in part of the runs the controllers are away
    meanwhile."""
    async with all_of(cluster.disk_machines):
        away = cluster.controllers if random.random() < 0.5 else []
        victims = [each for each in [*cluster.brokers, *away] if each.is_up]
        cluster.note(f"{[each.name for each in victims]} are killed")
        for machine in victims:
            machine.die()
            await machine.finish(None, random)
        if not away or random.random() < 0.5:
            await some_time(random)
        for machine in random.sample(victims, len(victims)):
            if machine not in away:
                await start_again(cluster, machine)
        await some_time(random, 6.0)
        for machine in victims:
            if machine in away:
                await start_again(cluster, machine)
    return True


async def stand_still(cluster: SetCluster, random: Random) -> bool:
    """SIGSTOP for longer than time-outs, and SIGCONT."""
    process = pick(cluster, random).process
    if not process.is_alive or process.is_stopped:
        return False
    seconds = random.choice((0.5, 2.0, 2.8, 4.0, 6.0, 12.0))
    cluster.note(f"{process.machine} stands still for {seconds} s")
    process.stop()
    await trio.sleep(seconds)
    process.go_on()
    return True


async def elect(cluster: SetCluster, random: Random) -> bool:
    """An operator designates a master."""
    return await _elect(cluster, random)


async def ten_elections(cluster: SetCluster, random: Random) -> bool:
    """An operator designates one master after the other."""
    count = 0
    for _ in range(10):
        count += await _elect(cluster, random)
        await trio.sleep(round(random.random() * 2, 2))
    return count > 0


async def _elect(cluster: SetCluster, random: Random) -> bool:
    known = cluster.stored_set()
    if known is None:
        return False
    number = random.choice(sorted(known.replicas))
    header = ElectMasterRequestHeader(
        cluster_name=known.cluster_name,
        broker_name=known.broker_name,
        broker_id=number,
        designate_elect=True,
    )
    codes = []
    for controller in cluster.controllers:
        fields = encode_header(header)
        answer = await cluster.operator.ask(controller.address, ELECT, fields)
        codes.append(None if answer is None else answer.code)
    cluster.note(f"an operator elects {number}: {codes}")
    return 0 in codes


@asynccontextmanager
async def all_of(machines: Sequence[DiskMachine]) -> AsyncIterator[None]:
    """The locks of machines, taken in one order."""
    async with AsyncExitStack() as stack:
        for each in sorted(machines, key=lambda machine: machine.name):
            await stack.enter_async_context(each.lock)
        yield


def both(one: DiskMachine, other: DiskMachine) -> AbstractAsyncContextManager[None]:
    """As `all_of`."""
    return all_of((one, other))
