"""The channel: kombu's verbs on queues, exchanges and messages, as RocketMQ has them.

A queue is a topic and a consumer group of the same name, whose messages are popped. A direct
exchange is a table of this process, as in kombu's other virtual transports: a message goes to the
topic of each queue that is bound. Other exchanges reach the queues of other processes: a fanout or
topic exchange, or a direct one that is not durable (Celery's replies to remote control), is a topic
itself, and each bound queue is a group that reads it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from queue import Empty
from typing import Any, Final

from kombu.exceptions import ChannelError
from kombu.transport import virtual

from ...blocking import PoppedMessage, SimpleConsumer
from ...client.errors import ClientError, RouteNotFoundError
from ...client.tasks.clock import wall_ms
from ...remoting.receipt import POP_COUNT_MAX
from .cluster import Cluster
from .deliveries import Delivery, give_back_all
from .deliveries import QoS as ChannelQoS
from .inflow import Inflow
from .names import exchange_topic, queue_name, routing_tag
from .payloads import Payload, again, due_ms, from_message, is_expired, to_message
from .session import Session

logger = logging.getLogger(__name__)

EVERY_TAG: Final = "*"
GET_WAIT_S: Final = 0.1
"""How long a message that was sent just now may need to this process, in seconds."""
NOT_FOUND: Final = "404"
"""AMQP's code of a queue that is not there."""


