"""Rules: the limits of the gRPC service, and the checks of names, times and texts.

Source: proxy/config/ProxyConfig.java, proxy/grpc/v2/common/GrpcValidator.java of 5.5.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ..common.message_properties import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_ID,
    SYSTEM_PROPERTIES,
)
from ..common.topic_names import TOPIC_LENGTH_MAX, is_system_group, is_system_topic
from ..common.topic_validator import ALLOWED_TEXT, GROUP_LENGTH_MAX, has_allowed_characters
from ..grpc_protocol.enums import Code
from ..grpc_protocol.fields import BORN_HOST, LITE_TOPIC, TRACE_CONTEXT
from .refused import Refused

RESERVED_PROPERTIES: Final = (SYSTEM_PROPERTIES | {BORN_HOST, "BORN_TIMESTAMP", LITE_TOPIC}) - {
    PROPERTY_SHARDING_KEY,
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
}
"""Names that are no user property's in sends.

Source: MessageConst.STRING_HASH_SET of 5.5.0, and names that only brokers use.
"""

HIDDEN_PROPERTIES: Final = RESERVED_PROPERTIES - {
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_ID,
}
"""Names that are no user property's in what is received."""

_UNUSUAL_NAMES: Final = frozenset(
    name.encode() for name in (*RESERVED_PROPERTIES, PROPERTY_SHARDING_KEY, TRACE_CONTEXT)
)
"""Names of a user's properties that are refused, or that fields of the message may have, too."""

HIDDEN_NAMES: Final = frozenset(name.encode() for name in HIDDEN_PROPERTIES)


class SendLimits(NamedTuple):
    """What the C extension compares a message with.

    Attributes:
      reserved: names of properties whose messages are not read.
      properties_count_max, properties_size_max: of the user's properties.
      message_group_size_max: the length that a message group must be below.
    """

    reserved: frozenset[bytes]
    properties_count_max: int
    properties_size_max: int
    message_group_size_max: int


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits, with the names and defaults of Apache's proxy; times in ms, sizes in bytes.

    Attributes:
      max_message_size: of a body.
      user_property_max_num, max_user_property_size: of one message.
      max_message_group_size: the length that a message group must be below.
      max_lite_topic_size: the length of the name of a lite topic.
      min_invisible_time_mills_for_recv, max_invisible_time_mills: that a receive may ask for.
      renew_slice_time_millis: the invisible time of a receive that has it renewed.
      max_delay_time_mills: until a message is due; 0 or less: no limit of the service.
      max_transaction_recovery_second: until the first check of a transaction.
      grpc_client_consumer_min_long_polling_timeout_millis,
      grpc_client_consumer_max_long_polling_timeout_millis: how long a receive waits.
      grpc_client_consumer_long_polling_batch_size: messages of one receive, for settings.
      send_limits: those of a message that the C extension reads.
    """

    max_message_size: int = 4 * 1024 * 1024
    user_property_max_num: int = 128
    max_user_property_size: int = 16 * 1024
    max_message_group_size: int = 64
    max_lite_topic_size: int = 64
    min_invisible_time_mills_for_recv: int = 10_000
    max_invisible_time_mills: int = 12 * 3_600_000
    renew_slice_time_millis: int = 60_000
    max_delay_time_mills: int = 24 * 3_600_000
    max_transaction_recovery_second: int = 3_600
    grpc_client_consumer_min_long_polling_timeout_millis: int = 5_000
    grpc_client_consumer_max_long_polling_timeout_millis: int = 20_000
    grpc_client_consumer_long_polling_batch_size: int = 32
    send_limits: SendLimits = field(init=False)

    def __post_init__(self) -> None:
        limits = SendLimits(
            _UNUSUAL_NAMES,
            self.user_property_max_num,
            self.max_user_property_size,
            self.max_message_group_size,
        )
        object.__setattr__(self, "send_limits", limits)


CHECKED_NAMES_MAX: Final = 1_024
"""Names of topics, and of groups, whose check is remembered, each of some KB at most."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def topic_of(resource: Any) -> str:
    """The name of a topic that clients may use; its namespace is not looked at, as by the proxy.

    Args:
      resource: a message Resource.
    Raises: Refused: ILLEGAL_TOPIC.
    """
    topic: str = resource.name
    check_topic(topic)
    return topic


def check_topic(topic: str) -> None:
    """Refuse a name of a topic that clients may not use. Raises: Refused: ILLEGAL_TOPIC."""
    refusal = _why_no_topic(topic)
    if refusal is not None:
        raise Refused(Code.ILLEGAL_TOPIC, refusal)


@lru_cache(maxsize=CHECKED_NAMES_MAX)
def _why_no_topic(topic: str) -> str | None:
    """Source: the client's Validators.checkTopic, whose texts are not those of brokers."""
    if not topic.strip():
        return "The specified topic is blank"
    if len(topic) > TOPIC_LENGTH_MAX:
        return f"The specified topic is longer than topic max length {TOPIC_LENGTH_MAX}."
    if not has_allowed_characters(topic):
        allowed = f"allowing only {ALLOWED_TEXT}"
        return f"The specified topic[{topic}] contains illegal characters, {allowed}"
    return "cannot access system topic" if is_system_topic(topic) else None


def group_of(resource: Any) -> str:
    """The name of a group that clients may use. Raises: Refused: ILLEGAL_CONSUMER_GROUP."""
    group: str = resource.name
    check_group(group)
    return group


def check_group(group: str) -> None:
    """Refuse a name of a group that clients may not use. Raises: Refused."""
    refusal = _why_no_group(group)
    if refusal is not None:
        raise Refused(Code.ILLEGAL_CONSUMER_GROUP, refusal)


@lru_cache(maxsize=CHECKED_NAMES_MAX)
def _why_no_group(group: str) -> str | None:
    """Source: the client's Validators.checkGroup."""
    if not group.strip():
        return "the specified group is blank"
    if len(group) > GROUP_LENGTH_MAX:
        return f"the specified group[{group}] is longer than group max length: {GROUP_LENGTH_MAX}."
    if not has_allowed_characters(group):
        allowed = f"allowing only {ALLOWED_TEXT}"
        return f"the specified group[{group}] contains illegal characters, {allowed}"
    return "cannot use system consumer group" if is_system_group(group) else None


def check_invisible_time(invisible_ms: int, least_ms: int, most_ms: int) -> None:
    """Refuse an invisible time outside of a range; `most_ms` of 0 or less is no limit."""
    if invisible_ms < least_ms:
        text = f"the invisibleTime is too small. min is {least_ms}"
        raise Refused(Code.ILLEGAL_INVISIBLE_TIME, text)
    if invisible_ms > most_ms > 0:
        text = f"the invisibleTime is too large. max is {most_ms}"
        raise Refused(Code.ILLEGAL_INVISIBLE_TIME, text)


def has_control_character(text: str) -> bool:
    """Whether a text has an ISO control character, as CharMatcher.javaIsoControl has it."""
    return _CONTROL.search(text) is not None
