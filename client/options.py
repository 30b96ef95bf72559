"""The options that producers, consumers and administrators share.

Java counterpart: ClientConfig. Each default is RocketMQ's, where it has one.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, cast

import anyio.abc
import msgspec

from .core.signature import Credentials
from .errors import ConfigurationError

if TYPE_CHECKING:
    from .interceptor import Interceptor

Dial: TypeAlias = Callable[[str, int], Awaitable[anyio.abc.ByteStream]]
"""Opens a stream to a host and port; raises OSError."""


class ClientOptions(TypedDict, total=False):
    """Keyword arguments of `Client`, and of everything that makes one from a URL.

    Keys:
      instance_name: tells clients of one machine apart; default: process id and a number.
      namespace: put before the names of topics and groups; default: the URL's, or none.
      credentials: default: the URL's, or none.
      tls: an SSLContext, True for the system's default one, False for none; default: the URL's.
      timeout_s: seconds that a request may take; 3.
      connect_timeout_s: seconds that connecting may take; 3.
      route_refresh_s: seconds between looks at the name server; 30.
      heartbeat_s: seconds between heartbeats to brokers; 30.
      interceptors: see `Interceptor`; called in order.
      dial: opens connections; default: TCP.
      wall_ms: ms since 1970; default: the system's clock.
    """

    instance_name: str
    namespace: str
    credentials: Credentials
    tls: ssl.SSLContext | bool
    timeout_s: float
    connect_timeout_s: float
    route_refresh_s: float
    heartbeat_s: float
    interceptors: Sequence[Interceptor]
    dial: Dial
    wall_ms: Callable[[], int]


_ConfigT = TypeVar("_ConfigT", bound=msgspec.Struct)


def split_options(
    config_class: type[_ConfigT], options: ClientOptions
) -> tuple[_ConfigT, ClientOptions]:
    """The options of a producer or consumer, apart from those of its client.

    Args:
      config_class: its fields are the options that are not the client's.

    Raises: ConfigurationError: there is no such option; the text has those that there are.
    """
    own = config_class.__struct_fields__
    known = ClientOptions.__annotations__.keys()
    given = cast("dict[str, Any]", options)
    for name in given:
        if name not in own and name not in known:
            raise ConfigurationError(
                f"no option is called {name}; there are {', '.join(sorted({*own, *known}))}"
            )
    config = config_class(**{name: value for name, value in given.items() if name in own})
    rest = {name: value for name, value in given.items() if name in known}
    return config, cast("ClientOptions", rest)
