"""Messages: from the fields of a send to those of gRPC, and from received ones to records.

Source: PublishingMessageImpl.java, MessageViewImpl.java of rocketmq-clients 5.2. Pure.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from typing import Any, Final, NamedTuple

from ...common import message_properties as names
from ...grpc_protocol.enums import DigestType, Encoding, MessageType
from ...grpc_protocol.fields import (
    LITE_TOPIC,
    RESERVED_PROPERTIES,
    TRACE_CONTEXT,
    full_name,
    milliseconds,
    set_resource,
    set_time,
)
from ...remoting.body_compression import DECOMPRESSED_SIZE_MAX, CompressionType, decompress
from ...remoting.errors import LocalProtocolError, MissingPackageError, RemoteProtocolError
from ...remoting.hosts import host_bytes
from ...remoting.message_codec import encode_record
from ...remoting.number_fields import INT32, INT64, parse_integer
from ...remoting.response_codes import ResponseCode
from ...remoting.sys_flag import COMPRESSED
from .codes import Refused

logger = logging.getLogger(__name__)

_NO_HOST: Final = host_bytes("0.0.0.0", 0)
_NOT_SENT: Final = frozenset(
    {
        names.PROPERTY_WAIT_STORE_MSG_OK,
        names.PROPERTY_PRODUCER_GROUP,
        names.PROPERTY_INSTANCE_ID,
        # A dead letter that is sent again names its origin; gRPC has no field for that.
        names.PROPERTY_DLQ_ORIGIN_TOPIC,
        names.PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    }
)
"""RocketMQ's properties that gRPC's messages do not need."""

_DIGESTS: Final = {DigestType.MD5: "md5", DigestType.SHA1: "sha1"}
_GZIP: Final = b"\x1f\x8b"
_AS_GZIP: Final = 16 + zlib.MAX_WBITS
_KINDS: Final = {
    b"\x78": CompressionType.ZLIB,
    b"\x04\x22\x4d\x18": CompressionType.LZ4,
    b"\x28\xb5\x2f\xfd": CompressionType.ZSTD,
}
"""How a body is compressed that does not begin as gzip, by its first bytes. Apache's proxy passes
on bodies of RocketMQ's other clients as they are, and calls all of them GZIP."""


class Corrupted(Exception):
    """A received body is not the one that was sent."""


def set_message(
    message: Any, topic: str, body: bytes, properties: dict[str, str], sys_flag: int, born_ms: int
) -> None:
    """Set a message Message to what is sent.

    Args:
      topic: with namespace.
      properties: as a send of remoting has them.
      born_ms: time of sending, ms since 1970.
    Raises: Refused: a property has no counterpart.
    """
    set_resource(message.topic, topic)
    message.body = body
    system = message.system_properties
    system.message_type = MessageType.NORMAL
    system.body_encoding = Encoding.GZIP if sys_flag & COMPRESSED else Encoding.IDENTITY
    set_time(system.born_timestamp, born_ms)
    for name, value in properties.items():
        if name not in RESERVED_PROPERTIES:
            message.user_properties[name] = value
        elif name not in _NOT_SENT:
            _set_system(system, name, value, born_ms)
    # A transaction's message may have a sharding key as well.
    if properties.get(names.PROPERTY_TRANSACTION_PREPARED) == "true":
        system.message_type = MessageType.TRANSACTION


def _set_system(system: Any, name: str, value: str, born_ms: int) -> None:
    match name:
        case names.PROPERTY_UNIQUE_KEY:
            system.message_id = value
        case names.PROPERTY_TAGS:
            system.tag = value
        case names.PROPERTY_KEYS:
            system.keys.extend(names.split_keys(value))
        case names.PROPERTY_SHARDING_KEY:
            system.message_group = value
            system.message_type = MessageType.FIFO
        case names.PROPERTY_TIMER_DELIVER_MS:
            set_time(system.delivery_timestamp, _number(name, value))
            system.message_type = MessageType.DELAY
        case names.PROPERTY_TIMER_DELAY_MS:
            set_time(system.delivery_timestamp, born_ms + _number(name, value))
            system.message_type = MessageType.DELAY
        case names.PROPERTY_PRIORITY:
            system.priority = _number(name, value)
            system.message_type = MessageType.PRIORITY
        case names.PROPERTY_TRANSACTION_PREPARED:
            pass
        case _:
            text = f"a message of the gRPC protocol cannot have the property {name}"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, text)


def _number(name: str, value: str) -> int:
    number = parse_integer(value)
    if number is None or not 0 <= number < 1 << 53:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the property {name} is {value!r}")
    return number


class Place(NamedTuple):
    """What the record of a received message has besides the message.

    Attributes:
      physical_offset: of its record in the broker's commit log; 0: unknown.
      more: further properties.
    """

    topic: str
    physical_offset: int
    more: dict[str, str]