class Channel(virtual.Channel):
    """A channel of a connection to RocketMQ; see the module.

    Args:
      connection: the transport.
    """

    QoS = ChannelQoS
    supports_fanout = True
    do_restore = False

    qos: ChannelQoS
    exchange_types: Any

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        # The base forgets its connection when it is closed; feeders may still be at work then.
        self._transport = connection
        self._session: Session = connection.session
        self._inflow = Inflow(self._session, lambda: self.qos, self._delivery)
        self._taken: dict[str, Delivery] = {}
        self._no_ack: set[str] = set()
        # The base has one of each queue for all channels of a connection.
        self._callbacks: dict[str, Callable[[Payload], Any]] = {}

    @property
    def _cluster(self) -> Cluster:
        return self._session.cluster

    @property
    def state(self) -> Any:
        """The exchanges and bindings that this connection has declared."""
        return self._transport.state

    # Queues

    def _topic(self, queue: str) -> str:
        return queue_name(queue, self._session.options.queue_name_prefix)

    def _new_queue(self, queue: str, **options: Any) -> None:
        with self._session.condition:
            self._session.doomed.discard(queue)
        if options.get("auto_delete") or options.get("exclusive"):
            # A topic only if messages are sent to the queue itself.
            self._session.transient.add(queue)
        else:
            self._cluster.ensure_topic(self._topic(queue))

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return queue in self._session.transient or self._cluster.has_topic(self._topic(queue))

    def _size(self, queue: str) -> int:
        group = self._topic(queue)
        return sum(self._cluster.waiting(group, topic) for topic in self._subscriptions(queue))

    def _purge(self, queue: str) -> int:
        """Receive and acknowledge all that is there; delayed and unacknowledged messages stay."""
        count = 0
        consumer = self._consumer(queue)
        while messages := consumer.receive(POP_COUNT_MAX, wait_s=0):
            consumer.ack_all(messages)
            count += len(messages)
        return count

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any
    ) -> None:
        """Delete a queue: its group, its topic with its messages, and its bindings.

        Args:
          queue: kombu's queue.
          if_unused: not if this channel consumes from it.
          if_empty: not if it has messages.

        Raises: ClientError.
        """
        if (if_unused and self._inflow.has(queue)) or (if_empty and self._size(queue)):
            return
        has_topic = self._topic(queue) in self._subscriptions(queue)
        delete = partial(self._cluster.delete, self._topic(queue), with_topic=has_topic)
        for exchange, routing_key, arguments in list(self.state.queue_bindings(queue)):
            self.queue_unbind(queue, exchange, routing_key, arguments)
        self.state.queue_bindings_delete(queue)
        self._session.transient.discard(queue)
        if self._inflow.has(queue):
            # A request that the broker still holds would create the group again.
            self._session.doomed.add(queue)
            self._inflow.stop(queue, then=partial(self._delete_doomed, queue, delete))
        elif queue not in self._session.doomed:
            delete()

    def _delete_doomed(self, queue: str, delete: Callable[[], None]) -> None:
        with self._session.condition:
            if queue not in self._session.doomed:  # declared again meanwhile
                return
            self._session.doomed.remove(queue)
        try:
            delete()
        except ClientError as error:
            logger.warning("the queue %s was not deleted: %s", queue, error)

    # Exchanges

    def _is_shared(self, exchange: str) -> bool:
        """Whether an exchange is a topic."""
        known = self.state.exchanges.get(exchange)
        return known is not None and (known["type"] != "direct" or not known["durable"])

    def _exchange_topic(self, exchange: str) -> str:
        return exchange_topic(exchange, self._session.options.queue_name_prefix)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        if self._is_shared(exchange):
            topic = self._exchange_topic(exchange)
            self._cluster.ensure_topic(topic)
            self._cluster.start_at_end(self._topic(queue), topic)

    def _subscriptions(self, queue: str) -> dict[str, str]:
        """The topics of a queue, each with its tags."""
        tags: dict[str, set[str]] = {}
        for exchange, routing_key, _ in list(self.state.queue_bindings(queue)):
            if self._is_shared(exchange):
                is_direct = self.state.exchanges[exchange]["type"] == "direct"
                tag = routing_tag(routing_key) if is_direct else EVERY_TAG
                tags.setdefault(self._exchange_topic(exchange), set()).add(tag)
        found = {topic: " || ".join(sorted(each)) for topic, each in tags.items()}
        if not found or queue not in self._session.transient:
            found[self._topic(queue)] = EVERY_TAG
        return found

    # Publishing

    def basic_publish(
        self, message: Payload, exchange: str, routing_key: str, **options: Any
    ) -> None:
        """Send a message, and wait until a broker confirms it.

        Raises:
          ClientError: it was not confirmed.
          ChannelError: there is no queue of this name, and brokers create no topics.
          ValueError: the property `delay_seconds` is out of range.
        """
        if not exchange or not self._is_shared(exchange):
            super().basic_publish(message, exchange, routing_key, **options)
            return
        self._inplace_augment_message(message, exchange, routing_key)
        topic = self._exchange_topic(exchange)
        self._cluster.ensure_topic(topic)
        self._send(topic, message, routing_tag(routing_key))

    def _put(self, queue: str, message: Payload, **_: Any) -> None:
        try:
            self._send(self._topic(queue), message, None)
        except RouteNotFoundError as error:
            text = f"NOT_FOUND - no queue {queue!r}: declare it before publishing"
            raise ChannelError(text, (60, 40), "Channel.basic_publish", NOT_FOUND) from error

    def _send(self, topic: str, message: Payload, tag: str | None) -> None:
        at_ms = None
        if self._session.options.native_delay:
            at_ms = due_ms(message, wall_ms())
        self._cluster.send(to_message(topic, message, tag=tag, due_ms=at_ms))

    # Consuming

    def _consumer(self, queue: str) -> SimpleConsumer:
        subscriptions = self._subscriptions(queue)
        for topic in subscriptions:
            self._cluster.ensure_topic(topic)
        return self._cluster.consumer(self._topic(queue), subscriptions)

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Callable[..., Any],
        consumer_tag: str,
        **options: Any,
    ) -> None:
        """Receive the messages of a queue from now on.

        Raises: ClientError: its topic is not there, and was not created.
        """
        for topic in self._subscriptions(queue):
            self._cluster.ensure_topic(topic)  # replies may be sent to it from now on
        super().basic_consume(queue, no_ack, callback, consumer_tag, **options)
        self._callbacks[queue] = self._transport._callbacks[queue]
        if no_ack:
            self._no_ack.add(queue)
        else:
            self._no_ack.discard(queue)
        self._inflow.start(queue, partial(self._consumer, queue))

    def basic_cancel(self, consumer_tag: str) -> None:
        """Receive no more for a consumer. Messages that it has not settled stay unacknowledged.

        A queue that is deleted with its last consumer (`auto_delete`) is deleted.
        """
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is None or queue in self._active_queues:
            return
        self._callbacks.pop(queue, None)
        if queue in self._session.transient:
            self.queue_delete(queue)
        else:
            self._inflow.stop(queue)

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Any:
        """Receive one message now; None: there is none.

        Raises: ClientError.
        """
        delivery = self._received_now(queue)
        if delivery is None:
            return None
        message = self.Message(delivery.payload, channel=self)
        if no_ack:
            delivery.ack()
        else:
            self._session.keep_invisible()
            self._taken[delivery.tag] = delivery
            self.qos.append(message, delivery.tag)
        return message

    def _received_now(self, queue: str) -> Delivery | None:
        if self._inflow.has(queue):
            # The request of its consumer, which the broker holds, gets what has just been sent.
            return self._inflow.next_of(queue, GET_WAIT_S)
        consumer = self._consumer(queue)
        while messages := consumer.receive(1, invisible_s=self._inflow.invisible_s, wait_s=0):
            delivery = self._delivery(queue, consumer, messages[0])
            if delivery is not None:
                return delivery
        return None

    def _delivery(
        self, queue: str, consumer: SimpleConsumer, message: PoppedMessage
    ) -> Delivery | None:
        """A message that was received; None if it is not for the queue, or too old: it is done."""
        payload = from_message(message, queue, self._next_delivery_tag())
        delivery = Delivery(consumer, message, queue, payload, self._inflow.invisible_s)
        is_late = is_expired(payload, message.born_timestamp_ms, wall_ms())
        if is_late or not self._is_for(queue, delivery):
            delivery.ack()
            return None
        return delivery

    def _is_for(self, queue: str, delivery: Delivery) -> bool:
        info = delivery.payload["properties"]["delivery_info"]
        exchange = info.get("exchange")
        if delivery.message.topic == self._topic(queue) or not exchange:
            return True
        try:
            table = self.get_table(exchange)
        except KeyError:
            return True
        kind = self.typeof(exchange)
        return queue in kind.lookup(table, exchange, info.get("routing_key") or "", None)

    def drain_events(self, timeout: float | None = None, callback: Any = None) -> None:
        """Hand out one message that was received.

        Raises: Empty: there is none, or the prefetch limit is reached.
        """
        delivery = self.next_delivery()
        if delivery is None:
            raise Empty
        self.hand_out(delivery)

    def next_delivery(self) -> Delivery | None:
        """A message to hand out now; None: there is none, or the prefetch limit is reached."""
        return self._inflow.next()

    def hand_out(self, delivery: Delivery) -> None:
        """Give a message to its consumer.

        Raises: ClientError: it is a consumer without acknowledgements, and the broker could not be
          reached; and what the consumer's callback raises.
        """
        callback = self._callbacks.get(delivery.queue)
        if callback is None:  # cancelled meanwhile
            give_back_all([delivery])
            return
        if delivery.queue in self._no_ack:
            delivery.ack()
        else:
            self._taken[delivery.tag] = delivery
        callback(delivery.payload)

    def taken(self, tag: str) -> Delivery:
        """A message that is being handed out; for the QoS."""
        return self._taken.pop(tag)

    def requeue(self, delivery: Delivery) -> None:
        """Have a message delivered again now: a copy is sent, then it is acknowledged.

        For a queue that only reads exchanges, the broker delivers it again after a second or so: a
        copy would go to other queues, too.

        Raises: ClientError: the broker could not be reached, or refused.
        """
        topic = self._topic(delivery.queue)
        if topic in self._subscriptions(delivery.queue):
            self._send(topic, again(delivery.payload), None)
            delivery.ack()
        else:
            delivery.give_back()

    def unsettled(self) -> list[Delivery]:
        """All messages that this channel has received and not settled."""
        return self._inflow.unsettled()

    def wake(self) -> None:
        """Have feeders see that there may be room."""
        self._inflow.wake()

    def close(self) -> None:
        """Stop consuming, and have what is not acknowledged delivered again."""
        if not self.closed:
            exchange_types = self.exchange_types
            super().close()
            self.exchange_types = exchange_types  # for feeders that are still at work
