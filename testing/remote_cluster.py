"""A cluster that is not ours: topics for tests, by the blocking client."""

from __future__ import annotations

from ..blocking.admin import Admin
from ..client.core.url import parse_url
from ..client.errors import RouteNotFoundError
from .topics import PERM_READ_WRITE, topic_attributes


class RemoteCluster:
    """A cluster that runs elsewhere.

    Args:
      url: of its name servers, as the client takes it: an account, a namespace, TLS and all.
    Raises: ValueError: it is none; the text says what to write.
    """

    def __init__(self, url: str) -> None:
        self._name_servers = parse_url(url).name_servers
        self.url = url

    @property
    def namesrv_address(self) -> str:
        """`host:port`, several parted by `;` as RocketMQ's own clients take them."""
        return ";".join(self._name_servers)

    def create_topic(
        self, name: str, queues: int = 8, perm: int = PERM_READ_WRITE, **attributes: object
    ) -> None:
        """Create or change a topic on every master; arguments as `Broker.create_topic`.

        Raises: client.errors.ClientError: what the blocking Admin raises.
        """
        options = topic_attributes(attributes)
        with Admin(self.url) as admin:
            admin.create_topic(name, queues, perm=perm, attributes=options)

    def delete_topic(self, name: str) -> None:
        """Delete a topic from every master and name server; no topic is no error.

        Raises: as `create_topic`.
        """
        with Admin(self.url) as admin:
            try:
                admin.delete_topic(name)
            except RouteNotFoundError:
                return
