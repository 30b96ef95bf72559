"""Faults of the test plan that disks have."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from ..machine_disk import ROOT, WRITING
from .cluster_operator import fail_over, start_again
from .faults_of_machines import everyone, pick_broker, some_time
from .machines import FILE_SIZE, BrokerMachine

if TYPE_CHECKING:
    from .cluster import Cluster

READING = frozenset({"pread"})
STORE_PATHS = ("", "commitlog", "consumequeue", "index", "config", "checkpoint")


async def _put_right(cluster: Cluster, machine: BrokerMachine, random: Random) -> None:
    """The disk works again; a broker that gave up is started again by its operator."""
    machine.disk.heal()
    if machine.is_up and machine.store.read_only:
        cluster.note(f"{machine.name} is read-only: {machine.store.trouble}")
        if random.random() < 0.5:
            await machine.stop()
        else:
            await machine.finish(None, random)
        cluster.oracle.repeats += 1
    if not machine.is_up:
        await start_again(cluster, machine)


async def _fails_a_while(
    cluster: Cluster, random: Random, harm: Callable[[BrokerMachine], str]
) -> bool:
    """Have a broker's disk fail for a while.

    Args:
      harm: does it, and says what the broker is like then.
    """
    machine = pick_broker(cluster, random)
    async with machine.lock:
        if not machine.is_up:
            return False
        cluster.note(harm(machine))
        await some_time(random, 4)
        await _put_right(cluster, machine, random)
    return True


async def full_disk(cluster: Cluster, random: Random) -> bool:
    """ENOSPC, and room again a while later."""

    def harm(machine: BrokerMachine) -> str:
        machine.disk.fill_up()
        return f"{machine.name}'s disk is full"

    return await _fails_a_while(cluster, random, harm)


async def eio_on_write(cluster: Cluster, random: Random) -> bool:
    """One write fails, maybe after a part of it."""

    def harm(machine: BrokerMachine) -> str:
        part = random.choice(STORE_PATHS)
        share = random.choice((0.0, 0.5))
        machine.disk.fail_once(errno.EIO, frozenset({"pwrite"}), part, share)
        return f"a write to {part or 'anything'} of {machine.name} fails"

    return await _fails_a_while(cluster, random, harm)


async def eio_on_read(cluster: Cluster, random: Random) -> bool:
    """Reads fail for a while."""

    def harm(machine: BrokerMachine) -> str:
        part = random.choice(STORE_PATHS)
        machine.disk.fail_all(errno.EIO, READING, part)
        return f"reads of {part or 'anything'} of {machine.name} fail"

    return await _fails_a_while(cluster, random, harm)


async def fsync_error(cluster: Cluster, random: Random) -> bool:
    """fsync fails once, or from now on."""

    def harm(machine: BrokerMachine) -> str:
        part = random.choice(("", "commitlog", "commitlog", "consumequeue"))
        syncs = frozenset({"sync", "sync_folder"})
        is_once = random.random() < 0.5
        if is_once:
            machine.disk.fail_once(errno.EIO, syncs, part, 0.0)
        else:
            machine.disk.fail_all(errno.EIO, syncs, part)
        often = "once" if is_once else "for ever"
        return f"fsync of {part or 'anything'} of {machine.name} fails {often}"

    return await _fails_a_while(cluster, random, harm)


async def read_only_remount(cluster: Cluster, random: Random) -> bool:
    """Nothing can be written any more."""

    def harm(machine: BrokerMachine) -> str:
        machine.disk.fail_all(errno.EROFS, WRITING)
        return f"{machine.name}'s disk is read-only"

    return await _fails_a_while(cluster, random, harm)


async def slow_fsync(cluster: Cluster, random: Random) -> bool:
    """Each fsync takes 5 s."""
    machine = pick_broker(cluster, random)
    disk = machine.disk
    if not machine.is_up:
        return False
    cluster.note(f"fsync of {machine.name} takes 5 s")
    disk.sync_s = 5.0
    await some_time(random, 8)
    disk.sync_s = 0.0
    return True


# ---- damage ------------------------------------------------------------------------------


def _victim(cluster: Cluster, random: Random) -> BrokerMachine | None:
    """Whose bytes may change: a slave's, or where slaves have all that is promised, a master's."""
    may_be_master = cluster.plan.is_sync_master and all(each.is_up for each in cluster.slaves)
    brokers = cluster.brokers if may_be_master else cluster.slaves
    up = [each for each in brokers if each.is_up and each.store.max_physical_offset > 0]
    return random.choice(up) if up else None


async def _kill(cluster: Cluster, machine: BrokerMachine, random: Random) -> int:
    """Kill it between two writes; where its log ends."""
    end = machine.store.max_physical_offset
    await machine.finish(None, random)
    cluster.oracle.repeats += 1
    return end


async def _replace(cluster: Cluster, machine: BrokerMachine) -> None:
    """Damage is known: the machine's store is emptied; a master gives way first."""
    if machine.is_up:
        await machine.stop()
    if machine is cluster.master:
        await fail_over(cluster, lost_disk=True)
    else:
        machine.wipe()
        cluster.wounds += 1
        await start_again(cluster, machine)


