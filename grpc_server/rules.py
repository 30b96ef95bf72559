"""Rules: the limits of the gRPC service, and the checks of names, times and texts.

Source: proxy/config/ProxyConfig.java, proxy/grpc/v2/common/GrpcValidator.java of 5.5.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ..common.topic_names import is_system_group, is_system_topic
from ..common.topic_validator import refuse_group, refuse_topic
from ..grpc_protocol.enums import Code
from .refused import Refused


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits, with the names and defaults of Apache's proxy; times in ms, sizes in bytes.

    Attributes:
      max_message_size: of a body.
      user_property_max_num, max_user_property_size: of one message.
      max_message_group_size: the length that a message group must be below.
      min_invisible_time_mills_for_recv, max_invisible_time_mills: that a receive may ask for.
      renew_slice_time_millis: the invisible time of a receive that has it renewed.
      max_delay_time_mills: until a message is due; 0 or less: no limit of the service.
      max_transaction_recovery_second: until the first check of a transaction.
      grpc_client_consumer_min_long_polling_timeout_millis,
      grpc_client_consumer_max_long_polling_timeout_millis: how long a receive waits.
      grpc_client_consumer_long_polling_batch_size: messages of one receive, for settings.
    """

    max_message_size: int = 4 * 1024 * 1024
    user_property_max_num: int = 128
    max_user_property_size: int = 16 * 1024
    max_message_group_size: int = 64
    min_invisible_time_mills_for_recv: int = 10_000
    max_invisible_time_mills: int = 12 * 3_600_000
    renew_slice_time_millis: int = 60_000
    max_delay_time_mills: int = 24 * 3_600_000
    max_transaction_recovery_second: int = 3_600
    grpc_client_consumer_min_long_polling_timeout_millis: int = 5_000
    grpc_client_consumer_max_long_polling_timeout_millis: int = 20_000
    grpc_client_consumer_long_polling_batch_size: int = 32


CHECKED_TOPICS_MAX: Final = 1_024
"""Names of topics whose check is remembered, each of some KB at most."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def full_name(resource: Any) -> str:
    """The name of a topic or group, with its namespace, as brokers know it.

    Args:
      resource: a message Resource.
    Source: NamespaceUtil.wrapNamespace.
    """
    namespace, name = resource.resource_namespace, resource.name
    return f"{namespace}%{name}" if namespace else str(name)


def topic_of(resource: Any) -> str:
    """The name of a topic that clients may use. Raises: Refused: ILLEGAL_TOPIC."""
    topic = full_name(resource)
    refusal = _why_no_topic(topic)
    if refusal is not None:
        raise Refused(Code.ILLEGAL_TOPIC, refusal)
    return topic


@lru_cache(maxsize=CHECKED_TOPICS_MAX)
def _why_no_topic(topic: str) -> str | None:
    refusal = refuse_topic(topic)
    if refusal is None and is_system_topic(topic):
        return "cannot access system topic"
    return refusal


def group_of(resource: Any) -> str:
    """The name of a group that clients may use. Raises: Refused: ILLEGAL_CONSUMER_GROUP."""
    group = full_name(resource)
    refusal = refuse_group(group)
    if refusal is not None:
        raise Refused(Code.ILLEGAL_CONSUMER_GROUP, refusal)
    if is_system_group(group):
        raise Refused(Code.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group")
    return group


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


def milliseconds(time: Any) -> int:
    """Of a Timestamp or a Duration, rounded down."""
    return int(time.seconds) * 1000 + int(time.nanos) // 1_000_000
