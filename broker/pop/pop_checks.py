"""The checks of a pop before anything is read, and of receipts, with Apache's codes and remarks.

Source: processRequest of PopMessageProcessor, AckMessageProcessor and
ChangeInvisibleTimeProcessor of 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ...remoting.bodies import PERM_READ, SubscriptionGroupConfig, TopicConfig
from ...remoting.channel import Channel
from ...remoting.errors import RemoteProtocolError, RequestRefused
from ...remoting.headers import (
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
)
from ...remoting.receipt import POP_COUNT_MAX, Receipt
from ...remoting.response_codes import FAQ_HELP, ResponseCode
from ...store.config import MessageStoreConfig
from ..clients.compensated_consumers import CompensatedConsumers
from ..filters.consumer_filter_manager import compile_filter
from ..filters.subscription import SUBSCRIPTION_LENGTH_MAX, is_tag_type, tags_codes_of
from ..settings.config import BrokerConfig
from ..tables.subscription_group_manager import SubscriptionGroupManager
from ..tables.topic_config_manager import TopicConfigManager
from ..waiting.pull import Selector

logger = logging.getLogger(__name__)

LATE_MS: Final = 500
"""A pop that arrives so long after its time to wait is over is not served, as its client has given
up. Source: PopMessageRequestHeader.isTimeoutTooMuch."""


class PopChecks:
    """The checks of one broker.

    Args:
      store_config: says which invisible times can be stored.
      topics, groups: the broker's tables.
      compensated: groups that consume without heartbeats.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        *,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        compensated: CompensatedConsumers | None = None,
    ) -> None:
        self._config = config
        self._compensated = CompensatedConsumers() if compensated is None else compensated
        self._store_config = store_config
        self._topic_table = topics.topic_config_table
        self._groups = groups

    def check(
        self, header: PopMessageRequestHeader, age_ms: int, channel: Channel
    ) -> tuple[TopicConfig, SubscriptionGroupConfig]:
        """Check whether the group may pop from the topic.

        Args:
          age_ms: how long ago its client sent the request, by the time of day of clients; negative
            where the client's clock is ahead.

        Returns: the entries of the tables.
        Raises: RequestRefused: it may not.
        """
        config = self._config
        # Its client has given up, and would not see the messages that the answer hides from others.
        if age_ms - header.poll_time > LATE_MS:
            raise RequestRefused(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{config.broker_ip1}] pop message is timeout too much",
            )
        if not config.broker_permission & PERM_READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] pop message is forbidden",
            )
        if header.max_msg_nums > POP_COUNT_MAX:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{config.broker_ip1}] pop message's num is greater than "
                f"{POP_COUNT_MAX}",
            )
        # The records of pops are timer messages: without the wheel no message would ever come
        # again.
        if not self._store_config.timer_wheel_enable:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the broker[{config.broker_ip1}] pop message is forbidden because "
                "timerWheelEnable is false",
            )
        topic = self.topic(header.topic, header.queue_id, channel)
        group = self.group(header.consumer_group, channel)
        if not self._groups.may_read(group.group_name, header.topic):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group.group_name}] is forbidden for topic[{header.topic}]",
            )
        return topic, group

    def check_peek(
        self,
        header: PeekMessageRequestHeader | NotificationRequestHeader | PollingInfoRequestHeader,
        channel: Channel,
    ) -> TopicConfig:
        """Check whether the group may consume, and the topic be read; return the topic's entry.

        Raises: RequestRefused: they may not.
        """
        config = self._config
        if not config.broker_permission & PERM_READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] peeking message is forbidden",
            )
        topic = self.topic(header.topic, header.queue_id, channel)
        self.group(header.consumer_group, channel)
        return topic

    def find_topic(self, name: str) -> TopicConfig | None:
        """A topic by name; None: it does not exist."""
        return self._topic_table.get(name)

    def topic(self, name: str, queue_id: int, channel: Channel) -> TopicConfig:
        """A topic that may be read, and has the queue; a negative one stands for all.

        Raises: RequestRefused: it does not exist, may not be read, or has no such queue.
        """
        topic = self._topic_table.get(name)
        if topic is None:
            raise _no_topic(name)
        if not topic.perm & PERM_READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden"
            )
        if queue_id >= topic.read_queue_nums:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER, _illegal_queue(topic, queue_id, channel)
            )
        return topic

    def group(self, name: str, channel: Channel) -> SubscriptionGroupConfig:
        """A group that may consume; it is created where groups may be.

        Raises: RequestRefused: it does not exist, or may not consume.
        """
        group = self._groups.find(name, channel.remote_address)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{name}] does not exist, {FAQ_HELP}",
            )
        if not group.consume_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}"
            )
        return group

    def note(self, header: PopMessageRequestHeader, now_ms: int) -> None:
        """Record a pop that passed its checks: its group has a subscription without a heartbeat."""
        self._compensated.note(
            header.consumer_group, header.topic, header.exp, header.exp_type, now_ms
        )

    def selector(
        self, topic: str, group: str, expression_type: str | None, expression: str | None
    ) -> Selector | None:
        """The filter of a pop; None: all messages.

        SQL92 needs no enablePropertyFilter, which is for pulls: clients of Apache's proxy filter by
        it at brokers with default settings.
        Source: PopMessageProcessor.processRequest of 5.5.0.

        Raises: RequestRefused: it cannot be read.
        """
        if not expression:
            return None
        if is_tag_type(expression_type):
            if len(expression) > SUBSCRIPTION_LENGTH_MAX:
                reason = (
                    f"{len(expression)} characters of tags, the limit is {SUBSCRIPTION_LENGTH_MAX}"
                )
                raise _not_parsed(topic, group, reason)
            return tags_codes_of(expression)
        found = compile_filter(expression_type or "", expression)
        if isinstance(found, str):
            raise _not_parsed(topic, group, found)
        return found


