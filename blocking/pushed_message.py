"""The messages of a blocking push consumer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Generic, Self, TypeAlias

from ..client.errors import AlreadySettledError, ClosedError
from ..client.messages.body_types import ValueT, ValueT_co
from ..client.messages.message import ReceivedMessage, for_log
from ..client.options.push_options import RetryLater
from ..client.pushing.handling import retry_all as retry_all_in_loop
from ..client.pushing.pushed_message import ACKNOWLEDGED, GIVEN_UP, REDELIVERED
from ..client.pushing.pushed_message import PushedMessage as AsyncPushedMessage
from .loop_object import LoopObject

logger = logging.getLogger(__name__)

# Held to settle a message: the program's threads and the one of `run` may do it at once. Reentrant:
# a signal handler that closes the consumer gives messages up, too, in a thread that may hold it.
_settling = threading.RLock()


class PushedMessage(ReceivedMessage, Generic[ValueT_co]):
    """A message that a push consumer delivered; settle it once, by `ack` or `retry`."""

    __slots__ = ("_inner", "_loop_object", "_reconsume_times", "_settlement")

    def __init__(self, inner: AsyncPushedMessage[ValueT_co], loop_object: LoopObject) -> None:
        super().__init__(inner._ext, inner._queue, inner._topic)
        self._inner = inner
        self._loop_object = loop_object
        self._reconsume_times = inner.reconsume_times
        self._settlement = ""

    @property
    def inner(self) -> AsyncPushedMessage[ValueT_co]:
        """The message in the loop; not meant for programs."""
        return self._inner

    @property
    def value(self) -> ValueT_co:
        """The body, converted by the consumer's `deserializer`; bytes without one."""
        return self._inner.value

    @property
    def reconsume_times(self) -> int:
        """Number of earlier deliveries: 0 for the first delivery."""
        return self._reconsume_times

    @property
    def receipt(self) -> str | None:
        """The text by which the broker knows this delivery; None unless it was popped."""
        return self._inner.receipt

    @property
    def first_pop_time_ms(self) -> int | None:
        """Time of its first pop, in milliseconds since 1970; None unless it was popped."""
        return self._inner.first_pop_time_ms

    @property
    def invisible_until_ms(self) -> int | None:
        """Until when the broker gives it to no one else, in milliseconds since 1970, by the
        broker's clock; None unless it was popped."""
        return self._inner.invisible_until_ms

    @property
    def is_settled(self) -> bool:
        """Whether `ack` or `retry` was called, or its handler has taken too long."""
        return bool(self._settlement)

    @property
    def is_revoked(self) -> bool:
        """Whether its queue was assigned to another consumer, or, if it was popped, its invisible
        time is over: settling it has no effect then."""
        return self._inner.is_revoked

    def ack(self) -> None:
        """Acknowledge the message, so that the group's offset can move past it.

        It does not wait.

        Raises:
          AlreadySettledError: it is acknowledged, or to be redelivered, already.
          ForkedError: the consumer was opened in the parent of this process.
        """
        if self._settle("ack", ACKNOWLEDGED):
            self._loop_object.post(self._inner.ack)

    def retry(self, delay_level: int = 0, *, cause: Exception | None = None) -> None:
        """Have the message redelivered: by the retry topic, or, if orderly, by its own queue.

        Args:
          delay_level: 1 to 18 for a delay of the broker's table, or, if it was popped, of
            RocketMQ's default table; 0 for delays that grow with each retry; -1 to send it to the
            dead-letter queue instead.
          cause: why, for interceptors and the message trace; None: the program wants it later.

        Raises:
          AlreadySettledError: it is acknowledged, or to be redelivered, already.
          ForkedError: the consumer was opened in the parent of this process.
        """
        if not self._settle("retry", REDELIVERED):
            return
        try:
            self._loop_object.call(self._inner.retry, delay_level, cause=cause)
        except ClosedError:
            # It is redelivered all the same, as it was not acknowledged.
            return

    def _give_up(self, cause: Exception | None = None) -> bool:
        """Take it from its handler, which can settle it no longer.

        Args:
          cause: have it redelivered for this reason, without waiting for the broker's answer;
            None: it comes again because it is not acknowledged.

        Returns: False: it was settled before.
        """
        with _settling:
            if self._settlement:
                return False
            self._settlement = GIVEN_UP
        if cause is not None:
            self._loop_object.post(self._retry_in_loop, cause)
        return True

    def _begin_retry(self) -> bool:
        """Note that it is to be redelivered, for `retry_all`; returns False if it was settled."""
        with _settling:
            if self._settlement:
                return False
            self._settlement = REDELIVERED
        return True

    def _put_back(self) -> None:
        """Put it back into its orderly queue, and count no delivery."""
        if self._settle("retry", REDELIVERED):
            self._loop_object.post(self._inner._put_back)

    @contextmanager
    def process(self, *, delay_level: int = 0) -> Iterator[Self]:
        """Settle the message at the end of a `with` block, unless the block settles it.

        It is acknowledged at the normal end. After an exception it is redelivered; RetryLater sets
        the delay and is suppressed, any other exception passes through.

        Args:
          delay_level: see `retry`.
        """
        try:
            yield self
        except RetryLater as retry:
            self.retry(retry.delay_level)
        except Exception as error:
            if not self._settlement:
                self.retry(delay_level, cause=error)
            raise
        else:
            if not self._settlement:
                self.ack()

    def _settle(self, verb: str, settlement: str) -> bool:
        """Note how it is settled; returns False if `run` took it from its handler before.

        Raises: AlreadySettledError.
        """
        self._loop_object.check_process()
        with _settling:
            before = self._settlement
            if not before:
                self._settlement = settlement
                return True
        if before != GIVEN_UP:
            raise AlreadySettledError(self.message_id, before, verb)
        logger.warning("%s of %s has no effect: it was %s", verb, for_log(self), GIVEN_UP)
        return False

    def _retry_in_loop(self, cause: Exception) -> None:
        self._loop_object.spawn(partial(self._inner.retry, cause=cause))


def retry_all(
    messages: Sequence[PushedMessage], delay_level: int, cause: Exception | None, *, in_order: bool
) -> None:
    """Have messages of a handler redelivered that it has not settled, and wait for the brokers.

    Args: see `client.handling.retry_all`.
    """
    inner = [message.inner for message in messages if message._begin_retry()]
    with suppress(ClosedError):  # they are redelivered all the same, as they are not acknowledged
        messages[0]._loop_object.call(
            retry_all_in_loop, inner, delay_level, cause, in_order=in_order
        )


Handler: TypeAlias = Callable[[PushedMessage[ValueT]], None]
"""Handles a message; it may block. An exception means that the message is redelivered."""

BatchHandler: TypeAlias = Callable[[list[PushedMessage[ValueT]]], None]
"""Handles a batch of messages; it may block. An exception means that they are redelivered, except
those that it has settled."""
