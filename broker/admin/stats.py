"""Statistics: GET_TOPIC_STATS_INFO 202, GET_CONSUME_STATS 208, QUERY_CONSUME_TIME_SPAN 303,
VIEW_BROKER_STATS_DATA 315, GET_BROKER_CONSUME_STATS 317.

Java counterpart: getTopicStatsInfo, getConsumeStats, queryConsumeTimeSpan, ViewBrokerStatsData and
fetchAllConsumeStatsInBroker of AdminBrokerProcessor.java of 5.5.0. Pure.
The queues of static topics are physical ones here; tools convert them.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from typing import Final

import msgspec

from ...common.steps import STEP_ITEMS, Steps, with_member
from ...disk.errors import StoreError
from ...remoting import fastjson
from ...remoting.bodies import (
    BrokerStatsData,
    BrokerStatsItem,
    BufferedCheckPointBody,
    ConsumeStats,
    MessageQueue,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicConfig,
    TopicOffset,
    TopicStatsTable,
)
from ...remoting.channel import Answer, Channel, Processor, answer_of
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.headers import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    ViewBrokerStatsDataRequestHeader,
    decode,
)
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...store.message_store import MessageStore
from ..clients.consumer_manager import ConsumerManager
from ..pop.check_point import CheckPoint
from ..pop.progress import NoPops, PopProgress
from ..stats.broker_stats_manager import BrokerStatsManager
from ..stats.stats_item import DAY, HOUR, MINUTE, StatsItem
from ..tables.consumer_offset_manager import ConsumerOffsetManager, key_of
from ..tables.subscription_group_manager import SubscriptionGroupManager
from ..tables.topic_config_manager import TopicConfigManager

logger = logging.getLogger(__name__)

QUEUES_PER_STEP: Final = 100
"""Queues of one step: reading a store time takes some 10 us, and writing an entry as long."""


CHECK_POINTS_PER_STEP: Final = 5_000
"""Check points of one step that are compared with a request's group: a millisecond."""

CHECK_POINTS_MAX: Final = 10_000
"""Check points of one answer: three megabytes."""


