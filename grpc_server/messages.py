"""Messages: from a client's to the fields of a send, and from a record to a client's.

Source: SendMessageActivity.java and GrpcConverter.java of proxy/grpc/v2, RocketMQ 5.5.0. Pure.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from ..common import message_properties as names
from ..grpc_protocol.enums import Code, DigestType, Encoding, MessageType
from ..grpc_protocol.schema import Messages
from ..remoting.compression import decompress
from ..remoting.message import MessageExt
from ..remoting.sys_flag import COMPRESSED, TRANSACTION_PREPARED_TYPE
from .refused import Refused
from .rules import Rules, has_control_character, milliseconds

TRACE_CONTEXT: Final = "TRACE_CONTEXT"
BORN_HOST: Final = "__BORNHOST"
LITE_TOPIC: Final = "__LITE_TOPIC"

RESERVED_PROPERTIES: Final = names.SYSTEM_PROPERTIES | {TRACE_CONTEXT, BORN_HOST, LITE_TOPIC}
"""Names that are no user property's."""

_DELAYS: Final = frozenset(
    {
        names.PROPERTY_DELAY_TIME_LEVEL,
        names.PROPERTY_TIMER_DELIVER_MS,
        names.PROPERTY_TIMER_DELAY_SEC,
        names.PROPERTY_TIMER_DELAY_MS,
    }
)
"""Properties of which a delayed message has one."""

_GZIP: Final = b"\x1f\x8b"


def type_of(system: Any) -> MessageType:
    """The type of a client's message, by its fields: what the broker will make of it.

    Args:
      system: its SystemProperties. To read a field of a message costs as much as a short function.
    """
    if system.message_type == MessageType.TRANSACTION:
        return MessageType.TRANSACTION
    if system.HasField("lite_topic"):
        return MessageType.LITE
    if system.HasField("priority"):
        return MessageType.PRIORITY
    if system.HasField("delivery_timestamp"):
        return MessageType.DELAY
    return MessageType.FIFO if system.message_group else MessageType.NORMAL


def sys_flag_of(system: Any) -> int:
    """The flag of a client's message, of its SystemProperties."""
    flag = COMPRESSED if system.body_encoding == Encoding.GZIP else 0
    if system.message_type == MessageType.TRANSACTION:
        flag |= TRANSACTION_PREPARED_TYPE
    return flag


def send_properties(
    message: Any, system: Any, group: str, rules: Rules, now_ms: int
) -> dict[str, str]:
    """The properties of a client's message, as a send has them.

    Args:
      message: a message Message; `system`: its SystemProperties.
      group: the value of PGROUP.
      now_ms: the time of day, ms since 1970.
    Raises: Refused: a field has a value that the proxy refuses.
    """
    properties = _user_properties(message.user_properties, rules)
    if system.tag:
        properties[names.PROPERTY_TAGS] = _checked_tag(system.tag)
    if system.keys:
        properties[names.PROPERTY_KEYS] = names.KEY_SEPARATOR.join(map(_checked_key, system.keys))
    if not system.message_id.strip():
        raise Refused(Code.ILLEGAL_MESSAGE_ID, "message id cannot be blank")
    properties[names.PROPERTY_UNIQUE_KEY] = system.message_id
    if system.message_type == MessageType.TRANSACTION:
        properties |= _transaction(system, rules)
    if system.HasField("delivery_timestamp"):
        due_ms = milliseconds(system.delivery_timestamp)
        if rules.max_delay_time_mills > 0 and due_ms - now_ms > rules.max_delay_time_mills:
            text = (
                f"the max delay time of message is too large, max is {rules.max_delay_time_mills}"
            )
            raise Refused(Code.ILLEGAL_DELIVERY_TIME, text)
        properties[names.PROPERTY_TIMER_DELIVER_MS] = str(due_ms)
    if system.delivery_attempt:
        properties[names.PROPERTY_RECONSUME_TIME] = str(system.delivery_attempt)
    properties[names.PROPERTY_PRODUCER_GROUP] = group
    if system.message_group:
        properties[names.PROPERTY_SHARDING_KEY] = _checked_message_group(
            system.message_group, rules
        )
    if system.HasField("priority"):
        if system.priority < 0:
            raise Refused(Code.BAD_REQUEST, "the priority must be greater than or equal to 0")
        properties[names.PROPERTY_PRIORITY] = str(system.priority)
    if system.trace_context:
        properties[TRACE_CONTEXT] = system.trace_context
    if system.born_host:
        properties[BORN_HOST] = system.born_host
    return properties


