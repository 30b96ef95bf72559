"""Publishers: `@broker.publisher`, and those that answer requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream.response import PublishCommand
from faststream.response.publish_type import PublishType
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec

from ...client.messages.message import ReceivedMessage, SendResult
from .configs import (
    OfTopic,
    RocketBrokerConfig,
    RocketPublisherConfig,
    RocketPublisherSpecificationConfig,
)
from .message import RocketMessage
from .response import REQUEST_TIMEOUT_S, RocketPublishCommand


class RocketPublisherSpecification(
    OfTopic, PublisherSpecification[RocketBrokerConfig, RocketPublisherSpecificationConfig]
):
    """A publisher in AsyncAPI."""

    @property
    def name(self) -> str:
        """The key of its channel."""
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """Its channel; AsyncAPI has no bindings for RocketMQ."""
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        return {
            self.name: PublisherSpec(
                address=self.topic,
                description=self.config.description_,
                operation=Operation(
                    message=Message(title=f"{self.name}:Message", payload=payload), bindings=None
                ),
                bindings=None,
            )
        }


class RocketPublisher(OfTopic, PublisherUsecase):
    """Publishes to one topic; see `RocketRegistrator.publisher`."""

    def __init__(
        self, config: RocketPublisherConfig, specification: RocketPublisherSpecification
    ) -> None:
        super().__init__(config, specification)
        self.config = config

    async def publish(
        self,
        message: Any,
        topic: str = "",
        *,
        keys: str | Sequence[str] = (),
        tag: str | None = None,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        delay_s: float | None = None,
        sharding_key: str | None = None,
        timeout: float | None = None,
    ) -> SendResult | None:
        """As `RocketBroker.publish`, with this publisher's topic, tag and headers as defaults."""
        command = RocketPublishCommand(
            message,
            topic=topic or self.topic,
            keys=keys,
            tag=tag or self.config.tag,
            headers={**self.config.headers, **(headers or {})},
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to or self.config.reply_to,
            delay_s=delay_s,
            sharding_key=sharding_key,
            timeout_s=timeout,
        )
        result: SendResult | None = await self._basic_publish(
            command, producer=self._outer_config.producer, _extra_middlewares=()
        )
        return result

    async def request(
        self,
        message: Any,
        topic: str = "",
        *,
        keys: str | Sequence[str] = (),
        tag: str | None = None,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> RocketMessage:
        """As `RocketBroker.request`, with this publisher's topic, tag and headers as defaults."""
        command = RocketPublishCommand(
            message,
            topic=topic or self.topic,
            keys=keys,
            tag=tag or self.config.tag,
            headers={**self.config.headers, **(headers or {})},
            correlation_id=correlation_id or self._outer_config.id_generator(),
            timeout_s=timeout,
            _publish_type=PublishType.REQUEST,
        )
        reply: RocketMessage = await self._basic_request(
            command, producer=self._outer_config.producer
        )
        return reply

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[Any]
    ) -> SendResult | None:
        """Publish what a handler returned."""
        command = RocketPublishCommand.from_cmd(cmd)
        command.destination = self.topic
        command.tag = command.tag or self.config.tag
        command.reply_to = command.reply_to or self.config.reply_to
        command.add_headers(self.config.headers, override=False)
        result: SendResult | None = await self._basic_publish(
            command, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares
        )
        return result


class ReplyPublisher(FakePublisher):
    """Publishes what a handler returned to the topic of `reply_to`, or as the reply to a request.

    Args:
      producer: of the broker object.
      reply_to: a topic; ignored for a request.
      request: the request; None: the message is none.
    """

    def __init__(self, producer: Any, reply_to: str, request: ReceivedMessage | None) -> None:
        super().__init__(producer=producer)
        self._reply_to = reply_to
        self._request = request

    def patch_command(self, cmd: PublishCommand) -> RocketPublishCommand:
        """The command with its destination."""
        command = RocketPublishCommand.from_cmd(super().patch_command(cmd))
        command.destination = self._reply_to
        command.request = self._request
        return command
