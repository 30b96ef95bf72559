"""Checks of topics, groups and messages, and the names that RocketMQ makes of them.

Java counterpart: Validators, TopicValidator, MixAll of RocketMQ 5.3.3. Pure. All checks raise
ValueError with a text that says what is wrong and what to do.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from ...common.topic_names import (
    DLQ_TOPIC_PREFIX,
    NOT_ALLOWED_SEND_TOPICS,
    RETRY_TOPIC_PREFIX,
    TOPIC_LENGTH_MAX,
)
from ...remoting.message_codec import PROPERTIES_SIZE_MAX

GROUP_LENGTH_MAX: Final = 255
"""Characters of a group's name; RocketMQ 5.5 takes 120. Source: Validators of 5.3.3."""
MESSAGE_SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes of a message's body; a broker's maxMessageSize is the same by default.

Source: DefaultMQProducer.maxMessageSize.
"""
DEFAULT_PRODUCER_GROUP: Final = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP: Final = "DEFAULT_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
"""The producer that every client has, for messages that a consumer sends back."""

_ILLEGAL: Final = re.compile(r"[^%|a-zA-Z0-9_-]", re.ASCII)
_ALLOWED_TEXT: Final = "letters a-z and A-Z, digits, and the characters % | _ -"
_SHOWN_CHARS_MAX: Final = 60
_CHECKED_COUNT_MAX: Final = 1024


def dlq_topic(group: str) -> str:
    """The topic of messages that a group gave up. Source: MixAll.getDLQTopic."""
    return DLQ_TOPIC_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    """Whether a topic is a group's retry topic."""
    return topic.startswith(RETRY_TOPIC_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    """Whether a topic holds what a group gave up."""
    return topic.startswith(DLQ_TOPIC_PREFIX)


def check_topic(topic: str) -> None:
    """Refuse a topic's name that brokers would refuse.

    Raises: ValueError: blank, longer than `TOPIC_LENGTH_MAX`, or an illegal character.
    Source: Validators.checkTopic.
    """
    _check_name("topic", topic, TOPIC_LENGTH_MAX)


def check_group(group: str) -> None:
    """Refuse a group's name that brokers would refuse.

    Raises: ValueError: blank, longer than `GROUP_LENGTH_MAX`, or an illegal character.
    Source: Validators.checkGroup.
    """
    _check_name("group", group, GROUP_LENGTH_MAX)


def check_producer_group(group: str) -> None:
    """As `check_group`, for a producer. Raises: ValueError: also for RocketMQ's placeholder.

    Source: DefaultMQProducerImpl.checkConfig.
    """
    _check_own_group(group, DEFAULT_PRODUCER_GROUP)


def check_consumer_group(group: str) -> None:
    """As `check_group`, for a consumer. Raises: ValueError: also for RocketMQ's placeholder.

    Source: DefaultMQPushConsumerImpl.checkConfig.
    """
    _check_own_group(group, DEFAULT_CONSUMER_GROUP)


def _check_own_group(group: str, placeholder: str) -> None:
    check_group(group)
    if group == placeholder:
        raise ValueError(f"the group {group} is RocketMQ's placeholder: name your own")


@lru_cache(maxsize=_CHECKED_COUNT_MAX)
def check_send_topic(topic: str) -> None:
    """Refuse a topic that a producer may not send to. Cheap for topics that passed before.

    Raises: ValueError: as `check_topic`, or only a broker itself writes to it.
    Source: Validators.checkTopic, isNotAllowedSendTopic.
    """
    check_topic(topic)
    if topic in NOT_ALLOWED_SEND_TOPICS:
        raise ValueError(
            f"the topic {topic} belongs to RocketMQ itself, and a send to it is forbidden: use"
            " another topic"
        )


def check_body(topic: str, body: bytes | None, body_size_max: int) -> None:
    """Refuse a body that brokers would refuse.

    Args:
      topic: for the text.
      body: before compression.
      body_size_max: bytes; as the brokers' maxMessageSize, or less.
    Raises: ValueError: there is none, it is empty, or too large.
    """
    if not body:
        what = "has no body" if body is None else "has an empty body"
        raise ValueError(f"the message for topic {topic} {what}: brokers take at least one byte")
    if len(body) > body_size_max:
        raise ValueError(
            f"the message for topic {topic} has a body of {len(body)} bytes, at most"
            f" {body_size_max} are allowed: send less, or raise message_size_max here and"
            " maxMessageSize in the brokers"
        )


def check_properties_size(size: int) -> None:
    """Refuse properties that do not fit a record.

    Args:
      size: bytes of the encoded properties.
    Raises: ValueError: more than `PROPERTIES_SIZE_MAX`.
    """
    if size > PROPERTIES_SIZE_MAX:
        raise ValueError(
            f"the message's properties have {size} bytes, at most {PROPERTIES_SIZE_MAX} are"
            " allowed: put large values into the body"
        )


def _check_name(kind: str, name: str, length_max: int) -> None:
    if not name or name.isspace():
        raise ValueError(f"the {kind}'s name is blank: give it a name of {_ALLOWED_TEXT}")
    shown = repr(name if len(name) <= _SHOWN_CHARS_MAX else name[:_SHOWN_CHARS_MAX] + "…")
    illegal = _ILLEGAL.search(name)
    if illegal is not None:
        raise ValueError(
            f"the {kind} {shown} has an illegal character {illegal[0]!r} at position"
            f" {illegal.start()}: allowed are {_ALLOWED_TEXT}"
        )
    if len(name) > length_max:
        raise ValueError(
            f"the {kind} {shown} has {len(name)} characters, at most {length_max} are allowed"
        )
