"""Assignment: the queues of a topic that a broker gives to one client of a group.

Java counterpart: QueryAssignmentProcessor.doLoadBalance and allocate4Pop of 5.5.0. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ...common.allocation import share_averagely, share_by_circle
from ...remoting.bodies import MessageQueue, MessageRequestMode, SetMessageRequestModeRequestBody

ANY_QUEUE: Final = -1
"""The queue id for pops from all queues of a broker."""

Share = Callable[[Sequence[MessageQueue], int, int], list[MessageQueue]]
"""The queues of one member, from all queues, its index, and the number of members."""

STRATEGIES: Final[Mapping[str, Share]] = MappingProxyType(
    {"AVG": share_averagely, "AVG_BY_CIRCLE": share_by_circle}
)
"""The strategies that brokers know, by RocketMQ's names."""


def assigned_queues(
    queues: Sequence[MessageQueue],
    client_id: str,
    client_ids: Sequence[str],
    share: Share,
    setting: SetMessageRequestModeRequestBody,
) -> set[MessageQueue] | None:
    """The queues of one client of a clustering group.

    In mode POP several clients may have the same queue. Each gets its own share, and those of the
    `pop_share_queue_num` clients after it; where there are more clients than queues, one queue. If
    that number is 0 or less, or covers all clients, each client pops from all queues of every
    broker: the queue id is ANY_QUEUE.

    Args:
      queues: all of the topic, sorted.
      client_ids: of all clients of the group, sorted.
      share: of `STRATEGIES`.
      setting: the mode of the group for the topic.

    Returns: the queues, none for a client that is not in the group; None: they cannot be assigned,
      and the client keeps what it has.
    """
    shared = setting.pop_share_queue_num
    is_pop = setting.mode is MessageRequestMode.POP
    if is_pop and not 0 < shared < len(client_ids) - 1:
        brokers = dict.fromkeys((queue.topic, queue.broker_name) for queue in queues)
        return {MessageQueue(topic, broker_name, ANY_QUEUE) for topic, broker_name in brokers}
    if not (client_id.strip() and queues and client_ids):
        return None
    if client_id not in client_ids:
        return set()
    index, count = client_ids.index(client_id), len(client_ids)
    if not is_pop:
        return set(share(queues, index, count))
    if count > len(queues):
        return {queues[index % len(queues)]}
    return {
        queue
        for step in range(shared + 1)
        for queue in share(queues, (index + step) % count, count)
    }
