"""The questions to brokers, name servers and consumers about one message, asked at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Final

import anyio
import msgspec

from ...client import (
    Admin,
    BrokerInfo,
    GroupMembers,
    GroupPops,
    GroupProgress,
    MessageQueue,
    MessageTrace,
    ReceivedMessage,
    SubscriptionInfo,
)
from ...common import message_properties as names
from ...common.delay_levels import MESSAGE_DELAY_LEVEL, delay_levels_ms
from ...common.topic_names import (
    REVIVE_TOPIC_PREFIX,
    TRACE_TOPIC,
    TRANS_HALF_TOPIC,
    is_own_group,
)
from ..whole_numbers import number
from .copies import CopyFinder, due_ms
from .facts import (
    Gap,
    GapReason,
    GroupFacts,
    LifeFacts,
    LookUp,
    LookUpResult,
    MemberFacts,
    MessageFacts,
    Retention,
    SlaveFacts,
)
from .look_up import Found, find_message, id_of, topic_of, trace_of
from .parts import Parts

DEADLINE_S: Final = 5.0
"""Time for all questions together, in seconds: the client's default for one request, and some for
the search before."""
GROUPS_MAX: Final = 8
"""Groups whose members, copies and pops are looked for; each costs some five requests. Of the
others the offset is shown, which comes in one answer for all."""
MEMBERS_MAX: Final = 8
"""Members of a group that are asked for their subscription: a broker forwards each question."""
MEMBERS_S: Final = 2.0
"""Time for the answers of a group's members: less than for all, as one may hang."""
POP_RECORDS_MAX: Final = 320
"""Records of pops that are read, the newest: ten requests."""
POPS_SINCE_MS: Final = 3_600_000
"""How far back records of pops are read: an hour, as by `Admin.popped`."""


async def collect_life(
    admin: Admin,
    message_id: str,
    topic: str | None = None,
    *,
    groups: Iterable[str] = (),
    groups_max: int = GROUPS_MAX,
    members_max: int = MEMBERS_MAX,
    trace_topic: str = TRACE_TOPIC,
    deadline_s: float = DEADLINE_S,
    is_stopped: bool = False,
) -> LifeFacts:
    """Ask a cluster for what it knows about a message.

    It raises no error of the client: what was not answered within the time is a Gap.

    Args:
      message_id: the producer's id, or the broker's.
      topic: of the message, for a producer's id; None: all topics are searched, which takes a
        request for each, unless a trace has its topic.
      groups: ask about these, too, whether they have to do with its topic or not; they come first.
      groups_max: groups that are asked about in full; of the others only the offset is known.
      members_max: members of a group that are asked for their subscription; the others are silent.
      trace_topic: where clients report.
      deadline_s: for everything together, in seconds.
      is_stopped: the brokers are stopped, and their files are read: members are not known.
    """
    message_id = message_id.strip()
    parts = Parts()
    trace: MessageTrace | None = None
    collector: _Collector | None = None
    found = Found(LookUp(message_id, LookUpResult.SILENT, topic or ""))
    with anyio.move_on_after(deadline_s):
        # A broker's id says where the message is; for a producer's, a trace may have the topic.
        wanted = id_of(message_id)
        if wanted is not None and wanted.place is None:
            trace = await parts.get("trace", "", trace_of(admin, message_id, trace_topic))
        found = await find_message(admin, message_id, topic, trace)
        if found.message is not None:
            asked = tuple(dict.fromkeys(groups))
            most = None if is_stopped else members_max
            collector = _Collector(admin, parts, found, found.message, trace, most)
            await collector.ask(asked, groups_max, trace_topic)
    if collector is None:
        return LifeFacts(admin.client.wall_ms(), found.look_up, trace=trace, gaps=parts.gaps)
    return collector.facts(found.look_up)


