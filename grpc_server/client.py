"""Client: a 5.x client, by the id that it gives with each call, and what the broker asks of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from ..grpc_protocol.session import GrpcStatus
from ..remoting.codec import RemotingCommand, SerializeType
from ..remoting.language_codes import LanguageCode
from ..remoting.request_codes import RequestCode
from .acks import Acks
from .link import Links
from .renewals import Renewals
from .service import VERSION

CLIENT_ID: Final = b"x-mq-client-id"
CLIENT_ID_MAX: Final = 255
"""Characters of a client's id; the clients' own have some 60."""

_LANGUAGES: Final = {
    "DOT_NET": LanguageCode.DOTNET,
    "GOLANG": LanguageCode.GO,
} | {each.name: each for each in LanguageCode}

ClientKey = tuple[str, str]
"""A client's id and its account."""

_CODE_MAX: Final = (1 << 15) - 1


class Stream(Protocol):
    """The stream of commands to a client."""

    def send(self, message: Any) -> None:
        """Send a message TelemetryCommand."""

    def finish(self, status: GrpcStatus = ..., text: str = "") -> None:
        """End the stream."""


class Known:
    """What is known of a client, whichever of its connections it said that by.

    A client may use several: that for Node.js opens one for each address object that it has, and a
    relay of HTTP/2 spreads the calls of one.

    Attributes:
      clients: the client on each of its connections.
      registrar: the one by whose links brokers know it; None: they do not.
      settings, subscribed_ms, telemetry, renewals, reports: see `Client`.
    """

    __slots__ = (
        "clients",
        "registrar",
        "renewals",
        "reports",
        "settings",
        "subscribed_ms",
        "telemetry",
    )

    def __init__(self) -> None:
        self.clients: list[Client] = []
        self.registrar: Client | None = None
        self.settings: Any = None
        self.subscribed_ms = 0
        self.telemetry: Stream | None = None
        self.renewals = Renewals()
        self.reports: dict[str, Callable[[Any], None]] = {}


class KnownClients:
    """The clients of all connections."""

    def __init__(self) -> None:
        self._table: dict[ClientKey, Known] = {}

    def __len__(self) -> int:
        return len(self._table)

    def add(self, client: Client) -> None:
        """Take in a client on one more connection."""
        client.known = self._table.setdefault(client.key, client.known)
        client.known.clients.append(client)

    def remove(self, client: Client) -> None:
        """Forget a client on one connection; with the last one, all that is known of it."""
        known = client.known
        if client in known.clients:
            known.clients.remove(client)
        if known.registrar is client:
            known.registrar = None
        if not known.clients and self._table.get(client.key) is known:
            del self._table[client.key]


class Client:
    """A client on one connection.

    Attributes:
      id: its client id.
      account: the access key that it signs with; "": the brokers have no accounts.
      host: its address, without the port.
      server_address: what it has connected to, `ip:port`.
      links: its connections to brokers.
      serve: serves what was asked by the links, in a turn.
      registration: makes the heartbeat that says what it is to links that are new; None: it has
        not said so, or on another connection.
      known: what is known of it.
      acks: its acknowledgements that no broker was asked for.
      has_called, called_at_s: whether it has called since its connection looked last, and when it
        had, by trio's clock.
    """

    __slots__ = (
        "account",
        "acks",
        "called_at_s",
        "has_called",
        "host",
        "id",
        "known",
        "language",
        "links",
        "registration",
        "serve",
        "server_address",
    )

    def __init__(self, client_id: str, language: str, host: str, account: str = "") -> None:
        self.id = client_id
        self.account = account
        self.host = host
        self.server_address = ""
        self.language = _LANGUAGES.get(language.upper(), LanguageCode.OTHER)
        # Both are set by the connection at once.
        self.links: Links = None  # type: ignore[assignment]
        self.serve: Callable[[], None] = None  # type: ignore[assignment]
        self.registration: Callable[[], RemotingCommand] | None = None
        self.known = Known()
        self.acks = Acks()
        self.has_called = True
        self.called_at_s = 0.0

    @property
    def key(self) -> ClientKey:
        """What it is known by: one account cannot speak for the client of another."""
        return self.id, self.account

    @property
    def settings(self) -> Any:
        """What it said of itself last, a message Settings as the service answered it; None: it
        said nothing yet."""
        return self.known.settings

    @property
    def subscribed_ms(self) -> int:
        """When it did, ms since 1970."""
        return self.known.subscribed_ms

    @property
    def telemetry(self) -> Stream | None:
        """The stream for commands to it; None: there is none."""
        return self.known.telemetry

    @property
    def renewals(self) -> Renewals:
        """The messages whose invisible times are lengthened for it."""
        return self.known.renewals

    @property
    def reports(self) -> dict[str, Callable[[Any], None]]:
        """What a broker asked it and it has not reported, by nonce."""
        return self.known.reports

    @property
    def is_last(self) -> bool:
        """Whether it has no other connection."""
        return self.known.clients == [self]

    def command(
        self, code: RequestCode, fields: Mapping[str, str], body: bytes = b""
    ) -> RemotingCommand:
        """A request of this client to the broker."""
        # The binary header has 16 bits for the code, and those of pops have more.
        serialize_type = SerializeType.ROCKETMQ if code <= _CODE_MAX else SerializeType.JSON
        return RemotingCommand(
            int(code),
            fields,
            body,
            language=self.language,
            version=VERSION,
            serialize_type=serialize_type,
        )
