"""The messages of a push consumer, and the queues assigned to it.

Java counterparts: MessageExt with ConsumeConcurrentlyStatus or ConsumeOrderlyStatus, ProcessQueue.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, Protocol, Self, cast

import anyio

from ...common import message_properties as names
from ...remoting.bodies import MessageQueue, SubscriptionData
from ...remoting.message import MessageExt
from ..core.process_queue import ProcessQueue
from ..core.topics import is_retry_topic
from ..errors import AlreadySettledError, ClosedError
from ..messages.body_types import ValueT, ValueT_co
from ..messages.message import ReceivedMessage, for_log
from ..options.push_options import PushConsumerConfig, RetryLater
from ..tasks import clock

logger = logging.getLogger(__name__)

ACKNOWLEDGED: Final = "acknowledged"
REDELIVERED: Final = "to be redelivered"
GIVEN_UP: Final = "taken from its handler"
"""Its handler took too long, or was cut by `stop`; what the handler does later has no effect."""


class ConsumeResults(Protocol):
    """Settles the messages of a consumer."""

    @property
    def deserializer(self) -> Callable[[bytes], Any] | None:
        """Converts the body of a message to its `value`."""
        ...

    def ack(self, message: PushedMessage, assigned: AssignedQueue) -> None:
        """Acknowledge a message."""

    def retry(
        self,
        message: PushedMessage,
        ext: MessageExt,
        assigned: AssignedQueue,
        delay_level: int,
        cause: Exception | None,
    ) -> Coroutine[Any, Any, None]:
        """Have a message redelivered; `ext` is its decoded record."""
        ...

    def put_back(self, message: PushedMessage, assigned: AssignedQueue) -> None:
        """Have a message delivered again soon, and count no delivery."""


class PushedMessage(ReceivedMessage, Generic[ValueT_co]):
    """A message that a push consumer delivered; settle it once, by `ack` or `retry`.

    Args:
      ext: the decoded message, with its body decompressed.
      topic: its topic, without namespace; for a redelivery, the topic that it was first sent to.
      assigned: the queue that it was pulled from.
      results: carries out `ack` and `retry`.
      reconsume_times: number of earlier deliveries.
    """

    __slots__ = ("_assigned", "_is_in_handler", "_reconsume_times", "_results", "_settlement")

    def __init__(
        self,
        ext: MessageExt,
        topic: str,
        assigned: AssignedQueue,
        results: ConsumeResults,
        reconsume_times: int,
    ) -> None:
        # The fields of ReceivedMessage by hand: its __init__ would cost as much as all of these.
        self._ext = ext
        self._queue = assigned.queue
        self._topic = topic
        self._assigned = assigned
        self._results = results
        self._settlement = ""
        self._reconsume_times = reconsume_times
        # A handler of `run` has it now.
        self._is_in_handler = False

    @property
    def value(self) -> ValueT_co:
        """The body, converted by the consumer's `deserializer`; bytes without one."""
        deserializer = self._results.deserializer
        body = self._ext.body
        converted: Any = body if deserializer is None else deserializer(body)
        return cast("ValueT_co", converted)

    @property
    def reconsume_times(self) -> int:
        """Number of earlier deliveries: 0 for the first delivery."""
        return self._reconsume_times

    @property
    def is_settled(self) -> bool:
        """Whether `ack` or `retry` was called, or its handler has taken too long."""
        return bool(self._settlement)

    def ack(self) -> None:
        """Acknowledge the message, so that the group's offset can move past it.

        Raises: AlreadySettledError: it is acknowledged, or to be redelivered, already.
        """
        if self._settlement:
            self._check_unsettled("ack")
            return
        self._settlement = ACKNOWLEDGED
        self._results.ack(self, self._assigned)

    def retry(
        self, delay_level: int = 0, *, cause: Exception | None = None
    ) -> Coroutine[Any, Any, None]:
        """Have the message redelivered: by the retry topic, or, if orderly, by its own queue.

        Await it. (In a plain handler, which runs in a thread, the call is enough.)

        Args:
          delay_level: 1 to 18 for a delay of the broker's table, or, if it was popped, of
            RocketMQ's default table; 0 for delays that grow with each retry; -1 to send it to the
            dead-letter queue instead.
          cause: why, for interceptors and the message trace; None: the program wants it later.

        Raises: AlreadySettledError: it is acknowledged, or to be redelivered, already.
        """
        if self._settlement:
            self._check_unsettled("retry")
            return Begun()
        self._settlement = REDELIVERED
        return self._results.retry(self, self._ext, self._assigned, delay_level, cause)

    def _check_unsettled(self, verb: str) -> None:
        """Raises: AlreadySettledError: it was settled, other than by `run` in place of a handler
        that took too long."""
        if self._settlement != GIVEN_UP:
            raise AlreadySettledError(self.message_id, self._settlement, verb)
        logger.warning("%s of %s has no effect: it was %s", verb, for_log(self), GIVEN_UP)

    # For `run`

    def _give_up(self) -> None:
        """Take it from its handler, which can settle it no longer: it comes again later."""
        self._settlement = GIVEN_UP

    def _redeliver_late(self, cause: Exception) -> Coroutine[Any, Any, None]:
        """Take it from its handler, and have it redelivered."""
        self._settlement = GIVEN_UP
        return self._results.retry(self, self._ext, self._assigned, 0, cause)

    def _put_back(self) -> None:
        """Have it delivered again soon, and count no delivery."""
        self._settlement = REDELIVERED
        self._results.put_back(self, self._assigned)

    def _settle_by(self, of: Callable[[ConsumeResults], ConsumeResults]) -> None:
        """Replace what carries out `ack` and `retry`."""
        self._results = of(self._results)

    @property
    def is_revoked(self) -> bool:
        """Whether its queue was assigned to another consumer, or, if it was popped, its invisible
        time is over: settling it has no effect then."""
        return self._assigned.process_queue.is_dropped

    def again(
        self, results: ConsumeResults, *, is_counted: bool = True
    ) -> PushedMessage[ValueT_co]:
        """A copy of the message for its redelivery, which is not settled.

        It is another object, so that a late `ack` of this one does not settle the copy.

        Args:
          results: carries out its `ack` and `retry`.
          is_counted: it counts as a delivery.
        """
        times = self._reconsume_times + is_counted
        return PushedMessage(self._ext, self._topic, self._assigned, results, times)

    @asynccontextmanager
    async def process(self, *, delay_level: int = 0) -> AsyncIterator[Self]:
        """Settle the message at the end of an `async with` block, unless the block settles it.

        It is acknowledged at the normal end. After an exception it is redelivered; RetryLater sets
        the delay and is suppressed, any other exception passes through.

        Args:
          delay_level: see `retry`.
        """
        try:
            yield self
        except RetryLater as retry:
            await self.retry(retry.delay_level)
        except Exception as error:
            if not self._settlement:
                await self.retry(delay_level, cause=error)
            raise
        else:
            if not self._settlement:
                self.ack()


