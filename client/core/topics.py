"""Checks of topics, groups and messages, and the names of retry and DLQ topics.

Java counterpart: Validators, TopicValidator, MixAll of RocketMQ 5.3.3. Pure. The checks raise
ValueError, whose text says what is wrong and what to do.
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
"""Largest length of a group's name; in RocketMQ 5.5 it is 120. Source: Validators of 5.3.3."""
MESSAGE_SIZE_MAX: Final = 4 * 1024 * 1024
"""Default limit of a body's size in bytes; the same as maxMessageSize of brokers.

Source: DefaultMQProducer.maxMessageSize.
"""
DEFAULT_PRODUCER_GROUP: Final = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP: Final = "DEFAULT_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
"""Group of the producer that sends consumed messages to retry topics."""

_ILLEGAL: Final = re.compile(r"[^%|a-zA-Z0-9_-]", re.ASCII)
_ALLOWED_TEXT: Final = "letters a-z and A-Z, digits, and the characters % | _ -"
_EXAMPLES: Final = {"topic": "'orders'", "group": "'billing'"}
_SHOWN_CHARS_MAX: Final = 60
_CHECKED_COUNT_MAX: Final = 1024


def dlq_topic(group: str) -> str:
    """The dead-letter topic of a group. Source: MixAll.getDLQTopic."""
    return DLQ_TOPIC_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    """Whether a topic is the retry topic of a group."""
    return topic.startswith(RETRY_TOPIC_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    """Whether a topic is the dead-letter topic of a group."""
    return topic.startswith(DLQ_TOPIC_PREFIX)


def check_topic(topic: str) -> None:
    """Check that brokers would accept the name of a topic.

    Raises: ValueError: it is blank, longer than `TOPIC_LENGTH_MAX`, or has an illegal character.
    Source: Validators.checkTopic.
    """
    _check_name("topic", topic, TOPIC_LENGTH_MAX)


def check_group(group: str) -> None:
    """Check that brokers would accept the name of a group.

    Raises: ValueError: it is blank, longer than `GROUP_LENGTH_MAX`, or has an illegal character.
    Source: Validators.checkGroup.
    """
    _check_name("group", group, GROUP_LENGTH_MAX)


def check_producer_group(group: str) -> None:
    """Check the name of a producer's group.

    Raises: ValueError: as `check_group`, or it is RocketMQ's placeholder DEFAULT_PRODUCER.
    Source: DefaultMQProducerImpl.checkConfig.
    """
    _check_own_group(group, DEFAULT_PRODUCER_GROUP)


def check_consumer_group(group: str) -> None:
    """Check the name of a consumer's group.

    Raises: ValueError: as `check_group`, or it is RocketMQ's placeholder DEFAULT_CONSUMER.
    Source: DefaultMQPushConsumerImpl.checkConfig.
    """
    _check_own_group(group, DEFAULT_CONSUMER_GROUP)


def _check_own_group(group: str, placeholder: str) -> None:
    check_group(group)
    if group == placeholder:
        raise ValueError(f"the group {group} is a placeholder of RocketMQ: choose another name")


@lru_cache(maxsize=_CHECKED_COUNT_MAX)
def check_send_topic(topic: str) -> None:
    """Check that a producer may send to a topic; results are cached.

    Raises: ValueError: as `check_topic`, or only brokers may write to it.
    Source: Validators.checkTopic, isNotAllowedSendTopic.
    """
    check_topic(topic)
    if topic in NOT_ALLOWED_SEND_TOPICS:
        raise ValueError(
            f"the topic {topic} is reserved for RocketMQ, and sending to it is forbidden: use"
            " another topic"
        )


def check_body(topic: str, body: bytes | None, body_size_max: int) -> None:
    """Check that brokers would accept a body.

    Args:
      topic: topic of the message, for the error message.
      body: the body before compression.
      body_size_max: largest size in bytes; at most maxMessageSize of the brokers.

    Raises: ValueError: there is no body, or it is empty or too large.
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
    """Check that properties fit into a record.

    Args:
      size: size of the encoded properties in bytes.

    Raises: ValueError: it is more than `PROPERTIES_SIZE_MAX`.
    """
    if size > PROPERTIES_SIZE_MAX:
        raise ValueError(
            f"the message's properties have {size} bytes, at most {PROPERTIES_SIZE_MAX} are"
            " allowed: put large values into the body"
        )


def _check_name(kind: str, name: object, length_max: int) -> None:
    if not isinstance(name, str):
        raise ValueError(f"the {kind} is {name!r}: give its name as str, such as {_EXAMPLES[kind]}")
    if not name or name.isspace():
        raise ValueError(f"the {kind}'s name is blank: give it a name of {_ALLOWED_TEXT}")
    shown = repr(name if len(name) <= _SHOWN_CHARS_MAX else name[:_SHOWN_CHARS_MAX] + "…")
    illegal = _ILLEGAL.search(name)
    if illegal is not None:
        raise ValueError(
            f"the {kind} {shown} has an illegal character {illegal[0]!r} at position"
            f" {illegal.start()}: allowed are {_ALLOWED_TEXT}, as in"
            f" {_ILLEGAL.sub('_', name[:_SHOWN_CHARS_MAX])!r}"
        )
    if len(name) > length_max:
        raise ValueError(
            f"the {kind} {shown} has {len(name)} characters, at most {length_max} are allowed"
        )
