"""Administration of topics: UPDATE_AND_CREATE_TOPIC (17), its list form (18),
GET_ALL_TOPIC_CONFIG (21), DELETE_TOPIC_IN_BROKER (215), GET_TOPIC_CONFIG (351),
UPDATE_AND_CREATE_STATIC_TOPIC (513).

A change is answered only after the name servers know it, so that a route requested right after the
answer includes it. The wait for a name server that does not answer is a second at most.

Java counterpart: AdminBrokerProcessor.updateAndCreateTopic, updateAndCreateTopicList, deleteTopic,
getAllTopicConfig, getTopicConfig, updateAndCreateStaticTopic of 5.3.3 and 5.5. Pure.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sized
from typing import Final, Protocol

import trio

from ...common.histogram import Histogram
from ...common.steps import Steps, json_members, json_page, with_member
from ...common.topic_names import pop_retry_topics
from ...common.topic_validator import refuse_topic
from ...disk.errors import StoreIOError
from ...disk.until_saved import until_saved
from ...remoting import fastjson
from ...remoting.bodies import (
    CreateTopicListRequestBody,
    DataVersion,
    TopicConfig,
    TopicConfigAndQueueMapping,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicQueueMappingDetail,
)
from ...remoting.channel import Answer, Channel, Deferred, Processor, answer_of
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemoteProtocolError, RequestRefused
from ...remoting.headers import (
    CreateStaticTopicRequestHeader,
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetTopicConfigRequestHeader,
    decode,
)
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import NOT_SET, ResponseCode
from ..messages.request import read_body
from ..settings.attributes import MESSAGE_TYPE, parse_attributes
from ..settings.config import BrokerConfig
from ..settings.settable_numbers import mend_topic
from ..tables.config_text import page
from ..tables.consumer_offset_manager import ConsumerOffsetManager
from ..tables.topic_config_manager import TopicConfigManager
from ..tables.topic_queue_mapping_manager import TopicQueueMappingManager

logger = logging.getLogger(__name__)

PAGE_SIZE_MAX: Final = 2000
"""Topics or groups of one page. RocketMQ: splitMetadataSize."""


PAGE_BODY_SIZE_MAX: Final = 8 * 1024 * 1024
"""Bytes of one page, half of a frame: 2,000 groups may have more, with long lists of attributes."""


class DeletesTopics(Protocol):
    """The part of the store that is used here; `store.message_store.MessageStore` implements it."""

    def delete_topics(self, topics: Iterable[str]) -> int:
        """Remove the queues of topics."""


class TopicAdminProcessor:
    """Creates, changes, lists and deletes topics.

    Args:
      topics, mappings, offsets: the broker's tables.
      register_topics: registers topics by name, and other pending changes, with the name servers;
        waits a short time for their answers, and does not raise.
      on_deleted: called with the name of a deleted topic.
      times_ms: counts how long it takes to save a change, milliseconds.
      until_visible: returns when consumers can see all messages that are stored now.
      config: the broker's; read at each use, so changes take effect at once.
    """

    def __init__(
        self,
        *,
        topics: TopicConfigManager,
        mappings: TopicQueueMappingManager,
        offsets: ConsumerOffsetManager,
        store: DeletesTopics,
        register_topics: Callable[[Iterable[str]], Awaitable[None]],
        on_deleted: Callable[[str], None],
        times_ms: Histogram,
        config: BrokerConfig,
        until_visible: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        self._config = config
        self._until_visible = until_visible
        self._on_deleted = on_deleted
        self._times_ms = times_ms
        self._topics = topics
        self._mappings = mappings
        self._offsets = offsets
        self._store = store
        self._register_topics = register_topics
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._update,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self._update_list,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete,
            RequestCode.GET_TOPIC_CONFIG: self._one,
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: self._update_static,
        }

    def _saved(
        self, answer: RemotingCommand, topics: Iterable[str] = (), *, is_static: bool = False
    ) -> Deferred:
        """The answer once the topics are saved and the name servers know them.

        Args:
          topics: registered even if they did not change: a name server may have lost them.
          is_static: also wait until consumers can see the messages so far. A tool that moves a
            queue asks for its end next, and what comes later would be skipped.
        """

        async def run() -> RemotingCommand:
            began_s = trio.current_time()
            await until_saved(self._topics.file)
            await until_saved(self._mappings.file)
            if is_static:
                await self._until_visible()
            self._times_ms.add((trio.current_time() - began_s) * 1000)
            await self._register_topics(topics)
            return answer

        return Deferred(run)

    def _refuse(self, topic: TopicConfig) -> None:
        """Raises: RequestRefused: INVALID_PARAMETER if administrators may not create this topic."""
        name = topic.topic_name
        reason = refuse_topic(name)
        if reason is None and self._topics.is_system_topic(name):
            reason = f"The topic[{name}] is conflict with system topic."
        is_mixed = topic.attributes.get(f"+{MESSAGE_TYPE}") == "MIXED"
        if reason is None and is_mixed and not self._config.enable_mixed_message_type:
            reason = "MIXED message type is not supported."
        if reason is not None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, reason)

    def _update(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(CreateTopicRequestHeader, request.ext_fields)
        logger.info(
            "%(peer)s creates or changes topic %(topic)r",
            {"peer": channel.remote_address, "topic": header.topic},
        )
        topic = _topic_of(header)
        mend_topic(topic, channel.remote_address)
        self._refuse(topic)
        return self._updated(request, [topic])

    def _update_static(self, request: RemotingCommand, channel: Channel) -> Answer:
        """Create or change a static topic; nothing is changed if its mapping is refused.

        Source: AdminBrokerProcessor.updateAndCreateStaticTopic, which changes the topic first.
        """
        header = decode(CreateStaticTopicRequestHeader, request.ext_fields)
        logger.info(
            "%(peer)s creates or changes static topic %(topic)r",
            {"peer": channel.remote_address, "topic": header.topic},
        )
        topic = _topic_of(header)
        mend_topic(topic, channel.remote_address, is_static=True)
        self._refuse(topic)
        detail = read_body(request, TopicQueueMappingDetail.from_request)
        if detail.topic != header.topic:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the mapping is of topic {detail.topic!r}, and the request of {header.topic!r}",
            )
        force = bool(header.force)
        queue_count = max(header.read_queue_nums, header.write_queue_nums)
        self._mappings.check(detail, queue_count=queue_count, force=force)
        self._topics.update([topic], may_be_empty=True)
        self._mappings.update(detail, force=force)
        return self._saved(request.answer(remark=NOT_SET), [header.topic], is_static=True)

    def _update_list(self, request: RemotingCommand, channel: Channel) -> Answer:

        def bound(body: CreateTopicListRequestBody) -> None:
            check_list(body.topic_config_list)
            for topic in body.topic_config_list:
                mend_topic(topic, channel.remote_address)

        topics = read_body(
            request, CreateTopicListRequestBody.from_request, bound
        ).topic_config_list
        logger.info(
            "%(peer)s creates or changes %(topics)d topics",
            {"peer": channel.remote_address, "topics": len(topics)},
        )
        for topic in topics:
            self._refuse(topic)
        return self._updated(request, topics)

    def _updated(self, request: RemotingCommand, topics: list[TopicConfig]) -> Deferred:
        before = self._topics.data_version
        self._topics.update(topics)
        # Changed topics are registered anyway.
        again = topics if self._topics.data_version is before else []
        return self._saved(request.answer(remark=NOT_SET), [topic.topic_name for topic in again])

    def _delete(self, request: RemotingCommand, channel: Channel) -> Answer:
        topic = decode(DeleteTopicRequestHeader, request.ext_fields).topic
        logger.info(
            "%(peer)s deletes topic %(topic)r", {"peer": channel.remote_address, "topic": topic}
        )
        reason = None
        if not topic.strip():
            reason = "The specified topic is blank."
        elif self._topics.is_system_topic(topic):
            reason = f"The topic[{topic}] is conflict with system topic."
        if reason is not None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, reason)
        names = [topic]
        if self._config.clear_retry_topic_when_delete_topic:
            names += self._retry_topics(topic)
        if refuse_topic(topic) is None:
            try:
                self._store.delete_topics(names)
            except StoreIOError as error:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"the topic[{topic}] was not deleted, or not all of it: {error}; try again",
                ) from error
        # Before any await, because a send might recreate the topic meanwhile.
        for name in names:
            self._offsets.clean_offset_by_topic(name)
            self._on_deleted(name)
        self._topics.delete(names)
        self._mappings.delete(names)
        return self._saved(request.answer())

    def _retry_topics(self, topic: str) -> list[str]:
        """The retry topics of pop consumers for the messages of a topic, in their two forms."""
        return [
            name
            for group in sorted(self._offsets.which_group_by_topic(topic))
            for name in pop_retry_topics(topic, group)
            if self._topics.select(name) is not None
        ]

    def _all(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(GetAllTopicConfigRequestHeader, request.ext_fields)
        table = self._topics.topic_config_table
        version = self._topics.data_version
        total = len(table)
        paging = (header.data_version, header.topic_seq, header.max_topic_num)
        is_page = paging != (None, None, None)
        if is_page:
            table = page(
                table,
                begin=first_of_page(header.data_version, version, header.topic_seq),
                count=page_size(header.max_topic_num),
            )
        size_max = PAGE_BODY_SIZE_MAX if is_page else sys.maxsize
        return answer_of(self._answer_topics(request, table, total, version, size_max))

    def _answer_topics(
        self,
        request: RemotingCommand,
        table: Mapping[str, TopicConfig],
        total: int,
        version: DataVersion,
        size_max: int,
    ) -> Steps[RemotingCommand | Deferred]:
        known = self._mappings.topic_queue_mapping_table
        mappings = {name: detail for name, detail in known.items() if name in table}
        wrapper = TopicConfigSerializeWrapper(
            data_version=version,
            mapping_data_version=self._mappings.data_version,
            topic_queue_mapping_info_map={},
            topic_queue_mapping_detail_map={},
        )
        topics, _ = yield from json_page(table, fastjson.dumps, size_max)
        details = yield from json_members(mappings, fastjson.dumps)
        body = with_member(wrapper.to_body(), b'"topicQueueMappingDetailMap":{}', details)
        body = with_member(body, b'"topicConfigTable":{}', topics)
        return request.answer(ext_fields={"totalTopicNum": str(total)}, body=body)

    def _one(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(GetTopicConfigRequestHeader, request.ext_fields)
        name = header.topic
        topic = self._topics.select(name)
        if topic is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}"
            )
        detail = self._mappings.topic_queue_mapping_table.get(name) if header.logical else None
        if detail is not None:
            topic = TopicConfigAndQueueMapping.of(topic, detail)
        return request.answer(body=topic.to_body())


def first_of_page(seen_version: str | None, version: DataVersion, begin: int | None) -> int:
    """The index at which a page begins; 0 if the table has changed since the last page.

    Args:
      seen_version: the DataVersion of the last page, as JSON; None or "": there was none.
      begin: the requested index.
    Source: AdminBrokerProcessor.getAllTopicConfig of 5.5.0: a string that is no DataVersion counts
      as none.
    """
    if seen_version is None or not seen_version.strip():
        return 0
    try:
        seen = DataVersion.from_request(seen_version.encode())
    except RemoteProtocolError:
        return 0
    return begin or 0 if seen == version else 0


def check_list(items: Sized) -> None:
    """Raises: RequestRefused: INVALID_PARAMETER if a request creates too many topics or groups."""
    if len(items) > PAGE_SIZE_MAX:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"the request has {len(items)} items, the limit is {PAGE_SIZE_MAX}: divide it",
        )


def page_size(wanted: int | None) -> int:
    """The number of topics or groups that a page has at most."""
    return PAGE_SIZE_MAX if wanted is None else min(wanted, PAGE_SIZE_MAX)


def _topic_of(header: CreateTopicRequestHeader) -> TopicConfig:
    """The settings in a request. Raises: RequestRefused: SYSTEM_ERROR if one is malformed."""
    return TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=_filter_type(header.topic_filter_type),
        topic_sys_flag=header.topic_sys_flag or 0,
        order=header.order,
        attributes=parse_attributes(header.attributes),
    )


def _filter_type(name: str) -> TopicFilterType:
    """Raises: RequestRefused: SYSTEM_ERROR: unknown filter type."""
    try:
        return TopicFilterType(name)
    except ValueError as error:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"topicFilterType = [{name}] value invalid"
        ) from error
