"""Interceptors: hooks that the client calls for every message sent and consumed.

Java counterparts: SendMessageHook, ConsumeMessageHook.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from .message import Message, ReceivedMessage, SendResult, for_log

logger = logging.getLogger(__name__)


class Interceptor:
    """Base class of interceptors. Its methods do nothing; override those that are needed.

    The methods are called in the client's event loop, so they must be short and must not block. An
    exception of `before_send` fails the send; exceptions of the others are logged and suppressed.
    """

    def before_send(self, message: Message) -> Message:
        """Called before a message is encoded; returns the message to send in its place."""
        return message

    def after_send(
        self, message: Message, result: SendResult | None, error: Exception | None
    ) -> None:
        """Called at the end of a send.

        Args:
          message: the message that `before_send` returned.
          result: the result of a confirmed send, otherwise None.
          error: the reason why the send failed, otherwise None. A oneway send has neither.
        """

    def before_consume(self, message: ReceivedMessage) -> None:
        """Called before a push consumer delivers a message."""

    def after_consume(self, message: ReceivedMessage, error: Exception | None) -> None:
        """Called when a delivered message is settled.

        Args:
          message: the message.
          error: None if it was acknowledged; an exception if it will be redelivered.
        """


def call_after_send(
    interceptors: Sequence[Interceptor],
    message: Message,
    result: SendResult | None,
    error: Exception | None,
) -> None:
    """Call `after_send` of all interceptors; exceptions are logged."""
    for interceptor in interceptors:
        try:
            interceptor.after_send(message, result, error)
        except Exception:
            logger.exception("after_send of an interceptor failed")


def call_before_consume(interceptors: Sequence[Interceptor], message: ReceivedMessage) -> None:
    """Call `before_consume` of all interceptors; exceptions are logged."""
    for interceptor in interceptors:
        try:
            interceptor.before_consume(message)
        except Exception:
            logger.exception("before_consume of an interceptor failed for %s", for_log(message))


def call_after_consume(
    interceptors: Sequence[Interceptor], message: ReceivedMessage, error: Exception | None
) -> None:
    """Call `after_consume` of all interceptors; exceptions are logged."""
    for interceptor in interceptors:
        try:
            interceptor.after_consume(message, error)
        except Exception:
            logger.exception("after_consume of an interceptor failed for %s", for_log(message))
