"""Retries of messages that a consumer could not consume: CONSUMER_SEND_MSG_BACK 36.

The message is stored again, in the group's retry topic with a delay that grows with each retry, or
in its dead letter topic after the last one.

Java counterpart: broker/processor/AbstractSendMessageProcessor.java consumerSendMsgBack of 5.3.3.
"""

from __future__ import annotations

import logging
from random import Random
from typing import Final, NamedTuple

from ...common.java_integers import INT32_MAX
from ...common.message_properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_WAIT_STORE_MSG_OK,
)
from ...common.topic_names import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from ...remoting.bodies import PERM_WRITE
from ...remoting.channel import Channel, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.headers import ConsumerSendMsgBackRequestHeader, decode
from ...remoting.message import MessageExt
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import FAQ_HELP, ResponseCode
from ...store.message_store import MessageStore
from ..messages.inner_message import InnerMessage
from ..messages.request import stored_message
from ..puts.turn_puts import TurnPuts
from ..settings.config import BrokerConfig
from ..stats.broker_stats_manager import KEY_SEPARATOR, BrokerStatsManager, StatsName
from ..tables.subscription_group_manager import SubscriptionGroupManager
from ..tables.topic_queues import any_queue
from .send_topics import DLQ_QUEUE_COUNT, SendTopics

logger = logging.getLogger(__name__)

FIRST_RETRY_LEVEL: Final = 3
"""Delay level of the first retry; each further one has the next level."""

_UNIT_SUB: Final = 2
"""TopicSysFlag: the retry topic of a consumer that belongs to a unit."""


class RetryDecision(NamedTuple):
    """The treatment of a message that was sent back.

    Attributes:
      is_dead: it goes to the dead letter topic.
      delay_level: the delay of its retry; 0: none, for dead letters.
    """

    is_dead: bool
    delay_level: int


def decide_retry(reconsume_times: int, delay_level: int, reconsume_times_max: int) -> RetryDecision:
    """Decide whether a message is retried or becomes a dead letter.

    Args:
      reconsume_times: the number of retries so far.
      delay_level: requested by the consumer; 0: the broker decides, negative: a dead letter.
      reconsume_times_max: of the consumer, or of its group.
    Source: AbstractSendMessageProcessor.consumerSendMsgBack.
    """
    if reconsume_times >= reconsume_times_max or delay_level < 0:
        return RetryDecision(True, 0)
    return RetryDecision(False, delay_level or FIRST_RETRY_LEVEL + reconsume_times)


class SendBackProcessor:
    """Stores messages again that consumers send back.

    Args:
      store: has the original message.
      puts: appends messages, and answers when they are written.
      topics: finds or creates the group's topics.
      random: picks the queue of the retry topic.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        puts: TurnPuts,
        topics: SendTopics,
        *,
        groups: SubscriptionGroupManager,
        random: Random,
        stats: BrokerStatsManager,
    ) -> None:
        self._config = config
        self._store = store
        self._puts = puts
        self._topics = topics
        self._groups = groups
        self._random = random
        self._stats = stats
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back,
        }

    def send_back(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        """Store a message again for its group; the answer leaves when that is written.

        Raises:
          RequestRefused: with Apache's codes and remarks; SYSTEM_ERROR if the message was deleted
            or is damaged; SERVICE_NOT_AVAILABLE if the group or a topic of it is new and cannot be
            saved.
          Postponed: the group or a topic of it is new and being saved.
        """
        header = decode(ConsumerSendMsgBackRequestHeader, request.ext_fields)
        group = self._groups.find(header.group, channel.remote_address)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {header.group} {FAQ_HELP}",
            )
        self._groups.require_saved(header.group)
        if not self._config.broker_permission & PERM_WRITE:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending message is forbidden",
            )
        if group.retry_queue_nums <= 0:  # an administrator has switched retries off
            return request.answer(ResponseCode.SUCCESS, None)
        topic = RETRY_TOPIC_PREFIX + header.group
        sys_flag = _UNIT_SUB if header.unit_mode else 0
        config = self._topics.of_group(topic, group.retry_queue_nums, sys_flag)
        if not config.perm & PERM_WRITE:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden"
            )
        failed = "look message by offset failed, "
        message = stored_message(
            self._store, header.offset, failed=failed, missing=f"{failed}{header.offset}"
        )
        if not self._puts.kinds.may_name(RequestCode.CONSUMER_SEND_MSG_BACK, message.topic):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"{failed}the message at {header.offset} is the broker's own record in "
                f"{message.topic}",
            )
        times_max = header.max_reconsume_times
        if times_max is None:
            times_max = group.retry_max_times
        decision = decide_retry(message.reconsume_times, header.delay_level, times_max)
        if decision.is_dead:
            topic = DLQ_TOPIC_PREFIX + header.group
            config = self._topics.of_group(topic, DLQ_QUEUE_COUNT)
            _log_dead(message, topic, channel.remote_address)
        again = InnerMessage.of(message)
        again.topic = topic
        # Not the group's retryQueueNums: the existing topic may have other queues.
        again.queue_id = any_queue(config, self._random)
        changed = _properties(message, decision.delay_level)
        again.change_properties(changed)
        again.store_host = self._puts.turn.store_host
        again.reconsume_times = min(message.reconsume_times + 1, INT32_MAX)
        # After the answer the consumer commits past the message, so the answer waits for the fsync.
        # (Apache answers before it.)
        self._puts.put_and_answer(request, channel, again, waits=True)
        name = StatsName.DLQ_PUT_NUMS if decision.is_dead else StatsName.SNDBCK_PUT_NUMS
        self._stats.add(name, f"{changed[PROPERTY_RETRY_TOPIC]}{KEY_SEPARATOR}{header.group}")
        return None


def _properties(message: MessageExt, delay_level: int) -> dict[str, str]:
    """The properties that a message gets when it is sent back."""
    first = {
        PROPERTY_RETRY_TOPIC: message.topic,
        PROPERTY_ORIGIN_MESSAGE_ID: message.offset_message_id,
    }
    return {
        **{name: message.properties.get(name, value) for name, value in first.items()},
        PROPERTY_WAIT_STORE_MSG_OK: "false",
        # A dead letter has DELAY 0, as Apache's.
        PROPERTY_DELAY_TIME_LEVEL: str(delay_level),
    }


def _log_dead(message: MessageExt, dead_letter_topic: str, peer: str) -> None:
    logger.warning(
        "%(peer)s: message %(message_id)s of %(topic)s is not retried after "
        "%(reconsume_times)d tries and becomes a dead letter in %(stored_in)s",
        {
            "peer": peer,
            "message_id": message.unique_key or message.offset_message_id,
            "topic": message.topic,
            "reconsume_times": message.reconsume_times,
            "stored_in": dead_letter_topic,
        },
    )