class StatisticsProcessor:
    """Answers how many messages there are, and how far groups have consumed them.

    Args:
      broker_name, broker_addr: of this broker, for the answers.
      topics, groups, offsets, consumers: the broker's tables.
      static_topics: the names of the static topics.
      pops: those that are not acknowledged.
    """

    def __init__(
        self,
        store: MessageStore,
        stats: BrokerStatsManager,
        *,
        broker_name: str,
        broker_addr: str,
        topics: TopicConfigManager,
        static_topics: Container[str] = (),
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager,
        pops: PopProgress | None = None,
    ) -> None:
        self._store = store
        self._stats = stats
        self._broker_name = broker_name
        self._broker_addr = broker_addr
        self._topics = topics
        self._static_topics = static_topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._pops = NoPops() if pops is None else pops
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.GET_TOPIC_STATS_INFO: self._topic_stats,
            RequestCode.GET_CONSUME_STATS: self._consume_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self._time_span,
            RequestCode.VIEW_BROKER_STATS_DATA: self._view,
            RequestCode.GET_BROKER_CONSUME_STATS: self._all_consume_stats,
        }

    # ---- one topic -----------------------------------------------------------------------

    def _topic_stats(self, request: RemotingCommand, _: Channel) -> Answer:
        topic = self._topic(decode(GetTopicStatsInfoRequestHeader, request.ext_fields).topic)
        return answer_of(self._answer_topic_stats(request, topic))

    def _answer_topic_stats(
        self, request: RemotingCommand, topic: TopicConfig
    ) -> Steps[RemotingCommand]:
        name = topic.topic_name
        table: dict[MessageQueue, TopicOffset] = {}
        for queue_id in range(max(topic.write_queue_nums, topic.read_queue_nums)):
            if queue_id and queue_id % QUEUES_PER_STEP == 0:
                yield
            begin = max(self._store.min_offset(name, queue_id), 0)
            end = self._store.max_offset(name, queue_id)
            last_ms = self._store_time(name, queue_id, end - 1) if end > 0 else 0
            table[MessageQueue(name, self._broker_name, queue_id)] = TopicOffset(
                begin, end, last_ms
            )
        body = TopicStatsTable(
            offset_table=table, topic_put_tps=self._stats.tps_topic_put_nums(name)
        )
        return request.answer(body=body.to_body())

    def _topic(self, name: str) -> TopicConfig:
        """Raises: RequestRefused: TOPIC_NOT_EXIST."""
        topic = self._topics.select(name)
        if topic is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic

    def _store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When a message was stored, in milliseconds; -1: it is not there or cannot be read."""
        try:
            return self._store.store_time_at(topic, queue_id, queue_offset)
        except StoreError as error:
            logger.warning(
                "the store time of message %(queue_offset)d in %(topic)s queue %(queue_id)d is "
                "unknown: %(error)s",
                {
                    "queue_offset": queue_offset,
                    "topic": topic,
                    "queue_id": queue_id,
                    "error": error,
                },
            )
            return -1

    # ---- groups --------------------------------------------------------------------------

    def _consume_stats(self, request: RemotingCommand, _: Channel) -> Answer:
        header = decode(GetConsumeStatsRequestHeader, request.ext_fields)
        group = header.consumer_group
        listed = [name for name in (header.topic_list or "").split(";") if name.strip()]
        if listed:
            names: Iterable[str] = set(listed)
        elif header.topic and header.topic.strip():
            names = self._subscribed(group, [header.topic])
        else:
            names = self._subscribed(group, self._offsets.which_topic_by_consumer(group))
        wanted = sorted(names)
        return answer_of(
            self._answer_consume_stats(request, group, wanted, with_pops=bool(header.with_pops))
        )

    def _subscribed(self, group: str, names: Iterable[str]) -> list[str]:
        """Those of a group's topics that it subscribes to or pops; all if it is not connected."""
        info = self._consumers.get_consumer_group_info(group)
        if info is None or not info.subscription_table:
            return list(names)
        find = self._consumers.find_subscription_data
        return [name for name in names if find(group, name) is not None]

    def _answer_consume_stats(
        self, request: RemotingCommand, group: str, names: list[str], *, with_pops: bool
    ) -> Steps[RemotingCommand]:
        pieces: list[bytes] = []
        tps = 0.0
        queues = 0
        for name in names:
            topic = self._topics.select(name)
            if topic is None:
                continue
            if queues >= QUEUES_PER_STEP:
                queues = 0
                yield
            queues += topic.read_queue_nums
            table = yield from self._progress(group, name, topic.read_queue_nums)
            if table:
                pieces.append(fastjson.dumps(table)[1:-1])
            tps += self._stats.tps_group_get_nums(group, name)
        offsets = b"{%b}" % b",".join(pieces)
        stats = ConsumeStats(consume_tps=tps)
        if with_pops:
            yield from self._add_pops(stats, group, names)
        body = with_member(stats.to_body(), b'"offsetTable":{}', offsets)
        return request.answer(body=body)

    def _add_pops(self, stats: ConsumeStats, group: str, names: list[str]) -> Steps[None]:
        """Steps that add a group's check points that are in memory only."""
        found: list[BufferedCheckPointBody] = []
        left_out = 0
        for number, (point, revive_queue_id) in enumerate(self._pops.check_points()):
            if number % CHECK_POINTS_PER_STEP == 0:
                yield
            if point.group != group or point.topic not in names:
                continue
            if len(found) < CHECK_POINTS_MAX:
                found.append(_buffered(point, revive_queue_id))
            else:
                left_out += 1
        stats.pop_check_points = found
        stats.pop_check_points_left_out = left_out

    def _progress(
        self, group: str, topic: str, queue_count: int
    ) -> Steps[dict[MessageQueue, OffsetWrapper]]:
        """Steps that find a group's offsets in the queues of one topic."""
        table: dict[MessageQueue, OffsetWrapper] = {}
        next_offset = self._pops.next_offset
        pulled = self._offsets.pull_offset_table.get(key_of(topic, group), {})
        for queue_id in range(queue_count):
            if queue_id and queue_id % QUEUES_PER_STEP == 0:
                yield
            offset = self._offsets.query_offset(group, topic, queue_id)
            if topic not in self._static_topics:  # -1 lets mqadmin look at the item before
                offset = max(offset, 0)
            last_ms = self._store_time(topic, queue_id, offset - 1) if offset > 0 else 0
            table[MessageQueue(topic, self._broker_name, queue_id)] = OffsetWrapper(
                self._store.max_offset(topic, queue_id),
                offset,
                max(offset, pulled.get(queue_id, -1), next_offset(topic, group, queue_id)),
                max(last_ms, 0),
            )
        return table

    def _all_consume_stats(self, request: RemotingCommand, _: Channel) -> Answer:
        header = decode(GetConsumeStatsInBrokerHeader, request.ext_fields)
        return answer_of(self._answer_all_consume_stats(request, header))

    def _answer_all_consume_stats(
        self, request: RemotingCommand, header: GetConsumeStatsInBrokerHeader
    ) -> Steps[RemotingCommand]:
        pieces: list[bytes] = []
        behind = in_flight = 0
        topics_of = yield from self._offsets.topics_by_group()
        for number, group in enumerate(list(self._groups.subscription_group_table)):
            if number % STEP_ITEMS == STEP_ITEMS - 1:
                yield
            topics: list[bytes] = []
            names = self._subscribed(group, map(str, topics_of.get(group, ())))
            for name in sorted(names):
                topic = self._topics.select(name)
                if topic is None or (header.is_order and not topic.order):
                    continue
                table = yield from self._progress(group, name, topic.write_queue_nums)
                behind += sum(each.broker_offset - each.consumer_offset for each in table.values())
                in_flight += sum(each.pull_offset - each.consumer_offset for each in table.values())
                tps = self._stats.tps_group_get_nums(group, name)
                topics.append(ConsumeStats(offset_table=table, consume_tps=tps).to_body())
                yield
            pieces.append(b"{%b:[%b]}" % (msgspec.json.encode(group), b",".join(topics)))
        body = (
            b'{"brokerAddr":%b,"consumeStatsList":[%b],"totalDiff":%d,"totalInflightDiff":%d%b}'
            % (
                msgspec.json.encode(self._broker_addr),
                b",".join(pieces),
                behind,
                in_flight,
                self._members() if header.with_members else b"",
            )
        )
        return request.answer(body=body)

    def _members(self) -> bytes:
        """The number of members of each group, as one more member of an object in JSON.

        One step: 50,000 groups, the most there may be, take 10 ms.
        """
        groups = self._consumers.consumer_table
        counts = {name: len(group.channel_info_table) for name, group in groups.items()}
        return b',"members":%b' % msgspec.json.encode(counts)

    def _time_span(self, request: RemotingCommand, _: Channel) -> Answer:
        header = decode(QueryConsumeTimeSpanRequestHeader, request.ext_fields)
        return answer_of(self._answer_time_span(request, header.group, self._topic(header.topic)))

    def _answer_time_span(
        self, request: RemotingCommand, group: str, topic: TopicConfig
    ) -> Steps[RemotingCommand]:
        name, store = topic.topic_name, self._store
        now_ms = store.clock.wall_ms()
        spans: list[QueueTimeSpan] = []
        for queue_id in range(topic.write_queue_nums):
            if queue_id and queue_id % QUEUES_PER_STEP == 0:
                yield
            begin, end = max(store.min_offset(name, queue_id), 0), store.max_offset(name, queue_id)
            offset = self._offsets.query_offset(group, name, queue_id)
            first_ms = self._store_time(name, queue_id, begin)
            next_ms = self._store_time(name, queue_id, max(offset, begin))
            spans.append(
                QueueTimeSpan(
                    message_queue=MessageQueue(name, self._broker_name, queue_id),
                    min_time_stamp=first_ms,
                    max_time_stamp=self._store_time(name, queue_id, end - 1),
                    consume_time_stamp=(
                        self._store_time(name, queue_id, offset - 1) if offset > 0 else first_ms
                    ),
                    delay_time=max(now_ms - next_ms, 0) if next_ms >= 0 else 0,
                )
            )
        return request.answer(body=QueryConsumeTimeSpanBody(consume_time_span_set=spans).to_body())

    # ---- counters ------------------------------------------------------------------------

    def _view(self, request: RemotingCommand, _: Channel) -> Answer:
        header = decode(ViewBrokerStatsDataRequestHeader, request.ext_fields)
        return answer_of(self._answer_view(request, header))

    def _answer_view(
        self, request: RemotingCommand, header: ViewBrokerStatsDataRequestHeader
    ) -> Steps[RemotingCommand]:
        try:
            item = yield from self._stats.item(header.stats_name, header.stats_key)
        except StoreError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if item is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        body = BrokerStatsData(
            stats_minute=_growth(item, MINUTE),
            stats_hour=_growth(item, HOUR),
            stats_day=_growth(item, DAY),
        )
        return request.answer(body=body.to_body())


def _growth(item: StatsItem, period: int) -> BrokerStatsItem:
    return BrokerStatsItem(*item.growth(period))


def _buffered(point: CheckPoint, revive_queue_id: int) -> BufferedCheckPointBody:
    """The body of a check point in memory, with its acknowledged messages as bits of a Java int."""
    bits = point.acked - (1 << 32) if point.acked >> 31 else point.acked
    members = msgspec.structs.asdict(point.to_body()) | {"bit_map": bits}
    return BufferedCheckPointBody(**members, revive_queue_id=revive_queue_id)