async def bit_flip(cluster: Cluster, random: Random) -> bool:
    """A bit of a file changes while the broker is down. Nothing wrong is shown, whatever else."""
    async with everyone(cluster):
        machine = _victim(cluster, random)
        if machine is None:
            return False
        end = await _kill(cluster, machine, random)
        names = machine.disk.system.names
        files = sorted(path for path, inode in names.items() if inode.data.strip(b"\0"))
        path = random.choice(files)
        content = names[path].data
        used = len(content.rstrip(b"\0"))
        if "/commitlog/" in path:
            used = min(max(end - int(path.rpartition("/")[2]), 1), len(content))
        position = random.randrange(used)
        flipped = bytes((content[position] ^ 1 << random.randrange(8),))
        machine.disk.damage(path, position, flipped)
        cluster.wounds += 1
        cluster.note(f"a bit of {machine.name} flips: {path} at {position}")
        if machine is cluster.master:
            # A record at the end that is damaged looks like one that a crash tore: the master goes
            # on where it begins. Its slaves refuse to follow, and it does not answer SEND_OK.
            cluster.oracle.losers.add(machine.address)
        await start_again(cluster, machine)
        await some_time(random, 4)
        await _replace(cluster, machine)
        cluster.oracle.losers.discard(machine.address)
    return True


async def tail_garbage(cluster: Cluster, random: Random) -> bool:
    """Behind the end of the log lies what never belonged to it."""
    machine = pick_broker(cluster, random)
    async with machine.lock:
        if not machine.is_up:
            return False
        end = await _kill(cluster, machine, random)
        size = random.randint(1, 200)
        garbage = random.randbytes(size)
        if end > 200 and random.random() < 0.5:  # an older record, which belongs elsewhere
            garbage = machine.log_bytes(max(end - end % FILE_SIZE, end - 400), size, durable=False)
        base = end - end % FILE_SIZE
        path = f"{ROOT}/commitlog/{base:020d}"
        if path in machine.disk.system.names:
            machine.disk.damage(path, end - base, garbage)
            cluster.note(f"{len(garbage)} bytes of garbage lie behind {end} of {machine.name}")
        await start_again(cluster, machine)
    return True


async def zeroed_tail(cluster: Cluster, random: Random) -> bool:
    """The last bytes of the log are zeros: a device has lost what it had."""
    async with everyone(cluster):
        machine = _victim(cluster, random)
        if machine is None:
            return False
        end = await _kill(cluster, machine, random)
        base = end - end % FILE_SIZE
        size = min(random.choice((1, 8, 100, 600)), end - base)
        path = f"{ROOT}/commitlog/{base:020d}"
        if not size or path not in machine.disk.system.names:
            await start_again(cluster, machine)
            return False
        machine.disk.damage(path, end - base - size, bytes(size))
        cluster.wounds += 1
        cluster.note(f"the last {size} bytes of {machine.name}'s log, to {end}, are zeros")
        # What its checkpoint vouches for is not read again at a start: a slave goes on behind these
        # zeros until it compares its log with its master's, and is refused at the first of them.
        cluster.may_part = True
        if machine is cluster.master:
            await fail_over(cluster, lost_disk=False)
        else:
            await start_again(cluster, machine)
        if not machine.is_up or machine.store.read_only:
            await _replace(cluster, machine)  # it names what is gone, and asks for a copy
    return True