class _Collector:
    """What was learnt about a message so far.

    Args:
      trace: what clients reported; None: it was not asked for yet.
      members_max: see `collect_life`; None: members are not known.
    """

    def __init__(
        self,
        admin: Admin,
        parts: Parts,
        found: Found,
        received: ReceivedMessage,
        trace: MessageTrace | None,
        members_max: int | None,
    ) -> None:
        self._admin = admin
        self._parts = parts
        self._received = received
        self._members_max = members_max
        self._is_found_by_key = not found.look_up.address
        self._message = message_facts(received, topic_of(admin, received), found.brokers)
        self._trace = trace
        self._with_topic: frozenset[str] | None = None
        self._progress: dict[str, GroupProgress] = {}
        self._groups: dict[str, GroupFacts] = {}
        self._others: tuple[str, ...] = ()
        self._pops: dict[str, GroupPops] = {}
        self._delays_ms = delay_levels_ms(MESSAGE_DELAY_LEVEL)
        self._are_settings_known = anyio.Event()

    def _learn(self, **values: object) -> None:
        self._message = msgspec.structs.replace(self._message, **values)

    async def ask(self, asked: tuple[str, ...], groups_max: int, trace_topic: str) -> None:
        """Ask for everything, at once.

        Args:
          asked, groups_max, trace_topic: see `collect_life`.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._ask_log)
            tasks.start_soon(self._ask_settings)
            tasks.start_soon(self._ask_intact)
            tasks.start_soon(self._ask_groups, asked, groups_max)
            for slave in self._message.slaves:
                tasks.start_soon(self._ask_slave, slave)
            if self._message.is_in_topic:
                tasks.start_soon(self._ask_queue)
                tasks.start_soon(self._ask_index)
            if self._trace is None:
                tasks.start_soon(self._ask_trace, trace_topic)

    async def _ask_trace(self, trace_topic: str) -> None:
        call = trace_of(self._admin, self._message.message_id, trace_topic)
        self._trace = await self._parts.get("trace", "", call)

    async def _ask_slave(self, slave: SlaveFacts) -> None:
        call = self._admin.broker_stats(slave.address)
        stats = await self._parts.get("slave", slave.address, call)
        if stats is not None:
            known = msgspec.structs.replace(slave, log_end=stats.commit_log_end)
            slaves = [known if each == slave else each for each in self._message.slaves]
            self._learn(slaves=tuple(slaves))

    async def _ask_log(self) -> None:
        message = self._message
        call = self._admin.broker_stats(message.broker_name)
        stats = await self._parts.get("log", message.broker_name, call)
        if stats is not None:
            self._learn(log_begin=stats.commit_log_begin, log_end=stats.commit_log_end)

    async def _ask_settings(self) -> None:
        message = self._message
        call = self._admin.broker_config(message.broker_name)
        settings = await self._parts.get("settings", message.broker_name, call)
        if settings is None:
            self._learn_due()
            return
        size = number(settings.get("mappedFileSizeCommitLog"))
        hours = number(settings.get("fileReservedTime"))
        if size and hours is not None:
            self._learn(retention=Retention(size, hours, settings.get("deleteWhen", "")))
        with contextlib.suppress(KeyError, ValueError):  # else it is the default
            self._delays_ms = delay_levels_ms(settings["messageDelayLevel"])
        self._learn_due()

    def _learn_due(self) -> None:
        if not self._message.is_in_topic:
            self._learn(due_ms=due_ms(self._received, self._delays_ms))
        self._are_settings_known.set()

    async def _ask_intact(self) -> None:
        is_intact = await self._parts.get("crc", "", self._admin.is_intact(self._received))
        self._learn(is_intact=is_intact)

    async def _ask_queue(self) -> None:
        message = self._message
        name, topic = message.broker_name, message.topic
        call = self._admin.topic_offsets(name, topic)
        for each in await self._parts.get("queue", name, call) or ():
            if each.queue_id == message.queue_id:
                self._learn(queue_begin=each.begin, queue_end=each.end)
                if message.queue_offset >= each.end:
                    return  # it has no unit yet
        if names.PROPERTY_INNER_NUM in message.properties:
            return  # a batch has one unit
        units = await self._parts.get(
            "unit",
            name,
            self._admin.queue_units(topic, name, message.queue_id, message.queue_offset, count=1),
        )
        if units is not None:
            unit = units[0] if units else None
            self._learn(
                unit_offset=-1 if unit is None else unit.physical_offset,
                unit_code=None if unit is None else unit.tags_code,
            )

    async def _ask_index(self) -> None:
        message = self._message
        if self._is_found_by_key:
            self._learn(is_indexed=True)
            return
        key = message.unique_key or next(iter(message.keys), "")
        if not key:
            return
        call = self._admin.messages_by_key(message.topic, key)
        found = await self._parts.get("index", message.broker_name, call)
        if found is not None:
            place = message.broker_name, message.physical_offset
            places = {(each.queue.broker_name, each.physical_offset) for each in found}
            self._learn(is_indexed=place in places)

    # The groups

    async def _ask_groups(self, asked: tuple[str, ...], groups_max: int) -> None:
        message = self._message
        known: set[str] = set(asked)
        all_topics: set[str] = set()

        async def ask_tables() -> None:
            name = message.broker_name
            call = self._admin.broker_consume_stats(name)
            tables = await self._parts.get("offsets", name, call)
            if tables is not None:
                self._progress = {each.group: each for each in tables.groups}

        async def ask_names() -> None:
            call = self._admin.topic_groups(message.topic)
            found = await self._parts.get("groups", message.topic, call)
            if found is not None:
                self._with_topic = frozenset(found)
                known.update(each for each in found if not is_own_group(each))

        async def ask_topics() -> None:
            call = self._admin.topics(is_all=True)
            all_topics.update(await self._parts.get("topics", "", call) or ())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_tables)
            tasks.start_soon(ask_names)
            tasks.start_soon(ask_topics)
        order = [*asked, *sorted(known - set(asked))]
        full, self._others = order[:groups_max], tuple(order[groups_max:])
        for name in order:
            self._groups[name] = self._by_offset(name)
        finder = CopyFinder(self._admin, self._parts, message, frozenset(all_topics))
        async with anyio.create_task_group() as tasks:
            for name in full:
                tasks.start_soon(self._ask_group, name)
            if all_topics:  # else it is not known which groups have topics for copies
                tasks.start_soon(self._ask_copies, finder, full)
            # 4.x has no pops, and no topic for their records.
            has_pops = any(each.startswith(REVIVE_TOPIC_PREFIX) for each in all_topics)
            if message.is_in_topic and has_pops and full:
                tasks.start_soon(self._ask_pops, full)

    def _queue_of(self, group: str) -> int | None:
        """The group's offset in the message's queue, by the broker's table."""
        message = self._message
        progress = self._progress.get(group)
        if progress is None:
            return None
        place = message.topic, message.broker_name, message.queue_id
        for each in progress.queues:
            if (each.topic, each.broker_name, each.queue_id) == place:
                return each.committed
        return None

    def _by_offset(self, group: str) -> GroupFacts:
        progress = self._progress.get(group)
        committed = self._queue_of(group)
        behind = [each for each in progress.queues if each.lag] if progress else []
        return GroupFacts(
            group,
            has_offset=True if committed is not None else None,
            committed=committed,
            rate=progress.rate if progress else None,
            behind_queues=len(behind),
        )

    def _learn_group(self, group: str, **values: object) -> None:
        self._groups[group] = msgspec.structs.replace(self._groups[group], **values)

    async def _ask_group(self, group: str) -> None:
        async with anyio.create_task_group() as tasks:
            if self._groups[group].has_offset is None:
                tasks.start_soon(self._ask_offset, group)
            tasks.start_soon(self._ask_members, group)

    async def _ask_offset(self, group: str) -> None:
        """The offset of a group that is not in the broker's table.

        Brokers leave out groups whose members do not subscribe to the topic any more. Those of 4.9
        answer 0 for a group without an offset, too.
        """
        if self._with_topic is not None and group not in self._with_topic:
            self._learn_group(group, has_offset=False)
            return
        message = self._message
        queue = MessageQueue(
            self._admin.client.with_namespace(message.topic),
            message.broker_name,
            message.queue_id,
        )
        before = len(self._parts.failed)
        call = self._admin.committed_offset(group, queue)
        committed = await self._parts.get("offset", group, call) or None
        if committed is not None or len(self._parts.failed) == before:
            self._learn_group(group, has_offset=committed is not None, committed=committed)

    async def _ask_members(self, group: str) -> None:
        message = self._message
        if self._members_max is None:
            self._parts.note("members", "", GapReason.STOPPED)
            return
        call = self._admin.members(group, timeout_s=MEMBERS_S, count=self._members_max)
        found = await self._parts.get("members", group, call)
        if found is None:
            return
        if len(found.group.clients) > self._members_max:
            self._parts.note("members", group, GapReason.LIMITED)
        elif found.silent:
            self._parts.note("members", group, GapReason.SILENT)
        self._learn_group(
            group,
            is_online=bool(found.group.clients),
            members=members_of(found, message),
            subscription=_of_topic(found.group.subscriptions, message.topic),
            message_model=found.group.message_model,
            consume_type=found.group.consume_type,
        )

    async def _ask_copies(self, finder: CopyFinder, groups: list[str]) -> None:
        if not finder.can_find:
            self._parts.note("copies", "", GapReason.NO_KEY)
            return
        await self._are_settings_known.wait()
        found = await finder.find(groups, self._delays_ms)
        for group, copies in found.items():
            self._learn_group(group, copies=copies)

    async def _ask_pops(self, groups: list[str]) -> None:
        message = self._message
        now_ms = self._admin.client.wall_ms()
        # The two clocks may differ; the later one of the two ends would leave out all records.
        since_ms = max(min(message.store_ms, now_ms), now_ms - POPS_SINCE_MS)
        call = self._admin.popped_by(
            groups,
            message.topic,
            message.broker_name,
            since_ms=since_ms,
            records_max=POP_RECORDS_MAX,
        )
        self._pops = await self._parts.get("pops", message.broker_name, call) or {}
        if any(each.left_out for each in self._pops.values()):
            self._parts.note("pops", message.broker_name, GapReason.LIMITED)

    # All together

    def facts(self, look_up: LookUp) -> LifeFacts:
        """What was learnt until now."""
        groups = [self._with_pops(self._groups[name]) for name in sorted(self._groups)]
        gaps: tuple[Gap, ...] = self._parts.gaps
        return LifeFacts(
            now_ms=self._admin.client.wall_ms(),
            look_up=look_up,
            message=self._message,
            trace=self._trace,
            groups=tuple(groups),
            other_groups=tuple(sorted(self._others)),
            gaps=gaps,
        )

    def _with_pops(self, group: GroupFacts) -> GroupFacts:
        message, pops = self._message, self._pops.get(group.group)
        if pops is None:
            return group
        places = {
            (each.topic, each.broker_name, each.queue_id, each.queue_offset)
            for each in group.copies or ()
        }
        places.add((message.topic, message.broker_name, message.queue_id, message.queue_offset))
        held = [
            each
            for each in pops.messages
            if (each.topic, each.broker_name, each.queue_id, each.offset) in places
        ]
        return msgspec.structs.replace(group, pops=tuple(held))


