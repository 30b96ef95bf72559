"""Clients of the commands that use a cluster."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..client import Client


def new_client(url: str, timeout_s: float) -> Client:
    """A client for the flags and the environment, not open yet.

    Environment: ROCKETMQ_ACCESS_KEY, ROCKETMQ_SECRET_KEY, ROCKETMQ_SECURITY_TOKEN; an account in
    the URL takes precedence.

    Raises: ConfigurationError: the URL or the environment is not valid.
    """
    from ..client import Client, ConfigurationError
    from ..client.core.url import parse_url
    from ..remoting.signature import credentials_of

    try:
        credentials = parse_url(url).credentials or credentials_of(os.environ)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    if credentials is None:
        return Client(url, timeout_s=timeout_s)
    return Client(url, timeout_s=timeout_s, credentials=credentials)
