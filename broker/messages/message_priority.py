"""Priority messages: the queue of a message by its priority, and the order of reading queues.

A topic's queues are its priorities: a message with `_SYS_MSG_PRIORITY_` goes to the queue of that
number, and a pop reads the queues of a topic with `message.type=PRIORITY` from one end. Neither
needs the other, as in RocketMQ.

Pure. Java counterpart: SendMessageProcessor.sendMessage, PopMessageProcessor.processRequest and
popMsgFromTopic, TopicMessageType.parseFromMessageProperty of 5.5.0.
"""

from __future__ import annotations

from typing import Final

from ...common.message_properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_PRIORITY,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
    change_properties,
    properties_from_bytes,
)
from ...remoting.bodies import SubscriptionGroupConfig, TopicConfig
from ...remoting.number_fields import INT32, parse_integer
from ..settings.attributes import MESSAGE_TYPE, PRIORITY_FACTOR, PRIORITY_FACTOR_MAX

PRIORITY_HEAD: Final = f"{PROPERTY_PRIORITY}\x01".encode()
"""In the properties of a message that may have a priority."""

PRIORITY_TYPE: Final = "PRIORITY"
"""`message.type` of a topic of priority messages."""

_OTHER_TYPES: Final = (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_SHARDING_KEY,
)
"""A message with one of these is delayed or in order, so its priority is removed."""


def place_by_priority(properties: bytes, queue_id: int, queue_count: int) -> tuple[int, bytes]:
    """The queue and the properties of a message that may have a priority.

    Args:
      properties: encoded.
      queue_id: that the client chose.
      queue_count: the topic's queues that can be written, one at least; a greater priority is that
        of the last one.
    """
    found = properties_from_bytes(properties)
    priority = parse_integer(found.get(PROPERTY_PRIORITY, ""))
    if priority is None or not 0 <= priority <= INT32.high:
        return queue_id, properties  # as a user's property
    in_transaction = found.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true"
    if in_transaction or any(name in found for name in _OTHER_TYPES):
        return queue_id, change_properties(properties, {}, (PROPERTY_PRIORITY,))
    return min(priority, queue_count - 1), properties


def pops_by_priority(topic: TopicConfig, group: SubscriptionGroupConfig, percent: int) -> bool:
    """Whether a pop, not in order, reads the queues of a topic by their priorities.

    Args:
      topic: that it names.
      group: that pops; its attribute `priority.factor` says how many of 100 pops do so.
      percent: a random number, 0 to 99.
    """
    if topic.attributes.get(MESSAGE_TYPE) != PRIORITY_TYPE:
        return False
    factor = parse_integer(group.attributes.get(PRIORITY_FACTOR, ""))
    return percent < (PRIORITY_FACTOR_MAX if factor is None else factor)


def queues_to_read(queue_count: int, first: int, *, is_ascending: bool) -> list[int]:
    """The queues of a topic in the order in which a pop of all queues reads them.

    Args:
      queue_count: the topic's queues that can be read.
      first: a random number >= 0, so that each queue is the first one at times; 0: by priority.
      is_ascending: priorityOrderAsc: the last queue has the highest priority, not queue 0.
    """
    queues = range(queue_count - 1, -1, -1) if is_ascending else range(queue_count)
    return [(queue_id + first) % queue_count for queue_id in queues]
