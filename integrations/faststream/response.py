"""The command that a producer publishes, and a handler's answer with RocketMQ's fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from faststream.response import PublishCommand, Response
from faststream.response.publish_type import PublishType

from ...client.messages.message import ReceivedMessage

REQUEST_TIMEOUT_S: Final = 3.0
"""Seconds for a request and its reply, as in trocket's client and RocketMQ's."""


class RocketPublishCommand(PublishCommand):
    """One message to publish.

    Args:
      body: what the codec encodes.
      topic: where to.
      keys, tag, delay_s, sharding_key: see trocket's Message.
      timeout_s: seconds for all attempts, with a request's reply; None: the client's own.

    Attributes:
      request: the request to which it is the reply; None: it is none.
    """

    def __init__(
        self,
        body: Any,
        *,
        topic: str = "",
        keys: str | Sequence[str] = (),
        tag: str | None = None,
        delay_s: float | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        _publish_type: PublishType = PublishType.PUBLISH,
    ) -> None:
        super().__init__(
            body,
            _publish_type=_publish_type,
            destination=topic,
            headers=dict(headers or {}),
            correlation_id=correlation_id,
            reply_to=reply_to,
        )
        self.keys = keys
        self.tag = tag
        self.delay_s = delay_s
        self.sharding_key = sharding_key
        self.timeout_s = timeout_s
        self.request: ReceivedMessage | None = None

    @classmethod
    def from_cmd(cls, cmd: PublishCommand) -> RocketPublishCommand:
        """The command itself, or one with the fields that all brokers have."""
        if isinstance(cmd, RocketPublishCommand):
            return cmd
        return cls(
            cmd.body,
            topic=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
            _publish_type=cmd.publish_type,
        )


class RocketResponse(Response):
    """What a handler returns to publish its answer with RocketMQ's fields; see trocket's Message.

    Args:
      body: what a handler would return alone.
    """

    def __init__(
        self,
        body: Any,
        *,
        keys: str | Sequence[str] = (),
        tag: str | None = None,
        delay_s: float | None = None,
        sharding_key: str | None = None,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
    ) -> None:
        super().__init__(body, headers=dict(headers or {}), correlation_id=correlation_id)
        self._fields: dict[str, Any] = {
            "keys": keys,
            "tag": tag,
            "delay_s": delay_s,
            "sharding_key": sharding_key,
        }

    def as_publish_command(self) -> RocketPublishCommand:
        """For the publishers of the handler."""
        return RocketPublishCommand(
            self.body, headers=self.headers, correlation_id=self.correlation_id, **self._fields
        )
