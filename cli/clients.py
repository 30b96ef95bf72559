"""Clients of the commands that use a cluster."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..client import Client, ClientOptions


def new_client(url: str, timeout_s: float, *, waits: bool = False) -> Client:
    """A client for the flags and the environment, not open yet.

    Environment: ROCKETMQ_ACCESS_KEY, ROCKETMQ_SECRET_KEY, ROCKETMQ_SECURITY_TOKEN; an account in
    the URL takes precedence. For TLS, a flag takes precedence over the URL, and that over the
    variables of `tls_options.VARIABLES`.

    Args:
      waits: calls wait for servers that are not there (yet), as those of a program do: what is
        piped into a command outlives a restart of its broker.

    Raises: ConfigurationError: the URL or the environment is not valid.
    """
    from ..client import Client, ConfigurationError
    from ..remoting.cluster_url import parse_url
    from ..remoting.signature import credentials_of
    from ..remoting.tls_options import TlsSettings, settings_of, tls_settings_of
    from .tls_flags import tls_flags

    more: ClientOptions = {"timeout_s": timeout_s}
    if not waits:  # a command line is for people: what is not there is said at once
        more["wait_for_broker_s"] = 0
    try:
        parsed = parse_url(url)
        credentials = parsed.credentials or credentials_of(os.environ)
        of_url, of_environment = settings_of(parsed.tls), tls_settings_of(os.environ)
        more["tls"] = TlsSettings(**tls_flags()).over(of_url).over(of_environment).tls
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    if credentials is not None:
        more["credentials"] = credentials
    return Client(url, **more)
