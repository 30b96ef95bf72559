"""The configurations that FastStream's base classes read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from faststream import AckPolicy
from faststream._internal.configs import (
    BrokerConfig,
    PublisherSpecificationConfig,
    PublisherUsecaseConfig,
    SubscriberSpecificationConfig,
    SubscriberUsecaseConfig,
)
from faststream._internal.constants import EMPTY

from ...client.connection.client import Client
from ...client.core.subscription import MessageSelector
from ...client.errors import ClosedError


@dataclass(kw_only=True)
class RocketBrokerConfig(BrokerConfig):
    """Of a broker object, and of routers, which have no client.

    Attributes:
      client: open while the broker object is connected.
      is_in_memory: a TestRocketBroker is in charge: subscribers open nothing.
    """

    client: Client | None = None
    is_in_memory: bool = False

    @property
    def connected(self) -> Client:
        """The open client.

        Raises: ClosedError: the broker object is not connected.
        """
        if self.client is None:
            raise ClosedError("the broker is not connected: use `async with broker`, or `start`")
        return self.client


class OfTopic:
    """A subscriber or a publisher of one topic, or what AsyncAPI shows of it."""

    _outer_config: Any
    config: Any

    @property
    def topic(self) -> str:
        """With the prefixes of its routers."""
        return f"{self._outer_config.prefix}{self.config.topic}"


@dataclass(kw_only=True)
class RocketSubscriberConfig(SubscriberUsecaseConfig):
    """See `RocketRegistrator.subscriber`."""

    _outer_config: Any
    topic: str
    group: str | None
    selector: MessageSelector
    consume_from_where: Literal["first", "last"]
    max_workers: int
    max_retries: int
    nack_delay_s: float | None
    invisible_s: float
    wait_s: float
    parser: Any = field(default=None)
    decoder: Any = field(default=None)

    @property
    def ack_policy(self) -> AckPolicy:
        """Its own, else the broker's, else RocketMQ's: what fails is delivered again."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


@dataclass(kw_only=True)
class RocketSubscriberSpecificationConfig(SubscriberSpecificationConfig):
    """What AsyncAPI shows of a subscriber."""

    topic: str


@dataclass(kw_only=True)
class RocketPublisherConfig(PublisherUsecaseConfig):
    """See `RocketRegistrator.publisher`."""

    _outer_config: Any
    topic: str
    tag: str | None
    headers: dict[str, Any]
    reply_to: str


@dataclass(kw_only=True)
class RocketPublisherSpecificationConfig(PublisherSpecificationConfig):
    """What AsyncAPI shows of a publisher."""

    topic: str
