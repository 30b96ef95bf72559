"""`MemoryBroker`: a name server and a broker inside a running trio loop, without threads or ports.

It uses the clock of the loop: under `trio.testing.MockClock` with autojump, two hours pass at once.
Because nothing runs outside of the loop, tests are deterministic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio.abc
import trio
import trio.testing

from ..remoting.bodies import SubscriptionGroupConfig
from ..remoting.client import RemotingClient
from ..remoting.cluster_url import URL_SCHEME
from ..remoting.message import MessageExt
from .clock import LoopClock, TravelClock
from .configs import Config, broker_configs
from .configs import namesrv_config as read_namesrv
from .disks import EmbeddedDisk, EmbeddedMemoryDisk
from .errors import EmbeddedBrokerError, unwrap
from .faults import Faults
from .memory_stream import MemoryStream
from .servers import Servers
from .topics import PERM_READ_WRITE, topic_attributes

if TYPE_CHECKING:
    from .recording.replay import Replayed

HOST = "127.0.0.1"
NAMESRV_PORT = 9876
BROKER_PORT = 10911
FIRST_CLIENT_PORT = 50_000
FOLDER = "/trocket"


class MemoryBroker:
    """A name server and a broker as tasks of the current trio loop.

    Clients connect with `dial` or `open_stream`. The addresses are the usual ports of 127.0.0.1,
    but no real ports are used: any number of these brokers can run at the same time. The methods
    are those of `Broker`, but async.

    Lifecycle: `async with`, once, in one task of a trio loop.

    Args:
      config, namesrv_config: see `Broker`.
      start_ms: wall clock at the start, in milliseconds since 1970; None: the system's.
    """

    def __init__(
        self,
        *,
        config: Config | None = None,
        namesrv_config: Config | None = None,
        start_ms: int | None = None,
    ) -> None:
        self._start_ms = start_ms
        self._broker_config, self._store_config = broker_configs(
            config or {}, f"{FOLDER}/store", HOST
        )
        self._broker_config.listen_port = BROKER_PORT
        self._namesrv_config = read_namesrv(namesrv_config or {}, f"{FOLDER}/namesrv", HOST)
        self._namesrv_config.listen_port = NAMESRV_PORT
        self._servers: Servers | None = None
        self._manager: Any = None
        self._nursery: trio.Nursery | None = None
        self._is_closed = False
        self._next_client_port = FIRST_CLIENT_PORT

    # ---- lifecycle -----------------------------------------------------------------------

    async def __aenter__(self) -> MemoryBroker:
        if self._is_closed:
            raise EmbeddedBrokerError("this broker was closed: create another MemoryBroker()")
        if self._servers is not None:
            raise EmbeddedBrokerError("the broker is running already")
        try:
            clock = TravelClock(LoopClock(trio.current_time, self._start_ms))
        except RuntimeError as error:
            raise EmbeddedBrokerError(
                "MemoryBroker needs a running trio loop: use Broker elsewhere"
            ) from error
        disk: EmbeddedDisk = EmbeddedMemoryDisk()
        self._servers = servers = Servers(
            self._broker_config,
            self._store_config,
            self._namesrv_config,
            disk=disk,
            clock=clock,
            run=lambda function: function(),
            listeners=[],
            client=lambda turn: RemotingClient(turn=turn, open_stream=self.open_stream),
        )
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        try:
            await servers.start(self._nursery)
        except BaseException as error:  # noqa: BLE001 - raised again, without the nursery's group
            await self._end()
            raise unwrap(error) from None
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _end(self) -> None:
        """Stop everything. The nursery must not wrap errors of the block in a group."""
        self._is_closed = True
        assert self._servers is not None
        assert self._nursery is not None
        with trio.CancelScope(shield=True):
            await self._servers.stop()
        self._nursery.cancel_scope.cancel()
        await self._manager.__aexit__(None, None, None)

    # ---- connections ---------------------------------------------------------------------

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        """Connect to the name server or the broker, and return the client's end.

        Raises: ConnectionRefusedError: no server has this address, or it is stopped.
        """
        near, far = trio.testing.memory_stream_pair()
        client = f"{HOST}:{self._next_client_port}"
        self._running().serve_stream(host, port, near, client)
        self._next_client_port += 1
        await trio.lowlevel.checkpoint()
        return far

    async def dial(self, host: str, port: int) -> anyio.abc.ByteStream:
        """Connect, and return an anyio byte stream: pass this function as `dial` to the client."""
        near = await self.open_stream(host, port)
        assert isinstance(near, trio.StapledStream)
        return MemoryStream(near)

    # ---- addresses -----------------------------------------------------------------------

    @property
    def url(self) -> str:
        """URL of the name server, which can be reached by `dial` only."""
        return URL_SCHEME + self.namesrv_address

    @property
    def namesrv_address(self) -> str:
        """`host:port` of the name server."""
        return self._running().namesrv_address

    @property
    def broker_address(self) -> str:
        """`host:port` of the broker."""
        return self._running().broker_address

    # ---- time and faults -----------------------------------------------------------------

    async def advance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Advance the broker's wall clock; see `Broker.advance`.

        This does not advance the loop's clock. With a `MockClock` that has autojump, `trio.sleep`
        advances both.
        """
        await self._running().advance(hours=hours, minutes=minutes, seconds=seconds)

    @property
    def now_ms(self) -> int:
        """The broker's wall clock, in milliseconds since 1970."""
        return self._running().clock.wall_ms()

    @property
    def faults(self) -> Faults:
        """Faults to inject; see `Faults`."""
        return self._running().faults

    async def restart(self) -> None:
        """Stop both servers cleanly and start them; see `Broker.restart`."""
        assert self._nursery is not None
        await self._running().restart(self._nursery)

    async def crash(self, *, power_loss: bool | None = None) -> None:
        """Crash both servers and start them again; see `Broker.crash`."""
        assert self._nursery is not None
        await self._running().crash(self._nursery, power_loss=power_loss)

    # ---- recordings ----------------------------------------------------------------------

    async def record(self) -> None:
        """Record what clients and both servers say; see `Broker.record`."""
        await self._running().record()

    async def stop_recording(self) -> str:
        """End the recording, and return it; see `Broker.stop_recording`."""
        return await self._running().stop_recording()

    async def replay(self, recording: str) -> list[Replayed]:
        """Send the requests of a recording again; see `Broker.replay`."""
        return await self._running().replay(recording)

    # ---- topics, groups, messages --------------------------------------------------------

    async def create_topic(
        self, name: str, queues: int = 8, perm: int = PERM_READ_WRITE, **attributes: object
    ) -> None:
        """Create or change a topic; see `Broker.create_topic`."""
        options = topic_attributes(attributes)
        await self._running().create_topic(name, queues=queues, perm=perm, attributes=options)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic; see `Broker.delete_topic`."""
        await self._running().delete_topic(name)

    async def create_group(self, name: str, **settings: Any) -> None:
        """Create or change a consumer group; see `Broker.create_group`."""
        group = SubscriptionGroupConfig(group_name=name, **settings)
        await self._running().create_group(group)

    async def messages(self, topic: str) -> list[MessageExt]:
        """Read all messages of a topic from the store; see `Broker.messages`."""
        return await self._running().messages(topic)

    async def lag(self, group: str, topic: str) -> int:
        """The number of messages behind the offsets of a group; see `Broker.lag`."""
        return await self._running().lag(group, topic)

    def _running(self) -> Servers:
        if self._is_closed:
            raise EmbeddedBrokerError("the broker is closed: use it inside its `async with` block")
        if self._servers is None:
            raise EmbeddedBrokerError(
                "the broker is not running: use it as `async with MemoryBroker() as broker:`"
            )
        return self._servers
