"""Tls: the TLS of one process, for its listeners and for its own connections."""

from __future__ import annotations

from typing import NamedTuple

from .tls_client import ClientTls
from .tls_config import TlsConfig
from .tls_server import ServerTls


class Tls(NamedTuple):
    """TLS of one process.

    Attributes:
      server: of its listeners.
      client: of its connections to other servers; None: they are plain.
    """

    config: TlsConfig
    server: ServerTls
    client: ClientTls | None


def new_tls(config: TlsConfig | None = None) -> Tls:
    """TLS by some settings.

    Args:
      config: None: RocketMQ's defaults.
    Raises: ConfigError: a file cannot be used.
    """
    config = config or TlsConfig()
    return Tls(config, ServerTls(config), ClientTls(config) if config.enable else None)
