"""Admission rules: the system topics and message properties that a request may write to.

The broker stores internal records as messages: half messages and their ends, delayed messages and
timer messages. It reads them back and trusts their content, so only the broker may write them. Each
table here says, for a request code, which kinds of topics and which properties a client may use.
Pure.

Java counterpart: common/topic/TopicValidator.java of 5.5, which forbids six topics and no property.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Final

from ...common.java_integers import INT32_MAX
from ...common.message_properties import (
    DELAY_NAME,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_POP_CK,
    PROPERTY_REAL_DUE_MS,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    REAL_QUEUE_ID_NAME,
    REAL_TOPIC_NAME,
    TIMER_OUT_NAME,
    UNIQUE_KEY_HEAD,
    change_properties,
    find_property,
)
from ...common.topic_names import (
    DLQ_TOPIC_PREFIX,
    OFFSET_MOVED_EVENT_TOPIC,
    RETRY_TOPIC_PREFIX,
    REVIVE_TOPIC_PREFIX,
    ROCKSDB_OFFSET_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    is_system_group,
)
from ...common.topic_validator import RETRY_OR_DLQ_TOPIC_LENGTH_MAX, refuse_topic
from ...native import extension
from ...remoting.message import MessageExt
from ...remoting.request_codes import RequestCode

_INT32_DIGITS: Final = 10
_is_plain_batch = None if extension is None else extension.is_plain_batch


class TopicKind(Enum):
    """The kind of a topic, by who writes to it and who reads it."""

    USER = "a user's topic"
    RETRY = "the retry topic of a group"
    DEAD_LETTER = "the dead letter topic of a group"
    CLIENT_SYSTEM = "a system topic that clients send to, such as the trace topic"
    NOTICE = "a system topic that the broker writes and people read"
    RECORDS = "a system topic that the broker writes and reads back"
    REVIVE = "records of pop consumption, which wait as timer messages"


RECORD_TOPICS: Final = frozenset(
    {SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, ROCKSDB_OFFSET_TOPIC}
)
NOTICE_TOPICS: Final = frozenset(
    {TRANS_CHECK_MAX_TIME_TOPIC, OFFSET_MOVED_EVENT_TOPIC, SELF_TEST_TOPIC}
)
CLOSED_TOPICS: Final = RECORD_TOPICS | NOTICE_TOPICS
"""Topics that no client may send to; other names with a system topic's prefix are closed, too."""
_TRACE_PREFIX: Final = "rmq_sys_TRACE_DATA_"
"""Trace topics of a region; clients send to them with AccessChannel.CLOUD."""

SENDABLE: Final = frozenset(
    {TopicKind.USER, TopicKind.RETRY, TopicKind.DEAD_LETTER, TopicKind.CLIENT_SYSTEM}
)
"""Kinds of topics that a client may send to."""

DELIVERABLE: Final = SENDABLE | {TopicKind.REVIVE}
"""Kinds of topics that a delayed, timer or half message may be delivered to."""

_ADMINISTERED: Final = frozenset({TopicKind.USER, TopicKind.RETRY, TopicKind.DEAD_LETTER})

TOPIC_RULES: Final[Mapping[RequestCode, frozenset[TopicKind]]] = {
    RequestCode.SEND_MESSAGE: SENDABLE,
    RequestCode.SEND_MESSAGE_V2: SENDABLE,
    # Of batches: they are stored as plain messages, but a retry topic's are checked one by one.
    RequestCode.SEND_BATCH_MESSAGE: SENDABLE - {TopicKind.RETRY},
    RequestCode.SEND_REPLY_MESSAGE: SENDABLE,
    RequestCode.SEND_REPLY_MESSAGE_V2: SENDABLE,
    # The topic of the record that is sent back: operators consume notices, too.
    RequestCode.CONSUMER_SEND_MSG_BACK: SENDABLE | {TopicKind.NOTICE},
    # The topic that the half message belongs to.
    RequestCode.END_TRANSACTION: SENDABLE,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: SENDABLE,
    # The topic that the handle names.
    RequestCode.RECALL_MESSAGE: SENDABLE,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _ADMINISTERED,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _ADMINISTERED,
    RequestCode.DELETE_TOPIC_IN_BROKER: _ADMINISTERED,
    # Tools read every topic and commit how far they have read.
    RequestCode.PULL_MESSAGE: frozenset(TopicKind),
    RequestCode.UPDATE_CONSUMER_OFFSET: frozenset(TopicKind),
}
"""The kinds of topics that a request may name; any other is refused."""


