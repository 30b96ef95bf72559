"""Routers: subscribers and publishers that a broker object includes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from faststream import AckPolicy
from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.constants import EMPTY

from .configs import RocketBrokerConfig
from .message import Delivery
from .registrator import RocketRegistrator


class RocketPublisherRoute(ArgsContainer):
    """The arguments of `RocketRegistrator.publisher`, for a RocketRoute."""

    def __init__(self, topic: str, **options: Any) -> None:
        super().__init__(topic, **options)


class RocketRoute(SubscriberRoute):
    """A handler, and the arguments of `RocketRegistrator.subscriber`, for a RocketRouter."""

    def __init__(
        self,
        call: Callable[..., Any],
        topic: str,
        *,
        publishers: Iterable[RocketPublisherRoute] = (),
        **options: Any,
    ) -> None:
        super().__init__(call, topic, publishers=publishers, **options)


class RocketRouter(RocketRegistrator, BrokerRouter[Delivery, RocketBrokerConfig]):
    """Subscribers and publishers for `RocketBroker.include_router`.

    Args:
      prefix: begins the names of its topics, and of groups that are named after them.
      handlers: handlers without decorators.
      others: as of FastStream's other routers.
    """

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[RocketRoute] = (),
        *,
        dependencies: Sequence[Any] = (),
        middlewares: Sequence[Any] = (),
        routers: Iterable[RocketRegistrator] = (),
        ack_policy: AckPolicy = EMPTY,
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        include_in_schema: bool | None = None,
    ) -> None:
        super().__init__(
            config=RocketBrokerConfig(
                prefix=prefix,
                broker_dependencies=dependencies,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                ack_policy=ack_policy,
                include_in_schema=include_in_schema,
            ),
            handlers=handlers,
            routers=routers,
        )
