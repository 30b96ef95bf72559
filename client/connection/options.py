"""Options that producers, consumers and Admin have in common.

Java counterpart: ClientConfig. The defaults are RocketMQ's, where it has one.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypedDict, TypeVar, cast

import anyio.abc
import msgspec

from ...remoting.signature import Credentials
from ...remoting.tls_options import TlsOptions
from ..checks.option_check import read_options
from .connection_log import OnConnection

if TYPE_CHECKING:
    from ..messages.interceptor import Interceptor
    from .silence import SilentServers

Dial: TypeAlias = Callable[[str, int], Awaitable[anyio.abc.ByteStream]]
"""Opens a byte stream to a host and port; raises OSError if it cannot."""


class ClientOptions(TypedDict, total=False):
    """Keyword arguments of `Client`, and of all objects that create a client from a URL.

    Keys:
      instance_name: distinguishes the clients of one machine; default: the process id and a unique
        number.
      namespace: prefix of the names of topics and groups; default: that of the URL, or none.
      credentials: sign all requests; default: those of the URL, or none.
      tls: TlsOptions, the files to use; an SSLContext; True, to trust the system's authorities;
        False, for no TLS. Default: as the URL says. By gRPC, a context is set to offer HTTP/2.
      timeout_s: time limit of a request, in seconds, > 0; default 3.
      connect_timeout_s: time limit of connecting, in seconds, > 0; default 3.
      silent_timeout_s: time limit of a request to a server that did not answer the one before, in
        seconds, > 0; for programs that ask all servers again and again. Default: `timeout_s`.
      wait_for_broker_s: seconds in which a call tries again while no name server answers, while no
        route has a topic (yet), and, for a send, while its broker cannot be reached: a service may
        start before its servers. 0: it fails at once. Default: the time limit of the call: that of
        a send for sends and for opening consumers, `wait_s` of a receive, `timeout_s` for others.
        A longer wait also extends a send that is given no `timeout_s`.
      route_refresh_s: seconds between refreshes of the routes, > 0; default 30.
      heartbeat_s: seconds between heartbeats to the brokers, > 0; default 30, by gRPC 10.
      interceptors: see `Interceptor`; they are called in this order. Default: none.
      on_connection: called with a ConnectionEvent when a connection to a server is made, lost or
        back; in the event loop, so it must not block. Default: none.
      dial: opens connections; default: TCP, with TLS if set.
      wall_ms: returns the time in milliseconds since 1970; default: the system's clock.
    """

    instance_name: str
    namespace: str
    credentials: Credentials
    tls: TlsOptions | ssl.SSLContext | bool
    timeout_s: float
    connect_timeout_s: float
    silent_timeout_s: float | None
    wait_for_broker_s: float | None
    route_refresh_s: float
    heartbeat_s: float
    interceptors: Sequence[Interceptor]
    on_connection: OnConnection
    dial: Dial
    wall_ms: Callable[[], int]


_ConfigT = TypeVar("_ConfigT", bound=msgspec.Struct)


def split_options(
    config_class: type[_ConfigT], options: ClientOptions, **more: object
) -> tuple[_ConfigT, ClientOptions]:
    """Separate the options of a producer or consumer from those of its client.

    Args:
      config_class: its fields are the options that do not belong to the client.
      options: all options.
      more: further ones, without those that are None.

    Returns: the configuration, and the client's options.
    Raises: ConfigurationError: as `read_options`.
    """
    own = config_class.__struct_fields__
    known = ClientOptions.__annotations__.keys()
    named = {name: value for name, value in more.items() if value is not None}
    given = read_options({**options, **named}, {*own, *known})
    config = config_class(**{name: value for name, value in given.items() if name in own})
    rest = {name: value for name, value in given.items() if name in known}
    return config, cast("ClientOptions", rest)


def silent_servers(limit_s: float | None) -> SilentServers | None:
    """What the option `silent_timeout_s` asks for; None: all servers are waited for as long."""
    if limit_s is None:
        return None
    from .silence import SilentServers  # programs that have no use for it do not wait for it

    return SilentServers(limit_s)