class InHandler:
    """Marks messages in a `with` block in which a handler has them; of any thread.

    Args:
      messages: of the async client.
    """

    __slots__ = ("_messages",)

    def __init__(self, messages: Sequence[PushedMessage]) -> None:
        self._messages = messages

    def __enter__(self) -> None:
        for message in self._messages:
            message._is_in_handler = True

    def __exit__(self, *_: object) -> None:
        for message in self._messages:
            message._is_in_handler = False


class Begun(Coroutine[Any, Any, None]):
    """The rest of a call that has nothing left to wait for; it need not be awaited."""

    def send(self, value: Any) -> Any:
        """Raises: StopIteration: it has ended."""
        raise StopIteration

    def throw(self, *error: Any) -> Any:
        """Raises: the error."""
        raise error[0]

    def close(self) -> None:
        """Do nothing."""

    def __await__(self) -> Any:
        return iter(())


def assigned_queue(message: PushedMessage) -> AssignedQueue:
    """The queue that a message came from, with the consumer's state of it."""
    return message._assigned  # of this module; programs get `message.queue`


class AssignedQueue:
    """The state of a queue that is assigned to a consumer.

    Attributes:
      queue: the queue; its topic has the namespace.
      subscription: the subscription of its topic.
      process_queue: its messages in memory.
      scope: cancels the task that pulls from it.
      next_offset: offset of the next pull.
      broker_id: id of the broker to pull from, as the last pull suggested; 0: the master.
      is_paused: the program paused it, so it is not pulled.
      is_handed_out: an orderly queue has delivered a message that is not settled, or is pausing.
      is_leaving: it goes to another member, or to another offset, and hands out no more messages.
      in_hand: the messages of an orderly queue that are handed out and not settled: one, or those
        of a batch, in order.
      again: those of them that are to be redelivered, once the others are settled.
    """

    __slots__ = (
        "_config",
        "_room",
        "_settled",
        "again",
        "broker_id",
        "in_hand",
        "is_handed_out",
        "is_leaving",
        "is_paused",
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
        self.is_paused: bool = False
        self.is_leaving: bool = False
        self.in_hand: list[PushedMessage] = []
        self.again: list[PushedMessage] = []
        self._settled: anyio.Event | None = None
        self._config = config
        self._room: anyio.Event | None = None

    @property
    def is_dropped(self) -> bool:
        """Whether it was revoked."""
        return self.process_queue.is_dropped

    def drop(self) -> None:
        """Revoke the queue: stop pulling from it, and forget its messages."""
        self.process_queue.is_dropped = True
        self.scope.cancel()
        self.process_queue.clear()

    def leave(self) -> None:
        """Stop pulling from the queue, and keep the message that is in hand."""
        self.is_leaving = True
        self.scope.cancel()

    def put_in_hand(self, message: PushedMessage) -> None:
        """Note that a message of an orderly queue is handed out."""
        self.is_handed_out = True
        self.in_hand.append(message)

    @property
    def is_in_handler(self) -> bool:
        """Whether a handler has a message of an orderly queue now."""
        return any(each._is_in_handler for each in self.in_hand)

    def is_in_hand(self, message: PushedMessage) -> bool:
        """Whether a message of an orderly queue is handed out and not settled."""
        return any(each is message for each in self.in_hand)

    def settle(self, message: PushedMessage | None) -> None:
        """Note that a message in hand is settled, or, None, that none is waited for any longer."""
        self.in_hand = [
            each for each in self.in_hand if message is not None and each is not message
        ]
        if not self.in_hand and self._settled is not None:
            self._settled.set()

    async def wait_settled(self) -> None:
        """Wait until no message is in hand."""
        while self.in_hand:
            self._settled = anyio.Event()
            await self._settled.wait()

    @property
    def has_room(self) -> bool:
        """Whether it may be pulled: not paused, and messages in memory below all thresholds."""
        config, held = self._config, self.process_queue
        return (
            not self.is_paused
            and held.count < config.pull_threshold_for_queue
            and held.size < config.pull_threshold_size_for_queue
            and (config.is_orderly or held.span < config.consume_concurrently_max_span)
        )

    async def wait_for_room(self) -> None:
        """Wait until `has_room` is true."""
        while not self.has_room:
            self._room = anyio.Event()
            await self._room.wait()
        self._room = None

    def wake_if_room(self) -> None:
        """Wake the task that waits for room, if there is room; called when messages are settled."""
        if self._room is not None and self.has_room:
            self._room.set()


class PushedMessageFactory:
    """Makes the messages of a consumer from records.

    Args:
      without_namespace: a topic as the program knows it.
      results: carries out `ack` and `retry`.
      retried: the retry topics of pops that are pulled, each with its topic; it may change.
    """

    def __init__(
        self,
        without_namespace: Callable[[str], str],
        results: ConsumeResults,
        retried: Mapping[str, str],
    ) -> None:
        self._without_namespace = without_namespace
        self._results = results
        self._retried = retried

    def __call__(
        self, messages: Sequence[MessageExt], assigned: AssignedQueue
    ) -> list[PushedMessage]:
        """The messages of a pull; those of a plain topic have one name, which is looked up once."""
        plain = assigned.queue.topic
        if is_retry_topic(plain):
            return [self._one(ext, assigned) for ext in messages]
        topic, results = self._without_namespace(plain), self._results
        return [
            PushedMessage(ext, topic, assigned, results, ext.reconsume_times)
            if ext.topic == plain
            else self._one(ext, assigned)
            for ext in messages
        ]

    def _one(self, ext: MessageExt, assigned: AssignedQueue) -> PushedMessage:
        topic = ext.topic
        if is_retry_topic(topic):
            topic = ext.find(names.PROPERTY_RETRY_TOPIC.encode()) or topic
            topic = self._retried.get(topic, topic)
        topic = self._without_namespace(topic)
        return PushedMessage(ext, topic, assigned, self._results, ext.reconsume_times)


class MessageIterator(Generic[ValueT]):
    """An iterator over a consumer's messages, which ends when the consumer is stopped.

    Args:
      receive: waits for the next message; raises ClosedError when the consumer is stopped.
      receive_nowait: the next message, or None; it saves a coroutine for each message. Raises as
        `receive`.
      was_opened: whether a ClosedError is the end; otherwise the consumer was never opened.
      auto_ack: acknowledge each message when the next one is requested, unless it is settled.
    """

    def __init__(
        self,
        receive: Callable[[], Awaitable[PushedMessage[ValueT]]],
        receive_nowait: Callable[[], PushedMessage[ValueT] | None],
        was_opened: Callable[[], bool],
        auto_ack: bool,
    ) -> None:
        self._receive = receive
        self._receive_nowait = receive_nowait
        self._was_opened = was_opened
        self._auto_ack = auto_ack
        self._last: PushedMessage[ValueT] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PushedMessage[ValueT]:
        if self._last is not None:
            if not self._last.is_settled:
                self._last.ack()
            self._last = None
        try:
            message = self._receive_nowait() or await self._receive()
        except ClosedError:
            if self._was_opened():
                raise StopAsyncIteration from None
            raise
        if self._auto_ack:
            self._last = message
        return message
