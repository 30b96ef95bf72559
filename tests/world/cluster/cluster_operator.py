"""The operator: starts machines, fails over, and heals the cluster as docs/ha.md says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import trio

from trocket.disk.position import Position
from trocket.store.config import BrokerRole

from ..broken import Broken
from .machines import BrokerMachine

if TYPE_CHECKING:
    from .cluster import Cluster
    from .oracle import MayLose, Promise, Seen

HEALED_WITHIN_S = 90.0
LOOK_S = 1.0

REFUSALS = re.compile(
    r"this log ends at (?P<end>\d+), the master's (?P<side>begins|ends) at (?P<limit>\d+)"
    r"|this log differs from the master's from offset (?P<parts>\d+) on"
)
"""What a slave says when it is up to the operator."""


async def start_all(cluster: Cluster) -> None:
    """Start everything for the first time."""
    from .cluster import TOPOLOGIES

    for namesrv in cluster.namesrvs:
        await namesrv.start()
    late = 1 if TOPOLOGIES[cluster.plan.topology].get("late") else 0
    for broker in cluster.brokers[: len(cluster.brokers) - late]:
        await broker.start()
    await trio.sleep(0.05)


async def start_again(cluster: Cluster, machine: BrokerMachine) -> bool:
    """Start a broker that was ended; False: it says that it cannot."""
    problem = await machine.try_start()
    cluster.note(f"{machine.name} starts as {machine.role.name}: {problem or 'well'}")
    if not problem and machine.store.read_only:
        cluster.note(f"{machine.name} is read-only: {machine.store.trouble}")
    return not problem


def may_lose_local(cluster: Cluster) -> MayLose:
    """After a failover: what a SYNC_MASTER did not answer with success was on it only, and so may
    be what consumers read there before it was anywhere else."""

    def may_lose(each: Promise | Seen) -> bool:
        from .oracle import Promise

        return not (isinstance(each, Promise) and each.is_full)

    return may_lose


async def fail_over(cluster: Cluster, *, lost_disk: bool) -> None:
    """Make the slave with the longest log the master; the old master, which is dead, a slave.

    The caller holds all brokers' locks.

    Args:
      lost_disk: the old master comes back empty.
    """
    old = cluster.master
    assert not old.is_up
    slaves = cluster.slaves
    for slave in slaves:
        if not slave.is_up:
            await start_again(cluster, slave)
    candidates = [slave for slave in slaves if slave.is_up]
    new = max(candidates, key=lambda slave: slave.store.max_physical_offset)
    cluster.note(f"{new.name} is made the master instead of {old.name}")
    await new.stop()
    old.role, old.broker_id = BrokerRole.SLAVE, new.broker_id
    new.role, new.broker_id = cluster.master_role, 0
    cluster.master = new
    cluster.replaced.add(old.address)
    cluster.replaced.discard(new.address)
    cluster.wounds += 1
    if not await start_again(cluster, new):
        raise Broken("N1", f"{new.name} does not start as the master")
    queues = cluster.queues_of(new.store)
    cluster.oracle.repeats += 1
    lost = cluster.oracle.lose(queues, may_lose_local(cluster))
    cluster.note(f"{lost} messages are lost that were nowhere else")
    if lost_disk:
        old.wipe()
    else:
        # It may come back with messages that no other has, and shows that until it is emptied.
        cluster.lead_astray()
    await start_again(cluster, old)


async def heal(cluster: Cluster) -> None:
    """Have no fault any more, and every broker where it should be."""
    cluster.note("everything heals")
    cluster.network.heal()
    for machine in cluster.machines:
        machine.process.go_on()
        machine.clock.wrong_ms = 0
    for namesrv in cluster.namesrvs:
        if not namesrv.is_up:
            await namesrv.start()
    for broker in [cluster.master, *cluster.slaves]:
        await mend(cluster, broker)
    cluster.are_slaves_astray = False
    with trio.move_on_after(HEALED_WITHIN_S) as scope:
        while True:
            if all([await look_at(cluster, slave) for slave in cluster.slaves]):
                break
            await trio.sleep(LOOK_S)
    if scope.cancelled_caught:
        states = {slave.name: slave.following for slave in cluster.slaves}
        raise Broken("HA", f"not healed within {HEALED_WITHIN_S:g} s: {states}")


async def mend(cluster: Cluster, machine: BrokerMachine) -> None:
    """Have a broker run, and take what comes."""
    machine.disk.heal()
    # An index whose file failed is off until the next start, and its log says so.
    if machine.is_up and (machine.store.read_only or machine.store.index.is_broken):
        await machine.stop()
    if not machine.is_up and not await start_again(cluster, machine):
        raise Broken("N1", f"{machine.name} does not start")
    if machine.store.read_only:
        raise Broken("N1", f"{machine.name} is read-only: {machine.store.trouble}")


def has_all(cluster: Cluster, slave: BrokerMachine) -> bool:
    """Whether a slave follows its master, has its log and shows it. Only one of the two may have
    learned that their connection is broken."""
    following, end = slave.following, cluster.master.store.max_physical_offset
    return (
        following.is_connected
        and cluster.master.is_followed_by(slave)
        and following.log_end == slave.store.dispatched_offset == end
    )


async def look_at(cluster: Cluster, slave: BrokerMachine) -> bool:
    """Whether a slave has its master's log; one that is rightly refused is emptied."""
    following = slave.following
    if not following.master_address.startswith(f"{cluster.master.host}:"):
        return False  # it has not heard yet that its master was replaced
    if following.is_connected:
        return has_all(cluster, slave)
    refusal = REFUSALS.search(following.problem)
    if refusal is not None:
        judge_refusal(cluster, slave, refusal)
        cluster.note(f"{slave.name} is emptied: {following.problem}")
        await slave.stop()
        slave.wipe()
        await start_again(cluster, slave)
    return False


def judge_refusal(cluster: Cluster, slave: BrokerMachine, refusal: re.Match[str]) -> None:
    """Whether the reason that a slave gives is the case; the logs are looked at."""
    master = cluster.master
    end = slave.store.max_physical_offset
    if refusal["end"]:
        limit = int(refusal["limit"])
        is_so = end < limit if refusal["side"] == "begins" else end > limit
        if refusal["side"] == "begins":
            is_so = is_so and master.store.min_physical_offset >= limit
    else:
        parts = int(refusal["parts"])
        start = slave.store.min_physical_offset
        is_so = differs_from(slave, master, start, end) == parts
    if refusal["side"] != "begins" and not cluster.may_part:
        raise Broken("HA", f"{slave.name} has what {master.name} has not, and nothing has happened")
    if not is_so:
        raise Broken("HA", f"{slave.name}, with a log to {end}, is refused: {refusal[0]}")


def differs_from(one: BrokerMachine, other: BrokerMachine, start: int, end: int) -> int | None:
    """Physical offset of the first byte in which two logs differ; None: there is none."""
    ours = read_log(one, start, end)
    theirs = read_log(other, start, end)
    for offset, (a, b) in enumerate(zip(ours, theirs, strict=False), start=start):
        if a != b:
            return offset
    return None if len(ours) == len(theirs) else start + min(len(ours), len(theirs))


def read_log(machine: BrokerMachine, start: int, end: int) -> bytes:
    """Bytes of a log, as far as there are."""
    log = machine.store.log
    content = bytearray()
    while start < end:
        base = start - start % log.file_size
        size = min(end - start, base + log.file_size - start)
        if base not in log.files:
            break
        content += log.files[base].pread(size, Position(start - base))
        start += size
    return bytes(content)
