"""Encoding and decoding of stored records, which are also the body of a pull's answer.

Java counterpart: `MessageDecoder`, `MessageExtEncoder` and the record check of `CommitLog`
(RocketMQ 5.3.3). Pure. The layout is declared in `record_schema`; the store and the processors
import it, batches (`message_batch`), hosts and tag codes from this module only.

With `enabledAppendPropCRC` the properties end in a checksum of the whole record (`message_crc`).

Errors: decoding any bytes returns a value or raises `RemoteProtocolError` with the position in the
buffer; encoding a value that does not fit the layout raises `LocalProtocolError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache, partial
from mmap import mmap
from typing import Any, TypeAlias
from zlib import crc32

from ..common.java_hash import java_hash_code, tags_code
from ..native import Extension, extension
from .body_compression import DECOMPRESSED_SIZE_MAX, decompress
from .errors import LocalProtocolError, RemoteProtocolError
from .hosts import host_bytes, host_text
from .message import MessageExt
from .message_batch import encode_batch, iter_batch
from .message_crc import PROPERTY_CRC_SIZE, check_record_crc, crc_property
from .record_schema import (
    BATCH_ENTRY,
    BATCH_ENTRY_HEAD,
    BLANK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_LENGTH,
    PROPERTIES_SIZE_MAX,
    RECORD,
    RECORD_HEAD,
    RECORD_HEADS,
    RECORD_LENGTHS,
    RECORD_PREFIX,
    RECORD_SIZE_MIN,
    SYS_FLAG_POSITION,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
    TOPIC_SIZE_MAX,
    TOPIC_SIZE_MAX_V1,
    WORD,
)
from .sys_flag import BORNHOST_V6, COMPRESSED, STOREHOSTADDRESS_V6

__all__ = [
    "BATCH_ENTRY",
    "BATCH_ENTRY_HEAD",
    "BLANK",
    "BORNHOST_V6",
    "INFLATED_TOTAL_MAX",
    "MAGIC_BLANK",
    "MAGIC_V1",
    "MAGIC_V2",
    "PROPERTIES_LENGTH",
    "PROPERTIES_SIZE_MAX",
    "PROPERTY_CRC_SIZE",
    "RECORD",
    "RECORD_HEAD",
    "RECORD_HEADS",
    "RECORD_PREFIX",
    "RECORD_SIZE_MIN",
    "STOREHOSTADDRESS_V6",
    "TOPIC_SIZE_MAX",
    "TOPIC_SIZE_MAX_V1",
    "Buffer",
    "check_record_crc",
    "decode_messages",
    "decode_record",
    "encode_batch",
    "encode_blank",
    "encode_message",
    "encode_record",
    "host_bytes",
    "host_text",
    "iter_batch",
    "java_hash_code",
    "record_properties",
    "record_topic",
    "tags_code",
    "with_property_crc",
]

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap
"""A buffer with records."""

INFLATED_TOTAL_MAX = 256 * 1024 * 1024
"""Bytes that all bodies of one pull answer may decompress to together (Apache: no limit)."""

TOPIC_CACHE_COUNT_MAX = 4096
"""Topics whose encoded form is cached; a few hundred bytes each."""

# Looked up once, because they are called per message.
_pack_head = RECORD_HEAD.pack
_pack_length = PROPERTIES_LENGTH.pack
_unpack_lengths = RECORD_LENGTHS.unpack_from
_unpack_topic_length = TOPIC_LENGTH_V1.unpack_from
_unpack_properties_length = PROPERTIES_LENGTH.unpack_from
_LENGTHS_SIZE = TOPIC_LENGTH_V1.size + PROPERTIES_LENGTH.size
_FIXED_SIZE = RECORD_HEAD.size + PROPERTIES_LENGTH.size

assert BORNHOST_V6 | STOREHOSTADDRESS_V6 == 0x30


@lru_cache(maxsize=TOPIC_CACHE_COUNT_MAX)
def record_topic(topic: str) -> tuple[int, bytes]:
    """The magic and the length-prefixed topic bytes of a record for this topic.

    Args:
      topic: at most `TOPIC_SIZE_MAX` bytes of UTF-8.

    Returns: (MAGIC_V1 or MAGIC_V2, length and topic).

    Raises:
      LocalProtocolError: the topic is too long.
    """
    return _topic_field(topic, None)


def _topic_field(topic: str, magic: int | None) -> tuple[int, bytes]:
    raw = topic.encode("utf-8", "replace")
    size = len(raw)
    if magic is None:
        magic = MAGIC_V1 if size <= TOPIC_SIZE_MAX_V1 else MAGIC_V2
    if size > (TOPIC_SIZE_MAX_V1 if magic == MAGIC_V1 else TOPIC_SIZE_MAX):
        raise LocalProtocolError(f"a topic of {size} bytes does not fit a record")
    length = TOPIC_LENGTH_V1 if magic == MAGIC_V1 else TOPIC_LENGTH_V2
    return magic, length.pack(size) + raw


def encode_record(
    topic: str,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    body: bytes,
    properties: bytes,
    *,
    born_timestamp_ms: int,
    born_host: bytes,
    store_timestamp_ms: int,
    store_host: bytes,
    flag: int = 0,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """Encode one record of the commit log.

    Args:
      topic: see `record_topic`; its length decides between V1 and V2.
      queue_id: int32.
      queue_offset: messages, int64.
      physical_offset: bytes from the start of the commit log, int64.
      body: in the stored form (already compressed if `sys_flag` says so).
      properties: encoded, at most `PROPERTIES_SIZE_MAX` bytes.
      born_timestamp_ms: ms since 1970, int64; `store_timestamp_ms` likewise.
      born_host: from `host_bytes`, 8 or 20 bytes; `store_host` likewise.
      flag: the application's int32.
      sys_flag: int32; its two IPv6 bits are set here, from the lengths of the hosts.
      reconsume_times: int32.
      prepared_transaction_offset: physical offset of the half message, int64.

    Raises:
      LocalProtocolError: a value does not fit its field.
    """
    magic, topic_field = record_topic(topic)
    body_length = len(body)
    properties_length = len(properties)
    total_size = _FIXED_SIZE + body_length + len(topic_field) + properties_length
    if len(born_host) == 8 and len(store_host) == 8:
        # Nearly all hosts are IPv4; the general way costs a look-up and a call.
        pack_head = _pack_head
        sys_flag &= ~0x30
    else:
        head, sys_flag = _head_of_hosts(sys_flag, born_host, store_host)
        pack_head = head.pack
        total_size += head.size - RECORD_HEAD.size
    try:
        # fmt: off
        packed = pack_head(
            total_size, magic, crc32(body) & 0x7FFFFFFF, queue_id, flag, queue_offset,
            physical_offset, sys_flag, born_timestamp_ms, born_host, store_timestamp_ms,
            store_host, reconsume_times, prepared_transaction_offset, body_length,
        )
        # fmt: on
        length = _pack_length(properties_length)
    except struct.error as error:
        raise LocalProtocolError(f"a field does not fit the record: {error}") from error
    return b"".join((packed, body, topic_field, length, properties))


def _head_of_hosts(sys_flag: int, born_host: bytes, store_host: bytes) -> tuple[struct.Struct, int]:
    v6_bits = 0
    for host, bit in ((born_host, BORNHOST_V6), (store_host, STOREHOSTADDRESS_V6)):
        if len(host) == 20:
            v6_bits |= bit
        elif len(host) != 8:
            raise LocalProtocolError(f"a host of {len(host)} bytes; it has 8 or 20")
    return RECORD_HEADS[v6_bits >> 4], sys_flag & ~0x30 | v6_bits


def encode_message(message: MessageExt) -> bytes:
    """Encode the record of a decoded message, byte for byte as it was stored.

    Magic, size and body CRC are not recomputed, so a message whose body was decompressed or left
    out cannot be encoded.

    Raises:
      LocalProtocolError: a value does not fit its field, or the size is not that of the fields.
    """
    m = message
    _, topic_field = _topic_field(m.topic, m.magic)
    head, sys_flag = _head_of_hosts(m.sys_flag, m.born_host, m.store_host)
    properties = m.properties_bytes
    size = head.size + len(m.body) + len(topic_field) + 2 + len(properties)
    # A field was changed after decoding; the record would no longer be the stored one.
    if size != m.store_size:
        raise LocalProtocolError(f"the fields take {size} bytes, not {m.store_size}")
    try:
        # fmt: off
        packed = head.pack(
            size, m.magic, m.body_crc, m.queue_id, m.flag, m.queue_offset, m.physical_offset,
            sys_flag, m.born_timestamp_ms, m.born_host, m.store_timestamp_ms, m.store_host,
            m.reconsume_times, m.prepared_transaction_offset, len(m.body),
        )
        # fmt: on
        length = PROPERTIES_LENGTH.pack(len(properties))
    except struct.error as error:
        raise LocalProtocolError(f"a field does not fit the record: {error}") from error
    return b"".join((packed, m.body, topic_field, length, properties))


def encode_blank(size: int) -> bytes:
    """Encode the filler at a commit log file's end: `size` bytes, all zero after its head.

    Args:
      size: bytes left in the file, >= 8.

    Raises:
      LocalProtocolError: fewer than 8 bytes.
    """
    if size < RECORD_PREFIX.size:
        raise LocalProtocolError(f"a blank needs {RECORD_PREFIX.size} bytes, not {size}")
    return RECORD_PREFIX.pack(size, MAGIC_BLANK) + bytes(size - RECORD_PREFIX.size)


def decode_record(
    buffer: Buffer,
    position: int = 0,
    *,
    check_crc: bool = True,
    read_body: bool = True,
    inflate: bool = False,
    inflated_size_max: int = DECOMPRESSED_SIZE_MAX,
) -> MessageExt:
    """Decode the record that begins at `position`.

    Args:
      buffer: holds the whole record; bytes after it are ignored.
      position: the record's position, >= 0.
      check_crc: refuse a body whose CRC32 is not the stored one.
      read_body: False: `body` is left empty (the CRC is still checked if `check_crc`).
      inflate: decompress the body by `sys_flag`, and clear the compressed bit there, as Apache's
        decoder does. `body_crc` and `store_size` stay those of the record.
      inflated_size_max: bytes that the body may decompress to.

    Returns: the message. Properties are parsed at their first use.

    Raises:
      RemoteProtocolError: no record of either magic, its sizes contradict each other or the
        buffer, the topic is not UTF-8, the CRC differs, or the body cannot be decompressed. A
        blank is an error, too: check `RECORD_PREFIX` first if there may be one.
    """
    fields, body_at, topic_at, properties_at = _split_record(buffer, position)
    # fmt: off
    (
        total_size, magic, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag,
        born_timestamp_ms, born_host, store_timestamp_ms, store_host, reconsume_times,
        prepared_transaction_offset, body_length,
    ) = fields
    # fmt: on
    body = bytes(buffer[body_at : body_at + body_length]) if read_body or check_crc else b""
    if check_crc and body_length and crc32(body) & 0x7FFFFFFF != body_crc:
        raise RemoteProtocolError("the CRC of the body is wrong", position)
    if not read_body:
        body = b""
    elif inflate and sys_flag & COMPRESSED and body:
        try:
            body = decompress(body, sys_flag, size_max=inflated_size_max)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(error.reason, position) from error
        # Or the next reader of the message would decompress it again.
        sys_flag &= ~COMPRESSED
    try:
        topic = str(buffer[topic_at : properties_at - 2], "utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("the topic is not UTF-8", position) from error
    # fmt: off
    return MessageExt(
        topic, queue_id, queue_offset, physical_offset, body,
        bytes(buffer[properties_at : position + total_size]), flag, sys_flag, born_timestamp_ms,
        born_host, store_timestamp_ms, store_host, reconsume_times, prepared_transaction_offset,
        total_size, magic, body_crc,
    )
    # fmt: on


def _split_record(buffer: Buffer, position: int) -> tuple[tuple[Any, ...], int, int, int]:
    """The head's values, and the positions of body, topic and properties, with checked lengths."""
    available = len(buffer) - position
    if position < 0 or available < RECORD_SIZE_MIN:
        raise RemoteProtocolError(f"no room for a record in {max(available, 0)} bytes", position)
    # The bits for IPv6 of both hosts choose the head, before any length is read.
    head = RECORD_HEADS[WORD.unpack_from(buffer, position + SYS_FLAG_POSITION)[0] >> 4 & 3]
    body_at = position + head.size
    if available < head.size + 3:
        raise RemoteProtocolError(f"no room for a record in {available} bytes", position)
    fields = head.unpack_from(buffer, position)
    total_size, magic, body_length = fields[0], fields[1], fields[-1]
    if not head.size + 3 <= total_size <= available:
        raise RemoteProtocolError(f"record of {total_size} bytes, {available} there", position)
    end = position + total_size
    topic_at = body_at + body_length
    if body_length < 0 or topic_at + 3 > end:
        raise RemoteProtocolError(f"body of {body_length} bytes in {total_size}", position)
    if magic == MAGIC_V1:
        (topic_length,) = TOPIC_LENGTH_V1.unpack_from(buffer, topic_at)
        topic_at += 1
    elif magic == MAGIC_V2:
        (topic_length,) = TOPIC_LENGTH_V2.unpack_from(buffer, topic_at)
        topic_at += 2
    else:
        raise RemoteProtocolError(f"magic {magic & 0xFFFFFFFF:08x} is not a record's", position)
    properties_at = topic_at + topic_length + 2
    if topic_length < 0 or properties_at > end:
        raise RemoteProtocolError(f"topic of {topic_length} bytes in {total_size}", position)
    (properties_length,) = PROPERTIES_LENGTH.unpack_from(buffer, properties_at - 2)
    # Lengths that do not add up exactly are damage, even if each one is possible.
    taken = properties_at + properties_length - position
    if properties_length < 0 or taken != total_size:
        raise RemoteProtocolError(f"record of {total_size} bytes, fields of {taken}", position)
    return fields, body_at, topic_at, properties_at