STRIPPED_NAMES: Final = (
    PROPERTY_REAL_TOPIC,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_DUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    "TRAN_PREPARED_QUEUE_OFFSET",
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    # The receipt of a pop: a message that is popped, and sent on, would be acknowledged by the
    # receipt of its first broker. Source: SendMessageProcessor.clearReservedProperties.
    PROPERTY_POP_CK,
)
"""Properties that only a broker sets. A client that forwards a received message may send them, too,
so the message is stored without them rather than refused."""

TIMER_NAMES: Final = (
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
)
"""Delivery times, in the order in which they take precedence."""

_WAITING_NAMES: Final = (
    *TIMER_NAMES,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TIMER_DEL_UNIQKEY,
)
"""Properties by which a client asks for a later delivery, or takes one back."""


_STRIPPED_TOKENS: Final = tuple((name, name.encode() + b"\1") for name in STRIPPED_NAMES)
_WAITING_TOKENS: Final = tuple((name, name.encode() + b"\1") for name in _WAITING_NAMES)
_BATCH_MARKS: Final = (b"TRAN", b"TIMER_", b"REAL_", b"INNER_", b"POP_CK")
"""Each name of the batch's rules but DELAY contains one of these."""


def is_special(properties: bytes, has_unique_key: bool) -> bool:
    """Quick test whether properties may need a rule's treatment, or delay or place the message.

    All those names but DELAY have an underscore, and in most messages UNIQ_KEY has the only one.

    Args:
      properties: encoded.
      has_unique_key: they contain `UNIQ_KEY` and the byte that ends a name.
    Returns: False: certainly not. True: perhaps.
    """
    if DELAY_NAME in properties:
        return True
    if has_unique_key and properties.count(b"_") == 1:
        return False
    return (
        b"TRAN" in properties
        or b"R_" in properties
        or b"L_" in properties
        or b"Y_" in properties  # a priority
        or b"P_" in properties  # a receipt
    )


def admitted(properties: bytes) -> bytes:
    """The properties of a message without those that only a broker sets.

    A message with TIMER_OUT_MS was delivered by the timer already, so its delivery time is removed,
    too: RocketMQ stores such a message at once, and it must not be delayed again.

    Args:
      properties: encoded.
    Source: the rule of TIMER_OUT_MS is that of HookUtils.checkIfTimerMessage.
    """
    removed = tuple(name for name, token in _STRIPPED_TOKENS if token in properties)
    if not removed:
        return properties
    if find_property(properties, TIMER_OUT_NAME) is not None:
        removed += TIMER_NAMES
    return change_properties(properties, {}, removed)


def may_break_batch_rules(body: bytes) -> bool:
    """Quick test whether a message of a batch may have a property that is removed or refused.

    Returns: False: certainly not. True: perhaps; see `is_special`.
    """
    if _is_plain_batch is not None and _is_plain_batch(body):
        return False
    if DELAY_NAME in body:
        return True
    if body.count(b"_") == body.count(UNIQUE_KEY_HEAD):
        return False
    return any(mark in body for mark in _BATCH_MARKS)


def refused_in_batch(properties: bytes) -> str | None:
    """The name of a property for which a batch is refused; None: the properties are allowed.

    TRAN_MSG is allowed, as in RocketMQ: no client sends half messages in a batch, but messages of
    committed transactions have it, and a batch may forward them.

    Args:
      properties: the result of `admitted`, of one message or of the batch. A delay of 0 counts as
        none.
    """
    for name, token in _WAITING_TOKENS:
        value = find_property(properties, token[:-1]) if token in properties else None
        if value not in (None, b"0"):
            return name
    return None


