"""Queues that a query has read, and that its source does not have any more. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from enum import Enum

from .queue_offsets import Queue
from .source_options import SourceOptions, read_assignment


class Missing(Enum):
    """Why a queue is missing; the values are strings, with the queue as {0}."""

    UNKNOWN = (
        "no name server knows the topic {0.topic}: it was deleted, or all its brokers are away"
    )
    """Like a topic that is named and not found: the query fails."""
    DELETED = (
        "the topic was deleted: no name server knows the topic {0.topic} at {0.broker_name}, which"
        " runs"
    )
    CLOSED = "the topic has fewer queues to read now, or no permission to read"
    """The messages are there, but the broker gives them to no one."""
    AWAY = "its broker is not registered at the name servers"
    """Its messages are not lost: they can be read when it is back."""


def why_missing(
    queue: Queue, readable: Iterable[Queue], holders: Collection[str], running: Collection[str]
) -> Missing | None:
    """Why a queue is missing; None: it is not.

    Args:
      readable: the queues of the topic.
      holders: names of the brokers that have the topic.
      running: names of all registered brokers.
    """
    if queue in set(readable):
        return None
    if queue.broker_name in holders:
        return Missing.CLOSED
    if queue.broker_name in running:
        return Missing.DELETED
    return Missing.AWAY if holders else Missing.UNKNOWN


def is_selected(options: SourceOptions, queue: Queue) -> bool:
    """Whether the options select a queue, which need not exist."""
    if options.assign:
        return queue.queue_id in read_assignment(options.assign).get(queue.topic, {}).get(
            queue.broker_name, ()
        )
    names = options.topic_names
    return queue.topic in names if names else bool(re.fullmatch(options.topic_pattern, queue.topic))


def is_complete(options: SourceOptions, queues: Collection[Queue]) -> bool:
    """Whether each topic and queue that the options name is among some queues."""
    if options.assign:
        return all(
            Queue(topic, broker_name, queue_id) in queues
            for topic, brokers in read_assignment(options.assign).items()
            for broker_name, ids in brokers.items()
            for queue_id in ids
        )
    return {queue.topic for queue in queues}.issuperset(options.topic_names)
