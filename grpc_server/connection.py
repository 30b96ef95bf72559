"""GrpcConnection: one HTTP/2 connection, served in the turns of a server.

What a turn's calls ask of the broker is served in that turn, together with what comes by remoting,
and stored by one commit; the answers of one connection leave in one send.

The limits are those of the server's other connections (`remoting/connection.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from ..common.supervision import FailureLog, contained
from ..grpc_protocol.enums import Code
from ..grpc_protocol.session import Asked, Call, Cancelled, GrpcSession, GrpcStatus, HalfClosed
from ..remoting.address_limits import PeerAddress
from ..remoting.channel import Channel
from ..remoting.connection import CROWDED_FIRST_FRAME_S, LAST_ANSWERS_S, reader_of
from ..remoting.hosts import host_of
from ..remoting.server import RemotingServer
from ..remoting.transport import SocketTransport, StreamTransport
from .client import CLIENT_ID, CLIENT_ID_MAX, Client, ClientKey, KnownClients
from .exchange import Exchange, Method
from .link import LinkOwner, Served
from .refused import Refused
from .renewals import CHECK_INTERVAL_S
from .service import Service
from .signing import read_authorization

logger = logging.getLogger(__name__)
_failures = FailureLog(logger)

CLIENTS_MAX: Final = 1_000
"""Clients of one connection; a program has one or a few, a relay may have hundreds. Each takes some
15 KB."""

_LOST: Final = "That connection is closed; others are still served"


class GrpcConnection:
    """One connection of gRPC clients.

    Lifecycle: created with a transport, ends with `run`. Owner: the task that awaits `run`.

    Args:
      transport: connected.
      session: new.
      server: whose connection it is, and of which its clients' links are connections.
      address: counted together with the other connections of its address.
      service: what the methods share.
      known: the clients of all connections.
      methods: by path.
      broker_asks: serves a request of a broker to a client.

    Attributes:
      channel: of the HTTP/2 bytes.
      clients: by what they are known by.
    """

    def __init__(
        self,
        transport: SocketTransport | StreamTransport,
        session: GrpcSession,
        server: RemotingServer,
        address: PeerAddress,
        *,
        service: Service,
        known: KnownClients,
        methods: dict[str, Method],
        broker_asks: Callable[..., None],
    ) -> None:
        self.channel = Channel(transport, server.turn, server.memory, policy=server.limits.policy)
        self.clients: dict[ClientKey, Client] = {}
        self.channel.on_backlog = self._start_writer
        self.channel.on_attention = self._wake
        self._transport = transport
        self._session = session
        self._server = server
        self._turn = server.turn
        self._limits = server.limits
        self._address = address
        self._service = service
        self._known = known
        self._methods = methods
        self._broker_asks = broker_asks
        self._exchanges: dict[Call, Exchange] = {}
        self._asking: dict[Served, None] = {}
        self._is_dirty = False
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._attention = trio.Event()
        self._held_size = 0
        self._has_received, self._received_at_s = True, 0.0
        self._has_called = False
        self._renewed_at_s = 0.0
        self._began_at_s: float | None = None
        # What the peer has not taken, since when, and what it had taken then.
        self._unread_since_s: float | None = None
        self._unread: tuple[int, int] = (0, 0)

    async def run(self) -> None:
        """Serve until either side closes, a limit is exceeded, or the task is cancelled."""
        channel, transport = self.channel, self._transport
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    if isinstance(transport, SocketTransport):
                        await self._read_socket(transport)
                    else:
                        await self._read_stream(transport)
                    # Before the links end, so that they pass on what is given back.
                    self._end_calls()
                    nursery.cancel_scope.cancel()
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as errors:
            channel.close(f"connection lost: {errors.exceptions[0]}")
        except* MemoryError:
            channel.run_out_of_memory("its task")
        except* Exception as errors:  # noqa: BLE001 - our bug: other connections are served
            self._fail(errors)
        finally:
            self._nursery = None
            channel.close("the connection ended")
            channel.forget_owner()
            with contained(_failures, "closing a gRPC connection", _LOST):
                self._end_calls()
                if isinstance(transport, StreamTransport):
                    with trio.CancelScope(shield=True):
                        await transport.aclose()

    def _end_calls(self) -> None:
        for exchange in list(self._exchanges.values()):
            self._cancelled(exchange)
        for client in list(self.clients.values()):
            self._end_client(client, "its gRPC connection ended")

    @staticmethod
    def _end_client(client: Client, reason: str) -> None:
        if client.is_last:
            client.renewals.clear()
        client.links.close(reason)

    def _look_at_clients(self, now_s: float) -> None:
        """Lengthen invisible times that are nearly over, and forget clients that are gone."""
        renewing: list[Client] = []
        for client in list(self.clients.values()):
            if client.has_called or self._has_stream(client):
                client.has_called, client.called_at_s = False, now_s
            elif now_s - client.called_at_s > self._limits.idle_s:
                reason = f"its client has not called for {self._limits.idle_s:g} s"
                self._end_client(client, reason)
                continue
            if len(client.renewals):
                renewing.append(client)
        if renewing:
            with self._turn:
                for client in renewing:
                    client.renewals.renew(self._service.now_ms())
                self.serve_asked()

    def _fail(self, error: Exception) -> None:
        _failures.note("serving a gRPC connection", _LOST, error)
        self.channel.close("the server failed")

    async def _read_socket(self, transport: SocketTransport) -> None:
        on_readable = reader_of(transport, self.channel, self.take)
        while await self._may_read():
            self._attention = trio.Event()
            transport.start_reading(on_readable)
            await self._attention.wait()
            transport.stop_reading()

    async def _read_stream(self, transport: StreamTransport) -> None:
        while await self._may_read():
            data = await transport.receive()
            self._turn.active = True
            try:
                self.take(data)
            finally:
                self._turn.end()

    async def _may_read(self) -> bool:
        """Wait until the peer has read enough of its answers; False: the connection ends."""
        channel, broken = self.channel, self._session.broken
        if broken is not None and not channel.closed:
            logger.warning(
                "%(peer)s: closed: %(error)s", {"peer": channel.remote_address, "error": broken}
            )
            with trio.move_on_after(LAST_ANSWERS_S):
                await channel.wait_sent()
            channel.close(broken)
        await channel.wait_writable()
        return not channel.closed

    def _wake(self) -> None:
        self._attention.set()

    def _start_writer(self) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(self.channel.drain)

    # ---- what comes in -------------------------------------------------------------------

    def take(self, data: bytes) -> None:
        """Process bytes of the peer inside a turn."""
        try:
            if not data:
                self.channel.eof()
                return
            self._has_received = True
            self.channel.heard += 1
            for event in self._session.receive(data):
                if isinstance(event, Asked):
                    self._ask(event.call, event.message)
                    continue
                exchange = self._exchanges.get(event.call)
                if exchange is None:
                    if isinstance(event, HalfClosed):  # it sent nothing
                        self._session.finish(event.call)
                    continue
                if isinstance(event, Cancelled):
                    self._cancelled(exchange)
                else:
                    exchange.finish()
            self.serve_asked()
            self._mark()
        except MemoryError:
            self.channel.run_out_of_memory("what it sent")
        except Exception as error:  # noqa: BLE001 - our bug: other connections are served
            self._fail(error)

    def serve_asked(self) -> None:
        """Have the broker serve what was asked in this turn."""
        while self._asking:
            asking, self._asking = self._asking, {}
            for link in asking:
                link.serve()

    def _ask(self, call: Call, message: bytes) -> None:
        self._has_called = True
        exchange = self._exchanges.get(call)
        if exchange is None:
            method = self._methods[call.path]
            try:
                client = self._client_of(call) if method.needs_client else Client("", "", "")
            except Refused as refused:
                unknown = Exchange(self, self._service, call, Client("", "", ""), method)
                method.refuse(unknown, refused)
                return
            exchange = self._exchanges[call] = Exchange(self, self._service, call, client, method)
        exchange.serve(message)

    def _cancelled(self, exchange: Exchange) -> None:
        exchange.call.is_answered = True  # also where the connection was lost
        self._exchanges.pop(exchange.call, None)
        on_cancelled, exchange.on_cancelled = exchange.on_cancelled, None
        if on_cancelled is not None:
            on_cancelled()

    def _client_of(self, call: Call) -> Client:
        client_id = call.headers.get(CLIENT_ID, b"").decode("utf-8", "replace")
        account = ""
        if self._service.backend.has_accounts:
            account = read_authorization(call.metadata.get("authorization", "")).access_key
        client = self.clients.get((client_id, account))
        if client is not None:
            client.has_called = True
            return client
        if not client_id.strip():
            raise Refused(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
        if len(client_id) > CLIENT_ID_MAX:
            text = f"a client id of {len(client_id)} characters; at most {CLIENT_ID_MAX} are taken"
            raise Refused(Code.CLIENT_ID_REQUIRED, text)
        if len(self.clients) >= CLIENTS_MAX or self._nursery is None:
            text = f"{CLIENTS_MAX} clients share this connection, which is the limit: open another"
            raise Refused(Code.TOO_MANY_REQUESTS, text)
        host = host_of(self.channel.remote_address)
        client = Client(client_id, call.metadata.get("x-mq-language", ""), host, account)
        client.server_address = self.channel.local_address
        client.serve = self.serve_asked
        client.links = self._service.backend.links(
            LinkOwner(
                client_id,
                self._server,
                self.channel,
                self._address,
                start_soon=self._nursery.start_soon,
                registration=lambda: client.registration and client.registration(),
                on_request=partial(self._broker_asks, client),
                on_asked=self.serve_later,
                on_closed=partial(self._forget, client),
            )
        )
        self.clients[client.key] = client
        self._known.add(client)
        return client

    def serve_later(self, served: Served) -> None:
        """Have something served after the calls that came together."""
        self._asking[served] = None

    def _forget(self, client: Client) -> None:
        """The links of a client have ended."""
        if self.clients.get(client.key) is client:
            del self.clients[client.key]
        self._known.remove(client)
        telemetry = client.telemetry
        if telemetry is not None and self._has_stream(client):
            client.known.telemetry = None
            telemetry.finish(GrpcStatus.UNAVAILABLE, "the connection to the broker has ended")

    @staticmethod
    def _has_stream(client: Client) -> bool:
        """Whether the stream for commands to a client is on its connection here."""
        telemetry = client.telemetry
        return isinstance(telemetry, Exchange) and telemetry.client is client

    # ---- what goes out -------------------------------------------------------------------

    def answer(self, exchange: Exchange, *messages: bytes) -> None:
        """Send an answer, and end it."""
        self._session.answer(exchange.call, *messages)
        self._ended(exchange)

    def send(self, exchange: Exchange, message: bytes) -> None:
        """Send a message of an answer that goes on."""
        self._session.send(exchange.call, message)
        self._mark()

    def finish(self, exchange: Exchange, status: GrpcStatus, text: str) -> None:
        """End an answer with a status of gRPC."""
        self._session.finish(exchange.call, status, text)
        self._ended(exchange)

    def _ended(self, exchange: Exchange) -> None:
        if exchange.client.telemetry is exchange:
            exchange.client.known.telemetry = None
        self._exchanges.pop(exchange.call, None)
        self._mark()

    def _mark(self) -> None:
        """Have what was answered sent at the end of the turn; outside of one, now."""
        if not self._is_dirty and not self.channel.closed:
            self._is_dirty = True
            self._turn.outer.append(self)
            if not self._turn.active:
                self._turn.flush()

    def flush(self) -> None:
        """Pass the engine's bytes to the channel."""
        self._is_dirty = False
        if self.channel.closed:
            return
        data, events = self._session.output()
        if data:
            self.channel.write(data)
        for event in events:
            exchange = self._exchanges.get(event.call)
            if isinstance(event, Cancelled) and exchange is not None:
                self._cancelled(exchange)
        held_size = self._session.held_size
        if held_size != self._held_size:
            self._held_size = held_size
            self.channel.memory.half_frames.hold(self.channel, held_size)
        unread_max = self._limits.policy.unread_answers_max
        if held_size > unread_max:
            reason = f"{held_size} bytes of answers wait for its HTTP/2 windows"
            self.channel.memory.refusals.note(
                "unreadAnswersMax", self.channel.remote_address, f"closed: {reason}"
            )
            self.close(reason)
        if self._session.broken is not None:
            self._wake()

    def close(self, reason: str) -> None:
        """Close the connection."""
        self.channel.close(reason)

    # ---- limits --------------------------------------------------------------------------

    def enforce_limits(self, now_s: float, *, is_crowded: bool = False) -> None:
        """Close the connection if it has exceeded a time limit."""
        if self._began_at_s is None:
            self._began_at_s = now_s
        if self._has_received:
            self._has_received, self._received_at_s = False, now_s
        silent_s = now_s - self._began_at_s
        reason = self._unread_reason(now_s)
        limit = "unreadAnswersTimeoutSeconds" if reason else ""
        if not reason and not self._has_called:
            if is_crowded and silent_s > CROWDED_FIRST_FRAME_S:
                limit = "connectionsMax"
                reason = "it made no call, and nine tenths of all connections are taken"
            elif silent_s > self._limits.first_frame_s:
                reason = f"it made no call in {silent_s:.0f} s"
        if not reason and now_s - self._received_at_s > self._limits.idle_s:
            reason = f"nothing was received for {self._limits.idle_s:g} s"
        if not reason:
            if now_s - self._renewed_at_s >= CHECK_INTERVAL_S:
                self._renewed_at_s = now_s
                self._look_at_clients(now_s)
            return
        peer = self.channel.remote_address
        if limit:
            self.channel.memory.refusals.note(limit, peer, f"closed: {reason}")
        else:
            logger.warning("%(peer)s: closed: %(reason)s", {"peer": peer, "reason": reason})
        self.channel.close(reason)
        self._end_calls()
        self._scope.cancel()

    def _unread_reason(self, now_s: float) -> str:
        """Why a peer that leaves its answers unread is closed; "": it is not."""
        unread = (self.channel.taken, self._held_size)
        if not self.channel.has_backlog and not self._held_size:
            self._unread_since_s = None
        elif self._unread_since_s is None or unread != self._unread:
            self._unread_since_s, self._unread = now_s, unread
        elif now_s - self._unread_since_s > self._limits.policy.unread_answers_timeout_seconds:
            return f"the peer has not read its answers for {now_s - self._unread_since_s:.0f} s"
        return ""
