"""Consumer lag: how far a group is behind in a topic, as metrics state it.

Java counterpart: broker/metrics/ConsumerLagCalculator.java of 5.5.0. Pure. Differences: the oldest
waiting message is that of the queues that have one (there, a queue without any makes the whole
latency 0, or that of a retry topic a number without meaning), a filter by tags is not estimated,
and waiting pops are not woken first (enableNotifyBeforePopCalculateLag).
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from ...common.steps import Steps
from ...disk.errors import StoreError
from ...store.message_store import MessageStore
from ..pop.progress import PopProgress
from ..tables.consumer_offset_manager import ConsumerOffsetManager, key_of

logger = logging.getLogger(__name__)

QUEUES_PER_STEP: Final = 100
"""Queues of one step, of one topic or several: the store times of a queue that is behind take
20 us."""


class QueueLag(NamedTuple):
    """One queue.

    Attributes:
      end, consumed, pulled: the next offset of the queue, and those that the group will consume
        and pull next. If the group pops, `consumed` is as far before `pulled` as messages are not
        acknowledged.
    """

    queue_id: int
    end: int
    consumed: int
    pulled: int


class ConsumerLag(NamedTuple):
    """How far a group is behind in a topic.

    Attributes:
      oldest_ms: when the oldest message that is not consumed was stored, ms since 1970; 0: there is
        none.
      oldest_unpulled_ms: the same of those that were not pulled.
    """

    queues: tuple[QueueLag, ...]
    oldest_ms: int
    oldest_unpulled_ms: int

    @property
    def end(self) -> int:
        """The sum of the queues' ends."""
        return sum(queue.end for queue in self.queues)

    @property
    def consumed(self) -> int:
        """The sum of the consumed offsets."""
        return sum(queue.consumed for queue in self.queues)

    @property
    def pulled(self) -> int:
        """The sum of the pulled offsets."""
        return sum(queue.pulled for queue in self.queues)


def lag_of(
    store: MessageStore,
    offsets: ConsumerOffsetManager,
    group: str,
    topic: str,
    queue_count: int,
    *,
    from_start: bool = False,
    pops: PopProgress | None = None,
) -> Steps[ConsumerLag]:
    """Steps that look at a group's progress in a topic.

    Args:
      queue_count: the topic's queues.
      from_start: what a queue counts for in which the group has no offset, because it has consumed
        nothing of it: True: all its messages are left, as mqadmin has it; False: none is, as the
        metrics of RocketMQ 5.x have it.
      pops: of all groups, if this one pops the topic.
    """
    queues: list[QueueLag] = []
    oldest_ms = oldest_unpulled_ms = 0
    pulls = offsets.pull_offset_table.get(key_of(topic, group), {})
    for queue_id in range(queue_count):
        if queue_id and queue_id % QUEUES_PER_STEP == 0:
            yield
        end = store.max_offset(topic, queue_id)
        consumed = offsets.query_offset(group, topic, queue_id)
        if consumed < 0:
            consumed = 0 if from_start else end
        pulled = max(pulls.get(queue_id, -1), consumed)
        if pops is not None:
            pulled = max(pops.next_offset(topic, group, queue_id), consumed)
            consumed = max(pulled - pops.in_flight(topic, group, queue_id), 0)
        queues.append(QueueLag(queue_id, end, consumed, pulled))
        if consumed < end:
            oldest_ms = _older(oldest_ms, _store_time(store, topic, queue_id, consumed))
            if pulled < end:
                oldest_unpulled_ms = _older(
                    oldest_unpulled_ms, _store_time(store, topic, queue_id, pulled)
                )
    return ConsumerLag(tuple(queues), oldest_ms, oldest_unpulled_ms)


def _older(first_ms: int, second_ms: int) -> int:
    """The earlier of two times, of which those that are not > 0 are unknown."""
    return min((each for each in (first_ms, second_ms) if each > 0), default=0)


def _store_time(store: MessageStore, topic: str, queue_id: int, queue_offset: int) -> int:
    try:
        return store.store_time_at(
            topic, queue_id, max(queue_offset, store.min_offset(topic, queue_id))
        )
    except StoreError as error:
        logger.debug(
            "%(topic)s queue %(queue_id)d offset %(queue_offset)d: %(error)s",
            {"topic": topic, "queue_id": queue_id, "queue_offset": queue_offset, "error": error},
        )
        return 0
