"""Numbers of queues: of new topics, corrections of old tables, and the choice of a send's queue.

A topic without read queues would accept messages that no consumer can read, so none is created, and
one in a table gets a queue. Pure.
"""

from __future__ import annotations

import logging
from random import Random
from typing import Final

import msgspec

from ...remoting.bodies import SubscriptionGroupConfig, TopicConfig, out_of_range
from ...remoting.errors import RequestRefused
from ...remoting.number_fields import INT32, QUEUE_COUNT, QUEUE_COUNT_MAX, READ_QUEUE_COUNT
from ...remoting.response_codes import ResponseCode
from .table_numbers import warn_replaced

logger = logging.getLogger(__name__)

RETRY_QUEUE_COUNT: Final = 1
"""Retry queues of a group. Source: SubscriptionGroupConfig, retryQueueNums."""


def queue_count_of_new_topic(topic: str, asked: int, pattern: TopicConfig) -> int:
    """The number of queues that the first send to a topic creates.

    Args:
      topic: the new topic's name.
      asked: the send's defaultTopicQueueNums, any number. Less than 1 counts as 1: RocketMQ
        creates a topic with 0 queues, and acknowledges messages there that no consumer can read.
      pattern: the topic whose settings the new one copies; its count is the maximum.
    """
    if asked < 1:
        logger.warning(
            "the first send to topic %(topic)s asks for %(asked)d queues: the topic gets 1",
            {"topic": topic, "asked": asked},
        )
    return min(max(asked, 1), max(pattern.write_queue_nums, 1), QUEUE_COUNT_MAX)


def retry_queue_count(asked: int) -> int:
    """The number of queues of a group's retry topic, from its retryQueueNums.

    A group with 0 gets no retries. The topic has a queue all the same, because clients may send to
    it, and the topic would not change if the group were changed later.
    """
    return min(max(asked, 1), QUEUE_COUNT_MAX)


def any_queue(topic: TopicConfig, random: Random) -> int:
    """A random queue, for a message whose sender leaves the choice to the broker.

    Raises: RequestRefused: NO_PERMISSION if the topic has no queue that is both written and read.
      RocketMQ's clients then try another broker.
    """
    count = min(topic.write_queue_nums, topic.read_queue_nums)
    if count < 1:
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"the topic[{topic.topic_name}] has no queue on this broker for a message: "
            f"writeQueueNums {topic.write_queue_nums}, readQueueNums {topic.read_queue_nums}; "
            "an administrator must give it some (updateTopic)",
        )
    return random.randrange(count)


MASTERS_TABLE: Final = "the master's table"


def has_usable_counts(topic: TopicConfig) -> bool:
    """Whether both numbers of queues are in the ranges that requests may set."""
    read, write = topic.read_queue_nums, topic.write_queue_nums
    return READ_QUEUE_COUNT.has(read) and QUEUE_COUNT.has(write)


def mended_topic(topic: TopicConfig, table: str = MASTERS_TABLE) -> TopicConfig:
    """Correct a topic of a table that another program or version wrote, as `readable_topic` does.

    A count above QUEUE_COUNT_MAX is only logged, because any of its queues may have messages;
    `bounded_topic` corrects it once the store is known.

    Args:
      table: the topic's table, for the log.
    """
    mended = readable_topic(topic, table)
    _log_excess(mended)
    return mended


def readable_topic(topic: TopicConfig, table: str) -> TopicConfig:
    """Give a topic at least one read queue, and no negative number of queues.

    A topic without read queues gets as many as it has write queues, or one, so that the messages
    acknowledged there become readable.

    Args:
      table: the topic's table, for the log.
    """
    read, write = topic.read_queue_nums, topic.write_queue_nums
    if read >= 1 and write >= 0:
        return topic
    mended = msgspec.structs.replace(
        topic,
        read_queue_nums=read if read >= 1 else max(write, 1),
        write_queue_nums=max(write, 0 if read >= 1 else 1),
    )
    _warn_changed(table, topic, mended)
    if read < 1:
        logger.warning(
            "topic %(topic)s had no read queues: its messages become readable now",
            {"topic": topic.topic_name},
        )
    return mended


