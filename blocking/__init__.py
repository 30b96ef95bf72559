"""The client for programs with threads: what `trocket.client` has, without `async`.

::

    from trocket.blocking import Message, Producer, PushConsumer

    with Producer("rocketmq://127.0.0.1:9876", group="orders") as producer:
        result = producer.send(Message("Orders", "one"))

    with PushConsumer(url, group="billing", subscriptions={"Orders": "*"}) as consumer:
        consumer.run(handle, concurrency=20)

Names, arguments, results and errors are those of `trocket.client`, whose values (Message,
SendResult, the errors) may be imported from either. All objects are safe to use from many threads.

They share one background thread with an event loop (see loop_thread.py): it starts with the first
object and ends with the last. Selectors, serializers, interceptors and rebalance listeners are
called there, so they must not block, and a blocking call in them is refused. Handlers, `local` and
`check` of transactions, and deserializers run in other threads.

A process that was forked off cannot use its parent's objects (ForkedError), but make its own. An
object that was made, but not opened, before the fork may be opened in the child.

An object that is still open when the program ends is closed then: what `send_soon` took is sent,
and offsets are committed, for at most 5 s.
"""

from __future__ import annotations

from ..client.message import Message, ReceivedMessage, SendResult, SendStatus
from .admin import Admin
from .client import Client
from .delivery import Delivery
from .producer import Producer
from .pull_consumer import PullConsumer
from .push_consumer import PushConsumer
from .pushed_message import Handler, PushedMessage
from .transaction_producer import Check, LocalTransaction, TransactionProducer

__all__ = [
    "Admin",
    "Check",
    "Client",
    "Delivery",
    "Handler",
    "LocalTransaction",
    "Message",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "PushedMessage",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
    "TransactionProducer",
]
