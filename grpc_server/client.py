"""Client: a 5.x client, by the id that it gives with each call, and what the broker asks of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from ..grpc_protocol.session import GrpcStatus
from ..remoting.codec import RemotingCommand, SerializeType
from ..remoting.language_codes import LanguageCode
from ..remoting.mq_version import mq_version
from ..remoting.request_codes import RequestCode
from .link import Link
from .renewals import Renewals

CLIENT_ID: Final = "x-mq-client-id"
CLIENT_ID_MAX: Final = 255
"""Characters of a client's id; the clients' own have some 60."""

_LANGUAGES: Final = {
    "DOT_NET": LanguageCode.DOTNET,
    "GOLANG": LanguageCode.GO,
} | {each.name: each for each in LanguageCode}

_CODE_MAX: Final = (1 << 15) - 1
_VERSION_5: Final = mq_version(5, 0, 0)
"""The version of each gRPC client, to the broker. Source: ClientActivity.java of 5.5.0."""


class Stream(Protocol):
    """The stream of commands to a client."""

    def send(self, message: Any) -> None:
        """Send a message TelemetryCommand."""

    def finish(self, status: GrpcStatus = ..., text: str = "") -> None:
        """End the stream."""


class Client:
    """A client on one connection.

    Attributes:
      id: its client id.
      host: its address, without the port.
      link: its connection to the broker.
      settings: what it said of itself last, a message Settings as the service answered it; None:
        nothing yet.
      subscribed_ms: when it did, ms since 1970.
      telemetry: the stream for commands to it; None: there is none.
      renewals: the messages whose invisible times are lengthened for it.
      has_called, called_at_s: whether it has called since its connection looked last, and when it
        had, by trio's clock.
      reports: what the broker asked it and it has not reported, by nonce.
    """

    __slots__ = (
        "called_at_s",
        "has_called",
        "host",
        "id",
        "language",
        "link",
        "renewals",
        "reports",
        "settings",
        "subscribed_ms",
        "telemetry",
    )

    def __init__(self, client_id: str, language: str, host: str) -> None:
        self.id = client_id
        self.host = host
        self.language = _LANGUAGES.get(language.upper(), LanguageCode.OTHER)
        self.link: Link = None  # type: ignore[assignment]  # set by the connection at once
        self.settings: Any = None
        self.subscribed_ms = 0
        self.telemetry: Stream | None = None
        self.renewals = Renewals()
        self.has_called = True
        self.called_at_s = 0.0
        self.reports: dict[str, Callable[[Any], None]] = {}

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
            version=_VERSION_5,
            serialize_type=serialize_type,
        )
