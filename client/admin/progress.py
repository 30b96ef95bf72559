"""Progress of groups, in messages and in seconds, and copies of their offsets.

A broker is asked for whole tables (208, 303, 317), not queue by queue as `lag` does.

Java counterpart: consumerProgress, cloneGroupOffset of mqadmin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ...common.java_integers import INT64_MAX
from ...common.topic_names import is_own_group
from ...remoting.bodies import (
    ConsumerConnection,
    ConsumeStats,
    ConsumeType,
    MessageModel,
    MessageQueue,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QuerySubscriptionResponseBody,
    QueueTimeSpan,
)
from ...remoting.headers import (
    CloneGroupOffsetRequestHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    QuerySubscriptionByConsumerRequestHeader,
)
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..connection.client import reading_answer
from ..core.topics import check_group, check_topic, dlq_topic
from ..errors import (
    ClientError,
    ConfigurationError,
    RouteNotFoundError,
    ServerError,
    is_not_supported,
)
from ..messages.message import ReceivedMessage
from ..pulling.offsets import commit_offset
from ..sending.producer import configured
from .asking import Answers, Brokers, answering, brokers_of
from .clients import ClientVerbs
from .counters import CounterVerbs, time_or_none
from .groups import GroupVerbs
from .offsets import OffsetVerbs
from .results import (
    BrokerInfo,
    GroupClients,
    GroupMembers,
    QueueReset,
    SubscriptionInfo,
)
from .stats import GroupProgress, MessageTrack, QueueSpan


class ProgressVerbs:
    """The part of `Admin` about the progress of groups."""

    def __init__(
        self,
        brokers: Brokers,
        clients: ClientVerbs,
        groups: GroupVerbs,
        offsets: OffsetVerbs,
        counters: CounterVerbs,
    ) -> None:
        self._brokers = brokers
        self._client = brokers.client
        self._clients = clients
        self._groups = groups
        self._offsets = offsets
        self._counters = counters

    async def progress(
        self, group: str, topic: str | None = None, *, with_owners: bool = False
    ) -> GroupProgress:
        """How far a group is: lag in messages and seconds, retries, dead letters, members.

        A broker is asked for one table, the group's members, and one more table for each topic in
        which messages wait.

        Args:
          topic: only this one; None: all that the group has offsets of. A group with members: only
            those that it subscribes to.
          with_owners: ask each member, too, which queues it has.

        Raises: NotFoundError: no broker knows the group. RouteNotFoundError: there is no such
          topic. BrokersError: `partial` has what the other brokers know. ServerError; ConnectError.
        """
        full = self._brokers.full(configured(check_group, group))
        full_topic = None if topic is None else self._brokers.full(configured(check_topic, topic))
        if full_topic is None:
            brokers = await self._brokers.find()
        else:
            brokers = brokers_of(await self._brokers.route(full_topic))

        async def ask(broker: BrokerInfo, address: str) -> tuple[ConsumeStats, _Delays]:
            table = await self._consume_stats(address, full, full_topic)
            return table, await self._delays(address, full, table)

        answers = await self._brokers.ask(brokers, ask)
        connections = await self._clients.consumer_connections(
            full, answering(brokers, answers.errors)
        )
        answers.errors.update(connections.errors)
        found = self._counters.progress_of(full, (table for table, _ in answers.values.values()))
        delays = {q: d for _, part in answers.values.values() for q, d in part.items()}
        found = self._with_delays(found, delays)
        found = self._with_members(found, connections.values)
        dead_letters = await self._dead_letters(full, answers.errors)
        found = msgspec.structs.replace(found, dead_letters=sum(dead_letters.values.values()))
        if with_owners:
            found = await self._with_owners(found)
        answers.errors.update(dead_letters.errors)
        answers.check(f"the progress of group {group}", found)
        if not found.queues and not found.clients:
            await self._groups.group(group)  # raises when there is none
        return found

    async def _consume_stats(self, address: str, full: str, topic: str | None) -> ConsumeStats:
        header = GetConsumeStatsRequestHeader(consumer_group=full, topic=topic)
        answer = await self._client.request(address, RequestCode.GET_CONSUME_STATS, header)
        with reading_answer(address):
            return ConsumeStats.from_body(answer.body)

    async def _delays(self, address: str, full: str, table: ConsumeStats) -> _Delays:
        """Seconds since the next message to consume was stored, of queues where some wait."""
        topics = {
            queue.topic
            for queue, offsets in table.offset_table.items()
            if offsets.broker_offset > offsets.consumer_offset
        }
        delays: _Delays = {}
        for topic in sorted(topics):
            for span in await self._spans(address, full, topic):
                if span.message_queue is not None:
                    delays[span.message_queue] = _delay_s(span, self._client.wall_ms())
        return delays

    async def _spans(self, address: str, full: str, topic: str) -> list[QueueTimeSpan]:
        header = QueryConsumeTimeSpanRequestHeader(topic=topic, group=full)
        code = RequestCode.QUERY_CONSUME_TIME_SPAN
        try:
            answer = await self._client.request(address, code, header)
        except ServerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return []  # deleted meanwhile
            raise
        with reading_answer(address):
            return QueryConsumeTimeSpanBody.from_body(answer.body).consume_time_span_set

    def _with_delays(self, found: GroupProgress, delays: _Delays) -> GroupProgress:
        known = {self._key(queue): delay for queue, delay in delays.items()}
        queues = [
            msgspec.structs.replace(
                queue, delay_s=known.get((queue.topic, queue.broker_name, queue.queue_id))
            )
            if queue.lag
            else queue
            for queue in found.queues
        ]
        return msgspec.structs.replace(found, queues=tuple(queues))

    def _key(self, queue: MessageQueue) -> _Key:
        return self._brokers.short(queue.topic), queue.broker_name, queue.queue_id

    def _with_members(
        self, found: GroupProgress, connections: Mapping[str, ConsumerConnection | None]
    ) -> GroupProgress:
        members = self._clients.group_clients(found.group, connections)
        return msgspec.structs.replace(
            found,
            clients=members.clients,
            consume_type=members.consume_type,
            message_model=members.message_model,
        )

    async def _with_owners(self, found: GroupProgress) -> GroupProgress:
        """Ask each member for its queues; one that does not answer within its time is noted."""
        members = await self._clients.members(found.group)
        owners: dict[_Key, str] = {
            (queue.topic, queue.broker_name, queue.queue_id): info.client_id
            for info in members.infos
            for queue in info.queues
        }
        queues = [
            msgspec.structs.replace(
                queue,
                client_id=owners.get((queue.topic, queue.broker_name, queue.queue_id), ""),
            )
            for queue in found.queues
        ]
        return msgspec.structs.replace(found, queues=tuple(queues), silent_clients=members.silent)

    async def _dead_letters(
        self, full: str, failed: Mapping[str, ClientError]
    ) -> Answers[str, int]:
        """How many dead letters of a group each broker has; none: there is no such topic.

        Args:
          failed: brokers that failed before, and why; silent ones are not asked again.
        """
        topic = dlq_topic(full)
        try:
            route = await self._brokers.route(topic)
        except RouteNotFoundError:
            return Answers()

        async def ask(_: BrokerInfo, address: str) -> int:
            try:
                table = (await self._counters.topic_table(address, topic)).offset_table
            except ServerError as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    return 0  # deleted meanwhile
                raise
            return sum(each.max_offset - max(each.min_offset, 0) for each in table.values())

        return await self._brokers.ask(answering(brokers_of(route), failed), ask)

    async def all_progress(
        self, *, is_all: bool = False, with_members: bool = True
    ) -> list[GroupProgress]:
        """How far all groups are, sorted by name.

        A broker is asked for one table of all groups, and for each group's members; a group's dead
        letters take requests only where it has some. A queue's delay is None where messages wait.

        Args:
          is_all: RocketMQ's own groups too.
          with_members: false: do not ask for members and dead letters.

        Raises: BrokersError: `partial` has what the other brokers know. ServerError; ConnectError.
        """
        brokers = await self._brokers.find()

        async def ask(_: BrokerInfo, address: str) -> dict[str, list[ConsumeStats]]:
            body = await self._counters.consume_stats_list(address)
            return {
                group: tables
                for part in body.consume_stats_list
                for group, tables in part.items()
                if self._brokers.is_ours(group) and (is_all or not is_own_group(group))
            }

        answers = await self._brokers.ask(brokers, ask)
        tables: dict[str, list[ConsumeStats]] = {}
        for part in answers.values.values():
            for group, each in part.items():
                tables.setdefault(group, []).extend(each)
        found = []
        for full in sorted(tables):
            progress = self._counters.progress_of(full, tables[full])
            if with_members:
                connections = await self._clients.consumer_connections(
                    full, answering(brokers, answers.errors)
                )
                answers.errors.update(connections.errors)
                progress = self._with_members(progress, connections.values)
                dead_letters = await self._dead_letters(full, answers.errors)
                progress = msgspec.structs.replace(
                    progress, dead_letters=sum(dead_letters.values.values())
                )
                answers.errors.update(dead_letters.errors)
            found.append(progress)
        answers.check("the progress of all groups", found)
        return found

    async def consume_spans(
        self, group: str, topic: str, *, broker: str | None = None
    ) -> list[QueueSpan]:
        """How far a group is in each queue of a topic, in times.

        Args:
          broker: only the queues of this broker, by its name or its `host:port`; None: of all.

        Returns: sorted by broker name and queue id.
        Raises: RouteNotFoundError: there is no such topic. NotFoundError: no broker is called so.
          BrokersError; ServerError; ConnectError.
        """
        full = self._brokers.full(configured(check_group, group))
        full_topic = self._brokers.full(configured(check_topic, topic))

        async def ask(_: BrokerInfo, address: str) -> list[QueueTimeSpan]:
            return await self._spans(address, full, full_topic)

        if broker is not None:
            at = await self._brokers.one(broker)
            brokers = [BrokerInfo(at.name, "", {0: at.address})]
        else:
            brokers = brokers_of(await self._brokers.route(full_topic))
        answers = await self._brokers.ask(brokers, ask)
        now_ms = self._client.wall_ms()
        by_queue = {
            span.message_queue: span
            for part in answers.values.values()
            for span in part
            if span.message_queue is not None
        }
        found = [
            QueueSpan(
                *self._key(queue),
                time_or_none(by_queue[queue].min_time_stamp),
                time_or_none(by_queue[queue].max_time_stamp),
                time_or_none(by_queue[queue].consume_time_stamp),
                _delay_s(by_queue[queue], now_ms),
            )
            for queue in sorted(by_queue)
        ]
        answers.check(f"the time spans of group {group}", found)
        return found

    # What a group reads

    async def group_topics(self, group: str) -> list[str]:
        """The topics that a group has offsets of, sorted; its retry topic is one.

        Raises: BrokersError; ServerError; ConnectError.
        """
        full = self._brokers.full(configured(check_group, group))
        return sorted(map(self._brokers.short, await self._offsets.topics_with_offsets(full)))

    async def subscription(self, group: str, topic: str) -> SubscriptionInfo | None:
        """What the connected members of a group want of a topic; None: nothing, or there are none.

        Raises: RouteNotFoundError: there is no such topic. BrokersError; ServerError; ConnectError.
        """
        full = self._brokers.full(configured(check_group, group))
        full_topic = self._brokers.full(configured(check_topic, topic))
        header = QuerySubscriptionByConsumerRequestHeader(group=full, topic=full_topic)

        async def ask(_: BrokerInfo, address: str) -> SubscriptionInfo | None:
            code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
            try:
                answer = await self._client.request(address, code, header)
            except ClientError as error:
                if not is_not_supported(error):
                    raise
                # 4.x tells all subscriptions with the members.
                members = (await self._clients.clients(group)).subscriptions
                return next((each for each in members if each.topic == topic), None)
            with reading_answer(address):
                data = QuerySubscriptionResponseBody.from_body(answer.body).subscription_data
            if data is None:
                return None
            return SubscriptionInfo(topic, data.sub_string, data.expression_type)

        answers = await self._brokers.ask(brokers_of(await self._brokers.route(full_topic)), ask)
        found = next((each for each in answers.values.values() if each is not None), None)
        answers.check(f"the subscription of group {group}", found)
        return found

    async def message_track(self, message: ReceivedMessage) -> list[MessageTrack]:
        """What each group that consumes a message's topic did with it, sorted by group.

        It goes by offsets, which do not tell whether a member got the message: `message_trace`
        does, where clients report.

        Args:
          message: as one of the look-ups gave it.

        Raises: RouteNotFoundError: its topic is gone. NotFoundError: its broker is gone.
          BrokersError; ServerError; ConnectError.
        """
        found = []
        at = await self._brokers.one(message.queue.broker_name)
        for group in await self._counters.topic_groups(message.topic):
            full = self._brokers.full(group)
            table = await self._consume_stats(at.address, full, message.queue.topic)
            members = await self._clients.members(group)
            offsets = table.offset_table.get(message.queue)
            if offsets is None or offsets.consumer_offset <= message.queue_offset:
                state = "NOT_CONSUME_YET" if members.group.clients else "NOT_ONLINE"
            else:
                state = _passed(_subscriptions(members), message)
            found.append(MessageTrack(group, _kept_elsewhere(members.group) or state))
        return found

    # Where it goes on

    async def clone_offsets(
        self, source: str, destination: str, topic: str, *, dry_run: bool = False
    ) -> list[QueueReset]:
        """Move a group's offsets in a topic to those of another group.

        The offsets are written one by one, as mqadmin does; queues in which the source never
        committed are left alone.

        Args:
          destination: no member of it may be connected: members write their own offsets.
          dry_run: only tell what would be done.

        Returns: what was done, sorted by broker name and queue id.
        Raises: ConfigurationError: both groups are the same, or members of the destination are
          connected. NotFoundError: the source has no offsets in the topic. RouteNotFoundError:
          there is no such topic. BrokersError; ServerError; ConnectError.
        """
        await self._check_clone(source, destination)
        mine = await self._offsets.lag(source, topic)
        theirs = await self._offsets.lag(destination, topic)
        before = {(each.broker_name, each.queue_id): each.committed for each in theirs.queues}
        planned = [
            QueueReset(
                each.topic,
                each.broker_name,
                each.queue_id,
                before.get((each.broker_name, each.queue_id)),
                each.committed,
            )
            for each in mine.queues
            if each.committed is not None
        ]
        if not planned:
            await self._groups.group(source)  # raises when there is none
            raise ConfigurationError(f"the group {source} has no offsets in the topic {topic}")
        if not dry_run:
            full = self._brokers.full(destination)
            for each in planned:
                queue = MessageQueue(
                    self._brokers.full(each.topic), each.broker_name, each.queue_id
                )
                await commit_offset(self._client, queue, full, each.after)
        return planned

    async def clone_offsets_on_brokers(self, source: str, destination: str, topic: str) -> None:
        """Have each broker of a topic copy a group's offsets in it, by request 314.

        Raises: as `clone_offsets`; but a source without offsets is no error.
        """
        await self._check_clone(source, destination)
        full_topic = self._brokers.full(configured(check_topic, topic))
        header = CloneGroupOffsetRequestHeader(
            src_group=self._brokers.full(source),
            dest_group=self._brokers.full(destination),
            topic=full_topic,
            offline=True,
        )

        async def ask(_: BrokerInfo, address: str) -> None:
            await self._client.request(address, RequestCode.CLONE_GROUP_OFFSET, header)

        brokers = brokers_of(await self._brokers.route(full_topic))
        answers = await self._brokers.ask(brokers, ask, is_change=True)
        answers.check(f"copying the offsets of group {source}", None)

    async def _check_clone(self, source: str, destination: str) -> None:
        configured(check_group, source)
        configured(check_group, destination)
        if source == destination:
            raise ConfigurationError("a group's offsets are copied to another group")
        if (await self._clients.clients(destination)).clients:
            raise ConfigurationError(
                f"members of the group {destination} are connected, and would overwrite the "
                "offsets: stop them first"
            )

    async def correction_offsets(self, group: str, topic: str) -> dict[str, dict[int, int]]:
        """The smallest offset of all groups in each queue of a topic, by request 308.

        The groups that the request can leave out are not offered: Apache's brokers delete the
        offsets of these groups.

        Args:
          group: queues in which it is behind all other groups are left out.

        Returns: broker name to queue id to offset.
        Raises: RouteNotFoundError: there is no such topic. BrokersError; ServerError; ConnectError.
        """
        full_topic = self._brokers.full(configured(check_topic, topic))
        header = QueryCorrectionOffsetHeader(
            compare_group=self._brokers.full(configured(check_group, group)), topic=full_topic
        )

        async def ask(_: BrokerInfo, address: str) -> dict[int, int]:
            code = RequestCode.QUERY_CORRECTION_OFFSET
            answer = await self._client.request(address, code, header)
            with reading_answer(address):
                offsets = QueryCorrectionOffsetBody.from_body(answer.body).correction_offsets
            return {
                queue: offsets[queue] for queue in sorted(offsets) if offsets[queue] < INT64_MAX
            }

        answers = await self._brokers.ask(brokers_of(await self._brokers.route(full_topic)), ask)
        answers.check(f"the correction offsets of group {group}", answers.values)
        return answers.values


_Key = tuple[str, str, int]
"""Topic, broker name and queue id."""
_Delays = dict[MessageQueue, float | None]


def _kept_elsewhere(members: GroupClients) -> str:
    """The state of a group whose members may keep their offsets themselves; "": they do not."""
    if members.message_model == MessageModel.BROADCASTING:
        return "CONSUME_BROADCASTING"
    return "PULL" if members.consume_type == ConsumeType.CONSUME_ACTIVELY else ""


def _subscriptions(members: GroupMembers) -> list[tuple[SubscriptionInfo, ...]]:
    """What each member of a group wants; brokers know the latest heartbeat's only."""
    found = [info.subscriptions for info in members.infos]
    return [*found, members.group.subscriptions] if members.silent or not found else found


