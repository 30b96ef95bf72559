"""The sources from which something about a message is known. Pure."""

from __future__ import annotations

from enum import StrEnum


class Source(StrEnum):
    """Where a line of a message's life comes from."""

    MESSAGE = "MESSAGE"
    """The message's record, as its broker gave it."""
    TRACE = "TRACE"
    """What clients reported to the trace topic."""
    LOG = "LOG"
    """The message was read from the commit log anew."""
    LOG_RANGE = "LOG_RANGE"
    """The range of the broker's commit log, by its runtime information."""
    QUEUE = "QUEUE"
    """The unit of the consume queue."""
    QUEUE_RANGE = "QUEUE_RANGE"
    """The offsets of the queue's first message and of its next one."""
    INDEX = "INDEX"
    """A look-up by key."""
    SLAVE_LOG = "SLAVE_LOG"
    """The end of a slave's commit log, by its runtime information."""
    SETTINGS = "SETTINGS"
    """The broker's settings."""
    GROUP_OFFSET = "GROUP_OFFSET"
    """The group's committed offset in the message's queue."""
    GROUP_RATE = "GROUP_RATE"
    """The messages that the group reads per second."""
    GROUP_SUBSCRIPTION = "GROUP_SUBSCRIPTION"
    """What the broker knows of the group: who is connected, and the latest subscription."""
    MEMBER = "MEMBER"
    """What a member says itself: its own subscription, and the queues that it holds."""
    POPS = "POPS"
    """The broker's records of pops."""
    RETRY_TOPIC = "RETRY_TOPIC"
    """A copy in the group's retry topic, and the group's offset there."""
    DELAYED_TOPIC = "DELAYED_TOPIC"
    """A record in RocketMQ's topics of delayed messages and timers."""
    DEAD_LETTER_TOPIC = "DEAD_LETTER_TOPIC"
    """A copy in the group's DLQ topic."""
