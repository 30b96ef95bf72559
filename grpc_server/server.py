"""GrpcServer: makes the connections of gRPC clients for a server of remoting."""

from __future__ import annotations

from functools import partial
from typing import Final

from ..grpc_protocol.engines import new_engine
from ..grpc_protocol.schema import CLIENT_STREAMS, METHODS, PACKAGE, SERVICE, Messages
from ..grpc_protocol.session import GrpcSession
from ..remoting.address_limits import PeerAddress
from ..remoting.server import RemotingServer
from ..remoting.transport import SocketTransport, StreamTransport
from .client import KnownClients
from .connection import GrpcConnection
from .exchange import FromBytes, Function, Method, Refuse, refuse_unary, unserved
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
with Apache's proxy; nor is SyncLiteSubscription. They are refused by their names."""

FROM_BYTES: Final[dict[str, FromBytes]] = {
    "SendMessage": sending.send_usual,
    "AckMessage": receiving.ack_usual,
}
"""The methods whose usual requests are served without being decoded by protobuf."""

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
    for name, types in METHODS.items():
        request, answer = (getattr(messages, each) for each in types)
        refuse = REFUSALS.get(name, refuse_unary)
        function = FUNCTIONS.get(name)
        table[PREFIX + name] = Method(
            unserved if function is None else function,
            refuse,
            request,
            answer,
            needs_client=function is not None,
            from_bytes=FROM_BYTES.get(name),
        )
    return table | introspection.methods(messages)


class GrpcServer:
    """Makes connections.

    Args:
      service: what all calls share.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known = KnownClients()
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
            known=self._known,
            methods=self._methods,
            broker_asks=self._broker_asks,
        )
