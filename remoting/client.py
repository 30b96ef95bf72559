"""RemotingClient: requests to peers, with one connection per address.

A connection is opened when it is first needed. The peer may send requests on it, too, which the
client's processors serve.

Java counterpart: NettyRemotingClient.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import trio

from ..common.supervision import FailureLog, contained
from .channel import Channel, Processor
from .codec import RemotingCommand
from .connection import Connection, ConnectionLimits
from .errors import RemotingConnectError, RemotingTimeoutError
from .memory_budget import MemoryBudget
from .memory_limit import default_budget
from .opener import CONNECT_TIMEOUT_S, Opener, OpenStream, split_address
from .poller import SocketPoller
from .signature import Credentials
from .tls_client import ClientTls
from .turn import Turn

_failures = FailureLog(logging.getLogger(__name__))


class RemotingClient:
    """Calls peers by address.

    Lifecycle: `run` owns the connections, as a task of the caller's nursery; all other methods need
    it running. Cancelling it closes them.

    Args:
      processors: for requests from peers.
      turn: shared with a server of the same process; None: a new one.
      on_channel_closed: called once for every connection that ended.
      connect_timeout_s: seconds.
      credentials: the account that signs every request; None: they are not signed.
      open_stream: connects to a host and port by other means than TCP, for peers in the same loop;
        raises OSError.
      tls: encrypts the connections over TCP; None: they are plain.

    Attributes:
      credentials: see the argument; a change counts for later connections.
    """

    def __init__(
        self,
        processors: Mapping[int, Processor] | None = None,
        *,
        turn: Turn | None = None,
        on_channel_closed: Callable[[Channel], None] | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        credentials: Credentials | None = None,
        open_stream: OpenStream | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self._processors = {int(code): process for code, process in (processors or {}).items()}
        self._turn = turn or Turn()
        self._poller = SocketPoller(self._turn)
        self._on_channel_closed = on_channel_closed
        self._opener = Opener(
            self._poller, open_stream=open_stream, tls=tls, connect_timeout_s=connect_timeout_s
        )
        self.credentials = credentials
        self._limits = ConnectionLimits()
        self._memory = MemoryBudget(default_budget())
        self._channels: dict[str, Channel] = {}
        self._locks: dict[str, trio.Lock] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the connections until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._poller.run)
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = None

    async def call(
        self, address: str, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        """Send a request and wait for its response.

        If nothing was received from the peer meanwhile, the connection is closed: it may be half
        open, for instance after a power cut at the peer, which a sender does not notice for a
        quarter of an hour. The next call opens a new one.

        Args:
          address: `host:port`.
          timeout_s: seconds for connecting and answering together.

        Raises:
          RemotingTimeoutError: no response within `timeout_s`.
          RemotingConnectError: the peer cannot be reached, or the connection was closed.
          ValueError: it is not an address.
        """
        start_s = trio.current_time()
        channel = await self.channel(address)
        left_s = timeout_s - (trio.current_time() - start_s)
        # Any byte from the peer counts, also the answer to another call.
        heard = channel.heard
        try:
            return await channel.call(command, max(left_s, 0.001))
        except RemotingTimeoutError:
            if channel.heard == heard:
                channel.close(f"{address} does not respond")
            raise

    async def send_oneway(self, address: str, command: RemotingCommand) -> None:
        """Send a request that is not answered.

        Raises: RemotingConnectError: the peer cannot be reached. ValueError: it is not an address.
        """
        (await self.channel(address)).send_oneway(command)

    async def channel(self, address: str) -> Channel:
        """The connection to an address, opened if there is none.

        Raises: RemotingConnectError: the peer cannot be reached. ValueError: it is not an address.
        """
        channel = self._channels.get(address)
        if channel is not None and not channel.closed:
            return channel
        split_address(address)  # before a lock is kept for it
        async with self._locks.setdefault(address, trio.Lock()):
            channel = self._channels.get(address)
            if channel is None or channel.closed:
                channel = await self._connect(address)
        return channel

    async def _connect(self, address: str) -> Channel:
        if self._nursery is None:
            raise RemotingConnectError("the client is not running")
        transport = await self._opener.open(address)
        connection = Connection(
            transport,
            self._processors,
            self._turn,
            self._limits,
            self._on_channel_closed,
            self._memory,
        )
        connection.channel.credentials = self.credentials
        # Before its task runs, so that the next caller does not open a second connection.
        self._channels[address] = connection.channel
        self._nursery.start_soon(self._run_connection, address, connection)
        return connection.channel

    async def _run_connection(self, address: str, connection: Connection) -> None:
        meaning = "The next call opens a new one"
        with contained(_failures, f"the connection to {address}", meaning):
            try:
                await connection.run()
            finally:
                if self._channels.get(address) is connection.channel:
                    del self._channels[address]
