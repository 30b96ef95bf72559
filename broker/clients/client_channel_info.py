"""One client on one connection, as the tables of producers and consumers keep it.

Java counterpart: broker/client/ClientChannelInfo.java of 5.3.3. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

from ...common.steps import STEP_ITEMS
from ...remoting.codec import RemotingCommand

CHANNEL_EXPIRED_S: Final = 120.0
"""Seconds without a heartbeat after which a client is forgotten and its connection closed.
RocketMQ: channelExpiredTimeout of BrokerConfig, CHANNEL_EXPIRED_TIMEOUT of ProducerManager."""

GROUPS_PER_CHANNEL_MAX: Final = 10_000
"""Groups of one kind that one connection may register. RocketMQ has no bound; its clients have a
handful of groups, all on one connection."""

LEAVING_LINES_MAX: Final = 20
"""Groups of a closed connection that get a log line each; the rest is counted. A line takes 8 us,
and 10,000 of them would block the loop for 80 ms."""

CLIENT_ID_LENGTH_MAX: Final = 1_024
"""Characters of a client id. RocketMQ's clients make it of address, process and unit: some 40."""

CLIENT_SIZE: Final = 500
"""Bytes of one client in the table of one group, without its subscriptions."""


class ClientChannel(Protocol):
    """The part of a connection that the tables use; `remoting.channel.Channel` implements it."""

    remote_address: str
    closed: bool

    def send_oneway(self, command: RemotingCommand) -> None:
        """Send a request that is not answered; never blocks."""

    async def call(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request and wait for its answer; see `Channel.call`."""

    def close(self, reason: str = ...) -> None:
        """Close the connection; may be called twice."""


class ClientChannelInfo:
    """One client on one connection. Changed only by the table that holds it.

    Attributes:
      client_id: such as `192.0.2.2@c1`; chosen by the client.
      language: LanguageCode of its frames.
      version: MQVersion of its frames.
      last_update_s: monotonic seconds of its last heartbeat.
      user: whose heartbeat it was; None: unknown, for instance because there are no accounts.
    """

    __slots__ = ("channel", "client_id", "language", "last_update_s", "user", "version")

    def __init__(
        self,
        channel: ClientChannel,
        client_id: str,
        *,
        language: int,
        version: int,
        last_update_s: float,
        user: str | None = None,
    ) -> None:
        self.channel = channel
        self.client_id = client_id
        self.language = language
        self.version = version
        self.last_update_s = last_update_s
        self.user = user

    def __repr__(self) -> str:
        return f"<client {self.client_id} {self.channel.remote_address}>"


def silent_clients(
    tables: Iterable[Mapping[ClientChannel, ClientChannelInfo]], before_s: float
) -> Iterator[ClientChannelInfo | None]:
    """The clients whose last heartbeat came before a time, each as long as it is registered.

    Args:
      tables: of each group; they may change while this is iterated.
      before_s: monotonic seconds.

    Yields: a client, or None where other tasks may run: after STEP_ITEMS clients, and after each
      one that was found, whose removal notifies the others of its groups.
    """
    looked = 0
    for table in list(tables):
        for channel, client in list(table.items()):
            if client.last_update_s < before_s and table.get(channel) is client:
                yield client
                looked = STEP_ITEMS
            looked += 1
            if looked >= STEP_ITEMS:
                yield None
                looked = 0
