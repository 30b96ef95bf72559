"""A queue that a push consumer pops from, and the messages that it got there.

Java counterparts: PopProcessQueue, PopRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

import anyio

from ...remoting.bodies import MessageQueue, SubscriptionData
from ...remoting.message import MessageExt
from ...remoting.pop_requests import ANY_QUEUE, Place, Settled
from ...remoting.receipt import Receipt
from ..options.push_options import PushConsumerConfig
from ..popping.popped_message import first_pop_time_ms
from ..tasks import clock
from .pushed_message import AssignedQueue, ConsumeResults, PushedMessage


class PopModeMessage(PushedMessage):
    """A message that a push consumer popped.

    Its time runs out: then the broker delivers it again, and settling this delivery has no effect.

    Args:
      ext: the decoded message, with its body decompressed.
      topic: the topic that was popped, without namespace.
      settled: the same with namespace, and the receipt.
      queue: the queue that it was in; a message that is delivered again was in a retry topic.
      deadline_s: when it becomes visible again, by `now_s`.
      pop_queue: what it was popped from.
      results: carries out `ack` and `retry`.
      now_s: the client's clock.

    Attributes:
      settled: what the broker needs to know to settle it.
      change: set while its invisible time is being extended: its receipt is about to be replaced.
      is_acknowledged: it was acknowledged meanwhile.
    """

    __slots__ = ("_now_s", "change", "deadline_s", "is_acknowledged", "settled")

    def __init__(
        self,
        ext: MessageExt,
        topic: str,
        settled: Settled,
        *,
        queue: MessageQueue,
        deadline_s: float,
        pop_queue: PopQueue,
        results: ConsumeResults,
        now_s: Callable[[], float],
    ) -> None:
        super().__init__(ext, topic, pop_queue, results, ext.reconsume_times)
        self._queue = queue
        self._now_s = now_s
        self.settled: Settled = settled
        self.deadline_s: float = deadline_s
        self.change: anyio.Event | None = None
        self.is_acknowledged: bool = False

    @property
    def receipt(self) -> str:
        """The string by which the broker knows this delivery."""
        return self.settled.receipt.to_text()

    @property
    def first_pop_time_ms(self) -> int:
        """Time of its first pop, in milliseconds since 1970, by the broker's clock."""
        return first_pop_time_ms(self._ext, self.settled.receipt)

    @property
    def invisible_until_ms(self) -> int:
        """Until when the broker gives it to no one else, in milliseconds since 1970, by the
        broker's clock."""
        return self.settled.receipt.revive_time

    @property
    def is_revoked(self) -> bool:
        """Whether its invisible time is over: the broker delivers it again."""
        return self._now_s() >= self.deadline_s

    def on_changed(self, receipt: Receipt, deadline_s: float) -> None:
        """Called when its invisible time was changed."""
        self.settled = self.settled._replace(receipt=receipt)
        self.deadline_s = deadline_s


class PopQueue(AssignedQueue):
    """The state of a queue, or of all queues of a broker, that a consumer pops from.

    Args:
      queue: its queue id is -1 for all queues of the broker.
      subscription: the subscription of its topic.
      config: configuration of the consumer.
      now_s: the client's clock.

    Attributes:
      is_popping: a pop waits for its answer.
      last_pop_ms: time of the last pop, by the monotonic clock.
    """

    __slots__ = ("_now_s", "_unsettled", "is_popping", "last_pop_ms")

    def __init__(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        config: PushConsumerConfig,
        now_s: Callable[[], float],
    ) -> None:
        super().__init__(queue, subscription, config)
        self._now_s = now_s
        self._unsettled: dict[Settled, PopModeMessage] = {}
        self.is_popping: bool = False
        self.last_pop_ms: float = clock.monotonic_ms()

    @property
    def place(self) -> Place:
        """What to pop from."""
        name, queue_id = self.queue.broker_name, self.queue.queue_id
        return Place(self.queue.topic, name, queue_id if queue_id >= 0 else ANY_QUEUE)

    @property
    def unsettled(self) -> list[PopModeMessage]:
        """The messages that are not settled, and whose time is not over."""
        if any(each.is_revoked for each in self._unsettled.values()):
            left = {key: each for key, each in self._unsettled.items() if not each.is_revoked}
            self._unsettled = left
        return list(self._unsettled.values())

    def add(self, messages: Iterable[PopModeMessage]) -> None:
        """Add messages that were popped."""
        self._unsettled.update((each.settled, each) for each in messages)

    def remove(self, message: PopModeMessage) -> None:
        """Remove a message, because it is settled."""
        self._unsettled.pop(message.settled, None)
        self.wake_if_room()

    def on_changed(self, message: PopModeMessage, receipt: Receipt, deadline_s: float) -> None:
        """Replace the receipt of a message that is not settled."""
        known = self._unsettled.pop(message.settled, None)
        message.on_changed(receipt, deadline_s)
        if known is not None:
            self._unsettled[message.settled] = message

    @property
    def has_room(self) -> bool:
        """Whether to pop: it is not paused, and few messages are unsettled."""
        return not self.is_paused and len(self.unsettled) < self._config.pop_threshold_for_queue

    async def wait_for_room(self) -> None:
        """Wait until `has_room` is true: messages are settled, or their time is over."""
        while not self.has_room:
            self._room = anyio.Event()
            ends_s = min((each.deadline_s for each in self.unsettled), default=inf)
            with anyio.move_on_after(ends_s - self._now_s()):
                await self._room.wait()
        self._room = None
