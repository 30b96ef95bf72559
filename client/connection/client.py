"""The client of a cluster: its connections, its routes, its heartbeats.

The producers and consumers of a program can share a `Client`; given a URL, each creates its own.
Brokers identify a client by its id, which heartbeats carry.

Java counterpart: MQClientInstance.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, NoReturn, Self, Unpack

import anyio
import anyio.abc
import msgspec

from ...remoting.bodies import MessageQueue, TopicRouteData
from ...remoting.cluster_url import ClientUrl, parse_url
from ...remoting.codec import ONEWAY_FLAG, RemotingCommand, SerializeType, encode
from ...remoting.headers.base import Header, encode_header
from ...remoting.hosts import host_bytes
from ...remoting.message_id import UniqueIdGenerator
from ...remoting.response_codes import ResponseCode
from ...remoting.session import opaques
from ...remoting.signature import Credentials, sign
from ..checks import process
from ..checks.misuse import check_client, explained, knows_elsewhere
from ..checks.other_names import CLIENT
from ..core.namespaces import with_namespace, without_namespace
from ..core.routes import TopicPublishInfo
from ..errors import (
    ClosedError,
    ConfigurationError,
    ConnectError,
    RequestTimeoutError,
    reading_answer,
    server_error,
)
from ..messages.interceptor import Interceptor
from ..tasks import clock
from ..tasks.task_host import Openable, TaskHost, guarded
from .client_id import build_client_id, default_instance_name, local_ip
from .connection import Connection, request_name
from .connection_log import ConnectionLog
from .dialer import Dialer
from .grpc import ALPN, GRPC_HEARTBEAT_S, Grpc
from .members import GroupMember, Members, Processor
from .name_servers import Ask as AskNameServer
from .name_servers import NameServers
from .options import ClientOptions, silent_servers, split_options
from .pending_reply import PendingReply
from .route_table import RouteTable
from .tls import client_tls
from .waiting import Window

__all__ = ["Client", "GroupMember", "Processor", "reading_answer"]


TIMEOUT_S: Final = 3.0
"""RocketMQ: sendMsgTimeout and mqClientApiTimeout, 3,000 ms."""
SEND_TIMEOUT_S: Final = 10.0
"""Time for all attempts of a send: a broker that restarts is away for 5 s, and then is used again
within 1 s, by a connection that may take 3 s. (RocketMQ: sendMsgTimeout.)"""
CONNECT_TIMEOUT_S: Final = 3.0
"""RocketMQ: connectTimeoutMillis 3,000."""
ROUTE_REFRESH_S: Final = 30.0
"""RocketMQ: pollNameServerInterval 30,000 ms."""
HEARTBEAT_S: Final = 30.0
"""RocketMQ: heartbeatBrokerInterval 30,000 ms. Brokers forget a client after 120 s."""

_instances = itertools.count(1)


@knows_elsewhere(CLIENT)
class Client(Openable):
    """Connections, routes and heartbeats of one client id.

    Use: `async with Client("rocketmq://127.0.0.1:9876") as client:`, under trio or asyncio, or
    `open` and `close`, in any tasks of one event loop.

    Args:
      url: `rocketmq://host:port;host:port?...`, or `host:port;host:port`, of the name servers; or
        `rocketmq+grpc://host:port` of a gRPC service.
      options: see ClientOptions.

    Attributes:
      client_id: the id by which brokers identify the client: `ip@instance`.
      send_timeout_s: time limit of a send with all its attempts, unless the producer has one; also
        how long a consumer waits for its first routes, unless `wait_for_broker_s` is given.
      wait_for_broker_s: the option; None: each call waits as long as its time limit.
      now_s: returns the time of the event loop's clock, in seconds; used while the client is open.
      replies: the pending replies to request messages, by correlation id.
      grpc: None: it does not speak gRPC.

    Raises: ConfigurationError: the URL or an option is invalid.
    """

    @explained
    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        split_options(msgspec.Struct, options)  # raises for unknown options and wrong values
        self.url: ClientUrl = _parsed(url)
        self.timeout_s: float = options.get("timeout_s", TIMEOUT_S)
        self.send_timeout_s: float = options.get("timeout_s", SEND_TIMEOUT_S)
        self.namespace: str = options.get("namespace", self.url.namespace) or ""
        self.interceptors: tuple[Interceptor, ...] = tuple(options.get("interceptors", ()))
        self.wall_ms: Callable[[], int] = options.get("wall_ms", clock.wall_ms)
        self.wait_for_broker_s: float | None = options.get("wait_for_broker_s")
        self.credentials: Credentials | None = options.get("credentials") or self.url.credentials
        self._pid = os.getpid()
        self._generation = process.generation()
        self._ip = local_ip(self.url.name_servers[0])
        self.instance_name: str = (
            options.get("instance_name")
            or self.url.instance_name
            or default_instance_name(self._pid, clock.wall_ns() + next(_instances))
        )
        self.client_id: str = build_client_id(self._ip, self.instance_name)
        self._unique_ids = UniqueIdGenerator(
            host_bytes(self._ip, 0)[:-4], self._pid, clock.wall_ns() & 0xFFFFFFFF
        )
        self.next_opaque: Callable[[], int] = opaques().__next__
        self.now_s: Callable[[], float] = anyio.current_time
        self._host: TaskHost | None = None
        self._is_closed = False
        is_grpc = self.url.speaks_grpc
        heartbeat_s = GRPC_HEARTBEAT_S if is_grpc else HEARTBEAT_S
        self._members = Members(self, options.get("heartbeat_s", heartbeat_s))
        tls = client_tls(options.get("tls", self.url.tls), ALPN if is_grpc else ())
        self.grpc: Grpc | None = Grpc(self, is_secure=tls is not None) if is_grpc else None
        self._dialer = Dialer(
            lambda: self.now_s(),
            self.start_soon,
            self._on_connected,
            dial=options.get("dial"),
            tls=tls,
            timeout_s=options.get("connect_timeout_s", CONNECT_TIMEOUT_S),
            log=ConnectionLog(
                options.get("on_connection"), lambda: self.now_s(), self.url.name_servers
            ),
            on_request=self._members.on_request,
            translator=None if self.grpc is None else self.grpc.translator,
        )
        self._connections = self._dialer.connections
        self._silent = silent_servers(options.get("silent_timeout_s"))
        self._name_servers = NameServers(self.url.name_servers, lambda: self.now_s())
        self._routes = RouteTable(
            self.url.name_servers,
            self._ask_name_servers_once,
            self._members,
            options.get("route_refresh_s", ROUTE_REFRESH_S),
            self.timeout_s,
            lambda: self.now_s(),
        )
        self.replies: dict[str, PendingReply] = {}

    # Lifecycle

    async def __aenter__(self) -> Self:
        if self._host is not None or self._is_closed:
            raise ClosedError("a client can be opened only once; create another one")
        self._host = host = TaskHost()
        await host.open()
        self._dialer.is_over = lambda: host.is_over
        self.now_s = clock.loop_clock()
        self.start_soon(self._routes.run)
        self.start_soon(self._members.run)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        host = self._host
        if host is None or self._is_closed or process.generation() != self._generation:
            return
        self._is_closed = True
        self._dialer.close()
        await host.close()

    def _check_loop(self) -> None:
        self.check_loop()

    def check_loop(self) -> None:
        """Check that the client, if it is open, was opened in this event loop.

        Raises: WrongLoopError: it is open in another one.
        """
        host = self._host
        if host is not None and not host.is_over and process.generation() == self._generation:
            host.check_loop("the client")

    def __reduce__(self) -> NoReturn:
        process.refuse_pickling(self)

    def check_open(self) -> None:
        """Check that the client can be used.

        Raises: ClosedError: not open, or closed. ForkedError: opened in the parent process.
          WrongLoopError: opened in another event loop.
        """
        host = self._host
        if host is None:
            text = "the client is not open: use `async with`, or `await` its `open()` first"
            raise ClosedError(text)
        if self._is_closed or host.owner is None:
            raise ClosedError("the client is closed: create another one")
        if process.generation() != self._generation:
            process.check_generation(self._generation, "the client", self._pid)
        if host.here() != host.owner:
            host.check_loop("the client")

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run an async function in the background; an error is logged, other tasks continue.

        Raises: ClosedError: not open, or closed. ForkedError: opened in the parent process.
        """
        self.check_open()
        assert self._host is not None  # open
        self._host.start_soon(guarded, function, args)

    # Requests

    def command(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        is_oneway: bool = False,
        more: Mapping[str, str] | None = None,
        unsigned: Mapping[str, str] | None = None,
    ) -> RemotingCommand:
        """Build a request with a new opaque, signed if the client has credentials.

        Args:
          code: request code.
          header: fields of the request; None: none.
          body: body of the request, in bytes.
          is_oneway: tell the server not to answer.
          more: ext fields in addition to those of the header.
          unsigned: ext fields that the signature does not cover.
        """
        fields = encode_header(header) if header is not None else {}
        if more:
            fields.update(more)
        known = self.credentials
        if known is not None and self.grpc is None:
            # Apache 5.5.0 reads an empty value of a binary header as null, and verifies "null".
            fields = {name: value for name, value in fields.items() if value}
            sign(fields, body, known.access_key, known.secret_key, known.security_token)
        if unsigned:
            fields.update(unsigned)
        return RemotingCommand(
            code,
            fields,
            body,
            opaque=self.next_opaque(),
            flag=ONEWAY_FLAG if is_oneway else 0,
            # The binary header has 16 bits for the code.
            serialize_type=SerializeType.ROCKETMQ if code <= 0x7FFF else SerializeType.JSON,
        )

    async def call(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        """Send a request and wait for its answer, whatever its response code.

        Args:
          address: `host:port` of the server.
          command: the request; see `command`.
          timeout_s: seconds for connecting and for the answer together; None: the client's
            `timeout_s`.

        Raises:
          ConnectError: no connection could be made, or it was lost before the answer.
          RequestTimeoutError: no answer arrived in time.
          ClosedError: the client is not open.
          ForkedError: the client was opened in the parent of this process.
        """
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        ask, silent = partial(self._call, address, command), self._silent
        return await (ask(timeout_s) if silent is None else silent.ask(address, timeout_s, ask))

    async def _call(
        self, address: str, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        connection = self._connections.get(address)
        if connection is not None and not connection.closed:
            self.check_open()
            return await connection.call(command, timeout_s)
        start_s = self.now_s()
        connection = await self.connection(address, timeout_s)
        left_s = timeout_s - (self.now_s() - start_s)
        if left_s <= 0:
            raise RequestTimeoutError(request_name(command.code), address, timeout_s)
        return await connection.call(command, left_s)

    async def request(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
        ok: Sequence[int] = (ResponseCode.SUCCESS,),
        more: Mapping[str, str] | None = None,
        unsigned: Mapping[str, str] | None = None,
    ) -> RemotingCommand:
        """Send a request and wait for an answer that reports success.

        Args:
          address: `host:port` of the server.
          code: request code.
          header: fields of the request; None: none.
          body: body of the request, in bytes.
          timeout_s: seconds for connecting and for the answer together; None: the client's
            `timeout_s`.
          ok: response codes that count as success.
          more, unsigned: see `command`.

        Raises: ServerError: the answer has another response code; and as `call`.
        """
        command = self.command(code, header, body, more=more, unsigned=unsigned)
        answer = await self.call(address, command, timeout_s)
        if answer.code not in ok:
            raise server_error(answer.code, answer.remark, address, request_name(code))
        return answer

    async def send_oneway(
        self, address: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> None:
        """Send a request that the server does not answer.

        Args:
          address: `host:port` of the server.
          code: request code.
          header: fields of the request; None: none.
          body: body of the request, in bytes.

        Raises:
          ConnectError: no connection could be made.
          ClosedError: the client is not open.
          ForkedError: the client was opened in the parent of this process.
        """
        connection = await self.connection(address)
        connection.send_oneway(encode(self.command(code, header, body, is_oneway=True)))

    async def request_name_server(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        ok: Sequence[int] = (ResponseCode.SUCCESS,),
        wait_s: float | None = None,
    ) -> RemotingCommand:
        """Send a request to the name servers: the first answer counts.

        One that fails, or does not answer within half a second, is passed over for the next one,
        so the request may reach several.

        Args:
          code: request code.
          header: fields of the request; None: none.
          body: body of the request, in bytes.
          ok: response codes that count as success.
          wait_s: seconds in which the name servers are asked again while none answers; None:
            `wait_for_broker_s`, by default `timeout_s`.

        Raises:
          ConnectError: no name server answered; the text has each address and the reason.
          ServerError: the answer has another response code.
        """
        window = self.window(self.timeout_s, wait_s)
        ask = self._name_server_request(code, header, body, ok)
        return await self._name_servers.ask(code, ask, self.timeout_s, window)

    async def _ask_name_servers_once(
        self, code: int, header: Header, timeout_s: float
    ) -> RemotingCommand:
        ask = self._name_server_request(code, header, b"", (ResponseCode.SUCCESS,))
        return await self._name_servers.ask_once(code, ask, timeout_s)

    def _name_server_request(
        self, code: int, header: Header | None, body: bytes, ok: Sequence[int]
    ) -> AskNameServer:
        async def ask(address: str, timeout_s: float) -> RemotingCommand:
            connection = self.open_connection(address)
            try:
                return await self.request(address, code, header, body, timeout_s=timeout_s, ok=ok)
            except ConnectError:
                if connection is None:
                    raise
                # The server may have restarted since the connection was made.
                return await self.request(address, code, header, body, timeout_s=timeout_s, ok=ok)

        return ask

    @property
    def start_wait_s(self) -> float:
        """Seconds that a consumer waits for its first routes."""
        return self.send_timeout_s if self.wait_for_broker_s is None else self.wait_for_broker_s

    def window(self, limit_s: float, wait_s: float | None = None) -> Window:
        """The time, from now on, in which a call waits for servers that are not there (yet).

        Args:
          limit_s: the time limit of the call, in seconds; its first try may take all of it.
          wait_s: seconds to wait; None: `wait_for_broker_s`, by default `limit_s`.
        """
        if wait_s is None:
            wait_s = self.wait_for_broker_s
        return Window(self.now_s, limit_s if wait_s is None else wait_s, first_s=limit_s)

    # Connections

    def open_connection(self, address: str) -> Connection | None:
        """The open connection to an address; None if there is none."""
        connection = self._connections.get(address)
        return None if connection is None or connection.closed else connection

    async def connection(self, address: str, timeout_s: float | None = None) -> Connection:
        """The open connection to an address; it is made if there is none.

        Args:
          address: `host:port` of the server.
          timeout_s: seconds for connecting; None: the client's `connect_timeout_s`.

        Raises:
          ConnectError: no connection could be made.
          ClosedError: the client is not open.
          ForkedError: the client was opened in the parent of this process.
        """
        self.check_open()
        connection = self.open_connection(address)
        if connection is None:
            connection = await self._dialer.connection(address, timeout_s)
        return connection

    def _on_connected(self, address: str) -> None:
        if self._routes.has_broker_at(address):
            # A broker that was just started does not know this client.
            self._members.heartbeat_soon()

    # Routes

    def with_namespace(self, resource: str) -> str:
        """The name of a topic or group with the client's namespace."""
        return with_namespace(self.namespace, resource)

    def without_namespace(self, resource: str) -> str:
        """The name of a topic or group without the client's namespace."""
        return without_namespace(resource, self.namespace)

    async def route(
        self,
        topic: str,
        *,
        is_fresh: bool = False,
        wait_s: float | None = None,
        is_missing_ok: bool = False,
    ) -> TopicRouteData:
        """The route of a topic: its brokers and their queues.

        Args:
          topic: name of the topic, with namespace.
          is_fresh: ask a name server even if the route is known.
          wait_s: seconds in which it is looked up again while no name server answers; None:
            `wait_for_broker_s`, by default `timeout_s`.
          is_missing_ok: wait as long for a topic that no name server knows (yet).

        Raises:
          RouteNotFoundError: no name server knows the topic.
          ConnectError: no name server answered.
        """
        window = self.window(self.timeout_s, wait_s)
        return await self._routes.wait_for_route(
            topic, window, is_fresh=is_fresh, is_missing_ok=is_missing_ok
        )

    def known_publish_info(self, topic: str) -> TopicPublishInfo | None:
        """The writable queues of a topic; None if they have not been looked up yet."""
        return self._routes.known_publish_info(topic)

    async def publish_info(
        self, topic: str, default_queue_count: int, window: Window | None = None
    ) -> TopicPublishInfo:
        """The writable queues of a topic, with namespace.

        If no name server knows the topic, but brokers create topics automatically, these are the
        queues that a send would create: at most `default_queue_count` on each such broker.

        Args:
          window: how long to wait for name servers, and for a broker that takes messages of the
            topic; None: as long as a send.

        Raises: RouteNotFoundError: no broker takes messages of the topic; ConnectError: no name
          server answered.
        """
        window = window or self.window(self.send_timeout_s)
        return await self._routes.publish_info(topic, default_queue_count, window)

    def broker_address(self, broker_name: str, broker_id: int = 0) -> str | None:
        """`host:port` of a broker; None if no route names it.

        Args:
          broker_name: name of the broker.
          broker_id: 0 for the master; otherwise a slave, or if that id is missing, any broker of
            this name.
        """
        return self._routes.broker_address(broker_name, broker_id)

    def reading_address(self, broker_name: str) -> str | None:
        """`host:port` to read messages from: the master, or a slave while there is no master."""
        return self._routes.reading_address(broker_name)

    def master_address(self, broker_name: str) -> str:
        """`host:port` of a broker's master. Raises: ConnectError: no route names it."""
        return self._routes.master_address(broker_name)

    def owner(self, queue: MessageQueue) -> str:
        """Name of the broker that has a queue; see `RouteTable.owner`."""
        return self._routes.owner(queue)

    def master_of(self, queue: MessageQueue) -> str:
        """`host:port` of a queue's master. Raises: ConnectError: no route names it."""
        return self._routes.master_of(queue)

    def broker_addresses(self) -> dict[str, dict[int, str]]:
        """All brokers that routes have named: broker name to broker id to `host:port`."""
        return self._routes.broker_addresses()

    def forget_route(self, topic: str) -> None:
        """Drop a route, because a broker answered that it does not have the topic."""
        self._routes.forget(topic)

    def refresh_soon(self) -> None:
        """Refresh all routes now rather than after `route_refresh_s`; does not wait."""
        self._routes.refresh_soon()

    # Members and heartbeats

    async def add_member(self, member: GroupMember) -> None:
        """Add a producer or consumer; a heartbeat announces it to the brokers at once.

        Raises:
          ConfigurationError: the client already has a producer, or a consumer, of this group.
          ClosedError: the client is not open.
          ForkedError: the client was opened in the parent of this process.
        """
        self.check_open()
        self._members.add(member)

    def members(self, group: str) -> list[GroupMember]:
        """The producers and consumers of a group that use this client."""
        return self._members.of_group(group)

    async def remove_member(self, member: GroupMember) -> None:
        """Remove a producer or consumer, and unregister it at the brokers that can be reached."""
        await self._members.remove(member)

    def heartbeat_soon(self) -> None:
        """Send a heartbeat now rather than after `heartbeat_s`; does not wait."""
        self._members.heartbeat_soon()

    async def heartbeat(self, address: str | None = None) -> None:
        """Send a heartbeat to all known brokers; failures are logged.

        Args:
          address: only to the broker at this `host:port`.
        """
        await self._members.heartbeat(address)

    # Messages

    def next_unique_id(self, now_ms: int | None = None) -> str:
        """A new message id.

        Args:
          now_ms: the current time, in milliseconds since 1970; None: read the client's clock.
        """
        return self._unique_ids.next_id(self.wall_ms() if now_ms is None else now_ms)


def _parsed(url: str) -> ClientUrl:
    check_client(url, kind="Client", door="trocket", client_type=str)
    try:
        return parse_url(url)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
