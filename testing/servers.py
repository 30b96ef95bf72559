"""A name server and a broker in one trio loop: the common part of both embedded brokers.

Lifecycle: `start` in a nursery, then `stop`; repeatedly, with the same disk, clock and addresses.
All methods must be called in that loop.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from socket import socket
from typing import TYPE_CHECKING

import trio

from ..broker.controller import BrokerController
from ..broker.settings.config import BrokerConfig
from ..broker.settings.listening import listeners_of
from ..namesrv.config import NamesrvConfig
from ..namesrv.controller import NamesrvController
from ..remoting.bodies import SubscriptionGroupConfig
from ..remoting.channel import Buffer, Channel, Deferred
from ..remoting.client import RemotingClient
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RequestRefused
from ..remoting.headers import DeleteTopicRequestHeader, encode_header
from ..remoting.hosts import join_address
from ..remoting.message import MessageExt
from ..remoting.message_batch import iter_batch
from ..remoting.message_codec import decode_messages
from ..remoting.request_codes import RequestCode
from ..remoting.server import open_listener
from ..remoting.signature import sign
from ..remoting.sys_flag import INNER_BATCH
from ..remoting.tls_config import TlsConfig
from ..remoting.tls_settings import new_tls
from ..remoting.turn import Turn
from ..store.config import MessageStoreConfig
from .clock import TravelClock
from .disks import EmbeddedDisk
from .driving import Driver
from .errors import EmbeddedBrokerError
from .topics import create_topic_request

if TYPE_CHECKING:
    from .recording.replay import Replayed
    from .recording.tape import Tape

READ_COUNT = 32
"""Number of messages read from the store at once."""


class Servers:
    """A name server and a broker.

    Args:
      broker, store, namesrv: complete configurations; `namesrv_addr` is set here.
      disk: disk of both servers.
      clock: clock of both servers.
      listeners: sockets to serve on, for each of the servers; None: those of the configurations.
      client: creates the client that the broker uses for its name server; None: over TCP.
      run: calls a function in the servers' loop from the thread in which `faults` is used.
    """

    def __init__(
        self,
        broker: BrokerConfig,
        store: MessageStoreConfig,
        namesrv: NamesrvConfig,
        *,
        disk: EmbeddedDisk,
        clock: TravelClock,
        run: Callable[[Callable[[], None]], None],
        listeners: Sequence[socket] | None = None,
        client: Callable[[Turn], RemotingClient] | None = None,
        tls: TlsConfig | None = None,
    ) -> None:
        self._tls = new_tls(tls)
        self.clock = clock
        self._broker_config = broker
        self._store_config = store
        self._namesrv_config = namesrv
        self._listeners = listeners
        self._make_client = client
        broker.namesrv_addr = self.namesrv_address
        self._turn = Turn()
        self._driver = Driver(clock, disk, self._turn, run)
        self.faults = self._driver.faults
        # Set while the server runs. While the broker starts, only `_namesrv` is set.
        self._broker: BrokerController | None = None
        self._namesrv: NamesrvController | None = None
        # For connections in memory, which end with their server.
        self._broker_nursery: trio.Nursery | None = None
        self._namesrv_nursery: trio.Nursery | None = None
        self._scope: trio.CancelScope | None = None
        self._ended = trio.Event()

    @property
    def disk(self) -> EmbeddedDisk:
        """The disk of both servers; another one after a crash."""
        return self._driver.disk

    @property
    def namesrv_address(self) -> str:
        """`host:port` of the name server."""
        return join_address(self._namesrv_config.bind_address, self._namesrv_config.listen_port)

    @property
    def broker_address(self) -> str:
        """`host:port` of the broker."""
        return self._broker_config.address(self._broker_config.listen_port)

    @property
    def broker(self) -> BrokerController:
        """The running broker.

        Raises: EmbeddedBrokerError: it is not running.
        """
        if self._broker is None:
            raise EmbeddedBrokerError("the broker is not running")
        return self._broker

    @property
    def namesrv(self) -> NamesrvController:
        """The running name server. Raises: as `broker`."""
        if self._namesrv is None:
            raise EmbeddedBrokerError("the name server is not running")
        return self._namesrv

    # ---- running -------------------------------------------------------------------------

    async def start(self, nursery: trio.Nursery) -> None:
        """Run both in a nursery; returns when they listen and the broker is registered.

        Raises: OSError: an address is in use; StoreError: the data folder cannot be used.
        """
        if self._scope is not None:
            raise EmbeddedBrokerError("the broker is running already")
        self._ended = trio.Event()
        await nursery.start(self._run)

    async def stop(self) -> None:
        """Stop both cleanly, the broker first; it has no effect if they are not running."""
        if self._scope is not None:
            self._scope.cancel()
            await self._ended.wait()

    async def restart(self, nursery: trio.Nursery) -> None:
        """Stop both cleanly and start them."""
        await self.stop()
        await self.start(nursery)

    async def crash(self, nursery: trio.Nursery, *, power_loss: bool | None) -> None:
        """Crash both at this moment, and start them on the disk that a crash leaves.

        Args:
          nursery: nursery to start them in.
          power_loss: whether data that was not synced is lost; None: if the disk supports that.

        Raises: EmbeddedBrokerError: the disk does not support a power failure.
        """
        left = self.disk.after_crash(power_loss=power_loss)
        await self.stop()
        self._driver.disk = left
        await self.start(nursery)

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        namesrv_listeners, broker_listeners = self._opened_listeners()
        namesrv = NamesrvController(
            self._namesrv_config,
            clock=self.clock,
            disk=self.disk,
            turn=self._turn,
            listeners=namesrv_listeners,
            tls=self._tls,
        )
        broker = BrokerController(
            self._broker_config,
            self._store_config,
            clock=self.clock,
            disk=self.disk,
            turn=self._turn,
            listeners=broker_listeners,
            client=self._make_client(self._turn) if self._make_client else None,
            expects_slaves=False,
            tls=self._tls,
            clients_ms=self.clock.clients_ms,
        )
        try:
            async with trio.open_nursery() as outer:
                await outer.start(namesrv.run)
                self._namesrv, self._namesrv_nursery = namesrv, outer
                self._driver.drive_namesrv(namesrv, outer)
                with trio.CancelScope() as self._scope:
                    async with trio.open_nursery() as inner:
                        await inner.start(broker.run)
                        self._broker, self._broker_nursery = broker, inner
                        self._driver.drive_broker(broker, inner)
                        # From now on a cancellation has no effect here: the caller must call
                        # `stop`, so that the broker unregisters while the name server still runs.
                        outer.cancel_scope.shield = True
                        task_status.started()
                        await trio.sleep_forever()
                outer.cancel_scope.cancel()
        finally:
            self._scope = self._namesrv = self._broker = None
            self._namesrv_nursery = self._broker_nursery = None
            self._driver.broker_ended()
            self._ended.set()

    def _opened_listeners(self) -> tuple[Sequence[socket], Sequence[socket]]:
        """The sockets of name server and broker. Raises: OSError: an address is in use."""
        if self._listeners is not None:
            return self._listeners, self._listeners
        from .recording.taps import tapped_listeners

        address = self._namesrv_config.bind_address, self._namesrv_config.listen_port
        namesrv = tapped_listeners([open_listener(*address)], self.tape)
        try:
            return namesrv, tapped_listeners(listeners_of(self._broker_config), self.tape)
        except OSError:
            namesrv[0].close()
            raise

    def serve_stream(
        self, host: str, port: int, stream: trio.abc.Stream, remote_address: str
    ) -> None:
        """Serve a connection in memory.

        Args:
          host, port: address of the server.
          stream: the server's end of the connection.
          remote_address: address of the client, `ip:port`, as the server sees it.

        Raises: ConnectionRefusedError: no server has this address, or it is not running.
        """
        address = join_address(host, port)
        if address == self.namesrv_address and self._namesrv and self._namesrv_nursery:
            server, nursery = self._namesrv.server, self._namesrv_nursery
        elif address == self.broker_address and self._broker_nursery and self.broker.server:
            server, nursery = self.broker.server, self._broker_nursery
        else:
            raise ConnectionRefusedError(
                errno.ECONNREFUSED,
                f"{os.strerror(errno.ECONNREFUSED)}: {address}; the name server is at "
                f"{self.namesrv_address}, the broker at {self.broker_address}",
            )
        from .recording.taps import TappedStream

        tapped = TappedStream(stream, self.tape.tap(remote_address, address))
        nursery.start_soon(server.serve_stream, tapped, remote_address)

    # ---- recordings ----------------------------------------------------------------------

    @property
    def tape(self) -> Tape:
        """What records the traffic of clients."""
        return self._driver.tape

    async def record(self) -> None:
        """Begin a recording; see `Broker.record`."""
        self.tape.start()

    async def stop_recording(self) -> str:
        """End it; see `Broker.stop_recording`."""
        return self.tape.stop()

    async def replay(self, recording: str) -> list[Replayed]:
        """Send its requests again; see `Broker.replay`."""
        return await self._driver.replay(recording)

    # ---- time ----------------------------------------------------------------------------

    async def advance(self, *, hours: float, minutes: float, seconds: float) -> None:
        """Advance the wall clock, and wait until all due messages are delivered.

        Raises: ValueError: the time is negative.
        """
        milliseconds = round(((hours * 60 + minutes) * 60 + seconds) * 1000)
        if milliseconds < 0:
            raise ValueError("time cannot go back: give hours, minutes and seconds >= 0")
        await self._driver.advance(milliseconds)

    # ---- topics, groups, messages --------------------------------------------------------

    async def create_topic(
        self, name: str, *, queues: int, perm: int, attributes: Mapping[str, str]
    ) -> None:
        """Create or change a topic; the name server knows it when this returns.

        Raises: EmbeddedBrokerError: the broker refused; the text has the reason.
        """
        await self._ask(create_topic_request(name, queues, perm, attributes))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages and offsets. Raises: as `create_topic`."""
        fields = encode_header(DeleteTopicRequestHeader(topic=name))
        await self._ask(RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, fields))
        self.namesrv.routes.delete_topic(name)

    async def create_group(self, group: SubscriptionGroupConfig) -> None:
        """Create or change a consumer group. Raises: as `create_topic`."""
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self._ask(RemotingCommand(code, body=group.to_body()))

    async def messages(self, topic: str) -> list[MessageExt]:
        """Read all messages of a topic from the store; see `Broker.messages`."""
        store = self.broker.store
        found: list[MessageExt] = []
        for queue_id in store.topics().get(topic, ()):
            offset = store.min_offset(topic, queue_id)
            end = store.max_offset(topic, queue_id)
            while offset < end:
                result = store.get_message(topic, queue_id, offset, READ_COUNT)
                for records in result.buffers:
                    for message in decode_messages(records):
                        found += _unpacked(message)
                offset = max(offset + 1, result.next_begin_offset)
        return sorted(found, key=lambda message: (message.physical_offset, message.queue_offset))

    async def lag(self, group: str, topic: str) -> int:
        """The number of messages behind the offsets of a group; see `Broker.lag`."""
        broker = self.broker
        topics = broker.store.topics()
        return sum(
            broker.store.max_offset(topic, queue_id)
            - max(
                broker.offsets.query_offset(group, topic, queue_id),
                broker.store.min_offset(topic, queue_id),
            )
            for queue_id in topics.get(topic, ())
        )

    async def _ask(self, request: RemotingCommand) -> RemotingCommand:
        """Have the broker process a request directly, without faults."""
        account = self.broker.super_account
        if account is not None:
            fields = dict(request.ext_fields)
            sign(fields, request.body, account.access_key, account.secret_key)
            request.ext_fields = fields
        process = self._driver.broker_processors.plain[request.code]
        try:
            answer = process(request, Channel(_NullTransport(), self._turn))
            if isinstance(answer, Deferred):
                answer = await answer.run()
        except RequestRefused as refusal:
            raise EmbeddedBrokerError(refusal.remark) from refusal
        assert isinstance(answer, RemotingCommand)
        return answer


class _NullTransport:
    """The transport of requests that `_ask` processes, which sends nothing."""

    remote_address = local_address = "127.0.0.1:0"

    def send_nowait(self, buffers: list[Buffer]) -> list[Buffer]:
        """Send nothing."""
        return []

    async def send_all(self, buffers: list[Buffer]) -> None:
        """Send nothing."""

    def abort(self) -> None:
        """Do nothing: there is no connection."""


def _unpacked(message: MessageExt) -> list[MessageExt]:
    """Unpack the messages of an inner batch; other messages are returned as they are."""
    if not message.sys_flag & INNER_BATCH:
        return [message]
    return [
        replace(
            message,
            queue_offset=message.queue_offset + number,
            body=body,
            properties_bytes=properties,
            flag=flag,
            sys_flag=message.sys_flag & ~INNER_BATCH,
        )
        for number, (flag, body, properties) in enumerate(iter_batch(message.body))
    ]