def bounded_topic(
    topic: TopicConfig, stored_count: int, default_count: int, table: str
) -> TopicConfig:
    """Give a topic with wrong counts as many queues as the store has of it.

    A count above QUEUE_COUNT_MAX is replaced by the topic's other count, unless the store has that
    many queues, because they have messages.

    Args:
      topic: the result of `readable_topic`.
      stored_count: the greatest queue id of the topic in the store, plus 1.
      default_count: queues if both counts are too large.
      table: the topic's table, for the log.
    """
    counts = topic.read_queue_nums, topic.write_queue_nums
    used = max((each for each in counts if each <= QUEUE_COUNT_MAX), default=default_count)
    read, write = (each if each <= QUEUE_COUNT_MAX else used for each in counts)
    stored_count = min(stored_count, INT32.high)
    bounded = msgspec.structs.replace(
        topic,
        read_queue_nums=max(read, stored_count, 1),
        write_queue_nums=max(write, stored_count),
    )
    _warn_changed(table, topic, bounded)
    if stored_count > max(read, write):
        logger.warning(
            "topic %(topic)s gets %(queues)d queues, the number that the store has",
            {"topic": topic.topic_name, "queues": stored_count},
        )
    _log_excess(bounded)
    return bounded


def _warn_changed(table: str, old: TopicConfig, new: TopicConfig) -> None:
    whose = f"topic {old.topic_name!r}"
    read, write = old.read_queue_nums, old.write_queue_nums
    if not READ_QUEUE_COUNT.has(read):
        used = new.read_queue_nums
        warn_replaced(table, f"readQueueNums of {whose}", read, READ_QUEUE_COUNT, used)
    if not QUEUE_COUNT.has(write):
        warn_replaced(table, f"writeQueueNums of {whose}", write, QUEUE_COUNT, new.write_queue_nums)


def _log_excess(topic: TopicConfig) -> None:
    read, write = topic.read_queue_nums, topic.write_queue_nums
    if max(write, read) > QUEUE_COUNT_MAX:
        logger.error(
            "topic %(topic)s has %(read_queues)d read queues and %(write_queues)d write queues; "
            "more than %(limit)d slow its clients down: set fewer with updateTopic",
            {
                "topic": topic.topic_name,
                "read_queues": read,
                "write_queues": write,
                "limit": QUEUE_COUNT_MAX,
            },
        )


def mended_group(
    group: SubscriptionGroupConfig, table: str = MASTERS_TABLE
) -> SubscriptionGroupConfig:
    """Correct the retryQueueNums of a group in a table that another program or version wrote.

    A number that is too large becomes QUEUE_COUNT_MAX, a negative one RocketMQ's default.

    Args:
      table: the group's table, for the log.
    """
    count = group.retry_queue_nums
    if QUEUE_COUNT.has(count):
        return group
    used = QUEUE_COUNT_MAX if count > QUEUE_COUNT_MAX else RETRY_QUEUE_COUNT
    whose = f"group {group.group_name!r}"
    warn_replaced(table, f"retryQueueNums of {whose}", count, QUEUE_COUNT, used)
    return msgspec.structs.replace(group, retry_queue_nums=used)


def refuse_numbers(topic: TopicConfig, *, may_be_empty: bool) -> None:
    """Refuse a request's topic with a number out of range; RocketMQ accepts any number.

    Args:
      may_be_empty: it may have no queue to read from.
    Raises: RequestRefused: INVALID_PARAMETER.
    """
    if may_be_empty and not topic.read_queue_nums:
        topic = msgspec.structs.replace(topic, read_queue_nums=1)
    fault = out_of_range(topic)
    if fault is not None:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"topic {topic.topic_name}: {fault}")
