"""A message of a push consumer, and the queue that it came from.

Java counterparts: MessageExt with ConsumeConcurrentlyStatus or ConsumeOrderlyStatus, ProcessQueue.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol, Self

import anyio

from ..remoting.bodies import MessageQueue, SubscriptionData
from ..remoting.message import MessageExt
from . import clock
from .core.process_queue import ProcessQueue
from .errors import ClosedError
from .message import ReceivedMessage
from .push_options import PushConsumerConfig, RetryLater


class ConsumeResults(Protocol):
    """Who settles the messages of a consumer."""

    @property
    def deserializer(self) -> Callable[[bytes], Any] | None:
        """Makes a message's `value` of its body."""
        ...

    def ack(self, message: PushedMessage, assigned: AssignedQueue) -> None:
        """The message is done with."""

    async def retry(
        self, message: PushedMessage, ext: MessageExt, assigned: AssignedQueue, delay_level: int
    ) -> None:
        """The message is to come again; `ext` is what it was made of."""


class PushedMessage(ReceivedMessage):
    """A message that a push consumer handed out, to be settled once: `ack` or `retry`.

    Args:
      ext: decoded, its body inflated.
      topic: without namespace; of a retry the one it was first sent to.
      assigned: where it was pulled from.
      results: does what `ack` and `retry` say.
      reconsume_times: how often it was handed out before.
    """

    __slots__ = ("_assigned", "_is_settled", "_reconsume_times", "_results")

    def __init__(
        self,
        ext: MessageExt,
        topic: str,
        assigned: AssignedQueue,
        results: ConsumeResults,
        reconsume_times: int,
    ) -> None:
        super().__init__(ext, assigned.queue, topic)
        self._assigned = assigned
        self._results = results
        self._is_settled = False
        self._reconsume_times = reconsume_times

    @property
    def value(self) -> Any:
        """The body as the consumer's `deserializer` makes it; without one, the bytes."""
        deserializer = self._results.deserializer
        return self._ext.body if deserializer is None else deserializer(self._ext.body)

    @property
    def reconsume_times(self) -> int:
        """How often it was handed out before: 0 the first time."""
        return self._reconsume_times

    @property
    def is_settled(self) -> bool:
        """Whether it was acknowledged, or is to come again."""
        return self._is_settled

    def ack(self) -> None:
        """It is done with; the group's offset moves on. A second settlement has no effect."""
        if not self._is_settled:
            self._is_settled = True
            self._results.ack(self, self._assigned)

    async def retry(self, delay_level: int = 0) -> None:
        """It is to come again: by the retry topic, or, if orderly, after a pause of its queue.

        Args:
          delay_level: 1 to 18; 0: the broker's ladder, longer each time; -1: never, to the DLQ.
        """
        if not self._is_settled:
            self._is_settled = True
            await self._results.retry(self, self._ext, self._assigned, delay_level)

    @property
    def is_revoked(self) -> bool:
        """Whether its queue belongs to somebody else now: settling it changes nothing."""
        return self._assigned.is_dropped

    def again(self) -> PushedMessage:
        """The same message, not settled, for the next time that the consumer hands it out.

        It is another object: who settled this one late does not settle that one.
        """
        return PushedMessage(
            self._ext, self._topic, self._assigned, self._results, self._reconsume_times + 1
        )

    @asynccontextmanager
    async def process(self, *, delay_level: int = 0) -> AsyncIterator[Self]:
        """Acknowledge it at the end of the block; an exception in it means `retry`, and goes on."""
        try:
            yield self
        except RetryLater as wish:
            await self.retry(wish.delay_level)
        except Exception:
            await self.retry(delay_level)
            raise
        else:
            self.ack()


class AssignedQueue:
    """A queue that a consumer has now.

    Attributes:
      queue: which one; its topic with namespace.
      subscription: what is wanted of it.
      process_queue: what is held of it.
      scope: of the task that pulls it.
      next_offset: where to pull next, in messages.
      broker_id: which broker of its name to pull from, as the last pull suggested; 0: the master.
      is_handed_out: of an ordered queue: one message is out, or it pauses.
    """

    __slots__ = (
        "_config",
        "_room",
        "broker_id",
        "is_handed_out",
        "next_offset",
        "process_queue",
        "queue",
        "scope",
        "subscription",
    )

    def __init__(
        self, queue: MessageQueue, subscription: SubscriptionData, config: PushConsumerConfig
    ) -> None:
        self.queue: MessageQueue = queue
        self.subscription: SubscriptionData = subscription
        self.process_queue: ProcessQueue[PushedMessage] = ProcessQueue(clock.monotonic_ms())
        self.scope: anyio.CancelScope = anyio.CancelScope()
        self.next_offset: int = 0
        self.broker_id: int = 0
        self.is_handed_out: bool = False
        self._config = config
        self._room: anyio.Event | None = None

    @property
    def is_dropped(self) -> bool:
        """Whether it belongs to somebody else."""
        return self.process_queue.is_dropped

    def drop(self) -> None:
        """It belongs to somebody else."""
        self.process_queue.is_dropped = True
        self.scope.cancel()
        self.process_queue.clear()

    @property
    def has_room(self) -> bool:
        """Whether it may be pulled: not too much of it is in memory."""
        config, held = self._config, self.process_queue
        return (
            held.count < config.pull_threshold_for_queue
            and held.size < config.pull_threshold_size_for_queue
            and (config.is_orderly or held.span < config.consume_concurrently_max_span)
        )

    async def wait_for_room(self) -> None:
        """Wait until it may be pulled."""
        while not self.has_room:
            self._room = anyio.Event()
            await self._room.wait()
        self._room = None

    def look_for_room(self) -> None:
        """Wake the task that waits for room, if a settled message has made some."""
        if self._room is not None and self.has_room:
            self._room.set()


class Messages:
    """An iteration over a consumer's messages, until it is stopped.

    Args:
      receive: waits for the next message; raises ClosedError at the end.
      auto_ack: acknowledge each when the next one is asked for, unless it is settled already.
    """

    def __init__(self, receive: Callable[[], Awaitable[PushedMessage]], auto_ack: bool) -> None:
        self._receive = receive
        self._auto_ack = auto_ack
        self._last: PushedMessage | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PushedMessage:
        if self._last is not None:
            self._last.ack()
            self._last = None
        try:
            message = await self._receive()
        except ClosedError:
            raise StopAsyncIteration from None
        if self._auto_ack:
            self._last = message
        return message
