"""Grpc: what a client needs to speak gRPC, and the refusal of what gRPC has no counterpart for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from ...common.distribution import to_install
from ...remoting.signature import Credentials
from ..core.retry_policy import RetryPolicy
from ..errors import ConfigurationError
from ..tasks.clock import loop_clock
from .connection import Translator

if TYPE_CHECKING:
    from ..grpc.client_profile import Profile

ALPN: Final = ("h2",)
"""What a client offers where TLS is set up; servers of gRPC want it. Source: RFC 9113, 3.2."""

GRPC_HEARTBEAT_S: Final = 10.0
"""Seconds between heartbeats of a client that speaks gRPC. Source: ClientManagerImpl of
rocketmq-clients; RocketMQ's other clients have 30."""


class Identity(Protocol):
    """The part of a Client that servers see."""

    client_id: str
    namespace: str
    credentials: Credentials | None
    wall_ms: Callable[[], int]


class Grpc:
    """Makes the sessions of one client's connections.

    Args:
      is_secure: the connections use TLS.

    Raises: ConfigurationError: a package is missing.
    """

    def __init__(self, client: Identity, *, is_secure: bool) -> None:
        self._is_secure = is_secure
        # Clients of brokers do without these packages, and do not wait for their import.
        try:
            from ...grpc_protocol.engines import new_client_engine
            from ..grpc.client_profile import Profile

            new_client_engine()
        except ImportError as error:
            raise ConfigurationError(
                f"a client that speaks gRPC needs other packages ({error}): {to_install('grpc')}"
            ) from None
        self._profile: Profile = Profile(
            client.client_id, client.namespace, client.credentials, client.wall_ms
        )

    def translator(self, address: str) -> Translator:
        """The session of a new connection."""
        from ..grpc.translator import Translator as Made

        return Made(self._profile, address, loop_clock(), is_secure=self._is_secure)

    def retry_policy(self, group: str) -> RetryPolicy | None:
        """How messages of a group are delivered again; None: the server has not said it."""
        return self._profile.retry_policy(group)


def refuse_by(grpc: Grpc | None, what: str, instead: str) -> None:
    """Refuse what a client that speaks gRPC cannot do.

    Args:
      grpc: of the client; None: it does not speak gRPC, and nothing is refused.
      what: the subject of the error's sentence.
      instead: what to do.

    Raises: ConfigurationError.
    """
    if grpc is not None:
        raise ConfigurationError(f"{what} does not work by gRPC: {instead}")
