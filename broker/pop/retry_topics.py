"""PopRetryTopics: the topics with the messages that a group popped and did not acknowledge.

A group has one for each topic. It is created when the first message is stored there.

Java counterpart: common/KeyBuilder.java, PopReviveService.initPopRetryOffset and
addRetryTopicIfNotExist of 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ...common.topic_names import RETRY_TOPIC_PREFIX, normal_topic, pop_retry_topics
from ...common.topic_validator import RETRY_OR_DLQ_TOPIC_LENGTH_MAX, refuse_topic
from ...remoting.bodies import TopicConfig
from ..settings.config import BrokerConfig
from ..tables.consumer_offset_manager import ConsumerOffsetManager
from ..tables.topic_config_manager import TopicConfigManager

__all__ = ["PopRetryTopics", "normal_topic"]

V2_SEPARATOR: Final = "+"


class PopRetryTopics:
    """Names and creates retry topics.

    Args:
      topics, offsets: the broker's tables.
      has_group: whether there is a consumer group of that name.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        has_group: Callable[[str], bool] = lambda group: False,
    ) -> None:
        self._config = config
        self._has_group = has_group
        self._topics = topics
        self._offsets = offsets

    def name(self, topic: str, group: str) -> str:
        """The retry topic that new messages go to, by enableRetryTopicV2."""
        v2, v1 = pop_retry_topics(topic, group)
        is_v2 = self._config.enable_retry_topic_v2 or self._is_of_another(topic, group)
        return v2 if is_v2 else v1

    def _is_of_another(self, topic: str, group: str) -> bool:
        """Whether the first form is the retry topic of a group that may have another owner.

        With accounts, the group `a` that pops `b` must not get the retries of the group `a_b`.
        Without them all is as with Apache's broker, where both read one topic.
        """
        config = self._config
        has_rights = config.authorization_enabled or config.acl_enable
        return has_rights and self._has_group(f"{group}_{topic}")

    def read_names(self, topic: str, group: str) -> tuple[str, ...]:
        """The retry topics that a pop reads one of: that of `name` first, then maybe the other.

        Without enableRetryTopicV2 that of V2 is read, too: it has the messages from before the key
        was switched off, and gets what is not acknowledged of them.
        """
        v2, v1 = pop_retry_topics(topic, group)
        if self._is_of_another(topic, group):
            return (v2,)
        if not self._config.enable_retry_topic_v2:
            return (v1, v2)
        return (v2, v1) if self._config.retrieve_message_from_pop_retry_topic_v1 else (v2,)

    def name_for(self, topic: str, group: str) -> str:
        """The retry topic for messages that were popped from a topic, maybe itself a retry topic.

        Source: PopReviveService.reviveRetry.
        """
        return topic if topic.startswith(RETRY_TOPIC_PREFIX) else self.name(topic, group)

    def find_or_create(self, topic: str, group: str) -> TopicConfig | None:
        """The retry topic for messages that were popped from a topic; a new one is created.

        With useSeparateRetryQueue it has as many queues as its topic, and gets more with it.

        Args:
          topic: where the messages were popped from: the topic, or a retry topic of the group.

        Returns: the retry topic; None: it may not be created, because its name is too long or
          there are topicsMax topics.
        Raises:
          Postponed: it is new and being saved.
          RequestRefused: it is new and could not be saved.
        """
        name = self.name_for(topic, group)
        known = self._topics.select(name)
        count = 1
        if self._config.use_separate_retry_queue:
            origin = self._topics.select(normal_topic(topic, group))
            count = 1 if origin is None else max(origin.write_queue_nums, 1)
        if known is None:
            # The separator of V2 is not allowed in a topic that a client names.
            plain = name.replace(V2_SEPARATOR, "_", 1)
            if refuse_topic(plain, length_max=RETRY_OR_DLQ_TOPIC_LENGTH_MAX) is not None:
                return None
            known = self._topics.create_topic_in_send_message_back(name, queue_count=count)
            if known is None:
                return None
        elif known.write_queue_nums < count:
            known = msgspec.structs.replace(
                known, read_queue_nums=count, write_queue_nums=count, attributes={}
            )
            (known,) = self._topics.update([known])
        self._init_offsets(known, group)
        return known

    def queue_of(self, retry: TopicConfig, queue_id: int) -> int:
        """The queue of a retry topic for a message of a queue of the topic, or of itself.

        Source: PopReviveService.getRetryQueueId.
        """
        separate = self._config.use_separate_retry_queue
        return queue_id if separate and queue_id < retry.write_queue_nums else 0

    def _init_offsets(self, retry: TopicConfig, group: str) -> None:
        """Make the group begin at the first message of each queue that it has no offset for."""
        for queue_id in range(retry.read_queue_nums):
            if self._offsets.query_offset(group, retry.topic_name, queue_id) < 0:
                self._offsets.commit_offset(group, retry.topic_name, queue_id, 0)
