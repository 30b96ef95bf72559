"""Commands of a test to running servers: their time, their faults, their disk.

`Servers` uses it for brokers that are embedded in a program, `trocket up --test-clock` for a
process whose control port a test in any language uses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ..broker.controller import BrokerController
from ..namesrv.controller import NamesrvController
from ..remoting.server import RemotingServer
from ..remoting.turn import Turn
from ..store.message_store import MessageStore
from ..store.retention.disk_space import decide, measure
from ..store.retention.retention_rules import HOUR_MS, delete_hours
from ..store.store_state import StoreEvent
from .clock import TravelClock
from .disks import EmbeddedDisk, LogSyncs
from .errors import EmbeddedBrokerError
from .faults import Faults
from .faulty_processors import FaultyProcessors

if TYPE_CHECKING:
    from .recording.replay import Replayed

IDLE_ROUNDS: Final = 200
"""Rounds in which nothing is stored, after which work that is due cannot be done now."""

ROUND_S: Final = 0.005
"""Seconds between two rounds on a disk with threads: a thread saves a table in some milliseconds,
and a slow disk has a second."""


DAY_MS: Final = 24 * HOUR_MS


class DiskFacts(NamedTuple):
    """How a disk behaves.

    Attributes:
      is_full: nothing is free.
      fails_fsync: every fsync of the commit log fails.
      slow_ms: each fsync of the commit log takes so long, in milliseconds.
    """

    is_full: bool
    fails_fsync: bool
    slow_ms: int


class _Running(NamedTuple):
    """A server, and the nursery that runs as long."""

    server: RemotingServer
    nursery: trio.Nursery


class Driver:
    """The time, the faults, the disk and the recordings of a name server and a broker.

    All methods must be called in the servers' loop.

    Args:
      clock, disk: of both servers.
      turn: of both servers.
      run: calls a function in that loop from the thread in which `faults` is used.

    Attributes:
      disk: as above; replaced after a crash.
      faults: applied to the requests of both.
      tape: records what clients and both say, on the connections that it taps.
    """

    def __init__(
        self,
        clock: TravelClock,
        disk: EmbeddedDisk,
        turn: Turn,
        run: Callable[[Callable[[], None]], None],
    ) -> None:
        from .recording.tape import Tape  # a program that imports a broker need not wait for it

        self.clock = clock
        self.disk = disk
        self.tape = Tape(clock.wall_ms)
        self._log_syncs = LogSyncs()
        self._broker: BrokerController | None = None
        self._namesrv_server: _Running | None = None
        self._broker_server: _Running | None = None
        self._broker_processors = FaultyProcessors(turn)
        self._namesrv_processors = FaultyProcessors(turn)
        self.faults = Faults(self._broker_processors, self._namesrv_processors, run, self.set_disk)

    @property
    def broker_processors(self) -> FaultyProcessors:
        """The broker's processors, with those without faults."""
        return self._broker_processors

    def drive_namesrv(self, namesrv: NamesrvController, nursery: trio.Nursery) -> None:
        """Have faults apply to a name server that runs in this nursery."""
        self._namesrv_server = _Running(namesrv.server, nursery)
        self._namesrv_processors.install(namesrv.server.processors, nursery)

    def drive_broker(self, broker: BrokerController, nursery: trio.Nursery) -> None:
        """Have time, faults and disk apply to a broker that runs in this nursery."""
        assert broker.server is not None
        self._broker = broker
        self._broker_server = _Running(broker.server, nursery)
        self._broker_processors.install(broker.server.processors, nursery)

    def broker_ended(self) -> None:
        """Command no broker until `drive_broker` is called again."""
        self._broker = self._broker_server = self._namesrv_server = None

    def hurry(self) -> None:
        """Have no fsync take long, so that the broker can end."""
        self._log_syncs.set_slow(0)

    # ---- time ----------------------------------------------------------------------------

    async def advance(self, milliseconds: int) -> None:
        """Advance the wall clock by a number >= 0, and wait until all that is due is done.

        Raises: EmbeddedBrokerError: no broker is running.
        """
        if self._broker is None:
            raise EmbeddedBrokerError("the broker is not running")
        before_ms = self.clock.wall_ms()
        self.clock.add(milliseconds)
        await self._do_due_work(self._broker)
        if self._is_time_to_delete(self._broker, before_ms):
            await _delete_expired(self._broker.store)

    def _is_time_to_delete(self, broker: BrokerController, before_ms: int) -> bool:
        """Whether an hour of `deleteWhen` has come since a moment."""
        clock, now_ms = self.clock, self.clock.wall_ms()
        hours = delete_hours(broker.store.config.delete_when)
        passed = range(before_ms, min(now_ms, before_ms + DAY_MS), HOUR_MS)
        names = [clock.local_time_name(each) for each in (*passed, now_ms)]
        return any(int(name[8:10]) in hours for name in names)

    async def _do_due_work(self, broker: BrokerController) -> None:
        """Wait until nothing is due, or what is due cannot be done: on a full disk, for instance.

        One piece of work leads to another. A popped message that comes back, for instance, was
        waited for by a timer message, whose delivery is read from the log.
        """
        store = broker.store
        idle_rounds = 0
        while idle_rounds < IDLE_ROUNDS:
            end = store.max_physical_offset
            broker.wall_clock_set()
            await self._wait_until_blocked(broker)
            if not broker.owes or store.read_only or broker.sends_refused:
                return
            idle_rounds = 0 if store.max_physical_offset > end else idle_rounds + 1
            if self.disk.threaded:
                # It may wait for a thread that saves a table, such as that of a new retry topic.
                await trio.sleep(ROUND_S)

    async def _wait_until_blocked(self, broker: BrokerController) -> None:
        """Wait until all tasks wait for something, and delivered messages can be consumed."""
        from trio.testing import wait_all_tasks_blocked

        store = broker.store
        await wait_all_tasks_blocked()
        while store.dispatched_offset < store.max_physical_offset and not store.read_only:
            await store.flusher.flush_in_thread(threaded=self.disk.threaded)
            await wait_all_tasks_blocked()

    # ---- disk ----------------------------------------------------------------------------

    @property
    def disk_state(self) -> DiskFacts:
        """How the disk behaves."""
        return DiskFacts(self.disk.is_full, self._log_syncs.fails, self._log_syncs.slow_ms)

    def set_disk(
        self, is_full: bool | None, fails_fsync: bool | None, slow_ms: int | None = None
    ) -> None:
        """Change the behaviour of the disk; None: no change. See `DiskFacts`.

        Raises: EmbeddedBrokerError: the disk is in memory, and cannot be slow.
        """
        disk, syncs = self.disk, self._log_syncs
        if slow_ms and not disk.threaded:
            raise EmbeddedBrokerError(
                "a disk in memory has no fsync that takes long: start the broker with a folder"
            )
        if slow_ms is not None:
            syncs.set_slow(slow_ms)
            if self._broker is not None and disk.threaded:
                self._broker.store.flusher.may_wait_in_loop = not slow_ms
        if fails_fsync is not None:
            syncs.fails = fails_fsync
        disk.fault = syncs if syncs.fails or syncs.slow_ms else None
        if is_full is None:
            return
        disk.is_full = is_full
        if self._broker is None:  # it finds that when it starts
            return
        store = self._broker.store
        if store.read_only:
            return
        reason = decide(measure(disk, store.config), store.config, next_file_bytes=0).refuse
        if reason:
            store.writer.enter(StoreEvent.DISK_FULL, reason)
        else:
            store.writer.enter(StoreEvent.DISK_HAS_ROOM)

    # ---- recordings ----------------------------------------------------------------------

    async def replay(self, recording: str) -> list[Replayed]:
        """Send the requests of a recording again, each to the server that serves its code.

        Raises: RecordingError: it is none. EmbeddedBrokerError: the servers are not running.
        """
        from .recording.replay import read_recording, replay

        steps = read_recording(recording)
        if self._broker_server is None or self._namesrv_server is None:
            raise EmbeddedBrokerError("the broker is not running")
        servers = self._broker_server, self._namesrv_server

        def connect(code: int) -> tuple[object, Callable[[], trio.abc.Stream]]:
            broker, namesrv = servers
            known = self._broker_processors.plain, self._namesrv_processors.plain
            found = namesrv if code in known[1] and code not in known[0] else broker
            return found.server, partial(_connected, found)

        return await replay(steps, connect)


def _connected(running: _Running) -> trio.abc.Stream:
    """The client's end of a new connection in memory."""
    from trio.testing import memory_stream_pair

    near, far = memory_stream_pair()
    running.nursery.start_soon(running.server.serve_stream, far)
    return near


async def _delete_expired(store: MessageStore) -> None:
    """Delete the log files that are expired now."""
    if store.read_only or len(store.log.files) < 2:  # the newest file stays
        return
    # Only what the checkpoint covers is deleted.
    await store.activity.checkpoints.complete()
    start = -1
    while start < store.log.min_offset:
        start = store.log.min_offset
        await store.activity.cleaning.finish_pass()