def record_of(message: Any, place: Place) -> bytes:
    """The record of a received message Message.

    Raises: Corrupted: its body is not the one that was sent, or too long to be read.
      LocalProtocolError: a field does not fit a record.
    """
    system = message.system_properties
    attempt = system.delivery_attempt
    return encode_record(
        place.topic,
        system.queue_id,
        system.queue_offset,
        place.physical_offset,
        readable_body(message),
        _properties_bytes(_properties(message) | place.more),
        born_timestamp_ms=_int64(milliseconds(system.born_timestamp)),
        born_host=_host(system.born_host),
        store_timestamp_ms=_int64(milliseconds(system.store_timestamp)),
        store_host=_host(system.store_host),
        reconsume_times=max(attempt - 1, 0),
    )


def topic_of(message: Any) -> str:
    """The topic of a received message, with namespace."""
    return full_name(message.topic)


def readable_body(message: Any) -> bytes:
    """The body of a received message Message, decompressed, when its digest is right.

    Raises: Corrupted.
    """
    system, body = message.system_properties, message.body
    digest = system.body_digest
    if digest.type == DigestType.CRC32:
        found: str | int = zlib.crc32(body)
        # Clients pad it differently.
        said: str | int | None = _hex(digest.checksum)
    elif digest.type in _DIGESTS:
        hashed = hashlib.new(_DIGESTS[digest.type], body, usedforsecurity=False)
        found, said = hashed.hexdigest(), digest.checksum.lower()
    else:
        found = said = ""
    if found != said:
        raise Corrupted(f"its body of {len(body)} bytes does not have the digest that it says")
    return _decompressed(body) if system.body_encoding == Encoding.GZIP else bytes(body)


def _decompressed(body: bytes) -> bytes:
    for start, kind in _KINDS.items():
        if body.startswith(start):
            try:
                return decompress(body, kind.sys_flag)
            except (RemoteProtocolError, MissingPackageError) as error:
                raise Corrupted(str(error)) from error
    if not body.startswith(_GZIP):
        return bytes(body)
    inflater = zlib.decompressobj(_AS_GZIP)
    try:
        inflated = inflater.decompress(body, DECOMPRESSED_SIZE_MAX + 1)
    except zlib.error as error:
        raise Corrupted(f"its body cannot be decompressed: {error}") from error
    if len(inflated) > DECOMPRESSED_SIZE_MAX or not inflater.eof:
        raise Corrupted("its body is cut short, or too long when it is decompressed")
    return inflated


def _hex(text: str) -> int | None:
    try:
        return int(text, 16) if len(text) <= 8 else None
    except ValueError:
        return None


def _properties(message: Any) -> dict[str, str]:
    system = message.system_properties
    properties = dict(message.user_properties)
    if system.message_id:
        properties[names.PROPERTY_UNIQUE_KEY] = system.message_id
    if system.tag:
        properties[names.PROPERTY_TAGS] = system.tag
    if system.keys:
        properties[names.PROPERTY_KEYS] = names.KEY_SEPARATOR.join(system.keys)
    if system.message_group:
        properties[names.PROPERTY_SHARDING_KEY] = system.message_group
    if system.HasField("delivery_timestamp"):
        due_ms = milliseconds(system.delivery_timestamp)
        properties[names.PROPERTY_TIMER_DELIVER_MS] = str(due_ms)
    if system.message_type == MessageType.TRANSACTION:
        properties[names.PROPERTY_TRANSACTION_PREPARED] = "true"
    if system.HasField("priority"):
        properties[names.PROPERTY_PRIORITY] = str(system.priority)
    if system.trace_context:
        properties[TRACE_CONTEXT] = system.trace_context
    if system.lite_topic:
        properties[LITE_TOPIC] = system.lite_topic
    if system.HasField("dead_letter_queue"):
        origin = system.dead_letter_queue
        properties[names.PROPERTY_DLQ_ORIGIN_TOPIC] = origin.topic
        properties[names.PROPERTY_DLQ_ORIGIN_MESSAGE_ID] = origin.message_id
    return properties


def _properties_bytes(properties: dict[str, str]) -> bytes:
    try:
        return names.properties_to_bytes(properties)
    except names.IllegalPropertyError:
        kept = {
            name: value
            for name, value in properties.items()
            if name and not {"\x01", "\x02"} & {*name, *value}
        }
        left_out = ", ".join(map(repr, properties.keys() - kept.keys()))
        logger.warning("a received message has properties that cannot be kept: %s", left_out[:200])
        return names.properties_to_bytes(kept)


def _host(text: str) -> bytes:
    """A host field of a record, of `ip:port`, `[ip]:port` or an ip alone."""
    host, separator, port = text.rpartition(":")
    number = parse_integer(port) if separator else None
    if number is None or not INT32.has(number):
        host, number = text, 0
    try:
        return host_bytes(host.strip("[]"), number)
    except LocalProtocolError:
        return _NO_HOST


def _int64(number: int) -> int:
    return number if INT64.has(number) else 0
