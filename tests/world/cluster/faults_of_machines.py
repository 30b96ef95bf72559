"""Faults of the test plan that processes, power and clocks have."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import trio

from ..broken import Broken
from ..clock import START_MS
from .cluster_operator import fail_over, start_again
from .machines import BrokerMachine, Machine, NamesrvMachine
from .oracle import Promise, Seen

if TYPE_CHECKING:
    from .cluster import Cluster

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
LOST_MS = 1_000
"""What a power cut may take under ASYNC_FLUSH: the last half second, and the fsync itself.
A process that stands still syncs nothing, so that does not count."""

LOST_AT_WORST_MS = 10_000
"""The same where fsyncs are slow, or where the device kept later sectors without earlier ones:
recovery then goes back to the last checkpoint."""

POWER_KINDS = ("none", "prefix", "torn")
"""What a power cut leaves, see tests/world/file_system.py."""


def pick(cluster: Cluster, random: Random, *, namesrvs: bool = True) -> Machine:
    """A machine, the master more often than others."""
    if random.random() < 0.5:
        return cluster.master
    return random.choice(cluster.machines if namesrvs else cluster.brokers)


def pick_broker(cluster: Cluster, random: Random) -> BrokerMachine:
    """A broker, the master more often than others."""
    machine = pick(cluster, random, namesrvs=False)
    assert isinstance(machine, BrokerMachine)
    return machine


async def some_time(random: Random, longest_s: float = 3.0, *, at_least_s: float = 0.0) -> None:
    """Let time pass, in hundredths of a second: what happens at one moment is played in one go."""
    await trio.sleep(at_least_s + round(random.random() * longest_s, 2))


async def _death(cluster: Cluster, machine: BrokerMachine, random: Random, *, power: bool) -> None:
    """Let it die at one of its next writes, or soon."""
    machine.die_after(random.choice((0, 1, 1, 2, 3, 5, 9)), power=power)
    with trio.move_on_after(round(random.random(), 2)):
        await machine.process.ended.wait()
    machine.die(power=power)
    cluster.note(f"{machine.name} is dead")


async def kill(cluster: Cluster, random: Random) -> bool:
    """kill -9, and a start a while later."""
    machine = pick(cluster, random)
    async with machine.lock:
        if not machine.is_up:
            return False
        if isinstance(machine, BrokerMachine):
            await _death(cluster, machine, random, power=False)
            await machine.finish(None, random)
            cluster.oracle.repeats += 1
        else:
            assert isinstance(machine, NamesrvMachine)
            cluster.note(f"{machine.name} is killed")
            await machine.kill()
        await some_time(random)
        if isinstance(machine, BrokerMachine):
            await start_again(cluster, machine)
        else:
            await machine.start()
    return True


async def stop_and_continue(cluster: Cluster, random: Random) -> bool:
    """SIGSTOP and SIGCONT."""
    process = pick(cluster, random).process
    if not process.is_alive or process.is_stopped:
        return False
    seconds = random.choice((0.5, 2.0, 5.0, 9.0))
    cluster.note(f"{process.machine} stands still for {seconds} s")
    process.stop()
    await trio.sleep(seconds)
    process.go_on()
    return True


async def power_loss(cluster: Cluster, random: Random) -> bool:
    """The plug of a broker is pulled; under SYNC_MASTER its disk may be gone, too."""
    async with _everyone(cluster):
        machine = pick_broker(cluster, random)
        if not machine.is_up:
            return False
        is_master = machine is cluster.master
        await _death(cluster, machine, random, power=True)
        kind = random.choice(POWER_KINDS)
        if not cluster.plan.is_sync_flush and random.random() < 0.3:
            kind = "random1"
        lost_ms = LOST_AT_WORST_MS if machine.disk.sync_s > 0 or kind == "random1" else LOST_MS
        since_ms = START_MS + int(machine.process.began_s(lost_ms / 1000) * 1000)
        await machine.finish(kind, random)
        cluster.wounds += 1
        cluster.oracle.repeats += 1
        cluster.note(f"{machine.name} lost its power: {kind}")
        await some_time(random)
        # M2 survives the loss of one machine because the other has it all: it must take over.
        # M3 survives the loss of a disk likewise.
        must_fail_over = cluster.plan.mode == "M2" or _loses_disk(cluster, random)
        if is_master and must_fail_over and _can_fail_over(cluster):
            await fail_over(cluster, lost_disk=random.random() < 0.5)
            return True
        if not await start_again(cluster, machine):
            raise Broken("N1", f"{machine.name} does not start after a power cut")
        if is_master and not cluster.plan.is_sync_flush:
            _forget_lost(cluster, since_ms)
    return True


def _loses_disk(cluster: Cluster, random: Random) -> bool:
    return cluster.plan.mode == "M3" and random.random() < 0.5


def _can_fail_over(cluster: Cluster) -> bool:
    return any(slave.disk.system.names for slave in cluster.slaves)


def _forget_lost(cluster: Cluster, since_ms: int) -> None:
    """After a power cut of an ASYNC_FLUSH master: what it had not synced may be gone."""

    def may_lose(each: Promise | Seen) -> bool:
        # What was read at a slave meanwhile was the master's before the cut.
        when_ms = each.made_ms if isinstance(each, Promise) else each.message.store_timestamp_ms
        return when_ms > since_ms

    cluster.lead_astray()  # they may have what the master has lost
    lost = cluster.oracle.lose(cluster.queues_of(cluster.master.store), may_lose)
    cluster.note(f"{lost} messages are lost that were not synced")


async def crash_in_recovery(cluster: Cluster, random: Random) -> bool:
    """kill -9, a start that is killed, and a start."""
    machine = pick_broker(cluster, random)
    async with machine.lock:
        if not machine.is_up:
            return False
        await _death(cluster, machine, random, power=False)
        await machine.finish(None, random)
        cluster.oracle.repeats += 1
        for _ in range(random.randint(1, 2)):
            machine.die_after(random.randrange(12))
            await machine.try_start()
            machine.die()
            cluster.note(f"{machine.name} dies while it starts")
            await machine.finish(None, random)
            cluster.oracle.repeats += 1
        await start_again(cluster, machine)
    return True


async def clean_stop(cluster: Cluster, random: Random) -> bool:
    """SIGTERM while clients send, and a start a while later."""
    machine = pick(cluster, random)
    async with machine.lock:
        if not machine.is_up:
            return False
        cluster.note(f"{machine.name} is stopped")
        await machine.stop()
        cluster.oracle.repeats += 1
        await some_time(random)
        if isinstance(machine, BrokerMachine):
            await start_again(cluster, machine)
        else:
            await machine.start()
    return True


async def _step(cluster: Cluster, machine: Machine, by_ms: int, for_s: float) -> bool:
    cluster.note(f"{machine.name}'s clock steps by {by_ms} ms")
    machine.clock.wrong_ms += by_ms
    await trio.sleep(round(for_s, 2))
    machine.clock.wrong_ms -= by_ms
    return True


async def clock_three_seconds(cluster: Cluster, random: Random) -> bool:
    """A clock is 3 s wrong for a while."""
    by_ms = random.choice((-3_000, 3_000))
    return await _step(cluster, pick(cluster, random), by_ms, random.random() * 6)


async def clock_hour_back(cluster: Cluster, random: Random) -> bool:
    """A clock is set back by an hour, and put right."""
    return await _step(cluster, pick(cluster, random), -HOUR_MS, random.random() * 6)


async def clock_years_ahead(cluster: Cluster, random: Random) -> bool:
    """A clock is set ahead by ten years, and put right; nothing expires.

    The broker runs on meanwhile: one that is started with such a clock, after messages were stored
    by it, has nothing left that tells of the jump, and believes it.
    """
    machine = pick(cluster, random)
    async with machine.lock:
        return await _step(cluster, machine, 10 * YEAR_MS, random.random() * 8)


async def step_during_delay(cluster: Cluster, random: Random) -> bool:
    """The master's clock steps while a delayed message waits."""
    producer = random.choice(cluster.producers)
    address = await producer.find()
    if not address:
        return False
    await producer._send(address, producer._new(random.choice((1, 2))))
    by_ms = random.choice((-HOUR_MS, -3_000, 3_000, HOUR_MS))
    return await _step(cluster, cluster.master, by_ms, random.random() * 4)


class _everyone:
    """All brokers' locks, taken in one order."""

    def __init__(self, cluster: Cluster) -> None:
        self._locks = [broker.lock for broker in cluster.brokers]

    async def __aenter__(self) -> None:
        for lock in self._locks:
            await lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        for lock in self._locks:
            lock.release()


everyone = _everyone
