"""The clients of one connection: a producer, an Admin and a consumer for each group."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from ...blocking import Admin, Client, Message, Producer, SimpleConsumer
from ...client.admin import NotFoundError
from ...client.connection.options import ClientOptions
from ...client.errors import ClientError, RouteNotFoundError, ServerError
from ...remoting.bodies import MessageQueue
from ...remoting.response_codes import ResponseCode

logger = logging.getLogger(__name__)

PRODUCER_GROUP: Final = "kombu-producers"


class Cluster:
    """The objects of one connection; any thread may use them.

    Args:
      url: trocket's URL of the cluster.
      options: see ClientOptions.
      topic_queues: queues of topics that are created, on each broker.
      creates_topics: False: all topics are there, and are not looked up.

    Raises: ConfigurationError: the URL or an option is invalid.
    """

    def __init__(
        self, url: str, options: ClientOptions, *, topic_queues: int, creates_topics: bool
    ) -> None:
        # Fails at once where the others try again: kombu has its own pauses between connections.
        at_once: ClientOptions = {**options, "wait_for_broker_s": 0}
        self._probe = Client(url, **at_once)
        self._client = Client(url, **options)
        self._producer: Producer = Producer(self._client, group=PRODUCER_GROUP)
        self._admin = Admin(self._client)
        self._topic_queues = topic_queues
        self._creates_topics = creates_topics
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._consumers: dict[str, SimpleConsumer] = {}

    def open(self) -> None:
        """Connect.

        Raises: ClientError: no name server answers, or it refuses.
        """
        with self._probe, Admin(self._probe) as admin:
            admin.cluster()
        try:
            self._client.open()
            self._admin.open()
            self._producer.open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all; failures are logged, as the connection may be lost."""
        with self._lock:
            consumers = list(self._consumers.values())
            self._consumers.clear()
        closers = [*(each.close for each in consumers), self._producer.close, self._admin.close]
        for close in (*closers, self._client.close):
            try:
                close()
            except ClientError as error:
                logger.warning("closing a connection to RocketMQ: %s", error)

    # Topics

    def has_topic(self, topic: str) -> bool:
        """Whether a topic is there.

        Raises: ClientError.
        """
        try:
            self._admin.topic(topic)
        except RouteNotFoundError:
            return False
        return True

    def ensure_topic(self, topic: str) -> None:
        """Create a topic if it is not there; asked once for each topic.

        Raises: ClientError.
        """
        if topic in self._known:
            return
        if self._creates_topics and not self.has_topic(topic):
            self._admin.create_topic(topic, self._topic_queues)
        self._known.add(topic)

    def delete(self, name: str, *, with_topic: bool) -> None:
        """Delete a group, and the topic of its name; what is not there is no error.

        Raises: ClientError.
        """
        with self._lock:
            consumer = self._consumers.pop(name, None)
        if consumer is not None:
            consumer.close()
        with suppress(NotFoundError):
            self._admin.delete_group(name, with_topics=True)
        self._known.discard(name)
        if with_topic:
            with suppress(RouteNotFoundError):
                self._admin.delete_topic(name)

    # Messages

    def send(self, message: Message) -> None:
        """Send a message, and wait until a broker confirms it.

        Raises: ClientError.
        """
        try:
            self._producer.send(message)
        except RouteNotFoundError:
            self._known.discard(message.topic)  # deleted meanwhile
            raise

    def consumer(self, group: str, subscriptions: Mapping[str, str]) -> SimpleConsumer:
        """The consumer of a group, with these subscriptions from now on.

        Raises: ClientError.
        """
        with self._lock:
            consumer = self._consumers.get(group)
            if consumer is None:
                consumer = SimpleConsumer(
                    self._client,
                    group=group,
                    subscriptions=subscriptions,
                    consume_from_where="first",
                )
                consumer.open()
                self._consumers[group] = consumer
                return consumer
        present = consumer.subscriptions
        for topic, tags in subscriptions.items():
            if present.get(topic) != tags:
                consumer.subscribe(topic, tags)
        return consumer

    # Groups

    def start_at_end(self, group: str, topic: str) -> None:
        """Have a group that has no offsets in a topic begin with the next message.

        Raises: ClientError.
        """
        lag = self._admin.lag(group, topic)
        new = {
            MessageQueue(each.topic, each.broker_name, each.queue_id): each.end
            for each in lag.queues
            if each.committed is None
        }
        if not new:
            return
        try:
            self._admin.reset_offset(group, topic, offsets=new)
        except ServerError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            self._admin.create_group(group)
            self._admin.reset_offset(group, topic, offsets=new)

    def waiting(self, group: str, topic: str) -> int:
        """About how many messages of a topic a group has not received yet.

        Raises: ClientError.
        """
        try:
            queues = self._admin.lag(group, topic).queues
        except RouteNotFoundError:
            return 0
        return sum(each.lag for each in queues)
