"""Members and offsets of consumer groups: GET_CONSUMER_LIST_BY_GROUP (38),
QUERY_CONSUMER_OFFSET (14), UPDATE_CONSUMER_OFFSET (15).

Java counterpart: broker/processor/ConsumerManageProcessor.java of 5.3.3. Pure.
`static_topic.py` has static topics.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from ...remoting.bodies import GetConsumerListByGroupResponseBody, TopicConfig
from ...remoting.channel import Answer, Channel, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.headers import (
    GetConsumerListByGroupRequestHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    decode,
)
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..messages.admission import may_commit_offset, own_offsets
from ..tables.consumer_offset_manager import ConsumerOffsetManager
from ..tables.subscription_group_manager import SubscriptionGroupManager
from ..tables.topic_config_manager import TopicConfigManager
from .consumer_manager import ConsumerManager

if TYPE_CHECKING:
    from ...store.reading.message_reader import GetMessageResult

logger = logging.getLogger(__name__)


class Messages(Protocol):
    """The part of the store that is used here; `store.message_store.MessageStore` implements it.

    Attributes:
      is_slave: whether its messages come from a master.
    """

    is_slave: bool

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Next queue offset; 0 when there is no such queue."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First queue offset still there; 0 when there is no such queue."""

    def get_message(
        self, topic: str, queue_id: int, queue_offset: int, count_max: int
    ) -> GetMessageResult:
        """Read up to count_max messages from queue_offset on."""


class ConsumerManageProcessor:
    """Lists the members of groups, and reads and commits their offsets.

    Args:
      consumers, offsets, groups, topics: the broker's tables.
    """

    def __init__(
        self,
        *,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        groups: SubscriptionGroupManager,
        topics: TopicConfigManager,
        store: Messages,
    ) -> None:
        self._consumers = consumers
        self._offsets = offsets
        self._groups = groups
        self._topics = topics
        self._store = store
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._list,
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
        }

    def _list(self, request: RemotingCommand, channel: Channel) -> Answer:
        group = decode(GetConsumerListByGroupRequestHeader, request.ext_fields).consumer_group
        info = self._consumers.get_consumer_group_info(group)
        if info is None:
            return request.answer(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}", ext_fields={}
            )
        body = GetConsumerListByGroupResponseBody(consumer_id_list=info.all_client_ids())
        return request.answer(ext_fields={}, body=body.to_body())

    def _query(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(QueryConsumerOffsetRequestHeader, request.ext_fields)
        topic, queue_id = header.topic, header.queue_id
        offset = self._offsets.query_offset(header.consumer_group, topic, queue_id)
        if offset < 0:
            if header.set_zero_if_not_found is False:
                remark = "Not found, do not set to zero, maybe this group boot first"
                return request.answer(ResponseCode.QUERY_NOT_FOUND, remark, ext_fields={})
            if not self._is_in_memory_from_zero(topic, queue_id):
                remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                return request.answer(ResponseCode.QUERY_NOT_FOUND, remark, ext_fields={})
            offset = 0
        return request.answer(ext_fields={"offset": str(offset)})

    def _is_in_memory_from_zero(self, topic: str, queue_id: int) -> bool:
        """Whether the queue's message 0 exists and is new enough to be in memory.

        A group that never consumed then begins at 0, even if its consumeFromWhere says otherwise:
        RocketMQ's way of not losing messages that are sent while the consumer starts.

        Source: DefaultMessageStore.checkInMemByConsumeOffset.
        """
        if self._store.min_offset(topic, queue_id) > 0:
            return False
        found = self._store.get_message(topic, queue_id, 0, 1)
        return found.count > 0 and not found.suggest_pulling_from_slave

    def _update(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(UpdateConsumerOffsetRequestHeader, request.ext_fields)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if not self._groups.contains(group):
            return request.answer(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"Group {group} not exist!",
                ext_fields={},
            )
        if not may_commit_offset(group):
            return request.answer(ResponseCode.NO_PERMISSION, own_offsets(group), ext_fields={})
        config = self._topics.select(topic)
        if config is None:
            return request.answer(
                ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!", ext_fields={}
            )
        if self._offsets.has_offset_reset(group, topic, queue_id):
            # The consumer does not know yet; its next pull tells it.
            remark = "Offset has been previously reset"
            return request.answer(ResponseCode.SUCCESS, remark, ext_fields={})
        reason = self._commit(config, header)
        if not reason:
            return request.answer(ext_fields={})
        remark = f"commitOffset[{header.commit_offset}] is not stored: {reason}"
        logger.debug(
            "%(peer)s, group %(group)s: %(remark)s",
            {"peer": channel.remote_address, "group": group, "remark": remark},
        )
        return request.answer(ResponseCode.SUCCESS, remark, ext_fields={})

    def _commit(self, config: TopicConfig, header: UpdateConsumerOffsetRequestHeader) -> str:
        """Commit an offset if its queue can have it.

        Returns: "", or the reason why nothing is stored.
        """
        topic, queue_id, offset = header.topic, header.queue_id, header.commit_offset
        end = self._store.max_offset(topic, queue_id) if queue_id >= 0 else 0
        # A queue that the topic had until recently is still consumed to its end.
        count = max(config.read_queue_nums, config.write_queue_nums)
        # RocketMQ stores any queue id and offset: its table grows without bound, and an offset past
        # the end hides the next messages. Its clients expect success; most do not wait for the
        # answer.
        if not 0 <= queue_id < count and end == 0:
            return f"topic[{topic}] has no queue {queue_id}"
        if offset < 0:
            return "it is negative"
        is_stored = self._offsets.commit_within(
            header.consumer_group, topic, queue_id, offset, end, is_slave=self._store.is_slave
        )
        return "" if is_stored else f"topic[{topic}] queue {queue_id} ends at {end}"
