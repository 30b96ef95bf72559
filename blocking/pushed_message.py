"""A message of a blocking push consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeAlias

from ..client.errors import ClosedError
from ..client.message import ReceivedMessage
from ..client.push_options import RetryLater
from ..client.pushed_message import PushedMessage as AsyncPushedMessage
from .loop_object import LoopObject


class PushedMessage(ReceivedMessage):
    """A message that a push consumer handed out, to be settled once: `ack` or `retry`."""

    __slots__ = ("_inner", "_is_settled", "_loop_object", "_reconsume_times")

    def __init__(self, inner: AsyncPushedMessage, loop_object: LoopObject) -> None:
        super().__init__(inner._ext, inner._queue, inner._topic)
        self._inner = inner
        self._loop_object = loop_object
        self._reconsume_times = inner.reconsume_times
        self._is_settled = False

    @property
    def value(self) -> Any:
        """The body as the consumer's `deserializer` makes it; without one, the bytes."""
        return self._inner.value

    @property
    def reconsume_times(self) -> int:
        """How often it was handed out before: 0 the first time."""
        return self._reconsume_times

    @property
    def is_settled(self) -> bool:
        """Whether it was acknowledged, or is to come again."""
        return self._is_settled

    @property
    def is_revoked(self) -> bool:
        """Whether its queue belongs to somebody else now: settling it changes nothing."""
        return self._inner.is_revoked

    def ack(self) -> None:
        """It is done with; the group's offset moves on. A second settlement has no effect.

        Waits for nothing.

        Raises: ForkedError.
        """
        if self._settle():
            self._loop_object.post(self._inner.ack)

    def retry(self, delay_level: int = 0) -> None:
        """It is to come again: by the retry topic, or, if orderly, after a pause of its queue.

        Args:
          delay_level: 1 to 18; 0: the broker's ladder, longer each time; -1: never, to the DLQ.

        Raises: ForkedError.
        """
        if not self._settle():
            return
        try:
            self._loop_object.call(self._inner.retry, delay_level)
        except ClosedError:
            # It comes again all the same: it was not acknowledged.
            return

    def _retry_soon(self) -> None:
        """`retry` without waiting for the broker to take it back."""
        if self._settle():
            self._loop_object.post(self._retry_in_loop)

    @contextmanager
    def process(self, *, delay_level: int = 0) -> Iterator[Self]:
        """Acknowledge it at the end of the block; an exception in it means `retry`, and goes on."""
        try:
            yield self
        except RetryLater as wish:
            self.retry(wish.delay_level)
        except Exception:
            self.retry(delay_level)
            raise
        else:
            self.ack()

    def _settle(self) -> bool:
        self._loop_object.check_process()
        if self._is_settled:
            return False
        self._is_settled = True
        return True

    def _retry_in_loop(self) -> None:
        self._loop_object.spawn(self._inner.retry)


Handler: TypeAlias = Callable[[PushedMessage], None]
"""Handles a message, and may block; an exception means that it is to come again."""
