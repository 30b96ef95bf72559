"""Masters and slaves on disks in memory, wired by a network that can do them harm."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from trocket.disk.memory_disk import MemoryDisk
from trocket.store.config import BrokerRole
from trocket.store.ha.master import HaMaster
from trocket.store.ha.member import SetMember
from trocket.store.ha.slave import HaSlave
from trocket.store.message_store import MessageStore
from trocket.store.services import run_services

from ...kit import TrioClock
from ..support import open_store, put

ADDRESS = "192.0.2.1:10912"


class Network:
    """Connects slaves to the master that stands behind it now.

    Attributes:
      master: None: no listener.
      piece_size: bytes that arrive at a time.
      delay_s: before each of them.
      cut_after: bytes from the master after which the connection breaks; None: never.
      is_half_open: nothing arrives any more, without an error.
      connects: when there was a connection, or an attempt.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self.master: HaMaster | None = None
        self.piece_size = 1 << 20
        self.delay_s = 0.0
        self.cut_after: int | None = None
        self.is_half_open = False
        self.connects: list[float] = []
        self._nursery = nursery
        self._scopes: list[trio.CancelScope] = []

    async def connect(self, address: str) -> trio.abc.Stream:
        """One end of a connection; the master serves the other."""
        self.connects.append(trio.current_time())
        if self.master is None:
            raise ConnectionRefusedError("no listener")
        slave_end, near = trio.testing.memory_stream_pair()
        far, master_end = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._run, near, far)
        self._nursery.start_soon(self.master.serve_stream, master_end, address)
        return slave_end

    def cut(self) -> None:
        """Break all connections."""
        for scope in self._scopes:
            scope.cancel()
        self._scopes.clear()

    async def _run(self, near: trio.abc.Stream, far: trio.abc.Stream) -> None:
        with trio.CancelScope() as scope:
            self._scopes.append(scope)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on, near, far, False)
                nursery.start_soon(self._pass_on, far, near, True)
        for stream in (near, far):
            await trio.aclose_forcefully(stream)

    async def _pass_on(
        self, source: trio.abc.Stream, target: trio.abc.Stream, from_master: bool
    ) -> None:
        try:
            while data := await source.receive_some(self.piece_size):
                if self.delay_s:
                    await trio.sleep(self.delay_s)
                if from_master and self.cut_after is not None:
                    data, self.cut_after = data[: self.cut_after], self.cut_after - len(data)
                if data and not self.is_half_open:
                    await target.send_all(data)
                if from_master and self.cut_after is not None and self.cut_after <= 0:
                    self.cut_after = None
                    break
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        if not self.is_half_open:
            await trio.aclose_forcefully(source)
            await trio.aclose_forcefully(target)


class Node:
    """A store and its replication service, which may die and come back.

    Args:
      nursery: they run there.
      network: its slaves or its master are behind it.
      disk: its own by default.
      member: its place in a set, in controller mode.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        network: Network,
        role: BrokerRole,
        disk: Any = None,
        member: SetMember | None = None,
        **changes: Any,
    ) -> None:
        self.disk = disk or MemoryDisk(journalled=True)
        self.member = member
        self.role = role
        self.changes = changes
        self.store: MessageStore
        self.ha: Any = None
        self._nursery = nursery
        self._network = network
        self._scope = trio.CancelScope()

    @property
    def is_master(self) -> bool:
        return self.role is not BrokerRole.SLAVE

    async def start(self) -> MessageStore:
        """Open the store and run what belongs to it."""
        changes: dict[str, Any] = {"broker_role": self.role, **self.changes}
        in_sync = self.member.in_sync if self.member is not None else None
        self.store = open_store(self.disk, clock=TrioClock(), in_sync=in_sync, **changes)
        await self._nursery.start(self._run)
        return self.store

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(run_services, self.store)
                if self.is_master:
                    self.ha = self._network.master = HaMaster(self.store, self.member)
                    await nursery.start(self.ha.serve)
                else:
                    self.ha = HaSlave(self.store, connect=self._network.connect, member=self.member)
                    self.ha.set_master(ADDRESS)
                    nursery.start_soon(self.ha.run)
                task_status.started()
                await trio.sleep_forever()

    async def _end_tasks(self) -> None:
        self._scope.cancel()
        if self.is_master:
            self._network.master = None
            self._network.cut()
        await trio.testing.wait_all_tasks_blocked()

    async def stop(self) -> None:
        """End the process in good order."""
        await self._end_tasks()
        self.store.close()

    async def kill(self) -> None:
        """As `kill -9`."""
        self.disk.process_death()
        await self._end_tasks()

    async def lose_power(self, kept_writes: int = 0) -> None:
        """Lose what was not synced."""
        self.disk.power_loss(kept_writes)
        await self._end_tasks()


@asynccontextmanager
async def group(
    *,
    role: BrokerRole = BrokerRole.ASYNC_MASTER,
    slave_count: int = 1,
    master_changes: dict[str, Any] | None = None,
    **changes: Any,
) -> AsyncIterator[tuple[Node, Any, Network]]:
    """A master, a slave and the network between them; with more slaves, a list of them.

    Args:
      master_changes: of the master's configuration only.
      changes: of both.
    """
    async with trio.open_nursery() as nursery:
        network = Network(nursery)
        master = Node(nursery, network, role, **changes, **(master_changes or {}))
        slaves = [Node(nursery, network, BrokerRole.SLAVE, **changes) for _ in range(slave_count)]
        await master.start()
        for slave in slaves:
            await slave.start()
        yield master, slaves[0] if slave_count == 1 else slaves, network
        nursery.cancel_scope.cancel()


async def caught_up(master: MessageStore, slave: MessageStore, within_s: float = 60) -> None:
    """Wait until a slave has all of its master's log, on the device under SYNC_FLUSH."""
    with trio.fail_after(within_s):
        while slave.durability.sendable_offset < master.max_physical_offset:
            await slave.activity.wait_for_more()


def log_bytes(store: MessageStore) -> dict[int, bytes]:
    """The log's files by base, those that hold nothing left out."""
    end = store.max_physical_offset
    return {base: bytes(store.log.view(base) or b"") for base in store.log.files if base < end}


def fill(store: MessageStore, count: int, size: int = 1000, *, topic: str = "T") -> list[bytes]:
    """Put and commit `count` messages; returns their bodies."""
    sent = []
    for number in range(count):
        body = b"%s %d " % (topic.encode(), number) + bytes(size)
        properties = b"KEYS\x01k%d\x02TAGS\x01A\x02" % number
        refusal, _, _ = put(
            store, body, topic=topic, queue_id=number % 3, properties=properties, tags_code=65
        )
        assert refusal is None, refusal
        visible = store.commit()
        store.on_visible(visible)
        sent.append(body)
    return sent
