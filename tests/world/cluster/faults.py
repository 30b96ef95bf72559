"""The 33 faults of the test plan, and three of clocks that jump, by name.

Each begins, lasts, and ends by itself or by the heal.

What a fault may take by contract it says to the oracle. A fault that finds nothing to be done (its
machine is down already, say) returns False and is not counted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import NamedTuple

import trio

from .cluster import MODES, TOPOLOGIES, WORKLOADS, Cluster, Plan
from .faults_of_clocks import clock_set_between_runs, clocks_jump, clocks_jump_by_years
from .faults_of_disks import (
    bit_flip,
    eio_on_read,
    eio_on_write,
    fsync_error,
    full_disk,
    read_only_remount,
    slow_fsync,
    tail_garbage,
    zeroed_tail,
)
from .faults_of_machines import (
    clean_stop,
    clock_hour_back,
    clock_three_seconds,
    clock_years_ahead,
    crash_in_recovery,
    kill,
    power_loss,
    step_during_delay,
    stop_and_continue,
)
from .faults_of_networks import (
    connection_flood,
    delay,
    half_open,
    one_byte_segments,
    partition_from_namesrvs,
    partition_of_log,
    partition_one_way,
    partition_two_way,
    reorder,
    reset_mid_frame,
)
from .faults_of_replication import (
    fake_ack,
    slave_ahead,
    slave_too_old,
    two_masters,
    wrong_master,
)

WITHIN_S = 5.0
"""In which faults begin."""

Happen = Callable[[Cluster, Random], Awaitable[bool]]


class Fault(NamedTuple):
    """A fault.

    Attributes:
      happen: it.
      is_big: two of these in one run are more than a SYNC_MASTER survives, or more than an operator
        can tell apart: each leaves a log that may be the only one with a message, or one too much.
    """

    happen: Happen
    is_big: bool = False


FAULTS: dict[str, Fault] = {
    "kill": Fault(kill),
    "stop/continue": Fault(stop_and_continue),
    "power loss": Fault(power_loss, is_big=True),
    "crash in recovery": Fault(crash_in_recovery),
    "clean stop under load": Fault(clean_stop),
    "clock 3 s": Fault(clock_three_seconds),
    "clock -1 h": Fault(clock_hour_back),
    "clock +10 y": Fault(clock_years_ahead),
    "step during delay": Fault(step_during_delay),
    "partition two-way": Fault(partition_two_way),
    "partition one-way": Fault(partition_one_way),
    "partition name-server only": Fault(partition_from_namesrvs),
    "partition HA only": Fault(partition_of_log),
    "delay": Fault(delay),
    "1-byte segments": Fault(one_byte_segments),
    "reset mid-frame": Fault(reset_mid_frame),
    "half-open": Fault(half_open),
    "reorder across connections": Fault(reorder),
    "ENOSPC": Fault(full_disk),
    "EIO write": Fault(eio_on_write),
    "EIO read": Fault(eio_on_read),
    "fsync error": Fault(fsync_error),
    "read-only remount": Fault(read_only_remount),
    "slow fsync 5 s": Fault(slow_fsync),
    "bit flip": Fault(bit_flip, is_big=True),
    "tail garbage": Fault(tail_garbage),
    "zeroed tail": Fault(zeroed_tail, is_big=True),
    "slave ahead": Fault(slave_ahead, is_big=True),
    "slave older than min offset": Fault(slave_too_old, is_big=True),
    "fake ack 2^63-1": Fault(fake_ack),
    "wrong master address": Fault(wrong_master),
    "two masters": Fault(two_masters, is_big=True),
    "connection flood": Fault(connection_flood),
}

JUMPS: dict[str, Fault] = {
    "clocks jump": Fault(clocks_jump),
    "clocks jump by years": Fault(clocks_jump_by_years),
    "clock set between runs": Fault(clock_set_between_runs),
}
"""Faults of the seeds from JUMPS_FROM on, beside the others: the plans of earlier seeds stay."""

JUMPS_FROM = 1_000_000

ALL_FAULTS = FAULTS | JUMPS


def plan_of(seed: int) -> Plan:
    """What a seed stands for. Modes, topologies, workloads and first faults take turns, so that
    every fault meets each of them early; the rest is chance."""
    random = Random(f"{seed} plan")
    names = list(FAULTS)
    first = names[seed % len(names)]
    mode = MODES[seed // len(names) % len(MODES)]
    topologies = list(TOPOLOGIES)
    topology = topologies[(seed + seed // len(names)) % len(topologies)]
    workload = random.choice(list(WORKLOADS))
    faults = [first]
    for _ in range(random.choice((0, 1, 1, 2, 2, 3, 4, 7))):
        name = random.choice(names)
        if not (FAULTS[name].is_big and any(FAULTS[each].is_big for each in faults)):
            faults.append(name)
    if seed >= JUMPS_FROM:
        faults += random.choices(list(JUMPS), k=random.randint(1, 4))
    random.shuffle(faults)
    return Plan(mode, topology, workload, faults, random.randint(5, 12), random.choice((0.8, 1.6)))


async def happen(cluster: Cluster) -> None:
    """Have the faults of the plan happen."""
    random = cluster.random("faults")
    starts = sorted(round(random.random() * WITHIN_S, 2) for _ in cluster.plan.faults)
    begin_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number, (name, start_s) in enumerate(zip(cluster.plan.faults, starts, strict=True)):
            nursery.start_soon(_happen, cluster, name, number, begin_s + start_s)
        if TOPOLOGIES[cluster.plan.topology].get("late"):
            nursery.start_soon(_start_late, cluster, round(random.random() * WITHIN_S, 2))


async def _happen(cluster: Cluster, name: str, number: int, start_s: float) -> None:
    await trio.sleep_until(start_s)
    if await ALL_FAULTS[name].happen(cluster, cluster.random(f"fault {number} {name}")):
        cluster.hits[name] += 1
    else:
        cluster.note(f"no {name}: there is nothing that it could meet")


async def _start_late(cluster: Cluster, after_s: float) -> None:
    """The last slave comes, with nothing."""
    await trio.sleep(after_s)
    slave = cluster.brokers[-1]
    async with slave.lock:
        if not slave.is_up and slave is not cluster.master and not slave.disk.system.names:
            cluster.note(f"{slave.name} comes")
            await slave.start()
