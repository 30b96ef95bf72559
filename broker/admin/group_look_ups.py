"""Look-ups of groups, topics and producers: GET_SYSTEM_TOPIC_LIST_FROM_BROKER 305,
QUERY_CORRECTION_OFFSET 308, CLONE_GROUP_OFFSET 314, GET_ALL_PRODUCER_INFO 328,
QUERY_TOPICS_BY_CONSUMER 343, QUERY_SUBSCRIPTION_BY_CONSUMER 345.

Java counterpart: getSystemTopicListFromBroker, queryCorrectionOffset, cloneGroupOffset,
getAllProducerInfo, queryTopicsByConsumer and querySubscriptionByConsumer of
AdminBrokerProcessor.java, queryMinOffsetInAllGroup and cloneOffset of ConsumerOffsetManager.java of
5.5.0. Pure.
"""

from __future__ import annotations

import logging

from ...common.java_integers import INT64_MAX
from ...common.steps import STEP_ITEMS, Steps, in_parts, with_member
from ...common.topic_names import SYSTEM_TOPICS, TIMER_TOPIC
from ...remoting import fastjson
from ...remoting.bodies import (
    ProducerInfo,
    ProducerTableInfo,
    QueryCorrectionOffsetBody,
    QuerySubscriptionResponseBody,
    TopicList,
)
from ...remoting.channel import Answer, Channel, Processor, answer_of
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.headers import (
    CloneGroupOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    decode,
)
from ...remoting.language_codes import LanguageCode
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...store.message_store import MessageStore
from ..clients.client_channel_info import ClientChannelInfo
from ..clients.consumer_manager import ConsumerManager
from ..clients.producer_manager import ProducerManager
from ..messages.admission import may_commit_offset, own_offsets
from ..tables.consumer_offset_manager import ConsumerOffsetManager, key_of
from ..tables.topic_config_manager import TopicConfigManager

logger = logging.getLogger(__name__)

_LANGUAGES = {int(code): code.name for code in LanguageCode}


class GroupLookUpProcessor:
    """Answers what groups subscribe to and have consumed, and copies offsets.

    Args:
      broker_addr: of this broker, for the answers.
      topics, offsets, consumers, producers: the broker's tables.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        broker_addr: str,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager,
        producers: ProducerManager,
    ) -> None:
        self._store = store
        self._broker_addr = broker_addr
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._producers = producers
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system_topics,
            RequestCode.QUERY_CORRECTION_OFFSET: self._correction,
            RequestCode.CLONE_GROUP_OFFSET: self._clone,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self._topics_of,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self._subscription,
        }

    def _system_topics(self, request: RemotingCommand, _: Channel) -> Answer:
        names = sorted(SYSTEM_TOPICS | {TIMER_TOPIC} | set(self._topics.system_topics))
        return request.answer(body=TopicList(topic_list=names).to_body())

    def _all_producers(self, request: RemotingCommand, _: Channel) -> Answer:
        return answer_of(self._answer_all_producers(request))

    def _answer_all_producers(self, request: RemotingCommand) -> Steps[RemotingCommand]:
        now_ms, now_s = self._store.clock.wall_ms(), self._store.clock.monotonic_s()

        def info(client: ClientChannelInfo) -> ProducerInfo:
            return ProducerInfo(
                client.client_id,
                f"/{client.channel.remote_address}",
                _LANGUAGES.get(client.language, LanguageCode.OTHER.name),
                client.version,
                now_ms - int((now_s - client.last_update_s) * 1000),
            )

        pieces: dict[str, list[bytes]] = {group: [] for group in self._producers.group_table}
        clients = [
            (group, client)
            for group, of_group in self._producers.group_table.items()
            for client in of_group.values()
        ]
        for number, part in enumerate(in_parts(clients, STEP_ITEMS)):
            if number:
                yield
            for group, client in part:
                pieces[group].append(fastjson.dumps(info(client)))
        groups = (
            b"%b:[%b]" % (fastjson.dumps(group), b",".join(of_group))
            for group, of_group in pieces.items()
        )
        text = b"{%b}" % b",".join(groups)
        body = with_member(ProducerTableInfo().to_body(), b'"data":{}', text)
        return request.answer(body=body)

    def _topics_of(self, request: RemotingCommand, _: Channel) -> Answer:
        group = decode(QueryTopicsByConsumerRequestHeader, request.ext_fields).group
        names = sorted(self._offsets.which_topic_by_consumer(group))
        body = TopicList(topic_list=names, broker_addr=self._broker_addr)
        return request.answer(body=body.to_body())

    def _subscription(self, request: RemotingCommand, _: Channel) -> Answer:
        header = decode(QuerySubscriptionByConsumerRequestHeader, request.ext_fields)
        found = self._consumers.find_subscription_data(header.group, header.topic or "")
        body = QuerySubscriptionResponseBody(
            group=header.group,
            topic=header.topic,
            subscription_data=None if found is None else found.to_data(),
        )
        return request.answer(body=body.to_body())

    # ---- offsets -------------------------------------------------------------------------

    def _correction(self, request: RemotingCommand, _: Channel) -> Answer:
        """The smallest offset of all groups in each queue."""
        header = decode(QueryCorrectionOffsetHeader, request.ext_fields)
        topic = header.topic
        left_out = set((header.filter_groups or "").split(","))
        least: dict[int, int] = {}
        for group in self._offsets.which_group_by_topic(topic) - left_out:
            for queue_id, offset in self._offsets.offset_table[key_of(topic, group)].items():
                if offset >= self._store.min_offset(topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, offset))
        # Queues in which the compared group is behind the others get the greatest number. RocketMQ
        # also drops the offsets of the groups that are left out; here nothing changes.
        compared = self._offsets.offset_table.get(key_of(topic, header.compare_group), {})
        for queue_id, offset in compared.items():
            if least.get(queue_id, INT64_MAX) > offset:
                least[queue_id] = INT64_MAX
        body = QueryCorrectionOffsetBody(correction_offsets=least)
        return request.answer(body=body.to_body(quote_int_keys=False))

    def _clone(self, request: RemotingCommand, channel: Channel) -> Answer:
        """Give a group the offsets of another one."""
        header = decode(CloneGroupOffsetRequestHeader, request.ext_fields)
        source, target = header.src_group, header.dest_group
        if not may_commit_offset(target):
            raise RequestRefused(ResponseCode.NO_PERMISSION, own_offsets(target))
        # Without a topic RocketMQ copies none, although it looks for all; here all are copied.
        if header.topic and header.topic.strip():
            names = {header.topic}
        else:
            names = self._offsets.which_topic_by_consumer(source)
        info = self._consumers.get_consumer_group_info(source)
        subscribed = None if info is None or header.offline else info.subscription_table
        logger.info(
            "%(peer)s gives group %(target)r the offsets of group %(source)r",
            {"peer": channel.remote_address, "target": target, "source": source},
        )
        for name in sorted(names):
            if self._topics.select(name) is None or (subscribed and name not in subscribed):
                continue
            self._offsets.clone_offset(source, target, name)
        return request.answer()
