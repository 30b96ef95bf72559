"""Validation of topic and group names on a broker.

Every name from a client is validated before anything is created for it: a topic's name becomes the
name of a folder. The remarks are RocketMQ's, because users read them in the client.

Java counterpart: common/topic/TopicValidator.java of 5.5 (groups up to 120 characters), and of
5.3.3. Pure.
"""

from __future__ import annotations

import re
from typing import Final

from .topic_names import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX, TOPIC_LENGTH_MAX

RETRY_OR_DLQ_TOPIC_LENGTH_MAX: Final = 255
"""Characters of a %RETRY% or %DLQ% topic's name: the longest name of a folder."""
GROUP_LENGTH_MAX: Final = 120
"""Characters of a group's name: with its prefix it must fit a retry topic."""

_ALLOWED: Final = re.compile(r"[%|a-zA-Z0-9_-]*", re.ASCII)
ALLOWED_TEXT: Final = "^[%|a-zA-Z0-9_-]+$"
"""The pattern of these names, as texts for users have it."""


def has_allowed_characters(name: str) -> bool:
    """Whether a name has only characters that names of topics and groups may have."""
    return _ALLOWED.fullmatch(name) is not None


def refuse_topic(topic: str | None, *, length_max: int = TOPIC_LENGTH_MAX) -> str | None:
    """Why a topic may not have this name.

    Args:
      topic: the received name; None: it is missing.
      length_max: characters of a name that is neither of a retry nor of a DLQ topic.
    Returns: RocketMQ's remark (for INVALID_PARAMETER); None: the name is valid.
    Source: TopicValidator.validateTopic.
    """
    if topic is None or not topic.strip():
        return "The specified topic is blank."
    if not has_allowed_characters(topic):
        return (
            f"The specified topic: {topic}, contains illegal characters, "
            f"allowing only {ALLOWED_TEXT}"
        )
    if topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX)):
        if len(topic) > RETRY_OR_DLQ_TOPIC_LENGTH_MAX:
            return (
                f"The specified topic is DLQ or Retry topic: {topic}, "
                f"and it's longer than topic max length: {RETRY_OR_DLQ_TOPIC_LENGTH_MAX}"
            )
    elif len(topic) > length_max:
        return f"The specified topic: {topic}, is longer than topic max length: {length_max}"
    return None


def refuse_group(group: str | None) -> str | None:
    """Why a consumer group may not have this name.

    Args:
      group: the received name; None: it is missing.
    Returns: RocketMQ's remark (for INVALID_PARAMETER); None: the name is valid.
    Source: TopicValidator.validateGroup of 5.5.
    """
    if group is None or not group.strip():
        return "The specified group is blank."
    if _ALLOWED.fullmatch(group) is None:
        return (
            f"The specified group: {group}, contains illegal characters, "
            f"allowing only {ALLOWED_TEXT}"
        )
    if len(group) > GROUP_LENGTH_MAX:
        return f"The specified group: {group}, is longer than group max length: {GROUP_LENGTH_MAX}"
    return None
