"""Numbers of topics and groups that an administrator sets: out of range, the nearest one counts.

Apache's broker takes any number, so its tools send what their user typed and expect success. Here
a number that would do harm, such as 2147483647 queues, is replaced by the nearest one of its range,
with a warning. Flags and permissions keep the bits that have a meaning, which are the only ones
that Apache's broker looks at. Pure, but for the log.

Java counterpart: AdminBrokerProcessor.updateAndCreateTopic, updateAndCreateSubscriptionGroup of
5.5.0, which check no number.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ...remoting.bodies import SubscriptionGroupConfig, TopicConfig
from ...remoting.number_fields import (
    BROKER_ID,
    GROUP_SYS_FLAG,
    GROUP_TRIES,
    MINUTES,
    PERM,
    QUEUE_COUNT,
    READ_QUEUE_COUNT,
    TOPIC_SYS_FLAG,
    Range,
)

logger = logging.getLogger(__name__)

_Ranges = Mapping[str, tuple[str, Range]]
"""The member's name in JSON and its range, by attribute."""

_COUNTS: Final[_Ranges] = {
    "read_queue_nums": ("readQueueNums", READ_QUEUE_COUNT),
    "write_queue_nums": ("writeQueueNums", QUEUE_COUNT),
}
_TOPIC: Final[_Ranges] = {
    "perm": ("perm", PERM),
    "topic_sys_flag": ("topicSysFlag", TOPIC_SYS_FLAG),
}
_GROUP: Final[_Ranges] = {
    "retry_queue_nums": ("retryQueueNums", QUEUE_COUNT),
    "retry_max_times": ("retryMaxTimes", GROUP_TRIES),
    "broker_id": ("brokerId", BROKER_ID),
    "which_broker_when_consume_slowly": ("whichBrokerWhenConsumeSlowly", BROKER_ID),
    "group_sys_flag": ("groupSysFlag", GROUP_SYS_FLAG),
    "consume_timeout_minute": ("consumeTimeoutMinute", MINUTES),
}
_BITS: Final = (PERM, TOPIC_SYS_FLAG, GROUP_SYS_FLAG)
"""Ranges of bit sets: their greatest number has all bits."""


def mend_topic(topic: TopicConfig, peer: str, *, is_static: bool = False) -> None:
    """Replace the settings of a topic that are out of range.

    Args:
      topic: from a request; changed.
      peer: who sent it, for the log.
      is_static: its numbers of queues stay as they are: those of its mapping must agree with them.
    """
    whose = f"topic {topic.topic_name!r}"
    _mend(topic, _TOPIC, whose, peer)
    if not is_static:
        _mend(topic, _COUNTS, whose, peer)


def mend_group(group: SubscriptionGroupConfig, peer: str) -> None:
    """Replace the settings of a consumer group that are out of range; see `mend_topic`."""
    _mend(group, _GROUP, f"group {group.group_name!r}", peer)


def _mend(
    config: TopicConfig | SubscriptionGroupConfig, ranges: _Ranges, whose: str, peer: str
) -> None:
    for attribute, (member, right) in ranges.items():
        asked = getattr(config, attribute)
        if right.has(asked):
            continue
        used = asked & right.high if right in _BITS else min(max(asked, right.low), right.high)
        setattr(config, attribute, used)
        logger.warning(
            "%(peer)s sets %(member)s of %(whose)s to %(asked)d, which is not in %(right)s: "
            "%(used)d is used instead",
            {
                "peer": peer,
                "member": member,
                "whose": whose,
                "asked": asked,
                "right": right,
                "used": used,
            },
        )
