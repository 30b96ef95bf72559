"""Waiting pops: NOTIFICATION 200054, POLLING_INFO 200055.

A notification waits, as a pop does, until there is a message to pop, and is answered with whether
there is one; it pops nothing. Proxies use it.

Java counterpart: broker/processor/NotificationProcessor.java and PollingInfoProcessor.java of
5.5.0.
"""

from __future__ import annotations

from random import Random
from typing import Final

from ...remoting.bodies import TopicConfig
from ...remoting.channel import Answer, Channel, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.headers import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    decode,
    encode_header,
)
from ...remoting.request_codes import RequestCode
from ...store.message_store import MessageStore
from ...store.queues.new_tags import tags_codes_since
from ..settings.config import BrokerConfig
from ..tables.topic_config_manager import TopicConfigManager
from ..waiting.pull import Selector
from .pop_checks import PopChecks
from .pop_message import QUEUES_MAX
from .services import PopServices
from .waiting_requests import Polling, polling_key

_HAS_MESSAGE: Final = encode_header(NotificationResponseHeader(has_msg=True))
_HAS_NONE: Final = encode_header(NotificationResponseHeader(has_msg=False))
_IS_FULL: Final = encode_header(NotificationResponseHeader(has_msg=False, polling_full=True))


class PopWaitingProcessor:
    """Tells whether there is a message to pop, and how many pops wait.

    Args:
      store: already loaded.
      pop: the parts of pop consumption.
      random: picks the queue that is looked at first.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        pop: PopServices,
        checks: PopChecks,
        *,
        topics: TopicConfigManager,
        random: Random,
    ) -> None:
        self._config = config
        self._store = store
        self._queues = store.queue_store.queues
        self._checks = checks
        self._topic_table = topics.topic_config_table
        self._retry_topics = pop.retry_topics
        self._positions = pop.positions
        self._hold = pop.hold
        self._orders = pop.orders
        self._random = random
        pop.hold.serve_notification = self._notification
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.NOTIFICATION: self._notification,
            RequestCode.POLLING_INFO: self._polling_info,
        }

    def _notification(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(NotificationRequestHeader, request.ext_fields)
        topic = self._checks.check_peek(header, channel)
        config, group, queue_id = self._config, header.consumer_group, header.queue_id
        selector: Selector | None = None
        if config.use_message_filter_for_notification and header.exp_type and header.exp:
            selector = self._checks.selector(header.topic, group, header.exp_type, header.exp)
        if queue_id < 0:
            found = self._has_message(topic, header, selector)
        else:
            found = self._has_message_in(header.topic, queue_id, header, selector)
        # The retry topics last, as they cost a look-up in each.
        if found or self._has_retried(header):
            return request.answer(ext_fields=_HAS_MESSAGE)
        hold = self._hold
        polling = hold.notifications.hold(
            request,
            channel,
            polling_key(header.topic, group, queue_id),
            wait_ms=hold.wait_ms(header.born_time, header.poll_time),
            selector=selector,
        )
        if polling is Polling.WAITS:
            return None
        return request.answer(ext_fields=_IS_FULL if polling is Polling.FULL else _HAS_NONE)

    def _polling_info(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(PollingInfoRequestHeader, request.ext_fields)
        self._checks.check_peek(header, channel)
        key = polling_key(header.topic, header.consumer_group, header.queue_id)
        number = self._hold.pops.polling_num(key)
        return request.answer(
            ext_fields=encode_header(PollingInfoResponseHeader(polling_num=number))
        )

    def _has_retried(self, header: NotificationRequestHeader) -> bool:
        """Whether the group's retry topics have a message, which a pop in order never gets."""
        if header.order:
            return False
        for name in self._retry_topics.read_names(header.topic, header.consumer_group):
            topic = self._topic_table.get(name)
            if topic is not None and self._has_message(topic, header, None):
                return True
        return False

    def _has_message(
        self, topic: TopicConfig, header: NotificationRequestHeader, selector: Selector | None
    ) -> bool:
        """Whether any queue of a topic, or of QUEUES_MAX of them, has a message for the group."""
        count = topic.read_queue_nums
        if count <= 0:
            return False
        # A random beginning, as a topic may have more queues than are looked at.
        first = self._random.randrange(count)
        return any(
            self._has_message_in(topic.topic_name, (first + index) % count, header, selector)
            for index in range(min(count, QUEUES_MAX))
        )

    def _has_message_in(
        self,
        topic: str,
        queue_id: int,
        header: NotificationRequestHeader,
        selector: Selector | None,
    ) -> bool:
        """Whether a queue has a message for the group."""
        group = header.consumer_group
        end = self._store.max_offset(topic, queue_id)
        begin = self._positions.peek(topic, group, queue_id)
        if begin >= end:
            return False
        if header.order and self._orders.is_blocked(topic, group, queue_id, header.attempt_id, 0):
            return False
        if (
            isinstance(selector, frozenset)
            and end - begin < self._config.max_message_filter_num_for_notification
        ):
            codes, _ = tags_codes_since(self._queues, (topic, queue_id), begin)
            return codes is None or not selector.isdisjoint(codes)
        # One of many may match; if none does, the pop that follows goes past them.
        return True
