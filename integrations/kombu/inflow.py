"""The messages that are on their way to the consumers of one channel, within its prefetch limit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ...blocking import PoppedMessage, SimpleConsumer
from ...client.errors import ClientError
from ...remoting.receipt import POP_COUNT_MAX
from .deliveries import Delivery, QoS, give_back_all
from .feeder import UNLIMITED_COUNT, Feeder
from .session import Session


class Inflow:
    """Feeders, one for each queue that is consumed, and the buffer that they fill.

    Args:
      session: that of the connection, with its options and its lock.
      qos: returns the channel's count of unacknowledged messages.
      read: makes what is handed out of a message that was received: None if it is done already.
    """

    def __init__(
        self,
        session: Session,
        qos: Callable[[], QoS],
        read: Callable[[str, SimpleConsumer, PoppedMessage], Delivery | None],
    ) -> None:
        self._session = session
        self._ready = session.condition
        self._qos = qos
        self._read = read
        self._feeders: dict[str, Feeder] = {}
        self._buffer: deque[Delivery] = deque()

    def has(self, queue: str) -> bool:
        """Whether messages of a queue are received."""
        return queue in self._feeders

    def start(self, queue: str, consumer: Callable[[], SimpleConsumer]) -> None:
        """Receive the messages of a queue from now on.

        Args:
          consumer: makes the consumer, in another thread.
        """
        if queue in self._feeders:
            return
        feeder = Feeder(self, queue, consumer, self._session.options.wait_time_seconds)
        with self._ready:
            self._feeders[queue] = feeder
        self._session.keep_invisible()
        feeder.start()

    def stop(self, queue: str, then: Callable[[], None] | None = None) -> None:
        """Receive no more; messages that were not handed out are given back.

        Args:
          then: called in another thread when the request that is under way is over.
        """
        with self._ready:
            feeder = self._feeders.pop(queue, None)
            left = [each for each in self._buffer if each.queue == queue]
            self._buffer = deque(each for each in self._buffer if each.queue != queue)
            if feeder is not None:
                feeder.stop(then)
            self._ready.notify_all()
        give_back_all(left)
        if feeder is not None:
            self._session.leave(feeder)

    def wake(self) -> None:
        """Have feeders see that there may be room."""
        with self._ready:
            self._ready.notify_all()

    def next(self) -> Delivery | None:
        """A message to hand out now; None: there is none, or the prefetch limit is reached."""
        with self._ready:
            if not self._buffer or not self._qos().can_consume():
                return None
            return self._buffer.popleft()

    def next_of(self, queue: str, wait_s: float) -> Delivery | None:
        """A message of one queue that is consumed; None: there was none in time.

        Args:
          wait_s: seconds in which a message that is on its way to the consumer may arrive.
        """
        with self._ready:
            self._ready.wait_for(lambda: any(each.queue == queue for each in self._buffer), wait_s)
            found = next((each for each in self._buffer if each.queue == queue), None)
            if found is not None:
                self._buffer.remove(found)
            return found

    def unsettled(self) -> list[Delivery]:
        """All messages that were received and not settled."""
        with self._ready:
            return [*self._buffer, *self._qos().held()]

    # For feeders

    @property
    def invisible_s(self) -> float:
        """How long a received message is invisible to others, in seconds."""
        return self._session.options.visibility_timeout

    def reserve(self, feeder: Feeder) -> tuple[int, bool]:
        """Wait until there is room for messages.

        Returns: how many to receive, 0 if the feeder is stopped; and whether the prefetch limit
          leaves too little for all queues, so that they take turns.
        """
        with self._ready:
            self._ready.wait_for(lambda: feeder.is_stopped or self._is_turn_of(feeder))
            if feeder.is_stopped:
                return 0, False
            room = self._room()
            count = len(self._feeders)
            feeder.reserved = min(max(room // count, 1), POP_COUNT_MAX)
            self._session.turns += 1
            feeder.served = self._session.turns
            return feeder.reserved, room < count

    def _room(self) -> int:
        """How many more messages may be asked for."""
        estimate = self._qos().can_consume_max_estimate()
        if estimate is None:
            estimate = UNLIMITED_COUNT * len(self._feeders)
        reserved = sum(each.reserved for each in self._feeders.values())
        return estimate - len(self._buffer) - reserved

    def _is_turn_of(self, feeder: Feeder) -> bool:
        """Whether there is room, and no other queue has waited longer."""
        room = self._room()
        if room <= 0:
            return False
        waiting = [each.served for each in self._feeders.values() if not each.reserved]
        return room >= len(waiting) or feeder.served <= min(waiting, default=0)

    def received(
        self, feeder: Feeder, consumer: SimpleConsumer, messages: Sequence[PoppedMessage]
    ) -> None:
        """Take what a feeder received, and end its reservation.

        Raises: ClientError: one was to be acknowledged, and the broker could not be reached.
        """
        made = [self._read(feeder.queue, consumer, each) for each in messages]
        deliveries = [each for each in made if each is not None]
        with self._ready:
            feeder.reserved = 0
            is_late = feeder.is_stopped
            if not is_late:
                self._buffer.extend(deliveries)
            self._ready.notify_all()
        if is_late:
            give_back_all(deliveries)

    def failed(self, feeder: Feeder, error: ClientError) -> None:
        """End a feeder's reservation, and have the connection raise its error."""
        with self._ready:
            feeder.reserved = 0
        self._session.failed(error)

    def pause(self, feeder: Feeder, seconds: float) -> None:
        """Wait some seconds, or until the feeder is stopped."""
        with self._ready:
            self._ready.wait_for(lambda: feeder.is_stopped, seconds)
