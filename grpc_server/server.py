"""GrpcServer: makes the connections of gRPC clients for a server of remoting."""

from __future__ import annotations

from functools import partial
from typing import Final

from ..grpc_protocol.engine import Engine
from ..grpc_protocol.schema import CLIENT_STREAMS, METHODS, PACKAGE, SERVICE, Messages
from ..grpc_protocol.session import GrpcSession
from ..remoting.address_limits import PeerAddress
from ..remoting.server import RemotingServer
from ..remoting.transport import SocketTransport, StreamTransport
from .connection import GrpcConnection
from .exchange import Function, Method, Refuse, refuse_unary
from .methods import clients, introspection, receiving, routes, sending, transactions
from .service import Service

FUNCTIONS: Final[dict[str, Function]] = {
    "QueryRoute": routes.query_route,
    "QueryAssignment": routes.query_assignment,
    "Telemetry": clients.telemetry,
    "Heartbeat": clients.heartbeat,
    "NotifyClientTermination": clients.notify_client_termination,
    "SendMessage": sending.send_message,
    "RecallMessage": sending.recall_message,
    "EndTransaction": transactions.end_transaction,
    "ReceiveMessage": receiving.receive_message,
    "AckMessage": receiving.ack_message,
    "ChangeInvisibleDuration": receiving.change_invisible_duration,
    "ForwardMessageToDeadLetterQueue": receiving.forward_to_dead_letter_queue,
}
"""The methods that are served. PullMessage, UpdateOffset, GetOffset and QueryOffset are not, as
with Apache's proxy; nor is SyncLiteSubscription."""

REFUSALS: Final[dict[str, Refuse]] = {
    "Telemetry": clients.refuse_telemetry,
    "ReceiveMessage": receiving.refuse_receive,
}

PREFIX: Final = f"/{PACKAGE}.{SERVICE}/"
"""Before the name of a method in a call's path."""

STREAMS: Final = frozenset(PREFIX + name for name in CLIENT_STREAMS) | introspection.STREAMS


def methods_of(messages: Messages) -> dict[str, Method]:
    """The table of methods, by path."""
    table: dict[str, Method] = {}
    for name, function in FUNCTIONS.items():
        request, answer = (getattr(messages, each) for each in METHODS[name])
        refuse = REFUSALS.get(name, refuse_unary)
        table[PREFIX + name] = Method(function, refuse, request, answer)
    return table | introspection.methods(messages)


def new_engine() -> Engine:
    """The engine of a new connection: by libnghttp2, or in pure Python where that is missing.

    Raises: ImportError: neither is installed.
    """
    try:
        from ..grpc_protocol.engine_ngh2 import Ngh2Engine
    except ImportError:
        from ..grpc_protocol.engine_h2 import H2Engine

        return H2Engine()
    return Ngh2Engine()


class GrpcServer:
    """Makes connections.

    Args:
      service: what all calls share.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._methods = methods_of(service.messages)
        self._broker_asks = partial(transactions.broker_asks, service)

    def connection(
        self,
        server: RemotingServer,
        transport: SocketTransport | StreamTransport,
        address: PeerAddress,
    ) -> GrpcConnection:
        """The connection that serves a transport. Raises: ImportError: a package is missing."""
        session = GrpcSession(new_engine(), self._methods, streams=STREAMS)
        return GrpcConnection(
            transport,
            session,
            server,
            address,
            service=self._service,
            methods=self._methods,
            broker_asks=self._broker_asks,
        )
