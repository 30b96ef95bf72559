"""The control of a push consumer's queues by the program: pause, continue elsewhere, commit.

Java counterparts: DefaultMQPushConsumer.suspend and resume, which know no single queues.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ...remoting.bodies import MessageQueue
from ..checks.queue_check import check_place
from ..connection.participant import Participant
from ..errors import ConfigurationError
from ..pulling.offsets import OffsetStore
from .push_rebalance import PushRebalance
from .pushed_message import AssignedQueue
from .ready_messages import ReadyMessages


class QueueControl(Participant):
    """The part of a push consumer that controls its queues; a subclass sets the attributes."""

    _offsets: OffsetStore
    _ready: ReadyMessages
    _rebalance: PushRebalance
    _subscriptions: Collection[str]

    @property
    def _all_queues(self) -> Iterable[AssignedQueue]:
        """The queues that are assigned to the consumer."""
        raise NotImplementedError

    async def rebalance(self) -> bool:
        """Reassign the queues of all topics now.

        This also happens automatically: when members join or leave, when routes change, and every
        20 s.

        Returns: False if the queues of some topics could not be assigned.
        Raises: ClosedError: the consumer is not open.
        """
        self._check_open()
        return await self._rebalance.rebalance()

    async def commit(self) -> None:
        """Commit the offsets of all queues now; a failure is logged, and retried later.

        Raises: ClosedError: the consumer is not open.
        """
        self._check_open()
        await self._commit()

    async def _commit(self) -> None:
        await self._offsets.persist(self._rebalance.held)

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other offsets.

        Args:
          offsets: for each queue the offset of the next message; queues that are not assigned to
            this consumer are ignored.

        Raises: ClosedError: the consumer is not open.
        """
        self._check_open()
        await self._rebalance.reset(offsets)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue a queue at an offset; its messages in memory are dropped.

        Args:
          queue: a queue that is assigned to this consumer.
          offset: offset of the next message, >= 0.

        Raises: ConfigurationError: the queue is not assigned, or the offset is negative.
          ClosedError: the consumer is not open.
        """
        self._check_open()
        check_place(queue, offset)
        if queue not in self._rebalance.assigned:
            raise ConfigurationError(
                f"{queue} is no assigned queue of this consumer: give one that it has, such as the"
                " `queue` of a received message"
            )
        await self._rebalance.reset({queue: offset})

    def pause(self, paused: Iterable[str | MessageQueue]) -> None:
        """Deliver no messages of these topics or queues until `resume`.

        They stay paused when queues are reassigned, and are assigned to this consumer further on.
        Messages that the program has received already can be settled.

        Args:
          paused: topics (their redeliveries are paused, too), or single queues.

        Raises: ConfigurationError: a topic is not subscribed.
        """
        self._ready.pause(paused, self._subscriptions)
        self._apply_pauses()

    def resume(self, resumed: Iterable[str | MessageQueue]) -> None:
        """Deliver messages of these topics or queues again.

        Args:
          resumed: what was given to `pause`: a queue of a paused topic stays paused with it.

        Raises: ConfigurationError: a topic is not subscribed.
        """
        self._ready.resume(resumed, self._subscriptions)
        self._apply_pauses()

    def _apply_pauses(self) -> None:
        for assigned in self._all_queues:
            assigned.is_paused = self._ready.is_paused(assigned.queue)
            assigned.wake_if_room()

    @property
    def paused(self) -> set[str | MessageQueue]:
        """The paused topics and queues."""
        return self._ready.paused
