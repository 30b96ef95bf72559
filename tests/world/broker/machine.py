"""A real broker on a disk in memory, in a time that the test moves; it may stop, die and return.

Nothing is mocked but time, files and sockets, which are the project's own seams: `BrokerController`
runs on a `MachineDisk`, and serves connections that are two buffers. Time stands still while there
is something to do (`settle`), and jumps from one moment of interest to the next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import trio
import trio.testing

from trocket.broker.controller import BrokerController
from trocket.broker.settings.config import BrokerConfig
from trocket.remoting.channel import Buffer
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.session import Answered, Event, Session
from trocket.remoting.transport import SocketTransport
from trocket.remoting.turn import Turn
from trocket.store.config import FlushDiskType, MessageStoreConfig

from ...trio_order import run_by
from ..clock import START_MS, WorldClock
from ..machine_disk import ROOT, MachineDisk

FOR_EVER_S = 10_000_000

OnAnswer = Callable[[RemotingCommand], None]


def _nothing() -> None:
    """What a dead broker does."""


class Link(SocketTransport):
    """One connection, both its ends: a broker's transport without a socket.

    The broker reads and writes it as it does a socket. A peer's bytes wait in `to_broker` for the
    next turn; what the broker sends is heard at once if it is alive, and handed out by `hear`.

    Args:
      machine: whose broker this is.
      on_request: called with the broker's own requests.

    Attributes:
      closed: by either side.
      session: the peer's; its waiters are called with the answers.
    """

    __slots__ = (
        "_heard",
        "_machine",
        "_on_readable",
        "_on_request",
        "closed",
        "session",
        "to_broker",
    )

    def __init__(
        self, machine: Machine, address: str, on_request: Callable[[RemotingCommand], None]
    ) -> None:
        self.remote_address = self.local_address = address
        self.closed = False
        self.to_broker = bytearray()
        self.session: Session[OnAnswer] = Session("the broker")
        self._heard: list[Event[OnAnswer]] = []
        self._on_readable: Callable[[], None] | None = None
        self._on_request = on_request
        self._machine = machine

    # ---- the broker's end ----------------------------------------------------------------

    def start_reading(self, on_readable: Callable[[], None]) -> None:
        self._on_readable = on_readable

    def stop_reading(self) -> None:
        self._on_readable = None

    def receive_nowait(self) -> bytes:
        data = bytes(self.to_broker)
        self.to_broker.clear()
        return data

    def send_nowait(self, buffers: list[Buffer]) -> list[Buffer]:
        if not self._machine.is_dead and not self.closed:
            for buffer in buffers:
                self._heard += self.session.receive_data(bytes(buffer))
        return []

    def abort(self) -> None:
        self.closed = True

    # ---- the peer's end ------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether a client has something to read."""
        return bool(self._heard) or (bool(self.to_broker) and self._on_readable is not None)

    def read_by_broker(self) -> None:
        """Have the broker read, in a turn."""
        if self.to_broker and self._on_readable is not None:
            self._on_readable()

    def hear(self) -> None:
        """Hand out what the broker sent."""
        heard, self._heard = self._heard, []
        for event in heard:
            if isinstance(event, Answered):
                event.waiter(event.answer)
            elif isinstance(event, RemotingCommand):
                self._on_request(event)

    def hang_up(self) -> None:
        """The peer closes."""
        self.closed = True
        self._heard.clear()
        if self._on_readable is not None:
            self.to_broker.clear()
            self._on_readable()

    def forget(self) -> None:
        """Forget who waits for answers: no garbage collection finds cycles through a session, and
        each program of a search would leave its broker in memory."""
        self.closed = True
        self.session = Session("the broker")
        self._heard.clear()


