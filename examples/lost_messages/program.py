"""Forty messages, of which one group gets half: its two members want different tags.

Run it, and open the console that it names. Ctrl-C ends it.
"""

from __future__ import annotations

import contextlib

import anyio

from trocket import Message, MessageQueue, Producer, PushConsumer
from trocket.testing import Broker

COUNT = 40


def owned(member: PushConsumer) -> list[MessageQueue]:
    """The queues of the topic that a member has; the others are of retries."""
    return [queue for queue in member.queues if queue.topic == "orders"]


async def main() -> None:
    async with Broker(config={"traceTopicEnable": True}) as broker:
        broker.create_topic("orders", queues=4)

        def member(selector: str) -> PushConsumer:
            return PushConsumer(
                broker.url,
                group="billing",
                subscriptions={"orders": selector},
                consume_from_where="first",
                trace=True,
            )

        async with member("created || paid") as first, member("*") as second:
            while any(len(owned(each)) != 2 for each in (first, second)):  # noqa: ASYNC110
                await anyio.sleep(0.1)
            async with Producer(broker.url, group="shop", trace=True) as producer:
                for number in range(COUNT):
                    text, key = f"refund of order {number}", f"order-{number}"
                    await producer.send(Message("orders", text, tags="refund", keys=key))
            for _ in range(COUNT // 2):
                (await second.receive()).ack()
            print(f"trocket console -n {broker.url.removeprefix('rocketmq://')}", flush=True)
            await anyio.sleep_forever()


with contextlib.suppress(KeyboardInterrupt):
    anyio.run(main)