def message_facts(
    found: ReceivedMessage, topic: str, brokers: Iterable[BrokerInfo]
) -> MessageFacts:
    """What a message says of itself, and the slaves of its broker."""
    addresses = {each.name: each.addresses for each in brokers}.get(found.queue.broker_name, {})
    return MessageFacts(
        message_id=found.message_id,
        unique_key=found.properties.get(names.PROPERTY_UNIQUE_KEY, ""),
        offset_message_id=found.offset_message_id,
        topic=topic,
        stored_topic=found.topic,
        broker_name=found.queue.broker_name,
        queue_id=found.queue_id,
        queue_offset=found.queue_offset,
        physical_offset=found.physical_offset,
        size=found.store_size,
        born_ms=found.born_timestamp_ms,
        born_host=found.born_host,
        store_ms=found.store_timestamp_ms,
        store_host=found.store_host,
        tags=found.tags,
        keys=found.keys,
        properties=dict(found.properties),
        reconsume_times=found.reconsume_times,
        is_half=found.topic == TRANS_HALF_TOPIC,
        slaves=tuple(
            SlaveFacts(broker_id, addresses[broker_id], None)
            for broker_id in sorted(addresses)
            if broker_id > 0
        ),
    )


def members_of(found: GroupMembers, message: MessageFacts) -> tuple[MemberFacts, ...]:
    """A group's members, as they say themselves; those that did not answer are silent."""
    known = [
        MemberFacts(
            info.client_id,
            _of_topic(info.subscriptions, message.topic),
            has_queue=any(
                (each.topic, each.broker_name, each.queue_id)
                == (message.topic, message.broker_name, message.queue_id)
                for each in info.queues
            ),
            started_ms=number(info.properties.get("PROP_CONSUMER_START_TIMESTAMP")) or None,
        )
        for info in found.infos
    ]
    silent = [MemberFacts(each, None, is_silent=True) for each in found.silent]
    return tuple(sorted((*known, *silent), key=lambda each: each.client_id))


def _of_topic(found: Iterable[SubscriptionInfo], topic: str) -> SubscriptionInfo | None:
    return next((each for each in found if each.topic == topic), None)
