"""A client that several blocking producers and consumers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from ..client.client import Client as AsyncClient
from ..client.errors import ClosedError, ConfigurationError
from ..client.options import ClientOptions
from ..remoting.codec import RemotingCommand
from ..remoting.headers.base import Header
from .blocking_object import BlockingObject, InnerT
from .forwarded import forwarded
from .loop_object import LoopObject

if TYPE_CHECKING:
    from ..client.core.signature import Credentials
    from ..client.core.url import ClientUrl
    from ..client.interceptor import Interceptor


class Client(BlockingObject[AsyncClient]):
    """Connections, routes and heartbeats of one client id; the blocking `trocket.client.Client`.

    Use: `with Client("rocketmq://127.0.0.1:9876") as client:`, then `Producer(client)` and so on,
    which are to be closed before it.

    Args:
      url: `rocketmq://host:port;host:port?...`, or `host:port;host:port`.
      options: see ClientOptions. Interceptors are called in the loop's thread.

    Raises: ConfigurationError: the URL or an option cannot be right.
    """

    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        super().__init__(lambda: AsyncClient(url, **options))

    @property
    def client_id(self) -> str:
        """`ip@instance`, by which brokers know it."""
        return self._inner.client_id

    @property
    def instance_name(self) -> str:
        """The second half of `client_id`."""
        return self._inner.instance_name

    @property
    def url(self) -> ClientUrl:
        """The URL, taken apart."""
        return self._inner.url

    @property
    def namespace(self) -> str:
        """What is put before the names of topics and groups; "": nothing."""
        return self._inner.namespace

    @property
    def timeout_s(self) -> float:
        """Seconds that a request may take."""
        return self._inner.timeout_s

    @property
    def credentials(self) -> Credentials | None:
        """What requests are signed with; None: they are not."""
        return self._inner.credentials

    @property
    def interceptors(self) -> tuple[Interceptor, ...]:
        """What is called with each message."""
        return self._inner.interceptors

    def check_open(self) -> None:
        """Raises: ClosedError; ForkedError: this process is not the one that opened the client."""
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
        """A request with a new opaque, signed if the client has credentials.

        Args:
          more: ext fields beside the header's.
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
        """A topic or group with the client's namespace before it."""
        return self._inner.with_namespace(resource)

    def without_namespace(self, resource: str) -> str:
        """A topic or group without the client's namespace."""
        return self._inner.without_namespace(resource)

    route: Final = forwarded(AsyncClient.route)
    broker_address: Final = forwarded(AsyncClient.broker_address)
    broker_addresses: Final = forwarded(AsyncClient.broker_addresses)

    def refresh_soon(self) -> None:
        """Look at all routes now instead of at the next turn."""
        self._opened().post(self._inner.refresh_soon)

    # Heartbeats

    def heartbeat_soon(self) -> None:
        """Tell the brokers now instead of at the next turn."""
        self._opened().post(self._inner.heartbeat_soon)

    heartbeat: Final = forwarded(AsyncClient.heartbeat)


class Member(BlockingObject[InnerT]):
    """A blocking producer, consumer or administrator: what has a client.

    Args:
      client: a URL, or a Client that is shared.
      make: makes the async object of a URL or an async client.
    """

    def __init__(self, client: str | Client, make: Callable[[str | AsyncClient], InnerT]) -> None:
        if not isinstance(client, str | Client):
            raise ConfigurationError(
                f"a client of {type(client).__module__}.{type(client).__qualname__}; a blocking"
                " object takes a URL or a trocket.blocking.Client"
            )
        self._shared = client if isinstance(client, Client) else None
        super().__init__(lambda: make(client if isinstance(client, str) else client._inner))

    @property
    def client(self) -> Client:
        """The client: its own, or the shared one."""
        return self._shared or _OwnClient(self)

    def open(self) -> Self:
        """Connect; returns the object itself. `close` it, or better use `with`.

        If it fails, it may be tried again.

        Raises: ClosedError: it was opened before, or the shared client is not open; ConnectError
          and what else connecting may raise; ForkedError.
        """
        if self._shared is not None:
            self._shared.check_open()
        return super().open()


class _OwnClient(Client):
    """The client that a producer or consumer made for itself: opened and closed with it."""

    def __init__(self, owner: Member[Any]) -> None:
        # Not Client's: the owner makes the async client, and may make another before it is opened.
        self._owner = owner

    @property
    def _inner(self) -> AsyncClient:
        client: AsyncClient = self._owner._inner.client
        return client

    def open(self) -> Self:
        raise ClosedError(f"the client of {self._owner} is opened and closed with it")

    def close(self) -> None:
        """Nothing: it is closed with its owner."""

    def _opened(self) -> LoopObject:
        return self._owner._opened()

    def __del__(self) -> None:
        """Nothing is to be closed."""
