"""Queue mappings of static topics: logic queues, and the physical queues that hold them.

A static topic has a fixed number of logic queues. Each is a list of items, the oldest first. An
item is a physical queue of one broker, with the logic offset at which it begins. The broker of the
last item is the queue's leader: it takes sends and serves pulls, and asks the brokers of earlier
items for older messages.

Source: RocketMQ 5.5.0 remoting/protocol/statictopic: LogicQueueMappingItem, TopicQueueMappingInfo,
TopicQueueMappingDetail, TopicConfigAndQueueMapping, TopicQueueMappingUtils.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from .base import Body
from .data_version import DataVersion
from .fields import MappingInt, MappingLong
from .topic import TopicConfig

GLOBAL_SCOPE: Final = "__global__"
"""The scope of a static topic. Source: MixAll.METADATA_SCOPE_GLOBAL."""

UNDECIDED: Final = -1
"""A logic offset, or an end, that is not known yet."""


class LogicQueueMappingItem(Body):
    """A physical queue that holds a part of a logic queue.

    Attributes:
      gen: number of the item in its logic queue, increasing.
      queue_id: of the physical queue.
      bname: name of its broker.
      logic_offset: logic offset of the physical offset `start_offset`; UNDECIDED: the queue is
        being moved here.
      start_offset: first physical offset; 0 in practice.
      end_offset: physical offset after the last one; UNDECIDED: that of the physical queue.
      time_of_start, time_of_end: unused, -1.
    """

    gen: MappingInt = 0
    queue_id: MappingInt = 0
    bname: str = ""
    logic_offset: MappingLong = 0
    start_offset: MappingLong = 0
    end_offset: MappingLong = UNDECIDED
    time_of_start: MappingLong = -1
    time_of_end: MappingLong = -1

    @property
    def is_decided(self) -> bool:
        """Whether its logic offset is known."""
        return self.logic_offset >= 0

    @property
    def is_ended(self) -> bool:
        """Whether its end is known, and it is not empty."""
        return self.end_offset > self.start_offset

    @property
    def offset_delta(self) -> int:
        """What a client adds to the physical offsets of messages."""
        return self.logic_offset - self.start_offset

    def logic_of(self, physical_offset: int) -> int:
        """The logic offset of a physical one; those before the item become its first."""
        return self.logic_offset + max(physical_offset - self.start_offset, 0)

    def logic_within(self, physical_offset: int) -> int:
        """The same, but not past the item's end; UNDECIDED: the logic offset is not known."""
        if not self.is_decided:
            return UNDECIDED
        if self.start_offset <= self.end_offset < physical_offset:
            physical_offset = self.end_offset
        return self.logic_of(physical_offset)

    def physical_of(self, logic_offset: int) -> int:
        """The physical offset of a logic one; it may be outside of the item."""
        return logic_offset - self.logic_offset + self.start_offset

    @property
    def last_logic_offset(self) -> int:
        """The logic offset of the item's known end, or else of its begin."""
        return self.logic_offset + max(self.end_offset - self.start_offset, 0)


class TopicQueueMappingInfo(Body):
    """The logic queues of a static topic that a broker leads: a part of registrations and routes.

    Attributes:
      scope: GLOBAL_SCOPE, which becomes a part of the artificial broker name of its queues.
      total_queues: number of logic queues on all brokers.
      bname: name of the broker.
      epoch: increases with each change of the mapping, ms since 1970.
      dirty: unused by brokers.
      curr_id_map: physical queue id by logic queue id.
    """

    topic: str = ""
    scope: str = GLOBAL_SCOPE
    total_queues: MappingInt = 0
    bname: str = ""
    epoch: MappingLong = 0
    dirty: bool = False
    curr_id_map: dict[MappingInt, MappingInt] = msgspec.field(default_factory=dict)


