"""Headers of sends, pulls and queries of messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import msgspec

from .base import Header, Int32, Int64, RpcRequestHeader, TopicRequestHeader, decode
from .fields import (
    ByteCount,
    MessageCount,
    MessageSysFlag,
    PhysicalOffset,
    PullOffset,
    PullSysFlag,
    QueueId,
    QueueIdOrAny,
    ReconsumeTimes,
    ReconsumeTimesMax,
    RequestSource,
    SearchedTimeMs,
    TableOffset,
    TimeMs,
    TimeoutMs,
    TransactionState,
    UserFlag,
    Version,
    WantedQueueCount,
)


class SendMessageRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of SEND_MESSAGE (10); under one-letter wire names also of 310 and 320.

    Attributes:
      topic: the topic; it need not exist.
      default_topic: the pattern of a new topic's settings (TBW102).
      default_topic_queue_nums: number of queues the producer wants for a new topic.
      queue_id: queue of the topic; negative: the broker picks one.
      sys_flag: compression, transaction type and host kinds, as in a stored record.
      born_timestamp: when the client created it, ms since 1970.
      flag: a number for the application.
      properties: `name \\x01 value \\x02 ...`.
      reconsume_times: number of earlier deliveries.
      unit_mode: the producer belongs to a unit.
      batch: the body is a batch.
      max_reconsume_times: deliveries at most; for retries only.
    Source: RocketMQ 5.5.0 SendMessageRequestHeader, SendMessageRequestHeaderV2.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: WantedQueueCount
    queue_id: QueueIdOrAny
    sys_flag: MessageSysFlag
    born_timestamp: TimeMs
    flag: UserFlag
    properties: str | None = None
    reconsume_times: ReconsumeTimes | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: ReconsumeTimesMax | None = None


class ReplyMessageRequestHeader(SendMessageRequestHeader, frozen=True, kw_only=True):
    """Request of PUSH_REPLY_MESSAGE_TO_CLIENT (326): a reply that is pushed to the requester.

    Attributes:
      born_host: `ip:port` of the responder.
      store_host: `ip:port` of the broker.
      store_timestamp: when the broker received it, ms since 1970.
    Source: RocketMQ 5.3.3 ReplyMessageRequestHeader.
    """

    born_host: str
    store_host: str
    store_timestamp: TimeMs


class RecallMessageRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of RECALL_MESSAGE (370): recall a timer message.

    Attributes:
      recall_handle: from the answer to its send.
    Source: RocketMQ 5.5.0 RecallMessageRequestHeader.
    """

    producer_group: str | None = None
    topic: str
    recall_handle: str


SEND_MESSAGE_V2_LETTERS: Final[Mapping[str, str]] = {
    "a": "producer_group",
    "b": "topic",
    "c": "default_topic",
    "d": "default_topic_queue_nums",
    "e": "queue_id",
    "f": "sys_flag",
    "g": "born_timestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsume_times",
    "k": "unit_mode",
    "l": "max_reconsume_times",
    "m": "batch",
    "n": "broker_name",
}
"""The wire names of SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320), and the fields they mean.

Source: RocketMQ 5.3.3 SendMessageRequestHeaderV2; letter l is called consumeRetryTimes there.
"""


def _with_letters() -> type[SendMessageRequestHeader]:
    """The header class with the letters as wire names, generated from the mapping."""
    known = {field.name: field for field in msgspec.structs.fields(SendMessageRequestHeader)}
    fields = []
    for letter, name in SEND_MESSAGE_V2_LETTERS.items():
        field = known[name]
        renamed = (
            msgspec.field(name=letter)
            if field.required
            else msgspec.field(default=field.default, name=letter)
        )
        fields.append((name, field.type, renamed))
    # A subclass, so that processors need not know which of both forms a send had.
    made = msgspec.defstruct(
        "SendMessageRequestHeaderV2",
        fields,
        bases=(SendMessageRequestHeader,),
        module=__name__,
        frozen=True,
        kw_only=True,
        gc=False,
    )
    return cast("type[SendMessageRequestHeader]", made)


SendMessageRequestHeaderV2: Final = _with_letters()
"""SendMessageRequestHeader with one-letter wire names, for `decode` and `encode_header`."""


def decode_send_message_v2(ext_fields: Mapping[str, str]) -> SendMessageRequestHeader:
    """Read the header of SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE.

    Raises: RequestRefused: as `decode`; the remark names the letter.
    """
    return decode(SendMessageRequestHeaderV2, ext_fields)


class SendMessageResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to every kind of send.

    Attributes:
      msg_id: offset id (host and physical offset in hex digits); a batch: joined by commas.
      queue_id: the queue it was stored in.
      queue_offset: its offset in the queue, in messages; a batch: of the first.
      transaction_id: the unique key of the message (5.x).
      batch_uniq_id: unique key of an automatic batch (5.x).
      recall_handle: the handle for RECALL_MESSAGE; timer messages only (5.x).
      msg_region: region of the broker; wire `MSG_REGION`.
      trace_on: "true" when clients are to trace; wire `TRACE_ON`.
    """

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str | None = msgspec.field(default=None, name="MSG_REGION")
    trace_on: str | None = msgspec.field(default=None, name="TRACE_ON")


class PullMessageRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361).

    Attributes:
      lite_topic: name of a lite topic below it (5.5).
      queue_id: queue of the topic, >= 0.
      queue_offset: of the first message wanted, in messages.
      max_msg_nums: number of messages at most.
      sys_flag: bits 1 commit, 2 suspend, 4 subscription, 8 class filter, 16 lite pull.
      commit_offset: consumer offset to store when bit 1 is set, in messages.
      suspend_timeout_millis: how long to hold the pull if there is no message, ms.
      subscription: expression; sent when bit 4 is set.
      sub_version: version of the subscription, ms since 1970; 0: none.
      expression_type: "TAG" (also when None) or "SQL92".
      max_msg_bytes: bytes at most (5.x).
      request_source: kind of the client, for pulls through a proxy (5.x).
      proxy_froward_client_id: the client behind a proxy; misspelt in RocketMQ.
    """

    consumer_group: str
    topic: str
    lite_topic: str | None = None
    queue_id: QueueId
    queue_offset: PullOffset
    max_msg_nums: MessageCount
    sys_flag: PullSysFlag
    commit_offset: PullOffset
    suspend_timeout_millis: TimeoutMs
    subscription: str | None = None
    sub_version: Version
    expression_type: str | None = None
    max_msg_bytes: ByteCount | None = None
    request_source: RequestSource | None = None
    proxy_froward_client_id: str | None = None


class PullMessageResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to a pull, found or not.

    Attributes:
      suggest_which_broker_id: the broker id to pull from next; 0: the master.
      next_begin_offset: queue offset to pull next, in messages.
      min_offset: first queue offset.
      max_offset: queue offset of the next message that will be stored.
      offset_delta: to add to queue offsets, static topics only.
      topic_sys_flag: sysFlag of the topic (5.x).
      group_sys_flag: sysFlag of the group (5.x).
      forbidden_type: the setting that forbids the pull (5.x).
    """

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


class QueryMessageRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of QUERY_MESSAGE (12).

    Attributes:
      key: one of the message's KEYS, or its unique key.
      max_num: number of messages at most; ignored when `is_unique_key_query`.
      begin_timestamp: earliest store time, ms since 1970.
      end_timestamp: latest store time, ms since 1970.
      index_type: "K" by key, "U" by unique key, "T" by tag (5.5).
      last_key: the last key of an earlier answer, for an index in RocksDB (5.5).
      is_unique_key_query: the key is a unique key; wire `_UNIQUE_KEY_QUERY`, which Java sends
        beside its header.
    Source: RocketMQ 5.3.3 QueryMessageRequestHeader, MixAll.UNIQUE_MSG_QUERY_FLAG; recorded 5.5.0.
    """

    topic: str
    key: str
    max_num: MessageCount
    begin_timestamp: SearchedTimeMs
    end_timestamp: SearchedTimeMs
    index_type: str | None = None
    last_key: str | None = None
    is_unique_key_query: bool | None = msgspec.field(default=None, name="_UNIQUE_KEY_QUERY")


class QueryMessageResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to 12; both are 0 when nothing was found.

    Attributes:
      index_last_update_timestamp: store time of the newest message in the index, ms since 1970.
      index_last_update_phyoffset: its physical offset, bytes.
    """

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessageRequestHeader(Header, frozen=True, kw_only=True):
    """Request of VIEW_MESSAGE_BY_ID (33).

    Attributes:
      topic: of the message (5.x).
      offset: physical offset of the message.
    """

    topic: str | None = None
    offset: PhysicalOffset


class EndTransactionRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Request of END_TRANSACTION (37).

    Attributes:
      tran_state_table_offset: queue offset of the half message.
      commit_log_offset: physical offset of the half message.
      commit_or_rollback: sysFlag's transaction bits: 8 commit, 12 rollback, 0 unknown.
      from_transaction_check: it answers a check.
      msg_id, transaction_id: the message's unique key.
      topic: the topic that the message was sent to (5.x).
    Source: RocketMQ 5.5.0 EndTransactionRequestHeader.
    """

    producer_group: str
    tran_state_table_offset: TableOffset
    commit_log_offset: PhysicalOffset
    commit_or_rollback: TransactionState
    from_transaction_check: bool = False
    msg_id: str | None = None
    transaction_id: str | None = None
    topic: str | None = None


class CheckTransactionStateRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Request of CHECK_TRANSACTION_STATE (39), which a broker sends to a producer.

    Attributes:
      commit_log_offset: physical offset of the half message.
      topic: the topic that holds the half message, RMQ_SYS_TRANS_HALF_TOPIC (5.x).
      msg_id, transaction_id: the message's unique key.
      tran_state_table_offset: queue offset of the half message.
      offset_msg_id: offset id of the half message.
    Source: RocketMQ 5.5.0 CheckTransactionStateRequestHeader.
    """

    commit_log_offset: PhysicalOffset
    topic: str | None = None
    msg_id: str | None = None
    tran_state_table_offset: TableOffset
    offset_msg_id: str | None = None
    transaction_id: str | None = None


class ResumeCheckHalfMessageRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Request of RESUME_CHECK_HALF_MESSAGE (323).

    Attributes:
      msg_id: offset id of the message in TRANS_CHECK_MAX_TIME_TOPIC.
      topic: its topic (5.x).
    """

    msg_id: str
    topic: str | None = None
