"""Hooks of a program into every send and every consumption.

Java counterparts: SendMessageHook, ConsumeMessageHook.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from .message import Message, ReceivedMessage, SendResult

logger = logging.getLogger(__name__)


class Interceptor:
    """Does nothing; override what is of use. It runs in the client's loop: keep it short.

    An exception of `before_send` fails the send; one of the others is logged and goes no further.
    """

    def before_send(self, message: Message) -> Message:
        """Called with each message before it is encoded; returns what is sent instead."""
        return message

    def after_send(
        self, message: Message, result: SendResult | None, error: Exception | None
    ) -> None:
        """Called once a send is confirmed (`result`), or is not (`error`); oneway: neither."""

    def before_consume(self, message: ReceivedMessage) -> None:
        """Called before a push consumer hands a message out."""

    def after_consume(self, message: ReceivedMessage, error: Exception | None) -> None:
        """Called when a handed-out message is settled: acknowledged (None), or to come again."""


def tell_sent(
    interceptors: Sequence[Interceptor],
    message: Message,
    result: SendResult | None,
    error: Exception | None,
) -> None:
    """Call `after_send` of all; what they raise is logged."""
    for interceptor in interceptors:
        try:
            interceptor.after_send(message, result, error)
        except Exception:
            logger.exception("an interceptor failed after a send")


def tell_handed_out(interceptors: Sequence[Interceptor], message: ReceivedMessage) -> None:
    """Call `before_consume` of all; what they raise is logged."""
    for interceptor in interceptors:
        try:
            interceptor.before_consume(message)
        except Exception:
            logger.exception("an interceptor failed before %s was consumed", message)


def tell_settled(
    interceptors: Sequence[Interceptor], message: ReceivedMessage, error: Exception | None
) -> None:
    """Call `after_consume` of all; what they raise is logged."""
    for interceptor in interceptors:
        try:
            interceptor.after_consume(message, error)
        except Exception:
            logger.exception("an interceptor failed after %s was consumed", message)
