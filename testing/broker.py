"""`Broker`: a name server and a broker in this process, on real ports, for clients of any kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import trio

from ..remoting.bodies import SubscriptionGroupConfig
from ..remoting.hosts import URL_SCHEME
from ..remoting.message import MessageExt
from ..store.errors import StoreIOError
from .clock import TravelClock
from .configs import Config, broker_configs
from .configs import namesrv_config as read_namesrv
from .disks import EmbeddedDisk, EmbeddedFolderDisk, EmbeddedMemoryDisk
from .errors import EmbeddedBrokerError
from .faults import Faults
from .loop_thread import LoopThread
from .ports import Ports, hold_ports
from .servers import Servers
from .topics import PERM_READ_WRITE, topic_attributes

T = TypeVar("T")

HOST = "127.0.0.1"
MEMORY_FOLDER = "/trocket"


class Broker:
    """A name server and a broker in a background thread, ready when `with` begins.

    ::

        with Broker() as broker:
            producer = connect(broker.url)
            …
            broker.advance(hours=2)      # what is delayed for two hours is there now

    Works in plain programs, beside threads, in unittest, and as `async with` under asyncio and
    trio. All methods may be called from any thread; in asynchronous code too, as they take about
    a millisecond.

    Lifecycle: `with`, `async with`, or `start` and `close`; once.

    Args:
      folder: a data folder for messages that are to survive the object, or to be looked at; None:
        they are in memory. A folder's files must have been written with the same sizes, see
        `config`.
      config: what differs from RocketMQ's defaults, by RocketMQ's keys: `{"flushDiskType":
        "SYNC_FLUSH"}`. The files are smaller than RocketMQ's (`mappedFileSizeCommitLog` and the
        like), so that a broker takes some 10 MB.
      namesrv_config: the same for the name server.
      namesrv_port, broker_port: 0: free ones. The broker also takes the VIP port, two below.
    Raises: common.config.ConfigError: an unknown key, which names the nearest one, or a value
      that is not allowed.
    """

    def __init__(
        self,
        *,
        folder: str | PathLike[str] | None = None,
        config: Config | None = None,
        namesrv_config: Config | None = None,
        namesrv_port: int = 0,
        broker_port: int = 0,
    ) -> None:
        self._root = MEMORY_FOLDER if folder is None else str(Path(folder).absolute())
        self._in_memory = folder is None
        self._wanted_ports = namesrv_port, broker_port
        self._broker_config, self._store_config = broker_configs(
            config or {}, f"{self._root}/store", HOST
        )
        self._namesrv_config = read_namesrv(namesrv_config or {}, f"{self._root}/namesrv", HOST)
        self._loop: LoopThread | None = None
        self._ports: Ports | None = None
        self._servers: Servers | None = None
        self._nursery: trio.Nursery | None = None
        self._is_closed = False

    # ---- lifecycle -----------------------------------------------------------------------

    def start(self) -> None:
        """Start both; they listen, and the broker is registered, when this returns.

        Raises:
          EmbeddedBrokerError: it was started before.
          OSError: a port that was asked for is taken.
          store.errors.StoreError: the folder cannot be written, is damaged, or is in use.
        """
        if self._is_closed:
            raise EmbeddedBrokerError("this broker was closed: make another Broker()")
        if self._loop is not None:
            raise EmbeddedBrokerError("the broker is running already")
        namesrv_port, broker_port = self._wanted_ports
        self._ports = ports = hold_ports(HOST, namesrv=namesrv_port, broker=broker_port)
        self._broker_config.listen_port = ports.broker
        self._namesrv_config.listen_port = ports.namesrv
        disk: EmbeddedDisk = EmbeddedMemoryDisk() if self._in_memory else EmbeddedFolderDisk()
        loop = LoopThread(f"trocket-broker-{ports.namesrv}")
        self._servers = Servers(
            self._broker_config,
            self._store_config,
            self._namesrv_config,
            disk=disk,
            clock=TravelClock(),
            run=self._run_in_loop,
        )
        self._loop = loop
        try:
            loop.start(self._main)
        except BaseException as error:
            self._loop = self._servers = None
            ports.close()
            if isinstance(error, StoreIOError) and not self._in_memory:
                text = f"{error.reason}; the broker's folder is {self._root}"
                raise StoreIOError(error.path, text) from error
            raise

    def close(self) -> None:
        """Stop both cleanly; connections are closed, the folder is complete. Again: nothing."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        self._is_closed = True
        try:
            loop.close()
        finally:
            if self._ports is not None:
                self._ports.close()

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Broker:
        from anyio import to_thread

        await to_thread.run_sync(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        from anyio import CancelScope, to_thread

        with CancelScope(shield=True):
            await to_thread.run_sync(self.close)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "not started" if self._loop is None else self.url
        return f"<trocket.testing.Broker {state}>"

    async def _main(self, *, task_status: trio.TaskStatus[None]) -> None:
        servers = self._running()
        async with trio.open_nursery() as nursery:
            try:
                await servers.start(nursery)
                self._nursery = nursery
                task_status.started()
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await servers.stop()

    # ---- where it is ---------------------------------------------------------------------

    @property
    def url(self) -> str:
        """`rocketmq://127.0.0.1:PORT`, of the name server: what trocket's clients take."""
        return URL_SCHEME + self.namesrv_address

    @property
    def namesrv_address(self) -> str:
        """`127.0.0.1:PORT`, of the name server: what RocketMQ's own clients take."""
        return self._running().namesrv_address

    @property
    def broker_address(self) -> str:
        """`127.0.0.1:PORT`, of the broker."""
        return self._running().broker_address

    # ---- time and faults -----------------------------------------------------------------

    def advance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let time pass for messages; what becomes due is in its topic when this returns.

        Delays, retries, timers, checks of transactions and retention go by the broker's wall
        clock, which this sets on. Connections, heartbeats, held pulls and locks go by real time:
        no client is thought to be gone. A transaction that becomes due is checked once, however
        far the clock is set on.

        Raises: ValueError: a negative time.
        """
        self._call(self._running().advance, hours=hours, minutes=minutes, seconds=seconds)

    @property
    def now_ms(self) -> int:
        """The broker's wall clock, ms since 1970: real time and all that was advanced."""
        return self._running().clock.wall_ms()

    @property
    def faults(self) -> Faults:
        """What is to go wrong; see `Faults`."""
        return self._running().faults

    def restart(self) -> None:
        """A clean stop and a start, with the same messages, ports and time."""
        self._call(self._running().restart, self._nursery)

    def crash(self, *, power_loss: bool | None = None) -> None:
        """Both servers die at once, and are started again.

        Args:
          power_loss: True: as a power cut, messages that were not synced are gone; False: as
            `kill -9`, what was written stays. None: a power cut in memory, a kill in a folder,
            where nothing else can be done.
        """
        self._call(self._running().crash, self._nursery, power_loss=power_loss)

    # ---- topics, groups, messages --------------------------------------------------------

    def create_topic(
        self, name: str, queues: int = 8, perm: int = PERM_READ_WRITE, **attributes: object
    ) -> None:
        """Create or change a topic.

        Args:
          queues: to write to and to read from.
          perm: 4 read, 2 write, 6 both.
          attributes: RocketMQ's, `_` for `.`: message_type="FIFO", queue_type="BatchCQ".
        Raises: EmbeddedBrokerError: the broker refuses it; the text says why.
        """
        servers = self._running()
        options = topic_attributes(attributes)
        self._call(servers.create_topic, name, queues=queues, perm=perm, attributes=options)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages and all groups' offsets; no topic is no error."""
        self._call(self._running().delete_topic, name)

    def create_group(self, name: str, **settings: Any) -> None:
        """Create or change a consumer group. (Groups are also made by their first consumer.)

        Args:
          settings: fields of remoting.bodies.SubscriptionGroupConfig: retry_max_times=3.
        Raises: EmbeddedBrokerError: the broker refuses it; TypeError: there is no such setting.
        """
        group = SubscriptionGroupConfig(group_name=name, **settings)
        self._call(self._running().create_group, group)

    def messages(self, topic: str) -> list[MessageExt]:
        """All messages of a topic, read from the store, in the order in which they were stored.

        Bodies are decompressed, messages of a batch stand one by one. Nothing is consumed by
        this. A topic that is not there has none. System topics are topics too: `%RETRY%group`,
        `%DLQ%group`, `SCHEDULE_TOPIC_XXXX` (delayed), `rmq_sys_wheel_timer` (timers).
        """
        return self._call(self._running().messages, topic)

    def lag(self, group: str, topic: str) -> int:
        """How many messages of a topic a group has not consumed, by the offsets that it committed.

        Consumers commit every few seconds and when they end. Of a group that committed nothing,
        all messages count.
        """
        return self._call(self._running().lag, group, topic)

    # ---- inside --------------------------------------------------------------------------

    def _running(self) -> Servers:
        if self._is_closed:
            raise EmbeddedBrokerError("the broker is closed: use it inside its `with` block")
        if self._loop is None or self._servers is None:
            raise EmbeddedBrokerError(
                "the broker is not running: use it as `with Broker() as broker:`, or call start()"
            )
        return self._servers

    def _call(self, function: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        self._running()
        assert self._loop is not None
        return self._loop.call(function, *args, **options)

    def _run_in_loop(self, function: Callable[[], None]) -> None:
        async def run() -> None:
            function()

        self._call(run)
