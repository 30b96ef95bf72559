"""ClientTls: TLS of the connections that a server opens to other servers.

Java counterpart: NettyRemotingClient with TlsHelper.buildSslContext(true).
"""

from __future__ import annotations

import ssl

from ..common.file_stamps import stamps_of
from .tls_config import TlsConfig
from .tls_context import client_context, client_paths, handshake_problem
from .tls_transport import TlsTransport
from .transport import SocketTransport

_TRUST_KEY = "tls.client.trustCertPath"


class ClientTls:
    """TLS of a `RemotingClient`.

    Raises: ConfigError: a file of it cannot be used.
    """

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._stamp = stamps_of(client_paths(config))
        self._context = client_context(config)

    def _context_now(self) -> ssl.SSLContext:
        """The context for a new connection, from the files as they are.

        Raises: ConfigError: they cannot be used.
        """
        stamp = stamps_of(client_paths(self._config))
        if stamp != self._stamp:
            self._context = client_context(self._config)
            self._stamp = stamp
        return self._context

    async def connect(self, plain: SocketTransport, host: str) -> TlsTransport:
        """Encrypt a new connection.

        Args:
          plain: connected. It is closed by the caller if this fails.
          host: the name or address that was connected to.

        Raises: OSError: the handshake failed. ConfigError: a changed file cannot be used.
        """
        transport = TlsTransport(
            plain, self._context_now(), server_side=False, server_hostname=host
        )
        try:
            await transport.handshake()
        except OSError as error:
            raise ConnectionError(f"TLS: {handshake_problem(error, _TRUST_KEY)}") from error
        return transport
