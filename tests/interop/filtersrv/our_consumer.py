"""Our own push consumer with a class filter, to the last of the messages that match."""

from __future__ import annotations

import trio

from trocket import ConsumeFromWhere, FilterClass, PushConsumer

from .consumption import Consumption
from .material import TOPIC


async def consume(
    namesrv_address: str, group: str, filter_class: FilterClass, *, count: int, timeout_s: float
) -> Consumption:
    """Consume TOPIC from its beginning until `count` distinct numbers came, and commit.

    Raises: trio.TooSlowError: they did not come in time.
    """
    seen = Consumption()
    with trio.fail_after(timeout_s):
        async with PushConsumer(
            f"rocketmq://{namesrv_address}",
            group=group,
            subscriptions={TOPIC: filter_class},
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer:
            async for message in consumer.messages(auto_ack=False):
                seen.add(int(message.body))
                message.ack()
                if seen.distinct_count == count:
                    return seen
    raise AssertionError("the consumer ended before all came")
