"""Statistics for administrators: offsets of queues and groups, rates, and connected producers."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import msgspec

from .. import fastjson
from .base import Body, Int32, Int64
from .heartbeat import SubscriptionData
from .pop import BufferedCheckPointBody
from .queues import MessageQueue

GROUPS_PER_STEP: Final = 100
"""Groups that are read in one step: with some queues each, a few milliseconds."""
_GROUPS: Final = "consumeStatsList"


class TopicOffset(msgspec.Struct, frozen=True, rename="camel"):
    """The messages of one queue.

    Attributes:
      min_offset, max_offset: the first message that is there, and the next one to come.
      last_update_timestamp: when the last message was stored, in milliseconds; 0 if there is none.
    """

    min_offset: Int64
    max_offset: Int64
    last_update_timestamp: Int64


class TopicStatsTable(Body):
    """Answer to GET_TOPIC_STATS_INFO (202).

    Attributes:
      offset_table: by queue.
      topic_put_tps: messages stored per second during the last minute.
    Source: RocketMQ 5.5.0 TopicStatsTable; 4.9.7 has no rate.
    """

    offset_table: dict[MessageQueue, TopicOffset] = msgspec.field(default_factory=dict)
    topic_put_tps: float = 0.0


class OffsetWrapper(msgspec.Struct, frozen=True, rename="camel"):
    """A group's progress in one queue.

    Attributes:
      broker_offset: the next message to come.
      consumer_offset: the next message to consume, as committed.
      pull_offset: the next message to pull.
      last_timestamp: when the last consumed message was stored, in milliseconds; 0: it is unknown.
    """

    broker_offset: Int64
    consumer_offset: Int64
    pull_offset: Int64 = 0
    last_timestamp: Int64 = 0


class ConsumeStats(Body):
    """Answer to GET_CONSUME_STATS (208), and a part of the one to 317.

    Attributes:
      offset_table: by queue.
      consume_tps: messages pulled per second during the last minute.
      pop_check_points: not of RocketMQ, whose clients ignore it: check points of pops that are in
        the broker's memory only, each with the bits of its acknowledged messages; None: they were
        not asked for, or the broker is not trocket's.
      pop_check_points_left_out: the number of those that are too many for one answer.
    Source: RocketMQ 5.5.0 ConsumeStats.
    """

    offset_table: dict[MessageQueue, OffsetWrapper] = msgspec.field(default_factory=dict)
    consume_tps: float = 0.0
    pop_check_points: list[BufferedCheckPointBody] | None = None
    pop_check_points_left_out: Int32 | None = None


class ConsumeStatsList(Body):
    """Answer to GET_BROKER_CONSUME_STATS (317).

    Attributes:
      consume_stats_list: for each group a map from its name to the progress in each of its topics.
      broker_addr: the answering broker's.
      total_diff: messages that are not consumed, of all groups.
      total_inflight_diff: messages that are pulled but not consumed, of all groups.
      members: not of RocketMQ, whose clients ignore it: how many members of each group are
        connected, without groups that have none; None: it was not asked for, or the broker is not
        trocket's.
    Source: RocketMQ 5.5.0 ConsumeStatsList.
    """

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = msgspec.field(default_factory=list)
    broker_addr: str | None = None
    total_diff: Int64 = 0
    total_inflight_diff: Int64 = 0
    members: dict[str, Int32] | None = None

    @classmethod
    def from_body_in_steps(cls, body: bytes) -> Generator[None, None, ConsumeStatsList]:
        """As `Body.from_body_in_steps`; an answer, which may have up to fastjson.SIZE_MAX bytes."""
        fastjson.check_size(body)
        tree = yield from fastjson.loads_queue_keys_in_steps(body)
        if tree is None:
            return (yield from super().from_body_in_steps(body))
        return (yield from cls.from_tree_in_steps(tree))

    @classmethod
    def from_tree_in_steps(cls, tree: object) -> Generator[None, None, ConsumeStatsList]:
        """As `Body.from_tree_in_steps`, with GROUPS_PER_STEP groups a step."""
        groups = tree.get(_GROUPS) if isinstance(tree, dict) else None
        if not isinstance(tree, dict) or not isinstance(groups, list):
            return cls.from_tree(tree)
        body = cls.from_tree({**tree, _GROUPS: []})
        for begin in range(0, len(groups), GROUPS_PER_STEP):
            yield
            part = cls.from_tree({_GROUPS: groups[begin : begin + GROUPS_PER_STEP]})
            body.consume_stats_list.extend(part.consume_stats_list)
        return body


class QueueTimeSpan(Body):
    """A group's progress in one queue, in times. All are store times in milliseconds.

    Attributes:
      message_queue: the queue; None: only in a body without it.
      min_time_stamp, max_time_stamp: of its first and its last message; -1: it is empty.
      consume_time_stamp: of the last consumed message.
      delay_time: the age of the next message to consume; 0: all are consumed.
    Source: RocketMQ 5.5.0 QueueTimeSpan.
    """

    message_queue: MessageQueue | None = None
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0


class QueryConsumeTimeSpanBody(Body):
    """Answer to QUERY_CONSUME_TIME_SPAN (303)."""

    consume_time_span_set: list[QueueTimeSpan] = msgspec.field(default_factory=list)


class BrokerStatsItem(msgspec.Struct, frozen=True):
    """Growth of a counter during a period.

    Attributes:
      sum: the growth.
      tps: the growth per second.
      avgpt: the growth per counted event, such as bytes per message.
    """

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body):
    """Answer to VIEW_BROKER_STATS_DATA (315): the last minute, hour and day."""

    stats_minute: BrokerStatsItem = BrokerStatsItem()
    stats_hour: BrokerStatsItem = BrokerStatsItem()
    stats_day: BrokerStatsItem = BrokerStatsItem()


class ProducerInfo(msgspec.Struct, frozen=True, rename="camel"):
    """One connected producer.

    Attributes:
      client_id: chosen by the client.
      remote_ip: "/ip:port", as Java writes an address; wire `remoteIP`.
      language: name of a LanguageCode.
      version: ordinal of an MQVersion.
      last_update_timestamp: of its last heartbeat, in milliseconds.
    """

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str
    version: Int32
    last_update_timestamp: Int64


class ProducerTableInfo(Body):
    """Answer to GET_ALL_PRODUCER_INFO (328): producers by group."""

    data: dict[str, list[ProducerInfo]] = msgspec.field(default_factory=dict)


class QuerySubscriptionResponseBody(Body):
    """Answer to QUERY_SUBSCRIPTION_BY_CONSUMER (345).

    Attributes:
      subscription_data: None if the group is not connected, or does not subscribe to the topic.
    """

    group: str | None = None
    topic: str | None = None
    subscription_data: SubscriptionData | None = None


class QueryCorrectionOffsetBody(Body):
    """Answer to QUERY_CORRECTION_OFFSET (308): offset by queue id."""

    correction_offsets: dict[int, Int64] = msgspec.field(default_factory=dict)


class ConsumeQueueData(Body):
    """One unit of a consume queue.

    Attributes:
      physic_offset, physic_size: the place of the record in the log, in bytes.
      tags_code: hash code of the tag, or the address of an extension.
      extend_data_json: the extension unit, as JSON; None if there is none.
      bit_map: its bit map in ones and zeros, the last bit first; None: it has none.
      eval: whether the group's filter lets the message through, by its extension unit; false
        without one, or without a group.
      msg: what is wrong with the unit; None: nothing.
    Source: RocketMQ 5.5.0 ConsumeQueueData.
    """

    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body):
    """Answer to QUERY_CONSUME_QUEUE (321).

    Attributes:
      subscription_data: that of the group that the request names; None: it names none, or the
        group does not subscribe to the topic.
      filter_data: the group's SQL92 filter as pretty JSON, "null" if it has none; None: the request
        names no group.
      queue_data: the units.
      max_queue_index, min_queue_index: the queue's offsets.
    Source: RocketMQ 5.5.0 QueryConsumeQueueResponseBody.
    """

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] = msgspec.field(default_factory=list)
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0


class GetConsumerStatusBody(Body):
    """Answer to INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), and a client's to 221.

    Attributes:
      message_queue_table: a client's offsets, the next message to consume of each queue; empty in
        the answer to 223.
      consumer_table: those of each client by its id; empty in the answer to 221.
    Source: RocketMQ 5.5.0 GetConsumerStatusBody.
    """

    message_queue_table: dict[MessageQueue, Int64] = msgspec.field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, Int64]] = msgspec.field(default_factory=dict)


class CheckRocksdbCqWriteResult(Body):
    """Answer to CHECK_ROCKSDB_CQ_WRITE_PROGRESS (354).

    Attributes:
      check_result: what was found, in words; None: the check is not finished.
      check_status: 0 as it should be, 1 not, 2 in progress, 3 an error.
    Source: RocketMQ 5.5.0 CheckRocksdbCqWriteResult.
    """

    check_result: str | None = None
    check_status: Int32 = 0