def may_commit_offset(group: str) -> bool:
    """Whether a client may set or remove the offsets of a consumer group.

    At its start the broker finds open transactions by the offsets of CID_RMQ_SYS_TRANS: a wrong
    offset hides them.

    Args:
      group: as the client names it.
    """
    return not is_system_group(group)


def own_offsets(group: str) -> str:
    """The remark of a refusal, code NO_PERMISSION, to set or remove a group's offsets."""
    return f"the offsets of the group[{group}] are the broker's own"


TOPICS_CACHED_MAX: Final = 1024
"""Topics of half messages whose check is cached, a few hundred bytes each; it takes 2 us."""


class NotDeliverableError(ValueError):
    """A delayed, timer or half message names no topic and queue that it may be delivered to.

    Such a message is skipped. The class is distinct so that no other ValueError skips a message.
    """


class TopicKinds:
    """The kinds of a broker's topics.

    Attributes:
      delivery_refusal: see `_delivery_refusal`; cached.

    Args:
      client_topics: names of topics that clients of this broker send to whatever their prefix is,
        such as the trace topic that its configuration names.
    """

    def __init__(self, *client_topics: str) -> None:
        self._client_topics = frozenset(client_topics)
        self.delivery_refusal = lru_cache(maxsize=TOPICS_CACHED_MAX)(self._delivery_refusal)

    def kind_of(self, topic: str) -> TopicKind:
        """The kind of a topic. An unknown name with a system topic's prefix is RECORDS, because a
        newer broker may keep records there.

        Args:
          topic: any name.
        """
        if topic in RECORD_TOPICS:
            return TopicKind.RECORDS
        if topic in NOTICE_TOPICS:
            return TopicKind.NOTICE
        if topic.startswith(RETRY_TOPIC_PREFIX):
            return TopicKind.RETRY
        if topic.startswith(DLQ_TOPIC_PREFIX):
            return TopicKind.DEAD_LETTER
        if topic.startswith(REVIVE_TOPIC_PREFIX):
            return TopicKind.REVIVE
        # Before the prefix below, which would make them the broker's own.
        if topic in self._client_topics or topic.startswith(_TRACE_PREFIX):
            return TopicKind.CLIENT_SYSTEM
        if topic.startswith(SYSTEM_TOPIC_PREFIX):
            return TopicKind.RECORDS
        return TopicKind.CLIENT_SYSTEM if topic in SYSTEM_TOPICS else TopicKind.USER

    def may_name(self, code: RequestCode, topic: str) -> bool:
        """Whether a request may name a topic; see TOPIC_RULES, which must have the code."""
        return self.kind_of(topic) in TOPIC_RULES[code]

    def real_place(self, waiting: MessageExt) -> tuple[str, int]:
        """The topic and queue that a delayed, timer or half message was sent to.

        An older version let clients write such records, so the content is checked again.

        Args:
          waiting: a half message, a delayed message or a timer message.
        Raises: NotDeliverableError: the record names no topic and queue, or a topic that no message
          may be delivered to; the message names the topic.
        """
        topic, queue_id = real_place(waiting)
        reason = self.delivery_refusal(topic)
        if reason is not None:
            raise NotDeliverableError(reason)
        return topic, queue_id

    def _delivery_refusal(self, topic: str) -> str | None:
        """The reason why no message may be delivered to a topic; None: messages may."""
        kind = self.kind_of(topic)
        if kind not in DELIVERABLE:
            return f"it belongs to {topic}, {kind.value}, to which no message may be delivered"
        return refuse_topic(topic, length_max=RETRY_OR_DLQ_TOPIC_LENGTH_MAX)


def real_place(waiting: MessageExt) -> tuple[str, int]:
    """The topic and queue that a record names, unchecked; `TopicKinds.real_place` checks them.

    Raises: NotDeliverableError: the record names none.
    """
    topic, text = waiting.find(REAL_TOPIC_NAME), waiting.find(REAL_QUEUE_ID_NAME)
    if topic is not None and text is not None and text.isdecimal() and len(text) <= _INT32_DIGITS:
        queue_id = int(text)
        if queue_id <= INT32_MAX:
            return topic, queue_id
    raise NotDeliverableError(f"REAL_TOPIC is {topic!r}, REAL_QID is {text and text[:40]!r}")
