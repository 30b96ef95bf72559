"""The broker's tables as the gRPC service reads them."""

from __future__ import annotations

from ..grpc_server.rules import Rules
from ..grpc_server.server import GrpcServer
from ..grpc_server.service import Service
from ..remoting.bodies import SubscriptionGroupConfig, TopicConfig
from ..remoting.channel import Channel
from .assembly import BrokerParts


class BrokerDirectory:
    """See `grpc_server.service.Directory`."""

    def __init__(self, parts: BrokerParts) -> None:
        self._topics = parts.tables.topics.topic_config_table
        self._groups = parts.tables.groups.subscription_group_table
        self._hold = parts.pop.services.hold

    def topic(self, name: str) -> TopicConfig | None:
        return self._topics.get(name)

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        return self._groups.get(name)

    def withdraw(self, channel: Channel, opaque: int) -> None:
        self._hold.withdraw(channel, opaque)


def new_grpc_server(parts: BrokerParts) -> GrpcServer:
    """The service of gRPC clients, of which a broker has one.

    Raises: ImportError: protobuf is not installed.
    """
    return GrpcServer(
        Service(
            BrokerDirectory(parts),
            parts.config.broker_name,
            parts.foundation.seams.clock.wall_ms,
            rules=Rules(max_message_size=parts.store.config.max_message_size),
        )
    )