def possible_time(invisible_time: int, config: MessageStoreConfig) -> int:
    """The nearest invisible time, ms, for which a record can wait.

    Apache's broker serves the pop; its messages come again at once, or never.
    """
    return min(max(invisible_time, 0), config.timer_max_delay_sec * 1000)


def refuse_long_time(invisible_time: int, config: MessageStoreConfig) -> None:
    """Refuse an invisible time, ms, for which no record can wait.

    Raises: RequestRefused: INVALID_PARAMETER.
    """
    longest_ms = config.timer_max_delay_sec * 1000
    if invisible_time > longest_ms:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"invisibleTime[{invisible_time}] is longer than timerMaxDelaySec allows: "
            f"{longest_ms} ms",
        )


def refuse_no_queue(
    table: Mapping[str, TopicConfig], name: str, queue_id: int, channel: Channel
) -> None:
    """Refuse a queue of popped messages that does not exist.

    Raises: RequestRefused: TOPIC_NOT_EXIST; MESSAGE_ILLEGAL if the topic has no such queue.
    """
    topic = table.get(name)
    if topic is None:
        raise _no_topic(name)
    if not 0 <= queue_id < topic.read_queue_nums:
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, _illegal_queue(topic, queue_id, channel))


def read_receipt(text: str) -> Receipt:
    """Raises: RequestRefused: SYSTEM_ERROR if it cannot be read."""
    try:
        return Receipt.from_text(text)
    except RemoteProtocolError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error


def refuse_lite(lite_topic: str | None) -> None:
    """Refuse requests for lite topics, of which this broker has none.

    Raises: RequestRefused: INVALID_PARAMETER, as for a group that is not bound to the topic.
    """
    if lite_topic and lite_topic.strip():
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, "group type or bind topic not match.")


def _no_topic(name: str) -> RequestRefused:
    return RequestRefused(
        ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! {FAQ_HELP}"
    )


def _illegal_queue(topic: TopicConfig, queue_id: int, channel: Channel) -> str:
    return (
        f"queueId[{queue_id}] is illegal, topic:[{topic.topic_name}] "
        f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{channel.remote_address}]"
    )


def _not_parsed(topic: str, group: str, reason: str) -> RequestRefused:
    logger.warning(
        "the expression of a pop of %(topic)s by group %(group)s is wrong: %(reason)s",
        {"topic": topic, "group": group, "reason": reason},
    )
    return RequestRefused(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
    )