def record_properties(buffer: Buffer, position: int, size: int) -> bytes:
    """The encoded properties of a record, for message filters; the rest is not decoded.

    Args:
      buffer: holds the record.
      position: the record's position, >= 0.
      size: the record's, from the queue's unit.

    Raises:
      RemoteProtocolError: there is no record of that size.
    """
    end = position + size
    try:
        total_size, magic, sys_flag, body_length = _unpack_lengths(buffer, position)
        if magic == MAGIC_V1 and not sys_flag & 0x30 and total_size == size and body_length >= 0:
            topic_at = position + RECORD_HEAD.size + body_length
            (topic_length,) = _unpack_topic_length(buffer, topic_at)
            properties_at = topic_at + _LENGTHS_SIZE + topic_length
            length_at = properties_at - PROPERTIES_LENGTH.size
            if (
                topic_length >= 0
                and properties_at <= end <= len(buffer)
                and properties_at + _unpack_properties_length(buffer, length_at)[0] == end
            ):
                return bytes(buffer[properties_at:end])
    except struct.error:
        pass
    # A record of another kind, or none: the same with all checks, in twice the time.
    fields, _, _, properties_at = _split_record(buffer, position)
    if fields[0] != size:
        raise RemoteProtocolError(f"record of {fields[0]} bytes, not {size}", position)
    return bytes(buffer[properties_at:end])


