"""The blocking Client, and the base class of the objects that use one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from ..client.checks.misuse import check_client, explained, knows_elsewhere
from ..client.checks.other_names import CLIENT
from ..client.connection.client import Client as AsyncClient
from ..client.connection.options import ClientOptions
from ..client.connection.participant import Participant
from ..client.errors import ClosedError
from ..remoting.codec import RemotingCommand
from ..remoting.headers.base import Header
from .blocking_object import BlockingObject, InnerT
from .forwarded import forwarded
from .loop_object import LoopObject

if TYPE_CHECKING:
    from ..client.messages.interceptor import Interceptor
    from ..remoting.cluster_url import ClientUrl
    from ..remoting.signature import Credentials


@knows_elsewhere(CLIENT)
class Client(BlockingObject[AsyncClient]):
    """Connections, routes and heartbeats of one client id; the blocking `trocket.client.Client`.

    Several producers and consumers can share it: `with Client("rocketmq://127.0.0.1:9876") as
    client:`, then `Producer(client)` and so on. Close them before the client.

    Args:
      url: `rocketmq://host:port;host:port?...`, or `host:port;host:port`, of the name servers.
      options: see ClientOptions. Interceptors are called in the loop's thread.

    Raises: ConfigurationError: the URL or an option is invalid.
    """

    @explained
    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        super().__init__(lambda: AsyncClient(url, **options))

    @property
    def client_id(self) -> str:
        """The id by which brokers identify the client: `ip@instance`."""
        return self._inner.client_id

    @property
    def instance_name(self) -> str:
        """The second half of `client_id`."""
        return self._inner.instance_name

    @property
    def url(self) -> ClientUrl:
        """The parsed URL."""
        return self._inner.url

    @property
    def namespace(self) -> str:
        """The namespace of its topics and groups; "" if it has none."""
        return self._inner.namespace

    @property
    def timeout_s(self) -> float:
        """Time limit of a request, in seconds."""
        return self._inner.timeout_s

    @property
    def credentials(self) -> Credentials | None:
        """The credentials that sign requests; None if requests are not signed."""
        return self._inner.credentials

    @property
    def interceptors(self) -> tuple[Interceptor, ...]:
        """The interceptors, in the order in which they are called."""
        return self._inner.interceptors

    def check_open(self) -> None:
        """Check that the client can be used.

        Raises: ClosedError: not open, or closed. ForkedError: opened in the parent process.
        """
        self._opened()

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
        return self._inner.command(
            code, header, body, is_oneway=is_oneway, more=more, unsigned=unsigned
        )

    call: Final = forwarded(AsyncClient.call)
    request: Final = forwarded(AsyncClient.request)
    send_oneway: Final = forwarded(AsyncClient.send_oneway)
    request_name_server: Final = forwarded(AsyncClient.request_name_server)

    # Routes

    def with_namespace(self, resource: str) -> str:
        """The name of a topic or group with the client's namespace."""
        return self._inner.with_namespace(resource)

    def without_namespace(self, resource: str) -> str:
        """The name of a topic or group without the client's namespace."""
        return self._inner.without_namespace(resource)

    route: Final = forwarded(AsyncClient.route)
    broker_address: Final = forwarded(AsyncClient.broker_address)
    broker_addresses: Final = forwarded(AsyncClient.broker_addresses)

    def refresh_soon(self) -> None:
        """Refresh all routes now rather than after `route_refresh_s`; does not wait."""
        self._opened().post(self._inner.refresh_soon)

    # Heartbeats

    def heartbeat_soon(self) -> None:
        """Send a heartbeat now rather than after `heartbeat_s`; does not wait."""
        self._opened().post(self._inner.heartbeat_soon)

    heartbeat: Final = forwarded(AsyncClient.heartbeat)


class Member(BlockingObject[InnerT]):
    """Base of the blocking producers, consumers and Admin: objects that use a Client.

    Args:
      client: a URL, or a Client to share.
      make: creates the async object from a URL or an async client.
    """

    def __init__(self, client: str | Client, make: Callable[[str | AsyncClient], InnerT]) -> None:
        check_client(client, kind=type(self).__name__, door="trocket.blocking", client_type=Client)
        self._shared = client if isinstance(client, Client) else None
        super().__init__(lambda: make(client if isinstance(client, str) else client._inner))

    @property
    def client(self) -> Client:
        """The client that it uses: the shared one, or one that was created from the URL."""
        return self._shared or _OwnClient(self)

    def open(self) -> Self:
        """Connect, and return this object. Prefer a `with` block, which also closes it.

        After an error it can be called again.

        Raises:
          ClosedError: it was opened before, or the shared client is not open.
          ConnectError: a server cannot be reached; other errors of connecting pass through too.
          ForkedError: it, or the shared client, was opened in the parent of this process.
        """
        if self._shared is not None:
            self._shared.check_open()
        return super().open()


ParticipantT = TypeVar("ParticipantT", bound=Participant)


class TracedMember(Member[ParticipantT]):
    """Base of the blocking producers and consumers, which can report to the trace topic."""

    @property
    def dropped_trace_count(self) -> int:
        """Number of trace records that were dropped, so that timelines have gaps; see `trace`."""
        return self._inner.dropped_trace_count


class _OwnClient(Client):
    """The client that a producer or consumer created from a URL: opened and closed with it."""

    def __init__(self, owner: Member[Any]) -> None:
        # Client.__init__ is not called: the owner creates the async client, possibly twice.
        self._owner = owner

    @property
    def _inner(self) -> AsyncClient:
        client: AsyncClient = self._owner._inner.client
        return client

    def open(self) -> Self:
        raise ClosedError(f"the client of {self._owner} is opened and closed with it")

    def close(self) -> None:
        """Do nothing: it is closed with its owner."""

    def _opened(self) -> LoopObject:
        return self._owner._opened()

    def __del__(self) -> None:
        """Do nothing: the owner warns."""