class TopicQueueMappingDetail(TopicQueueMappingInfo):
    """The same with the items of each logic queue: body of UPDATE_AND_CREATE_STATIC_TOPIC (513).

    A broker also keeps logic queues that were moved to another broker.

    Attributes:
      hosted_queues: items by logic queue id, oldest first.
    """

    hosted_queues: dict[MappingInt, list[LogicQueueMappingItem]] = msgspec.field(
        default_factory=dict
    )

    def leads(self, queue_id: int) -> bool:
        """Whether this broker is the leader of a logic queue."""
        items = self.hosted_queues.get(queue_id)
        return bool(items) and items[-1].bname == self.bname  # type: ignore[index]

    def info(self) -> TopicQueueMappingInfo:
        """What a registration has of it."""
        return TopicQueueMappingInfo(
            topic=self.topic,
            scope=self.scope,
            total_queues=self.total_queues,
            bname=self.bname,
            epoch=self.epoch,
            curr_id_map={
                queue_id: items[-1].queue_id
                for queue_id, items in self.hosted_queues.items()
                if self.leads(queue_id)
            },
        )


class TopicQueueMappingSerializeWrapper(Body):
    """All queue mappings of a broker: config/topicQueueMapping.json.

    Attributes:
      topic_queue_mapping_info_map: mapping by topic.
    Source: RocketMQ 5.5.0 TopicQueueMappingSerializeWrapper.
    """

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] = msgspec.field(
        default_factory=dict
    )
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class TopicConfigAndQueueMapping(TopicConfig):
    """Answer to GET_TOPIC_CONFIG (351) with `lo=true`.

    Attributes:
      mapping_detail: None if the topic is not static.
    """

    mapping_detail: TopicQueueMappingDetail | None = None

    @classmethod
    def of(
        cls, topic: TopicConfig, detail: TopicQueueMappingDetail | None
    ) -> TopicConfigAndQueueMapping:
        """A topic's settings with its mapping."""
        members: dict[str, Any] = {
            name: getattr(topic, name) for name in TopicConfig.__struct_fields__
        }
        return cls(**members, mapping_detail=detail)


def item_at(
    items: Sequence[LogicQueueMappingItem], logic_offset: int
) -> LogicQueueMappingItem | None:
    """The item that holds a logic offset; before the first one: the first.

    Returns: None: no item has a logic offset yet.
    Source: TopicQueueMappingUtils.findLogicQueueMappingItem, with ignoreNegative.
    """
    decided = [item for item in items if item.is_decided]
    for item in reversed(decided):
        if logic_offset >= item.logic_offset:
            return item
    return decided[0] if decided else None


def item_after(
    items: Sequence[LogicQueueMappingItem], item: LogicQueueMappingItem
) -> LogicQueueMappingItem | None:
    """The item after another one; None if there is none, or its logic offset is not known yet."""
    for older, newer in itertools.pairwise(items):
        if older.gen == item.gen:
            return newer if newer.is_decided else None
    return None


def fault_of_items(items: Sequence[LogicQueueMappingItem]) -> str | None:
    """What is wrong with the items of a logic queue, in RocketMQ's words; None: nothing.

    Source: TopicQueueMappingUtils.checkLogicQueueMappingItemOffset.
    """
    newer: LogicQueueMappingItem | None = None
    # From the newest to the oldest, as only the newest may still lack its logic offset.
    for item in reversed(items):
        if item.start_offset < 0 or item.gen < 0 or item.queue_id < 0:
            return "The field is illegal, should not be negative"
        if newer is not None and not item.is_decided:
            return "The non-latest item has negative logic offset"
        if newer is not None and item.gen >= newer.gen:
            return "The gen does not increase monotonically"
        if item.end_offset != UNDECIDED and item.end_offset < item.start_offset:
            return "The endOffset is smaller than the start offset"
        if newer is not None and newer.logic_offset != UNDECIDED:
            if item.logic_offset >= newer.logic_offset:
                return "The base logic offset does not increase monotonically"
            if item.last_logic_offset >= newer.logic_offset:
                return "The max logic offset does not increase monotonically"
        newer = item
    return None


def shared_queue(
    topic: str, queues: Iterable[tuple[int, Sequence[LogicQueueMappingItem]]]
) -> str | None:
    """A physical queue that is part of two logic queues, in RocketMQ's words; None if there is
    none.

    Args:
      topic: for the text.
      queues: logic queue ids with their items.
    Source: TopicQueueMappingUtils.checkIfReusePhysicalQueue.
    """
    owners: dict[str, int] = {}
    for queue_id, items in queues:
        for item in items:
            physical = f"{item.bname}-{item.queue_id}"
            if physical in owners:
                return (
                    f"Topic {topic} global queue id {queue_id} and {owners[physical]} shared the "
                    f"same physical queue {physical}"
                )
            owners[physical] = queue_id
    return None
