"""The faults of a simulated set, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import trio

from ..cluster import faults_of_clocks as clocks
from ..cluster import faults_of_disks as disks
from ..cluster import faults_of_networks as of_any_cluster
from ..cluster.cluster import WORKLOADS
from . import faults_of_machines as machines
from . import faults_of_networks as networks
from .world import SetCluster, SetPlan

WITHIN_S = 6.0
"""In which faults begin."""

FAULTS: dict[str, Callable[[SetCluster, Random], Awaitable[bool]]] = {
    "kill": machines.kill,
    "kill of two": machines.kill_both,
    "long death": machines.long_death,
    "power loss": machines.power_loss,
    "crash in recovery": machines.crash_in_recovery,
    "death in a change of role": machines.death_in_change,
    "SIGTERM": machines.clean_stop,
    "all restarted": machines.all_restarted,
    "SIGSTOP": machines.stand_still,
    "elect": machines.elect,
    "ten elections": machines.ten_elections,
    "{master, clients} | {slaves, controllers}": networks.master_with_clients,
    "{master, controllers} | {slaves}": networks.master_with_controllers,
    "partition two-way": of_any_cluster.partition_two_way,
    "partition one-way": of_any_cluster.partition_one_way,
    "partition HA only": of_any_cluster.partition_of_log,
    "partition from name servers": of_any_cluster.partition_from_namesrvs,
    "controllers' answers lost": networks.answers_lost,
    "two leaders": networks.two_leaders,
    "growth unanswered": networks.growth_unanswered,
    "no quorum": networks.no_quorum,
    "slow state": networks.slow_state,
    "answers of the state lost": networks.state_answers_lost,
    "controller's disk": networks.controller_disk,
    "delay": of_any_cluster.delay,
    "reset": of_any_cluster.reset_mid_frame,
    "half-open": of_any_cluster.half_open,
    "one-byte segments": of_any_cluster.one_byte_segments,
    "reorder": of_any_cluster.reorder,
    "slow fsync": disks.slow_fsync,
    "full disk": disks.full_disk,
    "fsync error": disks.fsync_error,
    "clocks jump": clocks.clocks_jump,
    "clock set between runs": clocks.clock_set_between_runs,
}


def plan_of(seed: int) -> SetPlan:
    """What a seed stands for; first faults and shapes take turns, the rest is chance."""
    random = Random(f"{seed} plan")
    names = list(FAULTS)
    faults = [names[seed % len(names)]]
    faults += random.choices(names, k=random.choice((0, 1, 1, 2, 2, 3, 4)))
    random.shuffle(faults)
    return SetPlan(
        brokers=2 + seed % 2,
        controllers=(1, 3)[seed // len(names) % 2],
        all_ack=random.random() < 0.8,
        is_sync_flush=random.random() < 0.5,
        workload_name=random.choice(list(WORKLOADS)),
        faults=faults,
        sends=random.randint(6, 14),
        pause_s=random.choice((0.8, 1.6)),
    )


async def happen(cluster: SetCluster) -> None:
    """Have the faults of the plan happen."""
    random = cluster.random("faults")
    starts = sorted(round(random.random() * WITHIN_S, 2) for _ in cluster.plan.faults)
    begin_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number, (name, start_s) in enumerate(zip(cluster.plan.faults, starts, strict=True)):
            nursery.start_soon(_happen, cluster, name, number, begin_s + start_s)


async def _happen(cluster: SetCluster, name: str, number: int, start_s: float) -> None:
    await trio.sleep_until(start_s)
    if await FAULTS[name](cluster, cluster.random(f"fault {number} {name}")):
        cluster.hits[name] += 1
    else:
        cluster.note(f"no {name}: there is nothing that it could meet")
