"""ClusterBackend: the brokers of a cluster as the gRPC service sees them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ..grpc_server.link import LinkOwner
from ..grpc_server.refused import Refused
from ..grpc_server.service import Awaited, OnBroker, Right
from ..remoting.bodies import SubscriptionGroupConfig
from .cluster import Cluster
from .links import Network, RemoteLinks


class ClusterBackend:
    """See `grpc_server.service.Backend`.

    Args:
      has_accounts: calls have to be signed, and brokers check what they ask.
    """

    def __init__(self, cluster: Cluster, network: Network, *, has_accounts: bool) -> None:
        self._cluster = cluster
        self._network = network
        self.has_accounts = has_accounts

    def topic(self, name: str) -> Sequence[OnBroker]:
        return self._cluster.topics(name)

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        return self._cluster.groups(name)

    def brokers(self, topics: Collection[str]) -> Collection[str]:
        """The brokers of topics; one whose route cannot be had is left out."""
        found: set[str] = set()
        awaited: list[Awaited] = []
        for topic in topics:
            try:
                found.update(each.broker for each in self.topic(topic))
            except Awaited as error:
                awaited.append(error)
            except Refused:
                continue
        if awaited:
            raise _all_of(awaited)
        return found

    def avoids(self, broker: str) -> bool:
        return self._network.avoids(broker)

    def links(self, owner: LinkOwner) -> RemoteLinks:
        return RemoteLinks(owner, self._network)

    def secret(self, access_key: str) -> str | None:
        return self._cluster.secrets(access_key) or None

    def refusal(self, access_key: str, right: Right, host: str) -> str | None:
        """None: what brokers are not asked for, such as routes, every user may have."""
        return None


def _all_of(several: Sequence[Awaited]) -> Awaited:
    """Waits for several questions, which are asked at once."""

    def when_done(call: Callable[[], None]) -> None:
        left = len(several)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                call()

        for each in several:
            each.when_done(one_done)

    return Awaited(when_done)
