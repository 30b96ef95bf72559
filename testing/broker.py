"""`Broker`: a name server and a broker in this process, on real ports, for any client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from ..disk.errors import StoreIOError
from ..remoting.bodies import SubscriptionGroupConfig
from ..remoting.cluster_url import URL_SCHEME
from ..remoting.message import MessageExt
from .clock import TravelClock
from .configs import Config, broker_configs, tls_config
from .configs import namesrv_config as read_namesrv
from .disks import EmbeddedDisk, EmbeddedFolderDisk, EmbeddedMemoryDisk
from .errors import EmbeddedBrokerError
from .faults import Faults
from .loop_thread import LoopThread
from .ports import Ports, hold_ports
from .servers import Servers
from .topics import PERM_READ_WRITE, topic_attributes

if TYPE_CHECKING:
    from .recording.replay import Replayed

T = TypeVar("T")

HOST = "127.0.0.1"
MEMORY_FOLDER = "/trocket"


class Broker:
    """A name server and a broker in a background thread, ready when `with` begins.

    ::

        with Broker() as broker:
            producer = connect(broker.url)
            …
            broker.advance(hours=2)      # messages delayed for two hours are delivered now

    It works in plain programs, with threads, in unittest, and as `async with` under asyncio and
    trio. Its methods can be called from any thread, and also in async code, because they take only
    about a millisecond.

    Lifecycle: `with`, `async with`, or `start` and `close`; once.

    Args:
      folder: data folder for messages that should outlive the object or be inspected; None: keep
        messages in memory. Existing files must have been written with the same file sizes, see
        `config`.
      config: values that differ from RocketMQ's defaults, by RocketMQ's keys: `{"flushDiskType":
        "SYNC_FLUSH"}`. The default file sizes (`mappedFileSizeCommitLog` and so on) are smaller
        than RocketMQ's, so that a broker needs about 10 MB, and timers are exact
        (`timerPrecisionMs=1`; RocketMQ rounds them up to the next second). `tls.*` is for both
        servers, and no tls.properties is read.
      namesrv_config: the same for the name server.
      namesrv_port: port of the name server; 0: a free one.
      broker_port: port of the broker; 0: a free one. The port two below is used too, as VIP port.

    Raises: common.config.ConfigError: a key is unknown (the text names the nearest one), or a value
      is invalid.
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
        self._tls_config = tls_config(config or {})
        self._namesrv_config = read_namesrv(namesrv_config or {}, f"{self._root}/namesrv", HOST)
        self._loop: LoopThread | None = None
        self._ports: Ports | None = None
        self._servers: Servers | None = None
        self._nursery: trio.Nursery | None = None
        self._is_closed = False

    # ---- lifecycle -----------------------------------------------------------------------

    def start(self) -> None:
        """Start both servers. When this returns, they listen and the broker is registered.

        Raises:
          EmbeddedBrokerError: it was started before.
          OSError: a given port is in use.
          store.errors.StoreError: the folder cannot be written, is damaged, or is in use.
        """
        if self._is_closed:
            raise EmbeddedBrokerError("this broker was closed: create another Broker()")
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
            tls=self._tls_config,
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
        """Stop both servers cleanly: close connections and flush the folder.

        It has no effect if the broker is not running.
        """
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

    # ---- addresses -----------------------------------------------------------------------

    @property
    def url(self) -> str:
        """URL for trocket's clients: `rocketmq://127.0.0.1:PORT`, of the name server."""
        return URL_SCHEME + self.namesrv_address

    @property
    def namesrv_address(self) -> str:
        """Address of the name server, for RocketMQ's own clients: `127.0.0.1:PORT`."""
        return self._running().namesrv_address

    @property
    def broker_address(self) -> str:
        """Address of the broker: `127.0.0.1:PORT`."""
        return self._running().broker_address

    # ---- time and faults -----------------------------------------------------------------

    def advance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Advance the broker's wall clock; due messages are delivered when this returns.

        Delays, retries, timers, checks of transactions and retention use the wall clock.
        Connections, heartbeats, held pulls and locks use real time, so no client expires. A
        transaction that becomes due is checked once, however far the clock is advanced.

        Args:
          hours, minutes, seconds: the time to advance by, >= 0; they are added up.

        Raises: ValueError: the time is negative.
        """
        self._call(self._running().advance, hours=hours, minutes=minutes, seconds=seconds)

    @property
    def now_ms(self) -> int:
        """The broker's wall clock, in milliseconds since 1970: real time and advanced time."""
        return self._running().clock.wall_ms()

    @property
    def faults(self) -> Faults:
        """Faults to inject; see `Faults`."""
        return self._running().faults

    def restart(self) -> None:
        """Stop both servers cleanly and start them, with the same messages, ports and time."""
        self._call(self._running().restart, self._nursery)

    def crash(self, *, power_loss: bool | None = None) -> None:
        """Crash both servers, and start them again.

        Args:
          power_loss: True for a power failure, which loses messages that were not synced. False for
            `kill -9`, after which written messages remain. None for a power failure of a broker in
            memory, and a kill of one with a folder.

        Raises: EmbeddedBrokerError: `power_loss` is True, and the broker has a folder.
        """
        self._call(self._running().crash, self._nursery, power_loss=power_loss)

    # ---- recordings ----------------------------------------------------------------------

    def record(self) -> None:
        """Record what clients and both servers say from now on; see `stop_recording`.

        A recording that runs is forgotten. It goes on over restarts and crashes.
        """
        self._call(self._running().record)

    def stop_recording(self) -> str:
        """End the recording, and return it: a frame a line, as an object of JSON.

        Lines are those of `trocket interop record --json`; secrets are masked, and times are the
        broker's. Encrypted connections and those of gRPC clients are left out.

        Raises: EmbeddedBrokerError: nothing is recorded, or more than 10,000 frames or 4 MiB.
        """
        return self._call(self._running().stop_recording)

    def replay(self, recording: str) -> list[Replayed]:
        """Send the requests of a recording again, and return the codes of both answers.

        A request is sent when all that was answered before it is answered again. After 45 s the
        rest counts as not answered.

        Raises: RecordingError, an EmbeddedBrokerError: a line is not of a recording.
        """
        return self._call(self._running().replay, recording)

    # ---- topics, groups, messages --------------------------------------------------------

    def create_topic(
        self, name: str, queues: int = 8, perm: int = PERM_READ_WRITE, **attributes: object
    ) -> None:
        """Create or change a topic.

        Args:
          name: name of the topic.
          queues: number of queues, for reading and for writing.
          perm: permissions: 4 to read, 2 to write, 6 for both.
          attributes: RocketMQ's topic attributes, with `_` for `.`: message_type="FIFO",
            queue_type="BatchCQ".

        Raises: EmbeddedBrokerError: the broker refused; the text has the reason.
        """
        servers = self._running()
        options = topic_attributes(attributes)
        self._call(servers.create_topic, name, queues=queues, perm=perm, attributes=options)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages and offsets, if it exists."""
        self._call(self._running().delete_topic, name)

    def create_group(self, name: str, **settings: Any) -> None:
        """Create or change a consumer group. (The first consumer of a group creates it, too.)

        Args:
          name: name of the group.
          settings: fields of remoting.bodies.SubscriptionGroupConfig, such as retry_max_times=3.

        Raises: EmbeddedBrokerError: the broker refused; TypeError: a setting is unknown.
        """
        group = SubscriptionGroupConfig(group_name=name, **settings)
        self._call(self._running().create_group, group)

    def messages(self, topic: str) -> list[MessageExt]:
        """Read all messages of a topic from the store, in the order of storing.

        Bodies are decompressed and batches are unpacked. The messages are not consumed. A topic
        that does not exist has no messages. System topics can be read too: `%RETRY%group`,
        `%DLQ%group`, `SCHEDULE_TOPIC_XXXX` (delayed messages), `rmq_sys_wheel_timer` (timers).
        """
        return self._call(self._running().messages, topic)

    def lag(self, group: str, topic: str) -> int:
        """The number of messages of a topic behind the committed offsets of a group.

        Consumers commit every few seconds and when they are closed. For a group without committed
        offsets, all messages count.
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