DecodePlain: TypeAlias = Callable[[Buffer, int, list[MessageExt]], int]
"""Decodes plain records: (buffer, position of the first one, the list to append the messages to).
Returns the position of the first record that it leaves to `decode_record`."""


def plain_records(native: Extension | None) -> DecodePlain:
    """The C extension's `decode_records`; without the extension, a function that leaves all."""
    if native is None:
        return lambda body, position, messages: position
    return partial(native.decode_records, MessageExt)


_decode_plain = plain_records(extension)


def decode_messages(
    body: Buffer,
    *,
    check_crc: bool = False,
    inflate: bool = True,
    inflated_total_max: int = INFLATED_TOTAL_MAX,
) -> list[MessageExt]:
    """Decode all records of a pull answer's body.

    Args:
      body: consecutive records, with nothing between or after them; may be empty.
      check_crc: see `decode_record`; Apache's clients do not check.
      inflate: see `decode_record`.
      inflated_total_max: bytes that all bodies together may decompress to.

    Raises:
      RemoteProtocolError: as `decode_record`, with the position in `body`. (Apache's client
        silently drops the bad record and all after it.)
    """
    messages: list[MessageExt] = []
    position, size, budget = 0, len(body), inflated_total_max
    while position < size:
        if not check_crc:
            first = len(messages)
            # Plain records in one go; it stops at the first one of another kind.
            position = _decode_plain(body, position, messages)
            if position >= size:
                break
            budget = max(budget - sum([len(each.body) for each in messages[first:]]), 0)
        message = decode_record(
            body,
            position,
            check_crc=check_crc,
            inflate=inflate,
            # One budget for all: thousands of small bodies that inflate to megabytes are a bomb,
            # too.
            inflated_size_max=min(budget, DECOMPRESSED_SIZE_MAX),
        )
        budget = max(budget - len(message.body), 0)
        position += message.store_size
        messages.append(message)
    return messages


def with_property_crc(record: bytes) -> bytes:
    """Append the CRC property of `enabledAppendPropCRC` to a record.

    Args:
      record: from `encode_record`. A missing separator is added after its properties.

    Raises:
      LocalProtocolError: the properties would grow beyond `PROPERTIES_SIZE_MAX`.

    Source: RocketMQ 5.3.3 store/MessageExtEncoder.java encode, MessageDecoder.java createCrc32.
    """
    properties = decode_record(record, check_crc=False, read_body=False).properties_bytes
    separator = b"\x02" if properties and not properties.endswith(b"\x02") else b""
    grown = len(properties) + len(separator) + PROPERTY_CRC_SIZE
    if grown > PROPERTIES_SIZE_MAX:
        raise LocalProtocolError(f"properties of {grown} bytes with their CRC")
    length_at = len(record) - len(properties) - PROPERTIES_LENGTH.size
    # The checksum covers the size with the checksum itself in it, as Apache's does.
    protected = b"".join(
        (
            WORD.pack(len(record) + len(separator) + PROPERTY_CRC_SIZE),
            record[WORD.size : length_at],
            PROPERTIES_LENGTH.pack(grown),
            properties,
            separator,
        )
    )
    return protected + crc_property((protected,))
