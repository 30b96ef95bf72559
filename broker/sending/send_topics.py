"""SendTopics: finds or creates the topic of a send, and picks its queue.

Java counterpart: msgCheck of broker/processor/AbstractSendMessageProcessor.java of 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from random import Random
from typing import Final

from ...common.supervision import FailureLog, call_each
from ...common.topic_names import RETRY_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX
from ...common.topic_validator import refuse_topic
from ...remoting.bodies import PERM_READ, PERM_WRITE, TopicConfig
from ...remoting.channel import Channel, Postponed
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.headers import (
    SendMessageRequestHeader,
    decode,
    decode_send_message_v2,
    read_number,
)
from ...remoting.number_fields import WANTED_QUEUE_COUNT
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import FAQ_HELP, ResponseCode
from ..messages.admission import CLOSED_TOPICS, TopicKinds
from ..settings.config import BrokerConfig
from ..tables.topic_config_manager import TopicConfigManager
from ..tables.topic_queue_mapping_manager import TopicQueueMappingManager
from ..tables.topic_queues import any_queue

logger = logging.getLogger(__name__)

WORD_CODES: Final = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})
"""Sends whose header names are words, not letters."""

WhenRegistered = Callable[[str, Callable[[], None]], bool]
"""Calls back, outside of any turn, when the name servers know a topic or their time is over.
Returns False: there is no registration to wait for, and it will not call back."""

DLQ_QUEUE_COUNT: Final = 1
"""Queues of a dead letter topic. Source: AbstractSendMessageProcessor DLQ_NUMS_PER_GROUP."""


class SendTopics:
    """Finds the topic of a send, or creates it if that is allowed, and picks a queue.

    Sends to a new topic wait until it is saved, and then until the name servers know it, because a
    producer may start a consumer as soon as it has the answer, and that needs the topic's route.

    Args:
      kinds: the kinds of these topics.
      random: picks the queue if the producer leaves the choice to the broker.
      when_registered: waits for the name servers.
      mappings: of the static topics.

    Attributes:
      checked: names of topics whose sends are not usual: closed ones, new ones, and static ones.
      is_read_only: the broker accepts no messages for ordered topics.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigManager,
        kinds: TopicKinds,
        random: Random,
        when_registered: WhenRegistered,
        mappings: TopicQueueMappingManager,
    ) -> None:
        self.table = topics.topic_config_table
        self._static_topics = mappings.topic_queue_mapping_table
        self.checked: set[str] = {*CLOSED_TOPICS, *self._static_topics}
        mappings.changes.subscribe(self._mappings_changed)
        self._config = config
        self.settings_changed()
        self._topics = topics
        self._kinds = kinds
        self._random = random
        self._when_registered = when_registered
        self._waiting: dict[str, list[Callable[[], None]]] = {}  # sends to resume, by topic
        self._failures = FailureLog(logger)

    def settings_changed(self) -> None:
        """Derive `is_read_only` from brokerPermission as it is now."""
        self.is_read_only = not self._config.broker_permission & PERM_WRITE

    def of_send(self, request: RemotingCommand, topic: str, channel: Channel) -> TopicConfig:
        """The topic of a send; see `check`."""
        config = self.table.get(topic)
        if (
            config is None
            or self.is_read_only
            or topic in self.checked
            or topic.startswith(SYSTEM_TOPIC_PREFIX)
        ):
            # Only these need the full check.
            return self.check(request, topic, channel)
        return config

    def check(self, request: RemotingCommand, topic: str, channel: Channel) -> TopicConfig:
        """Make the checks that Apache makes, in its order; create a topic if that is allowed.

        Raises:
          RequestRefused: the send is not allowed, or its topic is new and cannot be saved.
          Postponed: the topic is new, and is being saved or registered.
        Source: AbstractSendMessageProcessor.msgCheck.
        """
        config = self.table.get(topic)
        if self.is_read_only and config is not None and config.order:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending message is forbidden",
            )
        remark = refuse_topic(topic)
        if remark is not None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark)
        if not self._kinds.may_name(RequestCode(request.code), topic):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
            )
        if config is None:
            config = self._create(request, topic, channel)
        if topic in self.checked and not (topic in CLOSED_TOPICS or topic in self._static_topics):
            self._await_registration(topic)  # it is new
        return config

    def _create(self, request: RemotingCommand, topic: str, channel: Channel) -> TopicConfig:
        """Create the topic of a first send; raises as `check`."""
        letters = request.code not in WORD_CODES
        fields = request.ext_fields
        try:
            default_topic = fields["c" if letters else "defaultTopic"]
            name = "d" if letters else "defaultTopicQueueNums"
            queue_nums = read_number(name, WANTED_QUEUE_COUNT, fields[name])
        except KeyError as error:
            raise bad_header(request, error) from error
        unit = fields.get("k" if letters else "unitMode") == "true"
        retry = topic.startswith(RETRY_TOPIC_PREFIX)
        # TopicSysFlag: bit 0 unit, bit 1 unit subscription.
        sys_flag = (2 if retry else 1) if unit else 0
        try:
            config = self._topics.create_topic_in_send_message(
                topic, default_topic, channel.remote_address, queue_nums, sys_flag
            )
            if config is None and retry:
                config = self._topics.create_topic_in_send_message_back(
                    topic, queue_count=1, perm=PERM_READ | PERM_WRITE, sys_flag=sys_flag
                )
        except Postponed:
            self.checked.add(topic)
            raise
        if config is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                self._topics.refuse_new(topic)
                or f"topic[{topic}] not exist, apply first please!{FAQ_HELP}",
            )
        self.checked.add(topic)
        return config

    def _await_registration(self, topic: str) -> None:
        """Postpone a send to a new topic until the name servers know it; the order is kept.

        Raises: Postponed: the registration has not ended.
        Source: TopicConfigManager.createTopicInSendMessageMethod, which registers it.
        """
        waiting = self._waiting.get(topic)
        if waiting is None:
            if not self._when_registered(topic, partial(self._registered, topic)):
                self._uncheck(topic)
                return
            waiting = self._waiting[topic] = []
        raise Postponed(waiting.append)

    def _uncheck(self, topic: str) -> None:
        if topic not in self._static_topics:
            self.checked.discard(topic)

    def _mappings_changed(self, topics: Collection[str]) -> None:
        for topic in topics:
            if topic in self._static_topics:
                self.checked.add(topic)
            elif topic not in CLOSED_TOPICS and topic not in self._waiting:
                self.checked.discard(topic)

    def _registered(self, topic: str) -> None:
        self._uncheck(topic)
        meaning = "Their producers time out and send them again"
        serving = f"serving the first sends to topic {topic}"
        call_each(self._waiting.pop(topic, ()), self._failures, serving, meaning)

    def of_group(self, topic: str, queue_count: int, sys_flag: int = 0) -> TopicConfig:
        """The retry or dead letter topic of a group, created if it does not exist.

        Args:
          queue_count, sys_flag: of a new topic.
        Raises:
          RequestRefused: it is new, and may not be created or could not be saved.
          Postponed: it is new and being saved.
        """
        config = self._topics.create_topic_in_send_message_back(
            topic, queue_count=queue_count, sys_flag=sys_flag
        )
        if config is None:
            reason = self._topics.refuse_new(topic) or f"topic[{topic}] not exist"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
        return config

    def other_queue(self, config: TopicConfig, queue_id: int, channel: Channel) -> int:
        """The queue for an id outside of the write queues.

        A negative id leaves the choice to the broker. An id within the read queues is accepted, as
        by Apache's broker, because a topic that is being shrunk has clients with the old route.

        Raises: RequestRefused: the queue does not exist, or the topic has no queue.
        """
        if queue_id < 0:
            return any_queue(config, self._random)
        if queue_id >= config.read_queue_nums:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, {config} "
                f"Producer: {channel.remote_address}",
            )
        return queue_id


def bad_header(request: RemotingCommand, error: Exception) -> RequestRefused:
    """The refusal of a send's header that cannot be read, with the typed header's error text."""
    if request.code in WORD_CODES:
        decode(SendMessageRequestHeader, request.ext_fields)
    else:
        decode_send_message_v2(request.ext_fields)
    return RequestRefused(ResponseCode.SYSTEM_ERROR, f"bad send header: {error}")