def _passed(subscriptions: Iterable[tuple[SubscriptionInfo, ...]], message: ReceivedMessage) -> str:
    """The state of a message that a group's offset has passed.

    Args:
      subscriptions: of each member. If they differ, it is unknown whose queue it was.
    """
    wanted = [each for all_ in subscriptions for each in all_ if each.topic == message.topic]
    if any(each.expression_type != "TAG" for each in wanted):
        return "UNKNOWN"
    is_taken = {
        bool({tag.strip() for tag in each.expression.split("||")} & {"*", "", message.tags or ""})
        for each in wanted
    }
    if len(is_taken) > 1:
        return "UNKNOWN"
    return "CONSUMED_BUT_FILTERED" if is_taken == {False} else "CONSUMED_OR_FILTERED"


def _delay_s(span: QueueTimeSpan, now_ms: int) -> float | None:
    """How long ago the next message to consume was stored; None: it is unknown.

    Where it was deleted before it was consumed, Apache's brokers answer with the time since 1970;
    then the next one is the queue's first.
    """
    delay_ms = span.delay_time
    oldest_ms = now_ms - span.min_time_stamp if span.min_time_stamp > 0 else None
    if delay_ms > now_ms // 2:
        delay_ms = -1 if oldest_ms is None else oldest_ms
    return None if delay_ms < 0 else delay_ms / 1000
