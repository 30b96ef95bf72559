"""The simple consumer for programs with threads."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final, Unpack

from ..client.core.subscription import MessageSelector
from ..client.errors import ClosedError, ExpiredReceiptError
from ..client.popped_message import PoppedMessage
from ..client.simple_consumer import SimpleConsumer as AsyncSimpleConsumer
from ..client.simple_options import INVISIBLE_S, RECEIVE_COUNT, SimpleConsumerOptions
from .client import Client, TracedMember
from .forwarded import forwarded

logger = logging.getLogger(__name__)


class SimpleConsumer(TracedMember[AsyncSimpleConsumer]):
    """Receives messages of a group by pops; the blocking `trocket.client.SimpleConsumer`.

    Use::

        with SimpleConsumer(url, group="g", subscriptions={"Topic": "*"}) as consumer:
            for message in consumer.receive():
                ...
                consumer.ack(message)

    Any number of threads can use one consumer.

    Args:
      client: the URL of a cluster, or an open Client to share with other objects.
      group: the consumer group.
      subscriptions: the topics to receive from, each with the messages to receive: "*" for all,
        tags ("A || B"), Tag or Sql. Default: none; see `subscribe`.
      options: see SimpleConsumerOptions; those of ClientOptions are allowed only with a URL.

    Raises: ConfigurationError: the URL, a name, a selector or an option is invalid.
    """

    def __init__(
        self,
        client: str | Client,
        *,
        group: str,
        subscriptions: Mapping[str, MessageSelector] | None = None,
        **options: Unpack[SimpleConsumerOptions],
    ) -> None:
        super().__init__(
            client,
            lambda inner: AsyncSimpleConsumer(
                inner, group=group, subscriptions=subscriptions, **options
            ),
        )

    @property
    def subscriptions(self) -> dict[str, str]:
        """The topics, without namespace, each with its tags or SQL expression."""
        return self._inner.subscriptions

    subscribe: Final = forwarded(AsyncSimpleConsumer.subscribe)
    unsubscribe: Final = forwarded(AsyncSimpleConsumer.unsubscribe)

    # Messages

    receive: Final = forwarded(AsyncSimpleConsumer.receive)
    ack: Final = forwarded(AsyncSimpleConsumer.ack)
    ack_all: Final = forwarded(AsyncSimpleConsumer.ack_all)
    change_invisible: Final = forwarded(AsyncSimpleConsumer.change_invisible)

    def __iter__(self) -> Iterator[PoppedMessage]:
        return self.messages()

    def messages(
        self,
        *,
        max_messages: int = RECEIVE_COUNT,
        invisible_s: float = INVISIBLE_S,
        auto_ack: bool = True,
    ) -> Iterator[PoppedMessage]:
        """Iterate over messages until the consumer is closed.

        Messages are received `max_messages` at a time. Those whose invisible time ends before their
        turn are left out: the broker delivers them again. So are those that are left when the
        iteration ends early.

        Args:
          max_messages, invisible_s: see `receive`.
          auto_ack: acknowledge each message when the next one is requested, unless it is settled
            already; a message that ends the iteration (`break`, an exception) is delivered again.
        """
        try:
            while True:
                for message in self.receive(max_messages, invisible_s=invisible_s):
                    if self._inner.client.now_s() >= message.deadline_s:
                        continue
                    yield message
                    if auto_ack:
                        self._ack(message)
        except ClosedError:
            return

    def _ack(self, message: PoppedMessage) -> None:
        try:
            self.ack(message)
        except ExpiredReceiptError as error:
            logger.warning("%s was not acknowledged in time: %s", message, error)
