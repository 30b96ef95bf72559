"""The messages of a blocking push consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Generic, Self, TypeAlias

from ..client.body_types import ValueT, ValueT_co
from ..client.errors import ClosedError
from ..client.message import ReceivedMessage
from ..client.push_options import RetryLater
from ..client.pushed_message import PushedMessage as AsyncPushedMessage
from .loop_object import LoopObject


class PushedMessage(ReceivedMessage, Generic[ValueT_co]):
    """A message that a push consumer delivered; settle it once, by `ack` or `retry`."""

    __slots__ = ("_inner", "_is_settled", "_loop_object", "_reconsume_times")

    def __init__(self, inner: AsyncPushedMessage[ValueT_co], loop_object: LoopObject) -> None:
        super().__init__(inner._ext, inner._queue, inner._topic)
        self._inner = inner
        self._loop_object = loop_object
        self._reconsume_times = inner.reconsume_times
        self._is_settled = False

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
        """Whether `ack` or `retry` was called."""
        return self._is_settled

    @property
    def is_revoked(self) -> bool:
        """Whether its queue was assigned to another consumer, or, if it was popped, its invisible
        time is over: settling it has no effect then."""
        return self._inner.is_revoked

    def ack(self) -> None:
        """Acknowledge the message, so that the group's offset can move past it.

        It does not wait. It has no effect on a message that is settled already.

        Raises: ForkedError: the consumer was opened in the parent of this process.
        """
        if self._settle():
            self._loop_object.post(self._inner.ack)

    def retry(self, delay_level: int = 0, *, cause: Exception | None = None) -> None:
        """Have the message redelivered: by the retry topic, or, if orderly, by its own queue.

        It has no effect on a message that is settled already.

        Args:
          delay_level: 1 to 18 for a delay of the broker's table, or, if it was popped, of
            RocketMQ's default table; 0 for delays that grow with each retry; -1 to send it to the
            dead-letter queue instead.
          cause: why, for interceptors and the message trace; None: the program wants it later.

        Raises: ForkedError: the consumer was opened in the parent of this process.
        """
        if not self._settle():
            return
        try:
            self._loop_object.call(self._inner.retry, delay_level, cause=cause)
        except ClosedError:
            # It is redelivered all the same, as it was not acknowledged.
            return

    def _retry_soon(self, cause: Exception) -> None:
        """Do the same as `retry`, without waiting for the broker's answer."""
        if self._settle():
            self._loop_object.post(self._retry_in_loop, cause)

    @contextmanager
    def process(self, *, delay_level: int = 0) -> Iterator[Self]:
        """Settle the message at the end of a `with` block.

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
            self.retry(delay_level, cause=error)
            raise
        else:
            self.ack()

    def _settle(self) -> bool:
        self._loop_object.check_process()
        if self._is_settled:
            return False
        self._is_settled = True
        return True

    def _retry_in_loop(self, cause: Exception) -> None:
        self._loop_object.spawn(partial(self._inner.retry, cause=cause))


Handler: TypeAlias = Callable[[PushedMessage[ValueT]], None]
"""Handles a message; it may block. An exception means that the message is redelivered."""
