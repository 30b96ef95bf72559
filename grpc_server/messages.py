"""Messages: from a client's to the fields of a send, and from a record to a client's.

Source: SendMessageActivity.java and GrpcConverter.java of proxy/grpc/v2, RocketMQ 5.5.0. Pure.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from ..common import message_properties as names
from ..grpc_protocol.enums import Code, DigestType, Encoding, MessageType
from ..grpc_protocol.fields import (
    BORN_HOST,
    LITE_TOPIC,
    TRACE_CONTEXT,
    milliseconds,
    set_resource,
    set_time,
)
from ..grpc_protocol.schema import Messages
from ..native import extension
from ..remoting.body_compression import decompress
from ..remoting.errors import MissingPackageError, RemoteProtocolError
from ..remoting.message import MessageExt
from ..remoting.sys_flag import COMPRESSED, TRANSACTION_PREPARED_TYPE
from .refused import Refused
from .rules import (
    HIDDEN_NAMES,
    HIDDEN_PROPERTIES,
    RESERVED_PROPERTIES,
    Rules,
    has_control_character,
)

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
    if system.HasField("delivery_timestamp"):
        return MessageType.DELAY
    if system.message_group:
        return MessageType.FIFO
    if system.HasField("priority"):
        return MessageType.PRIORITY
    return MessageType.LITE if system.lite_topic else MessageType.NORMAL


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
    properties, size = _user_properties(message.user_properties, rules)
    if system.tag:
        properties[names.PROPERTY_TAGS] = _checked_tag(system.tag)
        size += len(system.tag.encode())
    if system.keys:
        keys = names.KEY_SEPARATOR.join(map(_checked_key, system.keys))
        properties[names.PROPERTY_KEYS] = keys
        size += len(keys.encode())
    if size > rules.max_user_property_size:
        text = (
            f"the total size of user property is too large, max is {rules.max_user_property_size}"
        )
        raise Refused(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    if not system.message_id.strip():
        raise Refused(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
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
    if system.lite_topic:
        properties[LITE_TOPIC] = _checked_lite_topic(system.lite_topic, rules)
    if system.trace_context:
        properties[TRACE_CONTEXT] = system.trace_context
    if system.born_host:
        properties[BORN_HOST] = system.born_host
    return properties


def _user_properties(given: Any, rules: Rules) -> tuple[dict[str, str], int]:
    """The user's properties, and their bytes."""
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
    return properties, size


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
    if key and not key.strip():
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


_NO_LITE_TOPIC: Final = re.compile(r"[^a-zA-Z0-9_-]")


def _checked_lite_topic(lite_topic: str, rules: Rules) -> str:
    """Source: GrpcValidator.validateLiteTopic."""
    if not lite_topic.strip():
        text = "lite topic cannot be the char sequence of whitespace"
    elif len(lite_topic.encode()) > rules.max_lite_topic_size:
        text = f"lite topic exceed the max size {rules.max_lite_topic_size}"
    elif _NO_LITE_TOPIC.search(lite_topic):
        text = "lite topic can only contain alphanumeric characters, hyphens(-), and underscores(_)"
    else:
        return lite_topic
    raise Refused(Code.ILLEGAL_LITE_TOPIC, text)


def _transaction(system: Any, rules: Rules) -> dict[str, str]:
    properties = {names.PROPERTY_TRANSACTION_PREPARED: "true"}
    if system.HasField("orphaned_transaction_recovery_duration"):
        seconds = system.orphaned_transaction_recovery_duration.seconds
        if seconds > rules.max_transaction_recovery_second:
            most_s = rules.max_transaction_recovery_second
            text = f"the max transaction recovery time of message is too large, max is {most_s}"
            raise Refused(Code.BAD_REQUEST, text)
        properties[names.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS] = str(seconds)
    return properties


def readable_body(record: MessageExt) -> tuple[bytes, Encoding]:
    """The body of a record, in an encoding that every gRPC client reads, if there is a way.

    Clients know gzip, some zlib, none LZ4 and Zstandard, though all are labelled GZIP by Apache's
    proxy in local mode.
    """
    if not record.sys_flag & COMPRESSED:
        return record.body, Encoding.IDENTITY
    if record.body.startswith(_GZIP):
        return record.body, Encoding.GZIP
    try:
        return decompress(record.body, record.sys_flag), Encoding.IDENTITY
    except (RemoteProtocolError, MissingPackageError):
        # As it was stored: an error would also hold up the messages beside it, again and again.
        return record.body, Encoding.GZIP


def message_id_of(record: MessageExt) -> str:
    """The id of a record to its consumers."""
    return record.unique_key or record.offset_message_id


def received_message(messages: Messages, record: MessageExt, topic: str, *, attempt: int) -> Any:
    """A record as clients receive it.

    Args:
      record: not decompressed.
      topic: as it was asked for.
      attempt: which delivery this is, from 1 on.
    Returns: a message Message, without its receipt handle.
    """
    body, encoding = readable_body(record)
    properties = record.properties
    message = messages.Message(body=body)
    set_resource(message.topic, topic)
    for name, value in properties.items():
        if name not in HIDDEN_PROPERTIES:
            message.user_properties[name] = value
    system = message.system_properties
    system.message_id = message_id_of(record)
    system.body_digest.type, system.body_digest.checksum = DigestType.MD5, _digest(body)
    system.body_encoding = encoding
    system.message_type = _type_of_record(properties)
    set_time(system.born_timestamp, record.born_timestamp_ms)
    system.born_host = properties.get(BORN_HOST) or record.born_host_text
    set_time(system.store_timestamp, record.store_timestamp_ms)
    system.store_host = record.store_host_text
    system.queue_id, system.queue_offset = record.queue_id, record.queue_offset
    system.delivery_attempt = attempt
    _set_optional(system, properties)
    return message


_write_message = None if extension is None else extension.grpc_message

_SPECIAL: Final = frozenset(
    name.encode()
    for name in (
        *_DELAYS,
        names.PROPERTY_TRANSACTION_PREPARED,
        names.PROPERTY_PRIORITY,
        names.PROPERTY_DLQ_ORIGIN_TOPIC,
        names.PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
        LITE_TOPIC,
    )
)
"""Properties of messages that the C extension does not write."""

WRITTEN_NAMES: Final = (HIDDEN_NAMES, _SPECIAL)


class ReceivedMessages:
    """Encodes the messages of one receive.

    Args:
      messages: the classes of messages.
      topic: as it was asked for.
    """

    def __init__(self, messages: Messages, topic: str) -> None:
        self._messages = messages
        self._topic = topic
        resource = messages.Resource()
        set_resource(resource, topic)
        self._resource: bytes = resource.SerializeToString()

    def encode(self, record: MessageExt, handle: str) -> bytes:
        """A record as a ReceiveMessageResponse."""
        attempt = record.reconsume_times + 1
        if _write_message is not None and not record.sys_flag & COMPRESSED and handle.isascii():
            written = _write_message(
                WRITTEN_NAMES,
                self._resource,
                record.body,
                record.properties_bytes,
                record.queue_id,
                record.born_timestamp_ms,
                record.born_host,
                record.store_timestamp_ms,
                record.store_host,
                _digest(record.body),
                handle,
                record.queue_offset,
                attempt,
            )
            if written is not None:
                return written
        message = received_message(self._messages, record, self._topic, attempt=attempt)
        message.system_properties.receipt_handle = handle
        encoded: bytes = self._messages.ReceiveMessageResponse(message=message).SerializeToString()
        return encoded


def _digest(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest().upper()


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
