"""Copies of a message that failed deliveries made: in retry topics, delayed ones, dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import anyio

from ...client import Admin, ReceivedMessage
from ...common import message_properties as names
from ...common.topic_names import (
    DLQ_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    pop_retry_topics,
    retry_topic,
)
from ..whole_numbers import number
from .facts import CopyFacts, CopyKind, MessageFacts
from .parts import Parts

_ORDER: Final = (CopyKind.SCHEDULED, CopyKind.RETRY, CopyKind.DEAD_LETTER)
"""Of copies that were stored in the same millisecond, in the order in which they are made."""


class CopyFinder:
    """Looks for the copies of a message by its unique key, which they have, too.

    Args:
      topics: all that the name servers know, also those of groups; a group without a retry topic
        has no copies there, and is not asked about.
    """

    def __init__(
        self, admin: Admin, parts: Parts, message: MessageFacts, topics: frozenset[str]
    ) -> None:
        self._admin = admin
        self._parts = parts
        self._message = message
        self._topics = topics

    @property
    def can_find(self) -> bool:
        """Whether the message has a unique key."""
        return bool(self._message.unique_key)

    async def find(
        self, groups: Sequence[str], delays_ms: Sequence[int]
    ) -> dict[str, tuple[CopyFacts, ...]]:
        """The copies of each group, the newest last.

        Args:
          delays_ms: of the delay levels, in ms, level 1 first.
        """
        by_topic: dict[str, list[ReceivedMessage]] = {}

        async def look_in(topic: str) -> None:
            by_topic[topic] = await self._with_key(topic)

        async with anyio.create_task_group() as tasks:
            for topic in {each for group in groups for each in self._topics_of(group)}:
                tasks.start_soon(look_in, topic)
            for topic in {SCHEDULE_TOPIC, TIMER_TOPIC} & (self._topics | {SCHEDULE_TOPIC}):
                tasks.start_soon(look_in, topic)
        return {group: await self._copies(group, by_topic, delays_ms) for group in groups}

    def _topics_of(self, group: str) -> set[str]:
        own = {retry_topic(group), f"{DLQ_TOPIC_PREFIX}{group}"}
        return (own | set(pop_retry_topics(self._message.topic, group))) & self._topics

    async def _with_key(self, topic: str) -> list[ReceivedMessage]:
        message = self._message
        call = self._admin.messages_by_key(topic, message.unique_key)
        found = await self._parts.get("copies", topic, call)
        return [each for each in found or () if self._is_copy(each)]

    def _is_copy(self, found: ReceivedMessage) -> bool:
        """Whether it is one of this record: a producer may have stored its message twice."""
        message = self._message
        if found.message_id != message.unique_key or found.physical_offset == (
            message.physical_offset
        ):
            return False
        origin = found.properties.get(names.PROPERTY_ORIGIN_MESSAGE_ID)
        return origin in (None, message.unique_key, message.offset_message_id)

    async def _copies(
        self,
        group: str,
        by_topic: Mapping[str, Iterable[ReceivedMessage]],
        delays_ms: Sequence[int],
    ) -> tuple[CopyFacts, ...]:
        retry = {retry_topic(group), *pop_retry_topics(self._message.topic, group)}
        found: list[CopyFacts] = []
        for topic, messages in by_topic.items():
            for each in messages:
                if topic in retry:
                    call = self._admin.committed_offset(group, each.queue)
                    committed = await self._parts.get("retries", group, call)
                    found.append(_copy(CopyKind.RETRY, each, committed=committed))
                elif topic == f"{DLQ_TOPIC_PREFIX}{group}":
                    found.append(_copy(CopyKind.DEAD_LETTER, each))
                elif topic in (SCHEDULE_TOPIC, TIMER_TOPIC) and self._target(each) in retry:
                    due = due_ms(each, delays_ms)
                    found.append(_copy(CopyKind.SCHEDULED, each, due=due))
        return tuple(sorted(found, key=lambda each: (each.store_ms, _ORDER.index(each.kind))))

    def _target(self, message: ReceivedMessage) -> str:
        full = message.properties.get(names.PROPERTY_REAL_TOPIC, "")
        return self._admin.client.without_namespace(full)


def _copy(
    kind: CopyKind,
    message: ReceivedMessage,
    *,
    due: int | None = None,
    committed: int | None = None,
) -> CopyFacts:
    times = message.reconsume_times
    return CopyFacts(
        kind,
        message.topic,
        message.queue.broker_name,
        message.queue_id,
        message.queue_offset,
        message.store_timestamp_ms,
        attempt=times if kind is CopyKind.DEAD_LETTER else times + 1,
        due_ms=due,
        committed=committed,
    )


def due_ms(message: ReceivedMessage, delays_ms: Sequence[int]) -> int | None:
    """When a message in a topic of delayed messages is due; None: it is in no such topic.

    Args:
      delays_ms: of the delay levels, in ms, level 1 first.

    Source: ScheduleMessageService.delayLevel2QueueId, TimerMessageStore of RocketMQ 5.5.0.
    """
    properties = message.properties
    if message.topic == TIMER_TOPIC:
        return number(properties.get(names.PROPERTY_TIMER_OUT_MS))
    if message.topic != SCHEDULE_TOPIC:
        return None
    own = number(properties.get(names.PROPERTY_REAL_DUE_MS))
    if own is not None:
        return own
    level = min(message.queue_id + 1, len(delays_ms))
    return message.store_timestamp_ms + delays_ms[level - 1]
