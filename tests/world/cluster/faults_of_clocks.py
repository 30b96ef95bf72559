"""Clocks that jump both ways, of masters, slaves, name servers and clients: while programs run, and
between two runs of a broker."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from .clients import Producer
from .cluster_operator import start_again
from .faults_of_machines import HOUR_MS, YEAR_MS, everyone, pick_broker, some_time
from .machines import Machine

if TYPE_CHECKING:
    from .cluster import Cluster

SMALL_MS = (1, 40, 999, 3_000, 61_000, HOUR_MS)
YEARS_MS = (YEAR_MS, 10 * YEAR_MS)
JUMPS_MAX = 8


def _jump_ms(random: Random, *, by_years: bool) -> int:
    return random.choice((-1, 1)) * random.choice(YEARS_MS if by_years else SMALL_MS)


async def _jumps(cluster: Cluster, random: Random, *, by_years: bool) -> None:
    """Set clocks, each some times, and put them right."""
    owners: list[Machine | Producer] = [*cluster.machines, *cluster.producers]
    moved = random.sample(owners, random.randint(1, len(owners)))
    for _ in range(random.randint(1, JUMPS_MAX)):
        owner, by_ms = random.choice(moved), _jump_ms(random, by_years=by_years)
        cluster.note(f"{owner.name}'s clock jumps by {by_ms} ms")
        owner.clock.wrong_ms += by_ms
        await some_time(random, 1.0)
    for owner in moved:
        owner.clock.wrong_ms = 0
    cluster.note("all clocks are right")


async def clocks_jump(cluster: Cluster, random: Random) -> bool:
    """Clocks of any machines are set again and again, by milliseconds to an hour, while they run,
    start and stop."""
    await _jumps(cluster, random, by_years=False)
    return True


async def clocks_jump_by_years(cluster: Cluster, random: Random) -> bool:
    """Clocks are set by years, while brokers run: one that is started with a clock that is years
    ahead, after messages were stored by it, believes it."""
    async with everyone(cluster):
        await _jumps(cluster, random, by_years=True)
    return True


async def clock_set_between_runs(cluster: Cluster, random: Random) -> bool:
    """A broker is stopped, or killed, and finds another time when it starts."""
    machine = pick_broker(cluster, random)
    async with machine.lock:
        if not machine.is_up:
            return False
        if random.random() < 0.5:
            await machine.stop()
        else:
            machine.die()
            await machine.finish(None, random)
        cluster.oracle.repeats += 1
        by_ms = _jump_ms(random, by_years=False)
        cluster.note(f"{machine.name} is down, and its clock is set by {by_ms} ms")
        machine.clock.wrong_ms += by_ms
        await some_time(random)
        await start_again(cluster, machine)
        await some_time(random)
        machine.clock.wrong_ms = 0
        cluster.note(f"{machine.name}'s clock is right")
    return True
