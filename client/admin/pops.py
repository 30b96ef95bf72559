"""Pop consumption: how groups get messages, and which popped messages are not acknowledged.

Who popped a message is known by group, not by client: a check point does not name one. Check points
that are stored can be read from each 5.x broker. Those in memory only come from trocket's brokers;
Apache's have some with enablePopBufferMerge, for 10 s at most. Messages that were popped in order
are in no record.

Java counterpart: setConsumeMode of mqadmin; RocketMQ has none of the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from ...common.topic_names import REVIVE_GROUP, TIMER_TOPIC, pop_retry_topics, revive_topic
from ...remoting.bodies import (
    ConsumeStats,
    MessageQueue,
    MessageRequestMode,
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)
from ...remoting.headers import GetConsumeStatsRequestHeader
from ...remoting.request_codes import RequestCode
from ..connection.client import reading_answer
from ..core.pop_records import PopRecords
from ..core.topics import check_group, check_topic
from ..errors import ConfigurationError, RouteNotFoundError, is_not_supported
from ..pulling.offsets import max_offset, offset_at_master
from ..sending.producer import configured
from .asking import Brokers, NotFoundError, brokers_of, queues_of
from .counters import CounterVerbs
from .looking import PULL_COUNT, first_offset_at, look
from .results import (
    BrokerInfo,
    GroupPops,
    InvisibleMessage,
    PoppedQueue,
    RequestModeInfo,
)

SINCE_S: Final = 3600.0
"""How far back records of pops are read. Timer messages of all topics are in the same queue."""

RECORDS_MAX: Final = 100_000
"""Records of one broker that are read, some 3,000 pulls."""


class PopVerbs:
    """The part of `Admin` about pop consumption."""

    def __init__(self, brokers: Brokers, counters: CounterVerbs) -> None:
        self._brokers = brokers
        self._client = brokers.client
        self._counters = counters

    # Modes

    async def request_modes(self) -> tuple[RequestModeInfo, ...]:
        """How groups get messages, where that was set, sorted by topic and group.

        Raises: BrokersError; ServerError; ConnectError. Brokers of 4.x have no such table.
        """

        async def ask(broker: BrokerInfo, address: str) -> MessageRequestModeSerializeWrapper:
            code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
            answer = await self._client.request(address, code)
            with reading_answer(address):
                return MessageRequestModeSerializeWrapper.from_body(answer.body)

        answers = await self._brokers.ask(await self._brokers.find(), ask)
        for name in [name for name, error in answers.errors.items() if is_not_supported(error)]:
            del answers.errors[name]
        brokers: dict[tuple[str, str, str, int], list[str]] = {}
        for name, table in answers.values.items():
            for topic, groups in table.message_request_mode_map.items():
                for group, mode in groups.items():
                    if self._brokers.is_ours(topic):
                        key = (topic, group, str(mode.mode), mode.pop_share_queue_num)
                        brokers.setdefault(key, []).append(name)
        found = tuple(
            RequestModeInfo(
                self._brokers.short(topic),
                self._brokers.short(group),
                mode,
                share,
                tuple(sorted(names)),
            )
            for (topic, group, mode, share), names in sorted(brokers.items())
        )
        answers.check("the modes of message requests", found)
        return found

    async def set_request_mode(
        self, topic: str, group: str, mode: str, *, share: int = 0, cluster: str | None = None
    ) -> None:
        """Set how a group gets the messages of a topic, on all brokers of the topic.

        It counts for consumers that have the broker assign queues to them: PushConsumer with
        mode="pop", and with RocketMQ's Java client setClientRebalance(false).

        Args:
          mode: "PULL" or "POP".
          share: with POP, how many further clients may pop from a client's queues; 0 or less: all
            clients pop from all queues.
          cluster: only its brokers; None: all.

        Raises: ConfigurationError: no such mode. RouteNotFoundError: there is no such topic.
          ServerError: there is no such group, or a broker is of 4.x. BrokersError: some brokers
          have the mode now, and some do not. ConnectError.
        """
        try:
            wanted = MessageRequestMode(mode.upper())
        except ValueError as error:
            known = ", ".join(MessageRequestMode)
            raise ConfigurationError(f"there is no mode {mode!r}; there are {known}") from error
        full = self._brokers.full(configured(check_topic, topic))
        body = SetMessageRequestModeRequestBody(
            topic=full,
            consumer_group=self._brokers.full(configured(check_group, group)),
            mode=wanted,
            pop_share_queue_num=share,
        ).to_body()
        brokers = brokers_of(await self._brokers.route(full))
        if cluster is not None:
            brokers = [broker for broker in brokers if broker.cluster == cluster]
            if not brokers:
                raise NotFoundError(f"no broker of the cluster {cluster} has the topic {topic}")

        async def ask(broker: BrokerInfo, address: str) -> None:
            code = RequestCode.SET_MESSAGE_REQUEST_MODE
            await self._client.request(address, code, body=body)

        answers = await self._brokers.ask(brokers, ask, is_change=True)
        answers.check(f"setting the mode of group {group} for topic {topic}", None)

    # Popped messages

    async def popped(
        self, group: str, topic: str | None = None, *, since_ms: int | None = None
    ) -> GroupPops:
        """Which messages a group has popped and not acknowledged, and until when.

        What is popped, acknowledged or revived meanwhile may be missing or be there.

        Args:
          topic: with its retry topics; None: all in which the group has offsets.
          since_ms: read records from then on, ms since 1970; None: of the last hour. A message that
            was popped earlier, for a longer time, is not found.

        Raises: RouteNotFoundError: there is no such topic. BrokersError: `partial` has the messages
          of the other brokers. ServerError; ConnectError.
        """
        full = self._brokers.full(configured(check_group, group))
        now_ms = self._client.wall_ms()
        since = now_ms - int(SINCE_S * 1000) if since_ms is None else since_ms
        topics: tuple[str, ...] = ()
        brokers = await self._brokers.find()
        if topic is not None:
            full_topic = self._brokers.full(configured(check_topic, topic))
            topics = (full_topic, *pop_retry_topics(full_topic, full))
            names = {broker.name for broker in brokers_of(await self._brokers.route(full_topic))}
            brokers = [broker for broker in brokers if broker.name in names]
        records_of = await self._record_queues(brokers)

        async def ask(broker: BrokerInfo, address: str) -> GroupPops:
            queues = records_of.get(broker.name, [])
            reading = _Reading({full: topics}, queues, since, now_ms, RECORDS_MAX)
            return (await self._popped_at(broker, address, reading))[full]

        answers = await self._brokers.ask(brokers, ask)
        found = msgspec.structs.replace(
            _joined(self._brokers.short(full), since, answers.values.values()),
            without_pops=tuple(sorted({each.name for each in brokers} - records_of.keys())),
        )
        answers.check(f"the popped messages of group {group}", found)
        return found

    async def popped_by(
        self,
        groups: Iterable[str],
        topic: str,
        broker: str,
        *,
        since_ms: int | None = None,
        records_max: int = RECORDS_MAX,
    ) -> dict[str, GroupPops]:
        """`popped` of several groups on one broker of a topic, whose records are read once.

        Args:
          broker: its name.
          records_max: records that are read, the newest; the others count as `left_out`.

        Raises: RouteNotFoundError: there is no such topic. NotFoundError: it is not on this broker.
          ServerError; ConnectError.
        """
        full_topic = self._brokers.full(configured(check_topic, topic))
        now_ms = self._client.wall_ms()
        since = now_ms - int(SINCE_S * 1000) if since_ms is None else since_ms
        topics = {
            full: (full_topic, *pop_retry_topics(full_topic, full))
            for full in (self._brokers.full(configured(check_group, each)) for each in groups)
        }
        found = brokers_of(await self._brokers.route(full_topic))
        brokers = [each for each in found if each.name == broker]
        if not brokers:
            raise NotFoundError(f"no broker {broker!r} has the topic {topic}")
        queues = (await self._record_queues(brokers)).get(broker, [])
        reading = _Reading(topics, queues, since, now_ms, records_max)

        async def ask(at: BrokerInfo, address: str) -> dict[str, GroupPops]:
            return await self._popped_at(at, address, reading)

        answers = await self._brokers.ask(brokers, ask)
        answers.check(f"the popped messages of topic {topic}", None)
        return {each.group: each for each in answers.values[broker].values()}

    async def _record_queues(self, brokers: Iterable[BrokerInfo]) -> dict[str, list[MessageQueue]]:
        """The queues with records of pops, by broker name; none of a cluster of 4.x."""
        found: dict[str, list[MessageQueue]] = {}
        clusters = sorted({broker.cluster for broker in brokers})
        for topic in (*map(revive_topic, clusters), TIMER_TOPIC):
            try:
                queues = queues_of(topic, await self._brokers.route(topic))
            except RouteNotFoundError:
                continue
            for queue in queues:
                found.setdefault(queue.broker_name, []).append(queue)
        return found

    async def _popped_at(
        self, broker: BrokerInfo, address: str, reading: _Reading
    ) -> dict[str, GroupPops]:
        """What groups have popped on one broker, by full name."""
        records = {group: PopRecords(group, broker.name) for group in reading.topics}
        # In this order, and the timer topic before the revive topic: a record that moves on
        # meanwhile is seen twice, and not missed.
        stats = {
            group: await self._stats(address, group, topics)
            for group, topics in reading.topics.items()
        }
        for group, each in stats.items():
            for point in each.pop_check_points or ():
                records[group].take_check_point(point, point.revive_queue_id, is_stored=False)
        left = reading.records_max
        left_out = 0
        timers = [queue for queue in reading.queues if queue.topic == TIMER_TOPIC]
        for queue in timers:
            begin = await first_offset_at(self._client, queue, reading.since_ms)
            end = await max_offset(self._client, queue)
            left_out += await self._read(queue, begin, end, left, broker, records.values())
            left -= min(left, end - begin)
        for queue, begin, end in await self._unprocessed(address, reading.queues):
            left_out += await self._read(queue, begin, end, left, broker, records.values())
            left -= min(left, end - begin)
        return {
            group: self._group_pops(broker, group, stats[group], records[group], reading, left_out)
            for group in reading.topics
        }

    async def _unprocessed(
        self, address: str, queues: Iterable[MessageQueue]
    ) -> list[tuple[MessageQueue, int, int]]:
        """The queues of the revive topic with records that are not processed, and their range."""
        found = []
        for topic in sorted({queue.topic for queue in queues} - {TIMER_TOPIC}):
            table = await self._counters.topic_table(address, topic)
            for queue, offsets in sorted(table.offset_table.items()):
                if offsets.max_offset <= max(offsets.min_offset, 0):
                    continue
                processed = await offset_at_master(self._client, queue, REVIVE_GROUP)
                # Its committed offset is that of the last record, not of the next one.
                begin = 0 if processed is None else processed + 1
                found.append((queue, max(begin, offsets.min_offset), offsets.max_offset))
        return found

    def _group_pops(
        self,
        broker: BrokerInfo,
        group: str,
        stats: ConsumeStats,
        records: PopRecords,
        reading: _Reading,
        left_out: int,
    ) -> GroupPops:
        topics = reading.topics[group]
        messages = [
            InvisibleMessage(
                topic=self._brokers.short(found.topic),
                broker_name=broker.name,
                queue_id=found.receipt.queue_id,
                offset=found.receipt.offset,
                popped_ms=found.receipt.pop_time,
                visible_ms=found.receipt.revive_time,
                receipt=found.receipt.to_text(),
                is_stored=found.is_stored,
            )
            for found in records.unacked(reading.now_ms)
            if not topics or found.topic in topics
        ]
        counts = Counter((message.topic, message.queue_id) for message in messages)
        queues = [
            PoppedQueue(
                self._brokers.short(queue.topic),
                queue.broker_name,
                queue.queue_id,
                offsets.consumer_offset,
                max(offsets.pull_offset, offsets.consumer_offset),
                offsets.broker_offset,
                counts[self._brokers.short(queue.topic), queue.queue_id],
            )
            for queue, offsets in sorted(stats.offset_table.items())
        ]
        silent = (broker.name,) if stats.pop_check_points is None else ()
        left_out += stats.pop_check_points_left_out or 0
        name = self._brokers.short(group)
        since_ms = reading.since_ms
        return GroupPops(name, tuple(queues), tuple(messages), since_ms, silent, left_out)

    async def _stats(self, address: str, group: str, topics: tuple[str, ...]) -> ConsumeStats:
        listed = "".join(f"{topic};" for topic in topics)
        header = GetConsumeStatsRequestHeader(
            consumer_group=group, topic_list=listed or None, with_pops=True
        )
        answer = await self._client.request(address, RequestCode.GET_CONSUME_STATS, header)
        with reading_answer(address):
            return ConsumeStats.from_body(answer.body)

    async def _read(
        self,
        queue: MessageQueue,
        begin: int,
        end: int,
        count: int,
        broker: BrokerInfo,
        records: Iterable[PopRecords],
    ) -> int:
        """Read records of a queue, the newest `count`; return how many were left out.

        The newest, since an acknowledgement comes after what it acknowledges.
        """
        revive = revive_topic(broker.cluster)
        offset = first = max(begin, end - count)
        while offset < end:
            result = await look(self._client, queue, offset, PULL_COUNT)
            for message in result.messages:
                for each in records:
                    each.take(message, revive)
            if result.next_begin_offset <= offset:
                break  # a queue that a broker cannot read on
            offset = result.next_begin_offset
        return max(first - begin, 0)


class _Reading(NamedTuple):
    """Which records of pops to read on a broker.

    Attributes:
      topics: full name of a group to those of its topics; (): all in which it has offsets.
      queues: with records.
      since_ms: read records of timers from then on, ms since 1970.
      records_max: records that are read.
    """

    topics: Mapping[str, tuple[str, ...]]
    queues: Sequence[MessageQueue]
    since_ms: int
    now_ms: int
    records_max: int


def _joined(group: str, since_ms: int, parts: Iterable[GroupPops]) -> GroupPops:
    """What several brokers know, in one."""
    found = list(parts)
    return GroupPops(
        group,
        tuple(
            sorted(
                (queue for part in found for queue in part.queues),
                key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id),
            )
        ),
        tuple(
            sorted(
                (message for part in found for message in part.messages),
                key=lambda message: (message.popped_ms, message.broker_name, message.offset),
            )
        ),
        since_ms,
        tuple(sorted(name for part in found for name in part.without_memory)),
        sum(part.left_out for part in found),
    )
