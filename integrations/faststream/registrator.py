"""RocketRegistrator: makes the subscribers and publishers of a broker object or a router."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from faststream import AckPolicy
from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.parser import DefaultCodec

from ...client.core.subscription import MessageSelector
from ...client.errors import ConfigurationError
from ...client.options.push_options import MAX_RECONSUME_TIMES
from ...client.options.simple_options import INVISIBLE_S
from .configs import (
    RocketBrokerConfig,
    RocketPublisherConfig,
    RocketPublisherSpecificationConfig,
    RocketSubscriberConfig,
    RocketSubscriberSpecificationConfig,
)
from .message import Delivery, parse
from .publisher import RocketPublisher, RocketPublisherSpecification
from .subscriber import RocketSubscriber, RocketSubscriberSpecification

WAIT_S: Final = 1.0
"""How long a request waits for a message. A broker answers at once when there is one; a subscriber
that stops waits so long for the request that is under way."""

INVISIBLE_S_MIN: Final = 1.0
"""A renewal takes some milliseconds, and longer beside a broker that restarts."""


def _check(config: RocketSubscriberConfig) -> None:
    """Raises: ConfigurationError: a number is out of range."""
    is_wrong = (
        config.max_workers < 1
        or config.max_retries < 0
        or config.invisible_s < INVISIBLE_S_MIN
        or config.wait_s <= 0
    )
    if is_wrong:
        raise ConfigurationError(
            f"a subscriber of {config.topic}: give max_workers from 1 on, max_retries from 0 on,"
            f" invisible_s from {INVISIBLE_S_MIN} s on, and wait_s above 0"
        )


class RocketRegistrator(Registrator[Delivery, RocketBrokerConfig]):
    """Makes subscribers and publishers."""

    def subscriber(
        self,
        topic: str,
        *,
        group: str | None = None,
        selector: MessageSelector = "*",
        consume_from_where: Literal["first", "last"] = "first",
        max_workers: int = 1,
        ack_policy: AckPolicy = EMPTY,
        max_retries: int = MAX_RECONSUME_TIMES,
        nack_delay_s: float | None = None,
        invisible_s: float = INVISIBLE_S,
        wait_s: float = WAIT_S,
        no_reply: bool = False,
        dependencies: Iterable[Any] = (),
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> RocketSubscriber:
        """A subscriber, which decorates a handler.

        Args:
          topic: where from, without the prefixes of routers.
          group: the consumer group, of one subscriber of a broker object; processes with the same
            group share the messages. None: a group of the topic's name.
          selector: which messages: tags ("A || B"), trocket's Tag or Sql; "*" for all.
          consume_from_where: where a group that never consumed begins.
          max_workers: how many messages are handled at once, from 1 on; with 1, too, others of the
            group get messages meanwhile, so order is not kept.
          ack_policy: see docs/tutorials/faststream.md. Default: the broker's, else NACK_ON_ERROR.
          max_retries: redeliveries before a message that fails becomes a dead letter, from 0 on.
          nack_delay_s: seconds until a message that failed is delivered again; None: RocketMQ's
            times, which grow from 10 s to 2 h.
          invisible_s: how soon the messages of a process that died come to others, 1 s to 3 days;
            they are renewed while a handler runs.
          wait_s: seconds for which a request waits for messages, > 0.
          no_reply: do not answer requests, nor messages with `reply_to`.
          dependencies, parser, decoder, codec, persistent: as of FastStream's other brokers.
          title, description, include_in_schema: for AsyncAPI.

        Raises: ConfigurationError: a number is out of range.
        """
        config = RocketSubscriberConfig(
            _outer_config=self.config,
            topic=topic,
            group=group,
            selector=selector,
            consume_from_where=consume_from_where,
            max_workers=max_workers,
            max_retries=max_retries,
            nack_delay_s=nack_delay_s,
            invisible_s=invisible_s,
            wait_s=wait_s,
            no_reply=no_reply,
            _ack_policy=ack_policy,
            parser=parse,
            decoder=DefaultCodec().decode,
        )
        _check(config)
        shown = RocketSubscriberSpecificationConfig(
            topic=topic,
            title_=title,
            description_=description,
            include_in_schema=include_in_schema,
        )
        calls: CallsCollection[Delivery] = CallsCollection()
        specification = RocketSubscriberSpecification(self.config, shown, calls)
        subscriber = RocketSubscriber(config, specification, calls)
        super().subscriber(subscriber, persistent=persistent)
        subscriber.add_call(
            parser_=parser, decoder_=decoder, codec_=codec, dependencies_=tuple(dependencies)
        )
        return subscriber

    def publisher(
        self,
        topic: str,
        *,
        tag: str | None = None,
        headers: Mapping[str, Any] | None = None,
        reply_to: str = "",
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        include_in_schema: bool = True,
    ) -> RocketPublisher:
        """A publisher: it publishes what a handler that it decorates returns, or by `publish`.

        Args:
          topic: where to, without the prefixes of routers.
          tag, headers, reply_to: of each message that does not have its own.
          persistent, title, description, schema, include_in_schema: as of FastStream's other
            brokers.
        """
        config = RocketPublisherConfig(
            _outer_config=self.config,
            topic=topic,
            tag=tag,
            headers=dict(headers or {}),
            reply_to=reply_to,
        )
        specification = RocketPublisherSpecification(
            self.config,
            RocketPublisherSpecificationConfig(
                topic=topic,
                title_=title,
                description_=description,
                schema_=schema,
                include_in_schema=include_in_schema,
            ),
        )
        publisher = RocketPublisher(config, specification)
        super().publisher(publisher, persistent=persistent)
        return publisher
