"""Offsets of queues, the lag of groups, and resetting them.

Everything is had by requests that every broker serves: queue by queue, not by 202 and 208.

Java counterpart: topicStatus, consumerProgress, resetOffsetByTime of mqadmin.
Not done: static topics; groups that broadcast (their members keep the offsets themselves).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Literal, TypeVar

from ...remoting import fastjson
from ...remoting.bodies import GroupList, MessageQueue, TopicList
from ...remoting.headers import (
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    ResetOffsetRequestHeader,
    ResetQueueOffsetRequestHeader,
)
from ...remoting.request_codes import RequestCode
from ..connection.client import reading_answer
from ..core.topics import check_group
from ..errors import (
    AccessDeniedError,
    ClientError,
    ConfigurationError,
    RouteNotFoundError,
    is_not_supported,
)
from ..pulling.offsets import commit_offset, max_offset, min_offset, offset_at_master, offset_table
from ..sending.producer import configured
from .asking import Answers, Brokers, ask_all, brokers_of, queues_of
from .brokers import BrokerVerbs
from .clients import ClientVerbs
from .groups import GroupVerbs
from .looking import first_offset_at, look
from .results import BrokerInfo, GroupLag, QueueLag, QueueOffsets, QueueReset
from .topics import TopicVerbs

SERVER_SIDE_RESET: Final = "useServerSideResetOffset"
"""The setting of 5.x brokers that change offsets themselves, whether consumers are there or not."""

T = TypeVar("T")


class OffsetVerbs:
    """The part of `Admin` about offsets."""

    def __init__(
        self,
        brokers: Brokers,
        topics: TopicVerbs,
        groups: GroupVerbs,
        clients: ClientVerbs,
        broker_verbs: BrokerVerbs,
    ) -> None:
        self._brokers = brokers
        self._client = brokers.client
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._broker_verbs = broker_verbs

    async def offsets(self, topic: str) -> list[QueueOffsets]:
        """What each queue of a topic holds, sorted by broker name and queue id.

        Raises: RouteNotFoundError: there is no such topic. BrokersError; ServerError; ConnectError.
        """
        full = self._brokers.full(topic)
        queues = queues_of(full, await self._brokers.route(full), is_writable_too=True)

        async def ask(queue: MessageQueue) -> QueueOffsets:
            begin = await min_offset(self._client, queue)
            end = await max_offset(self._client, queue)
            last_ms = await self._last_store_ms(queue, end) if begin < end else None
            short = self._brokers.short(queue.topic)
            return QueueOffsets(short, queue.broker_name, queue.queue_id, begin, end, last_ms)

        answers = await _ask_queues(queues, ask)
        found = list(answers.values.values())
        answers.check(f"the offsets of topic {topic}", found)
        return found

    async def _last_store_ms(self, queue: MessageQueue, end: int) -> int | None:
        try:
            result = await look(self._client, queue, end - 1, 1)
        except AccessDeniedError:
            return None
        return result.messages[-1].store_timestamp_ms if result.messages else None

    async def lag(self, group: str, topic: str | None = None) -> GroupLag:
        """How far a group is in each queue.

        Args:
          topic: None: all topics that the group has offsets of or subscribes to, its retry topic
            among them.

        Raises: NotFoundError: no broker knows the group. RouteNotFoundError: there is no
          such topic. BrokersError: `partial` has the other brokers' queues. ServerError;
          ConnectError.
        """
        full = self._brokers.full(configured(check_group, group))
        queues: list[MessageQueue] = []
        if topic is not None:
            full_topic = self._brokers.full(topic)
            queues = queues_of(full_topic, await self._brokers.route(full_topic))
        else:
            for each in sorted(await self._topics_of_group(full)):
                try:
                    queues += queues_of(each, await self._brokers.route(each))
                except RouteNotFoundError:
                    continue  # deleted meanwhile, or a retry topic not made yet
        answers = await self._lags(full, queues)
        result = GroupLag(self._brokers.short(full), tuple(answers.values.values()))
        answers.check(f"the lag of group {group}", result)
        return result

    async def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Where a group goes on in one queue, by one request; None: it never committed there.

        Args:
          queue: with its topic's name as brokers know it, as in ReceivedMessage.

        Raises: RouteNotFoundError: there is no such topic. ServerError; ConnectError.
        """
        return await self._committed(queue, self._brokers.full(configured(check_group, group)))

    async def _lags(
        self, full: str, queues: Iterable[MessageQueue]
    ) -> Answers[MessageQueue, QueueLag]:
        async def ask(queue: MessageQueue) -> QueueLag:
            committed = await self._committed(queue, full)
            # In this order: what arrives meanwhile makes no lag below zero.
            begin = await min_offset(self._client, queue)
            end = await max_offset(self._client, queue)
            short = self._brokers.short(queue.topic)
            return QueueLag(short, queue.broker_name, queue.queue_id, committed, begin, end)

        return await _ask_queues(queues, ask)

    async def _committed(self, queue: MessageQueue, full: str) -> int | None:
        offset = await offset_at_master(self._client, queue, full)
        return None if offset is None or offset < 0 else offset

    async def _topics_of_group(self, full: str) -> set[str]:
        """What a group has to do with, by its subscriptions and its offsets.

        Raises: NotFoundError: with nothing, and there is no such group.
        """
        brokers = await self._brokers.find()
        connections = await self._clients.consumer_connections(full, brokers)
        connections.check(f"the topics of group {self._brokers.short(full)}", None)
        topics: set[str] = set()
        for body in connections.values.values():
            if body is not None:
                topics |= body.subscription_table.keys()
        topics |= await self.topics_with_offsets(full)
        if not topics:
            await self._groups.group(full)  # raises when there is none
        return topics

    async def topics_with_offsets(self, full: str) -> set[str]:
        """The full names of the topics in which a group has offsets, on whichever broker.

        Raises: BrokersError; ServerError; ConnectError.
        """
        brokers = await self._brokers.find()
        header = QueryTopicsByConsumerRequestHeader(group=full)

        async def ask(_: BrokerInfo, address: str) -> set[str]:
            code = RequestCode.QUERY_TOPICS_BY_CONSUMER
            answer = await self._client.request(address, code, header)
            with reading_answer(address):
                return set(TopicList.from_body(answer.body).topic_list)

        kept = await self._brokers.ask(brokers, ask)
        unknown = [broker for broker in brokers if is_not_supported_by(kept, broker.name)]
        for broker in unknown:
            del kept.errors[broker.name]
        topics: set[str] = set().union(*kept.values.values())
        kept.check(f"the topics of group {self._brokers.short(full)}", None)
        if unknown:
            topics |= await self._topics_by_asking_each(full, unknown)
        return topics

    async def _topics_by_asking_each(self, full: str, brokers: list[BrokerInfo]) -> set[str]:
        """For brokers that do not serve 343: who consumes each topic there is."""
        names = await self._topics.topic_names(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        addresses = {broker.name: broker.address for broker in brokers}

        def call(topic: str, address: str) -> Callable[[], Awaitable[bool]]:
            async def ask() -> bool:
                header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
                code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
                answer = await self._client.request(address, code, header)
                with reading_answer(address):
                    return full in GroupList.from_body(answer.body).group_list

            return ask

        topics: set[str] = set()
        for name, address in addresses.items():
            assert address is not None  # it answered
            answers = await ask_all({topic: call(topic, address) for topic in names})
            if answers.errors:
                error = next(iter(answers.errors.values()))
                failed: Answers[str, None] = Answers()
                failed.errors[name] = error
                failed.check(f"the topics of group {self._brokers.short(full)}", None)
            topics |= {topic for topic, is_there in answers.values.items() if is_there}
        return topics

    # Setting them elsewhere

    async def reset_offset(
        self,
        group: str,
        topic: str,
        *,
        to: Literal["begin", "end"] | None = None,
        timestamp_ms: int | None = None,
        offsets: Mapping[MessageQueue, int] | None = None,
        dry_run: bool = False,
    ) -> list[QueueReset]:
        """Move a group's offset in a topic, forward or back.

        Where consumers of the group are connected, the broker tells them, and they do it within
        seconds; else the offsets are written. One of `to`, `timestamp_ms` and `offsets` is given.

        Args:
          to: the first message there is, or the next to come.
          timestamp_ms: the first message stored then or later, ms since 1970. (Brokers of 4.x that
            tell consumers may take the one before.)
          offsets: queue to the next offset to consume; queues that are not in it stay. While
            consumers are connected only brokers of 5.x can do that.
          dry_run: only tell what would be done.

        Returns: sorted by broker name and queue id.
        Raises: ConfigurationError: arguments; or consumers are connected, and the broker cannot set
          single queues then. RouteNotFoundError: there is no such topic. BrokersError: `partial`
          has what the others did. ServerError; ConnectError.
        """
        if [to, timestamp_ms, offsets].count(None) != 2:
            raise ConfigurationError("give one of `to`, `timestamp_ms` and `offsets`")
        if to not in ("begin", "end", None):
            raise ConfigurationError(f"`to` is 'begin' or 'end', not {to!r}")
        if timestamp_ms is not None and timestamp_ms < 0:
            raise ConfigurationError(f"a time is not negative: {timestamp_ms}")
        full, full_topic = (
            self._brokers.full(configured(check_group, group)),
            self._brokers.full(topic),
        )
        route = await self._brokers.route(full_topic)
        queues = queues_of(full_topic, route)
        if offsets is not None:
            queues = _chosen(queues, {self._of_topic(q): o for q, o in offsets.items()})
        given = {self._of_topic(queue): offset for queue, offset in (offsets or {}).items()}

        async def plan(queue: MessageQueue) -> QueueReset:
            before = await self._committed(queue, full)
            if queue in given:
                after = given[queue]
            elif timestamp_ms is not None:
                after = await first_offset_at(self._client, queue, timestamp_ms)
            else:
                find = min_offset if to == "begin" else max_offset
                after = await find(self._client, queue)
            short = self._brokers.short(queue.topic)
            return QueueReset(short, queue.broker_name, queue.queue_id, before, after)

        plans = await _ask_queues(queues, plan)
        if dry_run or plans.errors:
            found = list(plans.values.values())
            # Nothing was done yet: better to do nothing at all than a part.
            plans.check(f"resetting group {group}", found if dry_run else [])
            return found
        at_ms = timestamp_ms if timestamp_ms is not None else 0 if to == "begin" else -1
        return await self._carry_out(
            full,
            brokers_of(route),
            plans.values,
            timestamp_ms=None if offsets is not None else at_ms,
        )

    def _of_topic(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._brokers.full(queue.topic), queue.broker_name, queue.queue_id)

    async def _carry_out(
        self,
        full: str,
        brokers: list[BrokerInfo],
        plans: Mapping[MessageQueue, QueueReset],
        *,
        timestamp_ms: int | None,
    ) -> list[QueueReset]:
        by_broker: dict[str, dict[MessageQueue, QueueReset]] = {}
        for queue, planned in plans.items():
            by_broker.setdefault(queue.broker_name, {})[queue] = planned
        brokers = [broker for broker in brokers if broker.name in by_broker]
        connections = await self._clients.consumer_connections(full, brokers)
        connections.check(f"resetting group {self._brokers.short(full)}", [])

        async def reset(broker: BrokerInfo, address: str) -> list[QueueReset]:
            mine = by_broker[broker.name]
            if connections.values[broker.name] is None:
                return await self._write(full, address, mine)
            if timestamp_ms is None:
                return await self._reset_queues(full, address, mine)
            return await self._reset_online(full, address, mine, timestamp_ms)

        answers = await self._brokers.ask(brokers, reset, is_change=True)
        done = [each for part in answers.values.values() for each in part]
        done.sort(key=lambda each: (each.broker_name, each.queue_id))
        answers.check(f"resetting group {self._brokers.short(full)}", done)
        return done

    async def _write(
        self, full: str, address: str, plans: Mapping[MessageQueue, QueueReset]
    ) -> list[QueueReset]:
        """Write offsets that no consumer is about to overwrite."""
        ignored = {}
        for queue, planned in plans.items():
            await commit_offset(self._client, queue, full, planned.after)
            # Apache 5.x ignores it, and says success, while an earlier reset waits for a consumer.
            if await self._committed(queue, full) != planned.after:
                ignored[queue] = planned
        if ignored:
            await self._reset_queues(full, address, ignored)
        return list(plans.values())

    async def _reset_queues(
        self, full: str, address: str, plans: Mapping[MessageQueue, QueueReset]
    ) -> list[QueueReset]:
        """Ask the broker to set single queues."""
        try:
            settings = await self._broker_verbs.broker_config(address)
        except ClientError as error:
            if not is_not_supported(error):
                raise
            settings = {}
        if settings.get(SERVER_SIDE_RESET) != "true":
            raise ConfigurationError(
                f"consumers of the group {self._brokers.short(full)} are connected, and "
                "would overwrite single offsets: stop them first, or reset to a time, the begin or "
                "the end"
            )
        for queue, planned in plans.items():
            header = ResetQueueOffsetRequestHeader(
                group=full,
                topic=queue.topic,
                timestamp=-1,
                is_force=True,
                queue_id=queue.queue_id,
                offset=planned.after,
            )
            await self._client.request(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return list(plans.values())

    async def _reset_online(
        self,
        full: str,
        address: str,
        plans: Mapping[MessageQueue, QueueReset],
        timestamp_ms: int,
    ) -> list[QueueReset]:
        """Ask the broker to tell the consumers."""
        for queue, planned in plans.items():
            if planned.before is None:
                # Else the broker says that the group does not exist, and does nothing.
                await commit_offset(self._client, queue, full, planned.after)
        header = ResetOffsetRequestHeader(
            group=full, topic=next(iter(plans)).topic, timestamp=timestamp_ms, is_force=True
        )
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        answer = await self._client.request(address, code, header)
        with reading_answer(address):
            table = offset_table(fastjson.loads(answer.body), "offsetTable")
        return [
            QueueReset(
                planned.topic,
                planned.broker_name,
                planned.queue_id,
                planned.before,
                table.get(queue, planned.after),
            )
            for queue, planned in plans.items()
        ]


def _chosen(
    queues: Iterable[MessageQueue], offsets: Mapping[MessageQueue, int]
) -> list[MessageQueue]:
    known = sorted(queues)
    for queue, offset in offsets.items():
        if queue not in known:
            raise ConfigurationError(
                f"the topic has no queue {queue.queue_id} on {queue.broker_name}"
            )
        if offset < 0:
            raise ConfigurationError(f"an offset is not negative: {offset}")
    return [queue for queue in known if queue in offsets]


def is_not_supported_by(answers: Answers[str, T], broker_name: str) -> bool:
    """Whether a broker failed because it does not know the request at all."""
    error = answers.errors.get(broker_name)
    return error is not None and is_not_supported(error)


async def _ask_queues(
    queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[T]]
) -> Answers[MessageQueue, T]:
    def call(queue: MessageQueue) -> Callable[[], Awaitable[T]]:
        return lambda: ask(queue)

    return await ask_all({queue: call(queue) for queue in queues})
