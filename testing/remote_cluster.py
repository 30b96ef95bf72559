"""A running cluster for tests, on which topics are created with the blocking client."""

from __future__ import annotations

from ..blocking.admin import Admin
from ..client.errors import RouteNotFoundError
from ..remoting.cluster_url import parse_url
from .topics import PERM_READ_WRITE, topic_attributes


class RemoteCluster:
    """A cluster that runs elsewhere.

    Args:
      url: URL of the cluster, as for the client: with account, namespace and TLS if needed.

    Raises: ValueError: the URL is invalid; the text says what to write.
    """

    def __init__(self, url: str) -> None:
        self._name_servers = parse_url(url).name_servers
        self.url = url

    @property
    def namesrv_address(self) -> str:
        """Addresses of the name servers, for RocketMQ's own clients: `host:port;host:port`."""
        return ";".join(self._name_servers)

    def create_topic(
        self, name: str, queues: int = 8, perm: int = PERM_READ_WRITE, **attributes: object
    ) -> None:
        """Create or change a topic on all masters; see `Broker.create_topic` for the arguments.

        Raises: client.errors.ClientError: the cluster refused, or cannot be reached.
        """
        options = topic_attributes(attributes)
        with Admin(self.url) as admin:
            admin.create_topic(name, queues, perm=perm, attributes=options)

    def delete_topic(self, name: str) -> None:
        """Delete a topic from all masters and name servers, if it exists.

        Raises: as `create_topic`.
        """
        with Admin(self.url) as admin:
            try:
                admin.delete_topic(name)
            except RouteNotFoundError:
                return
