"""The client for programs with threads: all of `trocket.client` without `async`.

::

    from trocket.blocking import Message, Producer, PushConsumer

    with Producer("rocketmq://127.0.0.1:9876", group="orders") as producer:
        result = producer.send(Message("Orders", "one"))

    with PushConsumer(url, group="billing", subscriptions={"Orders": "*"}) as consumer:
        consumer.run(handle, concurrency=20)

Names, arguments, results and errors are the same as in `trocket.client`; values such as Message,
SendResult and the errors can be imported from either. Every object can be used from any number of
threads.

All objects share one background thread with an event loop. It starts when the first object is
opened and ends when the last one is closed. Selectors, serializers, interceptors and rebalance
listeners are called in that thread: they must not block, and a blocking call from them raises
ClientError. Handlers, deserializers, and the `local` and `check` functions of transactions run in
other threads.

After a fork, the child process cannot use objects that its parent opened (ForkedError); it opens
its own. An object that was created but not opened before the fork can be opened in the child.

Objects that are still open when the program ends are closed then. For at most 5 s this waits for
the messages of `send_soon` to be sent and for offsets to be committed.
"""

from __future__ import annotations

from ..client.messages.message import Message, ReceivedMessage, SendResult, SendStatus
from ..client.popping.popped_message import PoppedMessage
from .admin import Admin
from .client import Client
from .producer import Producer
from .pull_consumer import PullConsumer
from .push_consumer import PushConsumer
from .pushed_message import BatchHandler, Handler, PushedMessage
from .replying import Replier, replying
from .send_buffer import Delivery
from .simple_consumer import SimpleConsumer
from .transaction import Transaction
from .transaction_producer import Check, LocalTransaction, TransactionProducer

__all__ = [
    "Admin",
    "BatchHandler",
    "Check",
    "Client",
    "Delivery",
    "Handler",
    "LocalTransaction",
    "Message",
    "PoppedMessage",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "PushedMessage",
    "ReceivedMessage",
    "Replier",
    "SendResult",
    "SendStatus",
    "SimpleConsumer",
    "Transaction",
    "TransactionProducer",
    "replying",
]