def _user_properties(given: Any, rules: Rules) -> dict[str, str]:
    if len(given) > rules.user_property_max_num:
        text = f"too many user properties, max is {rules.user_property_max_num}"
        raise Refused(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    properties: dict[str, str] = {}
    size = 0
    for name, value in given.items():
        if name in RESERVED_PROPERTIES:
            text = f"property is used by system: {name}"
            raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
        if has_control_character(name):
            text = "the key of property cannot contain control character"
            raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
        if has_control_character(value):
            text = "the value of property cannot contain control character"
            raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
        size += len(name.encode()) + len(value.encode())
        properties[name] = value
    if size > rules.max_user_property_size:
        text = (
            f"the total size of user property is too large, max is {rules.max_user_property_size}"
        )
        raise Refused(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    return properties


def _checked_tag(tag: str) -> str:
    if not tag.strip():
        text = "tag cannot be the char sequence of whitespace"
    elif "|" in tag:
        text = "tag cannot contain '|'"
    elif has_control_character(tag):
        text = "tag cannot contain control character"
    else:
        return tag
    raise Refused(Code.ILLEGAL_MESSAGE_TAG, text)


def _checked_key(key: str) -> str:
    if not key.strip():
        text = "key cannot be the char sequence of whitespace"
        raise Refused(Code.ILLEGAL_MESSAGE_KEY, text)
    if has_control_character(key):
        raise Refused(Code.ILLEGAL_MESSAGE_KEY, "key cannot contain control character")
    return key


def _checked_message_group(group: str, rules: Rules) -> str:
    if not group.strip():
        text = "message group cannot be the char sequence of whitespace"
    elif len(group.encode()) >= rules.max_message_group_size:
        text = f"message group exceed the max size {rules.max_message_group_size}"
    elif has_control_character(group):
        text = "message group cannot contain control character"
    else:
        return group
    raise Refused(Code.ILLEGAL_MESSAGE_GROUP, text)


def _transaction(system: Any, rules: Rules) -> dict[str, str]:
    properties = {names.PROPERTY_TRANSACTION_PREPARED: "true"}
    if system.HasField("orphaned_transaction_recovery_duration"):
        seconds = system.orphaned_transaction_recovery_duration.seconds
        if seconds > rules.max_transaction_recovery_second:
            text = f"the max transaction recovery time is {rules.max_transaction_recovery_second}s"
            raise Refused(Code.BAD_REQUEST, text)
        properties[names.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS] = str(seconds)
    return properties


def readable_body(record: MessageExt) -> tuple[bytes, Encoding]:
    """The body of a record, in an encoding that every gRPC client reads.

    Raises: RemoteProtocolError: the body is damaged. MissingPackageError: it is compressed in a way
      that needs a package.

    Clients know gzip, some zlib, none LZ4 and Zstandard, though all are labelled GZIP by Apache's
    proxy in local mode.
    """
    if not record.sys_flag & COMPRESSED:
        return record.body, Encoding.IDENTITY
    if record.body.startswith(_GZIP):
        return record.body, Encoding.GZIP
    return decompress(record.body, record.sys_flag), Encoding.IDENTITY


def received_message(
    messages: Messages, record: MessageExt, topic: str, *, attempt: int, invisible_ms: int
) -> Any:
    """A record as clients receive it.

    Args:
      record: not decompressed.
      topic: as it was asked for.
      attempt: which delivery this is, from 1 on.
      invisible_ms: how long the message is the client's; 0: it was not popped.
    Returns: a message Message, without its receipt handle.
    Raises: see `readable_body`.
    """
    body, encoding = readable_body(record)
    properties = record.properties
    message = messages.Message(body=body)
    set_resource(message.topic, topic)
    for name, value in properties.items():
        if name not in RESERVED_PROPERTIES:
            message.user_properties[name] = value
    system = message.system_properties
    system.message_id = record.unique_key or record.offset_message_id
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    system.body_digest.type, system.body_digest.checksum = DigestType.MD5, digest
    system.body_encoding = encoding
    system.message_type = _type_of_record(properties)
    set_time(system.born_timestamp, record.born_timestamp_ms)
    system.born_host = properties.get(BORN_HOST) or record.born_host_text
    set_time(system.store_timestamp, record.store_timestamp_ms)
    system.store_host = record.store_host_text
    system.queue_id, system.queue_offset = record.queue_id, record.queue_offset
    system.delivery_attempt = attempt
    if invisible_ms:
        set_time(system.invisible_duration, invisible_ms)
    _set_optional(system, properties)
    return message


def _set_optional(system: Any, properties: dict[str, str]) -> None:
    tag, keys = properties.get(names.PROPERTY_TAGS), properties.get(names.PROPERTY_KEYS)
    if tag is not None:
        system.tag = tag
    if keys:
        system.keys.extend(names.split_keys(keys))
    due = properties.get(names.PROPERTY_TIMER_DELIVER_MS, "")
    if due.isascii() and due.isdecimal() and len(due) <= 15:
        system.delivery_timestamp.FromMilliseconds(int(due))
    group = properties.get(names.PROPERTY_SHARDING_KEY)
    if group is not None:
        system.message_group = group
    trace_context = properties.get(TRACE_CONTEXT)
    if trace_context is not None:
        system.trace_context = trace_context
    priority = properties.get(names.PROPERTY_PRIORITY, "")
    if priority.isascii() and priority.isdecimal() and len(priority) < 10:
        system.priority = int(priority)
    lite_topic = properties.get(LITE_TOPIC)
    if lite_topic is not None:
        system.lite_topic = lite_topic
    origin = properties.get(names.PROPERTY_DLQ_ORIGIN_TOPIC)
    origin_id = properties.get(names.PROPERTY_DLQ_ORIGIN_MESSAGE_ID)
    if origin is not None and origin_id is not None:
        system.dead_letter_queue.topic = origin
        system.dead_letter_queue.message_id = origin_id


def _type_of_record(properties: dict[str, str]) -> MessageType:
    if properties.get(names.PROPERTY_TRANSACTION_PREPARED) == "true":
        return MessageType.TRANSACTION
    if not _DELAYS.isdisjoint(properties):
        return MessageType.DELAY
    if names.PROPERTY_SHARDING_KEY in properties:
        return MessageType.FIFO
    if names.PROPERTY_PRIORITY in properties:
        return MessageType.PRIORITY
    return MessageType.LITE if LITE_TOPIC in properties else MessageType.NORMAL


def set_time(time: Any, milliseconds_: int) -> None:
    """Set a Timestamp or a Duration; its own method checks a range, and takes far longer."""
    seconds, rest = divmod(milliseconds_, 1000)
    time.seconds = seconds
    if rest:
        time.nanos = rest * 1_000_000


def set_resource(resource: Any, name: str) -> None:
    """Set a message Resource to a name as brokers know it; see `rules.full_name`."""
    namespace, separator, rest = name.partition("%")
    if separator and namespace and rest:
        resource.resource_namespace, resource.name = namespace, rest
    else:
        resource.name = name
