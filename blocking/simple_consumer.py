"""The simple consumer for programs with threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NoReturn, Unpack

from ..client.checks.misuse import explained, knows_elsewhere, wrong_for
from ..client.checks.other_names import SIMPLE_CONSUMER
from ..client.core.subscription import MessageSelector
from ..client.errors import ClosedError
from ..client.options.simple_options import INVISIBLE_S, RECEIVE_COUNT, SimpleConsumerOptions
from ..client.popping.popped_message import PoppedMessage
from ..client.popping.simple_consumer import SimpleConsumer as AsyncSimpleConsumer
from .client import Client, TracedMember
from .forwarded import forwarded


@knows_elsewhere(SIMPLE_CONSUMER)
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

    @explained
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
    dead_letter: Final = forwarded(AsyncSimpleConsumer.dead_letter)

    if not TYPE_CHECKING:

        def __aiter__(self) -> NoReturn:
            raise wrong_for(self, "for")

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

        Raises: ClosedError: at the first message, if the consumer was never opened.
        """
        messages = self._inner.messages(
            max_messages=max_messages, invisible_s=invisible_s, auto_ack=auto_ack
        )
        try:
            while (message := self._call(_next, messages)) is not None:
                yield message
        except ClosedError:
            if not self._was_opened:
                raise


async def _next(messages: AsyncIterator[PoppedMessage]) -> PoppedMessage | None:
    return await anext(messages, None)
