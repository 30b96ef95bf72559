"""The transport: one connection of kombu to a RocketMQ cluster."""

from __future__ import annotations

import atexit
import logging
import weakref
from time import monotonic
from typing import Any, Final, cast

from kombu.transport import virtual

from ... import __version__
from ...client.connection.options import ClientOptions
from ...client.errors import (
    BadAnswerError,
    ClosedError,
    ConnectError,
    RequestTimeoutError,
    SendError,
    ServerError,
)
from ...remoting.cluster_url import DEFAULT_PORT
from .channel import Channel as RocketChannel
from .cluster import Cluster
from .deliveries import Delivery
from .options import Options, cluster_url, hidden, read_options
from .session import Session

logger = logging.getLogger(__name__)

LOST: Final = (
    ConnectError,
    RequestTimeoutError,
    SendError,
    BadAnswerError,
    ClosedError,
)
"""Errors after which kombu and Celery connect again."""

_opened: weakref.WeakSet[Transport] = weakref.WeakSet()
"""Celery leaves the connections of producers open until the program ends."""


class Transport(virtual.Transport):
    """RocketMQ as kombu sees it; `register` of this package makes it known.

    Args:
      client: the kombu.Connection.

    Raises: ConfigurationError: an option of `transport_options` is invalid.
    """

    Channel = RocketChannel

    can_parse_url = True
    default_port = DEFAULT_PORT
    driver_type = "rocketmq"
    driver_name = "trocket"

    connection_errors = (*virtual.Transport.connection_errors, *LOST)
    channel_errors = (*virtual.Transport.channel_errors, ServerError)
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = ()

    implements = virtual.Transport.implements.extend(
        exchange_type=frozenset(["direct", "topic", "fanout"])
    )

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self._options: Options = read_options(client.transport_options)
        self._session: Session | None = None
        self._next_channel = 0

    @property
    def session(self) -> Session:
        """The state of the open connection.

        Raises: ClosedError: the connection is closed.
        """
        if self._session is None:
            raise ClosedError("the connection to RocketMQ is closed: connect again")
        return self._session

    @property
    def is_of_this_process(self) -> bool:
        """False if it is open, and this is a forked child of the process that connected."""
        return self._session is None or self._session.is_of_this_process

    def establish_connection(self) -> Any:
        """Connect.

        Raises: ConfigurationError: the URL or an option is invalid. ConnectError and other
          ClientErrors: no name server answers, or it refuses.
        """
        options: dict[str, Any] = {}
        if self.client.connect_timeout:
            options["connect_timeout_s"] = self.client.connect_timeout
        options.update(self._options.client_options)
        cluster = Cluster(
            cluster_url(self.client),
            cast("ClientOptions", options),
            topic_queues=self._options.topic_queues,
            creates_topics=self._options.create_topics,
        )
        cluster.open()
        self._session = Session(self._options, cluster, self._unsettled)
        _opened.add(self)
        return super().establish_connection()

    def _unsettled(self) -> list[Delivery]:
        return [each for channel in list(self.channels) for each in channel.unsettled()]

    def close_connection(self, connection: Any) -> None:
        """Close channels and clients; what is not acknowledged is delivered again."""
        super().close_connection(connection)
        session, self._session = self._session, None
        _opened.discard(self)
        if session is not None:
            session.close()

    def driver_version(self) -> str:
        """trocket's version."""
        return __version__

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """The URL, to be shown."""
        return uri if include_password else hidden(uri, mask)

    # Messages

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Hand one message to its consumer.

        Args:
          timeout: seconds to wait for it; None: without an end.

        Raises:
          TimeoutError: there was none in time.
          ClientError: receiving failed.
        """
        channel, delivery = self._next(None if timeout is None else monotonic() + timeout)
        channel.hand_out(delivery)

    def _next(self, end_s: float | None) -> tuple[RocketChannel, Delivery]:
        session = self.session
        with session.condition:
            while True:
                session.raise_failure()
                channels = list(self.channels)
                for number in range(len(channels)):
                    channel = channels[(self._next_channel + number) % len(channels)]
                    delivery = channel.next_delivery()
                    if delivery is not None:
                        self._next_channel += number + 1
                        return channel, delivery
                left_s = None if end_s is None else end_s - monotonic()
                if left_s is not None and left_s <= 0:
                    raise TimeoutError  # which is socket.timeout, as kombu calls it
                session.condition.wait(left_s)


def _close_opened() -> None:
    for transport in list(_opened):
        if transport.is_of_this_process:
            transport.close_connection(transport)


# Before that of the blocking client, which was imported earlier and warns of what is open.
atexit.register(_close_opened)
