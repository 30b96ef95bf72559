"""Names of RocketMQ's system topics and groups, on which brokers and clients must agree.

Java counterpart: TopicValidator, MixAll, NamespaceUtil of RocketMQ 5.5. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

TOPIC_LENGTH_MAX: Final = 127
"""Characters of a topic's name; all are ASCII, so also bytes."""

RETRY_TOPIC_PREFIX: Final = "%RETRY%"
DLQ_TOPIC_PREFIX: Final = "%DLQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
"""Prefix of the topics with the records of pop consumption."""
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group whose offsets in the topics of half messages are the progress of transactions."""
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""The group that consumes them. Source: common/PopAckConstants.java."""

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group that reads for administrators; brokers have it from the start.

Source: MixAll.TOOLS_CONSUMER_GROUP.
"""
SYSTEM_GROUPS: Final = frozenset(
    {
        TOOLS_GROUP,
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_DefaultHeartBeatSyncerTopic",
    }
)
"""Groups that brokers have from the start. Source: SubscriptionGroupManager.init, MixAll."""

AUTO_CREATE_TOPIC: Final = "TBW102"
"""The topic whose settings a send's new topic gets."""
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT_TOPIC: Final = "OFFSET_MOVED_EVENT"
ROCKSDB_OFFSET_TOPIC: Final = "CHECKPOINT_TOPIC"

NOT_ALLOWED_SEND_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT_TOPIC,
    }
)
"""Topics that a client must not send to: only a broker itself writes to them."""

SYSTEM_TOPICS: Final = NOT_ALLOWED_SEND_TOPICS | {
    AUTO_CREATE_TOPIC,
    TRACE_TOPIC,
    BENCHMARK_TOPIC,
    ROCKSDB_OFFSET_TOPIC,
}
"""System topics of every broker, without a namespace; a broker adds those that have its name."""


def is_system_topic(topic: str, more: Iterable[str] = ()) -> bool:
    """Whether a topic is a system topic.

    Args:
      topic: a topic's name.
      more: system topics of one broker.
    Source: TopicValidator.isSystemTopic.
    """
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX) or topic in more


def is_system_group(group: str) -> bool:
    """Whether a consumer group is a system group. Source: MixAll.isSysConsumerGroup."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def is_own_group(group: str) -> bool:
    """Whether a consumer group is one of RocketMQ's own, of a broker or a tool."""
    return group in SYSTEM_GROUPS or is_system_group(group)


def retry_topic(group: str) -> str:
    """The topic of a group's retried messages. Source: MixAll.getRetryTopic."""
    return RETRY_TOPIC_PREFIX + group


def revive_topic(cluster: str) -> str:
    """The topic with the records of pop consumption of a cluster's brokers.

    Source: PopAckConstants.buildClusterReviveTopic of 5.5.0.
    """
    return REVIVE_TOPIC_PREFIX + cluster


def pop_retry_topics(topic: str, group: str) -> tuple[str, str]:
    """The topics of messages of a topic that a pop consumer's group retries: the present form, and
    that of the versions before `enableRetryTopicV2`.

    Source: common/KeyBuilder.java of 5.5.0.
    """
    return f"{RETRY_TOPIC_PREFIX}{group}+{topic}", f"{RETRY_TOPIC_PREFIX}{group}_{topic}"


def normal_topic(topic: str, group: str) -> str:
    """The topic whose messages a retry topic of a group has; another topic is returned as it is.

    Source: KeyBuilder.parseNormalTopic of 5.5.0.
    """
    for form in pop_retry_topics("", group):
        if topic.startswith(form):
            return topic[len(form) :]
    return topic
