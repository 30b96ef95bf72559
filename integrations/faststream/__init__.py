"""A broker of FastStream for RocketMQ: `pip install 'trocket[faststream]'`.

::

    from faststream import FastStream
    from trocket.integrations.faststream import RocketBroker

    broker = RocketBroker("rocketmq://10.0.0.7:9876")
    app = FastStream(broker)

    @broker.subscriber("orders", group="billing")
    async def bill(order: dict) -> None: ...

FastStream has no public interface for brokers of others: this one builds on classes of its
`_internal` package, for 0.7 alone. docs/tutorials/faststream.md has what works how.
"""

from __future__ import annotations

try:
    import faststream as _faststream  # noqa: F401 (asked for before its parts are)
except ModuleNotFoundError as error:
    if error.name != "faststream":
        raise
    raise ModuleNotFoundError(
        "trocket.integrations.faststream needs FastStream: pip install 'trocket[faststream]'",
        name="faststream",
    ) from error

from .broker import RocketBroker
from .message import Delivery, RocketMessage
from .publisher import RocketPublisher
from .response import RocketPublishCommand, RocketResponse
from .router import RocketPublisherRoute, RocketRoute, RocketRouter
from .subscriber import RocketSubscriber
from .testing import TestRocketBroker

__all__ = [
    "Delivery",
    "RocketBroker",
    "RocketMessage",
    "RocketPublishCommand",
    "RocketPublisher",
    "RocketPublisherRoute",
    "RocketResponse",
    "RocketRoute",
    "RocketRouter",
    "RocketSubscriber",
    "TestRocketBroker",
]
