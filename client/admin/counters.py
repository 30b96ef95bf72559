"""Statistics that brokers keep: of themselves, of topics, of groups; and what they hold.

Java counterpart: brokerStatus, brokerConsumeStats, statsAll, topicStatus, queryCq and producer of
mqadmin.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Final

from ...common.topic_names import retry_topic
from ...remoting.bodies import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    HARuntimeInfo,
    KVTable,
    MessageQueue,
    ProducerTableInfo,
    QueryConsumeQueueResponseBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicStatsTable,
)
from ...remoting.bodies.stats import GROUPS_PER_STEP
from ...remoting.headers import (
    GetConsumeStatsInBrokerHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from ...remoting.mq_version import version_name
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..connection.client import reading_answer
from ..core.topics import check_topic
from ..errors import ConfigurationError, ServerError
from ..sending.producer import configured
from .asking import BrokerAt, Brokers, ask_each, brokers_of, each_of
from .broker_stats import BrokerStats, read_broker_stats
from .results import BrokerInfo, QueueOffsets
from .stats import (
    BrokerConsumeStats,
    GroupProgress,
    Growth,
    ProducerInfo,
    QueueProgress,
    QueueUnit,
    StatsSnapshot,
    TopicStats,
)
from .steps import in_steps

UNITS: Final = 16
"""Units of a consume queue in one look. Source: queryCq of mqadmin has 10."""
PUT_COUNT: Final = "TOPIC_PUT_NUMS"
PUT_SIZE: Final = "TOPIC_PUT_SIZE"
GET_COUNT: Final = "GROUP_GET_NUMS"
"""Names of counters; the first two have topics as keys, the third `topic@group`. Source: Stats."""


class CounterVerbs:
    """The part of `Admin` about statistics.

    `broker` is a broker's name (of its master then) or its `host:port`.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._client = brokers.client

    # Brokers

    async def broker_stats(self, broker: str) -> BrokerStats:
        """How a broker runs: rates, totals, disks, version, uptime.

        Raises: NotFoundError: no broker is called so. ServerError; ConnectError.
        """
        return await self._broker_stats(await self._brokers.one(broker))

    async def all_broker_stats(self, cluster: str | None = None) -> tuple[BrokerStats, ...]:
        """How each broker runs, masters and slaves, sorted by cluster, name and id.

        Args:
          cluster: only its brokers; None: all clusters.

        Raises: ConfigurationError: there is no such cluster. BrokersError; ServerError;
          ConnectError.
        """
        brokers = each_of(await self._brokers.find(cluster))
        answers = await ask_each(brokers, self._broker_stats)
        found = tuple(answers.values.values())
        answers.check("the statistics of the brokers", found)
        return found

    async def _broker_stats(self, broker: BrokerAt) -> BrokerStats:
        answer = await self._client.request(broker.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        with reading_answer(broker.address):
            texts = KVTable.from_body(answer.body).table
        return read_broker_stats(
            texts, broker_name=broker.name, broker_id=broker.broker_id, address=broker.address
        )

    async def counter(self, broker: str, name: str, key: str) -> StatsSnapshot | None:
        """How one of a broker's counters grew.

        Args:
          name: of the counter, such as "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "GROUP_GET_NUMS",
            "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS", "BROKER_PUT_NUMS", "BROKER_GET_NUMS".
          key: what it counts for, with the client's namespace in it: a topic, `topic@group`, or a
            cluster for those of the broker itself.

        Returns: None: nothing was counted since the broker started, or there is no such counter.
        Raises: NotFoundError: no broker is called so. ServerError; ConnectError.
        """
        return await self._counter((await self._brokers.one(broker)).address, name, key)

    async def _counter(self, address: str, name: str, key: str) -> StatsSnapshot | None:
        header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        try:
            answer = await self._client.request(address, RequestCode.VIEW_BROKER_STATS_DATA, header)
        except ServerError as error:
            # No response code says so.
            if error.code == ResponseCode.SYSTEM_ERROR and "not exist" in error.remark:
                return None
            raise
        with reading_answer(address):
            body = BrokerStatsData.from_body(answer.body)
        return StatsSnapshot(
            _growth(body.stats_minute), _growth(body.stats_hour), _growth(body.stats_day)
        )

    async def broker_consume_stats(
        self, broker: str, *, is_order: bool = False
    ) -> BrokerConsumeStats:
        """How far all groups are on one broker, by one request.

        The delay of a queue is None where messages wait: `progress` finds it.

        Args:
          is_order: only topics with ordered messages.

        Raises: NotFoundError: no broker is called so. ServerError; ConnectError.
        """
        at = await self._brokers.one(broker)
        body = await self.consume_stats_list(at.address, is_order=is_order)
        groups = await in_steps(self._progress_of_all(body))
        groups.sort(key=lambda each: each.group)
        return BrokerConsumeStats(broker, tuple(groups), body.total_diff, body.total_inflight_diff)

    async def consume_stats_list(self, address: str, *, is_order: bool = False) -> ConsumeStatsList:
        """The answer of one broker to 317. Raises: ServerError; ConnectError."""
        header = GetConsumeStatsInBrokerHeader(is_order=is_order)
        code = RequestCode.GET_BROKER_CONSUME_STATS
        answer = await self._client.request(address, code, header)
        with reading_answer(address):
            return await in_steps(ConsumeStatsList.from_body_in_steps(answer.body))

    def _progress_of_all(
        self, body: ConsumeStatsList
    ) -> Generator[None, None, list[GroupProgress]]:
        groups: list[GroupProgress] = []
        for number, part in enumerate(body.consume_stats_list):
            if number % GROUPS_PER_STEP == 0:
                yield
            for group, tables in part.items():
                if self._brokers.is_ours(group):
                    groups.append(self.progress_of(group, tables))
        return groups

    def progress_of(self, full: str, tables: Iterable[ConsumeStats]) -> GroupProgress:
        """A group's progress as brokers tell it, without members, retries in it counted."""
        retry = retry_topic(full)
        found: dict[MessageQueue, QueueProgress] = {}
        rate = 0.0
        for table in tables:
            rate += table.consume_tps
            for queue, offsets in table.offset_table.items():
                is_behind = offsets.broker_offset > offsets.consumer_offset
                found[queue] = QueueProgress(
                    topic=self._brokers.short(queue.topic),
                    broker_name=queue.broker_name,
                    queue_id=queue.queue_id,
                    committed=offsets.consumer_offset,
                    pulled=offsets.pull_offset,
                    end=offsets.broker_offset,
                    last_consumed_ms=time_or_none(offsets.last_timestamp),
                    delay_s=None if is_behind else 0.0,
                )
        queues = tuple(found[queue] for queue in sorted(found))
        retries = sum(found[queue].lag for queue in found if queue.topic == retry)
        return GroupProgress(self._brokers.short(full), queues, rate, retries=retries)

    async def broker_topics(self, broker: str) -> dict[str, TopicConfig]:
        """All topics that a broker has, with their settings; RocketMQ's own too.

        Raises: NotFoundError: no broker is called so. ServerError; ConnectError.
        """
        at = await self._brokers.one(broker)
        answer = await self._client.request(at.address, RequestCode.GET_ALL_TOPIC_CONFIG)
        with reading_answer(at.address):
            table = TopicConfigSerializeWrapper.from_body(answer.body).topic_config_table
        return {
            self._brokers.short(name): table[name]
            for name in sorted(table)
            if self._brokers.is_ours(name)
        }

    async def system_topics(self) -> list[str]:
        """Topics that the brokers have for themselves, sorted.

        Raises: BrokersError; ServerError; ConnectError.
        """

        async def ask(_: BrokerInfo, address: str) -> set[str]:
            code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
            answer = await self._client.request(address, code)
            with reading_answer(address):
                return set(TopicList.from_body(answer.body).topic_list)

        answers = await self._brokers.ask(await self._brokers.find(), ask)
        found = sorted(set().union(*answers.values.values()))
        answers.check("the system topics", found)
        return found

    async def ha_status(self, broker: str) -> HARuntimeInfo:
        """How replication of a broker goes, as RocketMQ tells it (5.x).

        Raises: NotFoundError: no broker is called so. ServerError; ConnectError.
        """
        at = await self._brokers.one(broker)
        answer = await self._client.request(at.address, RequestCode.GET_BROKER_HA_STATUS)
        with reading_answer(at.address):
            return HARuntimeInfo.from_body(answer.body)

    # Topics

    async def topic_stats(self, topic: str) -> TopicStats:
        """What each queue of a topic holds, and the traffic of the topic and its groups.

        A broker is asked for one table, two counters, and one counter for each group.

        Raises: RouteNotFoundError: there is no such topic. BrokersError: `partial` has what the
          other brokers know. ServerError; ConnectError.
        """
        full = self._brokers.full(configured(check_topic, topic))
        brokers = brokers_of(await self._brokers.route(full))

        async def ask(broker: BrokerInfo, address: str) -> _OnBroker:
            table = await self.topic_table(address, full)
            groups = await self._groups_of(address, full)
            counts = [await self._counter(address, name, full) for name in (PUT_COUNT, PUT_SIZE)]
            reads = {
                group: await self._counter(address, GET_COUNT, f"{full}@{group}")
                for group in sorted(groups)
            }
            return _OnBroker(table, counts[0], counts[1], reads)

        answers = await self._brokers.ask(brokers, ask)
        stats = self._topic_stats(full, answers.values)
        answers.check(f"the statistics of topic {topic}", stats)
        return stats

    async def topic_table(self, address: str, full: str) -> TopicStatsTable:
        """The answer of one broker to 202. Raises: ServerError; ConnectError."""
        header = GetTopicStatsInfoRequestHeader(topic=full)
        answer = await self._client.request(address, RequestCode.GET_TOPIC_STATS_INFO, header)
        with reading_answer(address):
            return TopicStatsTable.from_body(answer.body)

    async def _groups_of(self, address: str, full: str) -> set[str]:
        header = QueryTopicConsumeByWhoRequestHeader(topic=full)
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        answer = await self._client.request(address, code, header)
        with reading_answer(address):
            return set(GroupList.from_body(answer.body).group_list)

    def _topic_stats(self, full: str, on_brokers: Mapping[str, _OnBroker]) -> TopicStats:
        tables = [each.table for each in on_brokers.values()]
        reads: dict[str, list[StatsSnapshot | None]] = {}
        for each in on_brokers.values():
            for group, snapshot in each.reads.items():
                reads.setdefault(self._brokers.short(group), []).append(snapshot)
        put_count = _together(each.put_count for each in on_brokers.values())
        return TopicStats(
            self._brokers.short(full),
            self._queues(tables),
            put_count,
            _together(each.put_size for each in on_brokers.values()),
            {group: _together(reads[group]) for group in sorted(reads)},
        )

    async def topic_offsets(self, broker: str, topic: str) -> list[QueueOffsets]:
        """What each queue of a topic holds on one broker, by one request; sorted by queue id.

        Raises: NotFoundError: no broker is called so. ServerError: TOPIC_NOT_EXIST: it has no such
          topic. ConnectError.
        """
        at = await self._brokers.one(broker)
        return list(self._queues([await self.topic_table(at.address, self._brokers.full(topic))]))

    def _queues(self, tables: Iterable[TopicStatsTable]) -> tuple[QueueOffsets, ...]:
        merged = {
            queue: offsets for table in tables for queue, offsets in table.offset_table.items()
        }
        return tuple(
            QueueOffsets(
                self._brokers.short(queue.topic),
                queue.broker_name,
                queue.queue_id,
                merged[queue].min_offset,
                merged[queue].max_offset,
                time_or_none(merged[queue].last_update_timestamp),
            )
            for queue in sorted(merged)
        )

    async def topic_groups(self, topic: str) -> list[str]:
        """The groups that consume a topic: they have offsets in it, or subscribe to it; sorted.

        Raises: RouteNotFoundError: there is no such topic. BrokersError; ServerError; ConnectError.
        """
        full = self._brokers.full(configured(check_topic, topic))

        async def ask(_: BrokerInfo, address: str) -> set[str]:
            return await self._groups_of(address, full)

        answers = await self._brokers.ask(brokers_of(await self._brokers.route(full)), ask)
        groups = sorted(
            {self._brokers.short(each) for part in answers.values.values() for each in part}
        )
        answers.check(f"the groups of topic {topic}", groups)
        return groups

    async def queue_units(
        self,
        topic: str,
        broker: str,
        queue_id: int,
        offset: int | None = None,
        *,
        count: int = UNITS,
    ) -> list[QueueUnit]:
        """Units of a consume queue.

        Args:
          offset: of the first unit, in messages; None: the queue's first.
          count: of units, at most.

        Returns: empty: no message has this offset.
        Raises: ConfigurationError: a number out of range. NotFoundError: no broker is called so.
          ServerError: the topic has no such queue there, or it never had a message. ConnectError.
        """
        if queue_id < 0 or count < 1 or (offset is not None and offset < 0):
            raise ConfigurationError("a queue and an offset are not negative, a count is 1 or more")
        at = await self._brokers.one(broker)
        full = self._brokers.full(topic)
        if offset is None:
            table = await self.topic_table(at.address, full)
            begins = {q.queue_id: table.offset_table[q].min_offset for q in table.offset_table}
            # A queue that is not there is the next answer's error.
            offset = max(begins.get(queue_id, 0), 0)
        header = QueryConsumeQueueRequestHeader(
            topic=full, queue_id=queue_id, index=offset, count=count
        )
        answer = await self._client.request(at.address, RequestCode.QUERY_CONSUME_QUEUE, header)
        if not answer.body:
            return []  # no unit has this offset; the remark says so, the code is SUCCESS
        with reading_answer(at.address):
            units = QueryConsumeQueueResponseBody.from_body(answer.body).queue_data
        return [
            QueueUnit(offset + index, unit.physic_offset, unit.physic_size, unit.tags_code)
            for index, unit in enumerate(units)
        ]

    # Producers

    async def all_producers(
        self, broker: str | None = None, *, cluster: str | None = None
    ) -> list[ProducerInfo]:
        """Every connected producer of every group, sorted by group, client and broker.

        A producer that is connected to several brokers is there once for each.

        Args:
          broker, cluster: ask only this one; None: all masters.

        Raises: ConfigurationError: there is no such cluster. NotFoundError: no broker is called so.
          BrokersError; ServerError; ConnectError.
        """

        async def ask(at: BrokerAt) -> list[ProducerInfo]:
            answer = await self._client.request(at.address, RequestCode.GET_ALL_PRODUCER_INFO)
            with reading_answer(at.address):
                table = ProducerTableInfo.from_body(answer.body).data
            return [
                ProducerInfo(
                    self._brokers.short(group),
                    each.client_id,
                    each.remote_ip.removeprefix("/"),
                    each.language,
                    version_name(each.version),
                    at.name,
                    each.last_update_timestamp,
                )
                for group, members in table.items()
                for each in members
                if self._brokers.is_ours(group)
            ]

        answers = await self._brokers.ask_chosen(broker, cluster, ask)
        found = [each for part in answers.values.values() for each in part]
        found.sort(key=lambda each: (each.group, each.client_id, each.broker_name))
        answers.check("the producers", found)
        return found


class _OnBroker:
    """What one broker knows of a topic."""

    def __init__(
        self,
        table: TopicStatsTable,
        put_count: StatsSnapshot | None,
        put_size: StatsSnapshot | None,
        reads: dict[str, StatsSnapshot | None],
    ) -> None:
        self.table = table
        self.put_count = put_count
        self.put_size = put_size
        self.reads = reads


def time_or_none(milliseconds: int) -> int | None:
    """A time in an answer, ms since 1970; brokers have 0 and -1 for none."""
    return milliseconds if milliseconds > 0 else None


def _growth(item: BrokerStatsItem) -> Growth:
    return Growth(item.sum, item.tps, item.avgpt)


def _together(snapshots: Iterable[StatsSnapshot | None]) -> StatsSnapshot | None:
    """The sum of several brokers' snapshots; None: none of them has one."""
    found = [each for each in snapshots if each is not None]
    if not found:
        return None
    return StatsSnapshot(
        _sum(each.minute for each in found),
        _sum(each.hour for each in found),
        _sum(each.day for each in found),
    )


def _sum(growths: Iterable[Growth]) -> Growth:
    growths = list(growths)
    total = sum(each.total for each in growths)
    calls = sum(each.total / each.per_call for each in growths if each.per_call)
    return Growth(total, sum(each.per_second for each in growths), total / calls if calls else 0.0)
