"""The broker's tables as the gRPC service reads them."""

from __future__ import annotations

from collections.abc import Collection

from ..auth.model import Action
from ..auth.needs import group_of, topic_of
from ..grpc_server.link import LinkOwner
from ..grpc_server.loop_link import LoopLink
from ..grpc_server.rules import Rules
from ..grpc_server.server import GrpcServer
from ..grpc_server.service import OnBroker, Right, Service
from ..remoting.bodies import SubscriptionGroupConfig, TopicConfig
from .assembly import BrokerParts


class BrokerBackend:
    """See `grpc_server.service.Backend`."""

    def __init__(self, parts: BrokerParts) -> None:
        self._name = parts.config.broker_name
        self._topics = parts.tables.topics.topic_config_table
        self._groups = parts.tables.groups.subscription_group_table
        self._hold = parts.pop.services.hold
        self._access = parts.access
        self._last = (OnBroker(self._name, TopicConfig("")),)

    def topic(self, name: str) -> tuple[OnBroker, ...]:
        config = self._topics.get(name)
        if config is None:
            return ()
        # Nearly all calls are of the topic of the last one.
        if self._last[0].config is not config:
            self._last = (OnBroker(self._name, config),)
        return self._last

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        return self._groups.get(name)

    def brokers(self, topics: Collection[str]) -> tuple[str, ...]:
        return (self._name,)

    def avoids(self, broker: str) -> bool:
        return False

    def links(self, owner: LinkOwner) -> LoopLink:
        return LoopLink(owner, self._name, self._hold.withdraw)

    @property
    def has_accounts(self) -> bool:
        return self._access.control is not None

    def secret(self, access_key: str) -> str | None:
        return self._access.secret(access_key)

    def refusal(self, access_key: str, right: Right, host: str) -> str | None:
        control = self._access.users.control
        if control is None:  # access control 1.0 knows no rights to see routes
            return None
        resource = topic_of(right.topic) if right.topic is not None else group_of(right.group or "")
        wanted = [Action.PUB] * right.publishes + [Action.SUB] * right.subscribes
        why: str | None = None
        for action in wanted:
            why = control.lacks(access_key, resource, action, host)
            if why is None:
                return None
        return why


def new_grpc_server(parts: BrokerParts) -> GrpcServer:
    """The service of gRPC clients, of which a broker has one.

    Raises: ImportError: protobuf is not installed.
    """
    service = Service(BrokerBackend(parts), parts.foundation.seams.clock.wall_ms)

    def settings_changed() -> None:
        service.rules = Rules(max_message_size=parts.store.config.max_message_size)

    settings_changed()
    parts.foundation.live.subscribe(settings_changed, "maxMessageSize")
    return GrpcServer(service)