class Machine:
    """One broker after the other on one disk.

    Args:
      sync: SYNC_FLUSH.
      check_max: transactionCheckMax.
      seed: of what the broker leaves to chance.
      merges: enablePopBufferMerge.
      retry_v2: enableRetryTopicV2.
    """

    def __init__(
        self,
        *,
        sync: bool,
        check_max: int,
        seed: int,
        merges: bool = True,
        retry_v2: bool = False,
    ) -> None:
        self.clock = WorldClock()
        self.disk = MachineDisk.empty()
        self.quiet_ms = START_MS
        self._sync = sync
        self._check_max = check_max
        self._merges = merges
        self._retry_v2 = retry_v2
        self._random = Random(seed)
        self._turn = Turn()
        self._links: list[Link] = []
        self._found: MachineDisk | None = None
        self._scope = trio.CancelScope()
        self._stopped = trio.Event()
        self.controller: BrokerController
        self.connections: trio.Nursery
        self.nursery: trio.Nursery

    @property
    def now_ms(self) -> int:
        """What time it is."""
        return self.clock.now_ms

    @property
    def is_dead(self) -> bool:
        """Whether the broker has been killed, and not been started again."""
        return self.disk.left is not None

    def exchange(self) -> None:
        """The broker reads all that its peers sent, in one turn; they hear its answers."""
        turn = self._turn
        while any(link.has_news for link in self._links):
            turn.active = True
            try:
                for link in self._links:
                    link.read_by_broker()
            finally:
                turn.end()
            for link in self._links:
                link.hear()

    async def settle(self) -> None:
        """Let everybody do what there is to do now."""
        await trio.testing.wait_all_tasks_blocked()
        while any(link.has_news for link in self._links):
            self.exchange()
            await trio.testing.wait_all_tasks_blocked()
        for link in self._links:
            if link.closed:
                link.forget()
        self._links = [link for link in self._links if not link.closed]
        if not self.is_dead:
            self.quiet_ms = self.now_ms

    # ---- the broker's life ---------------------------------------------------------------

    def _new_controller(self) -> BrokerController:
        broker = BrokerConfig(
            broker_name="b",
            broker_ip1="127.0.0.1",
            broker_ip2="127.0.0.1",
            transaction_check_max=self._check_max,
            recall_message_enable=True,
            enable_pop_buffer_merge=self._merges,
            enable_retry_topic_v2=self._retry_v2,
            # Peers send no heartbeats while time jumps.
            server_channel_max_idle_time_seconds=FOR_EVER_S,
            channel_expired_timeout=FOR_EVER_S * 1000,
        )
        store = MessageStoreConfig(
            store_path_root_dir=ROOT,
            mapped_file_size_commit_log=16 * 1024,
            mapped_file_size_consume_queue=20 * 50,
            mapper_file_size_batch_consume_queue=46 * 50,
            max_hash_slot_num=50,
            max_index_num=200,
            # Clocks that jump by years delete and park nothing.
            file_reserved_time=24 * 365 * 100,
            flush_disk_type=FlushDiskType.SYNC_FLUSH if self._sync else FlushDiskType.ASYNC_FLUSH,
        )
        return BrokerController(
            broker,
            store,
            clock=self.clock,
            disk=self.disk,
            turn=self._turn,
            listeners=[],
            random=self._random,
        )

    async def start(self) -> None:
        """Start a broker on the disk."""
        if self._found is not None:
            self.disk, self._found = self._found, None
        self.disk.live_on()
        self._turn = Turn()
        self._scope, self._stopped = trio.CancelScope(), trio.Event()
        await self.nursery.start(self._live)
        await self.settle()

    async def _live(self, task_status: trio.TaskStatus[None]) -> None:
        self.controller = self._new_controller()
        with self._scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.controller.run)
                try:
                    async with trio.open_nursery() as self.connections:
                        task_status.started()
                        await trio.sleep_forever()
                finally:
                    nursery.cancel_scope.cancel()
        self._stopped.set()

    async def stop(self) -> None:
        """A clean stop."""
        self._scope.cancel()
        await self._stopped.wait()
        self.forget_links()

    def forget_links(self) -> None:
        """Close all connections, without a word to their peers."""
        for link in self._links:
            link.forget()
        self._links.clear()

    def die_after(self, writes: int) -> None:
        """Let the broker die before the n-th write from now."""
        if not self.is_dead:
            self.disk.die_after(writes)

    def die_now(self) -> None:
        """Let the broker be dead; `die` clears away."""
        self.disk.die()

    def live_on(self) -> None:
        """Forget a death that has not come yet."""
        if not self.is_dead:
            self.disk.live_on()

    async def die(self, *, kept_writes: int | None) -> None:
        """Kill the broker now, if it is not dead, and leave what a start finds.

        Args:
          kept_writes: None: kill -9. Else a power cut, which leaves this many of the unsynced
            operations.
        """
        self.die_now()
        self.controller._close = _nothing  # type: ignore[method-assign] # as a killed process
        await self.stop()
        if kept_writes is None:
            self._found = self.disk.after_kill()
        else:
            self._found = self.disk.after_power_cut(kept_writes)

    async def connect(self, on_request: Callable[[RemotingCommand], None], address: str) -> Link:
        """A new connection to the broker."""
        link = Link(self, address, on_request)
        assert self.controller.server is not None
        self.connections.start_soon(self.controller.server.serve_transport, link)
        self._links.append(link)
        await self.settle()
        return link


def run_in(machine: Machine, play: Callable[[], Awaitable[None]], seed: int) -> None:
    """Run `play` with a started broker; the machine ends with it.

    Args:
      seed: of the order in which trio runs tasks.
    """

    async def main() -> None:
        async with trio.open_nursery() as machine.nursery:
            await machine.start()
            await play()
            machine.nursery.cancel_scope.cancel()

    run_by(seed, main, machine.clock.time)
