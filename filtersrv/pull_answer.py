"""Pull answers for consumers: the matching messages of a broker's answer, encoded again. Pure.

Java counterpart: filtersrv/processor/DefaultRequestProcessor.java of 4.2.0 (pullMessageForward,
messageToByteBuffer).
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from typing import Final

from ..common import message_properties as names
from ..common.message_properties import change_properties
from ..remoting.compression import CompressionType, decompress
from ..remoting.message import MessageExt
from ..remoting.message_codec import INFLATED_TOTAL_MAX, decode_messages, encode_record
from ..remoting.record_schema import PROPERTIES_SIZE_MAX
from ..remoting.sys_flag import COMPRESSED, COMPRESSION_TYPE_MASK

_REMOVED: Final = (names.PROPERTY_CRC32,)
"""The checksum property covers the stored record, which differs from the new one."""


def read_messages(body: bytes) -> tuple[list[MessageExt], list[MessageExt]]:
    """Decode the messages of a pull answer.

    Returns: the messages as stored, and the same with decompressed bodies, for filters.
    Raises: RemoteProtocolError: a record is damaged, or the decompressed bodies are too large.
    """
    stored = decode_messages(body, inflate=False)
    seen, budget = [], INFLATED_TOTAL_MAX
    for message in stored:
        if message.sys_flag & COMPRESSED:
            inflated = decompress(message.body, message.sys_flag, size_max=budget)
            budget -= len(inflated)
            message = dataclasses.replace(message, body=inflated)
        seen.append(message)
    return stored, seen


def write_messages(
    stored: Sequence[MessageExt],
    seen: Sequence[MessageExt],
    wanted: Sequence[bool],
    *,
    min_offset: int,
    max_offset: int,
    compress_from: int,
    compression_level: int,
) -> bytes:
    """Encode the body of the answer: a record for each matching message.

    The properties MIN_OFFSET and MAX_OFFSET are added, as RocketMQ's pull client does. Bodies are
    compressed if they are large, whether the stored ones are or not.

    Args:
      stored, seen: result of `read_messages`.
      wanted: for each message, whether it matches.
      min_offset, max_offset: minimum and maximum offset of the queue, from the broker's answer.
      compress_from: size in bytes from which on bodies are compressed.
      compression_level: level of zlib.
    """
    offsets = {
        names.PROPERTY_MIN_OFFSET: str(min_offset),
        names.PROPERTY_MAX_OFFSET: str(max_offset),
    }
    return b"".join(
        _record(*pair, offsets, compress_from, compression_level)
        for pair, is_wanted in zip(zip(stored, seen, strict=True), wanted, strict=True)
        if is_wanted
    )


def _record(
    stored: MessageExt,
    seen: MessageExt,
    offsets: dict[str, str],
    compress_from: int,
    compression_level: int,
) -> bytes:
    body, sys_flag = seen.body, stored.sys_flag & ~COMPRESSED
    if len(body) >= compress_from:
        if stored.sys_flag & COMPRESSED:  # use the producer's compressed body
            body, sys_flag = stored.body, stored.sys_flag
        else:
            body = zlib.compress(body, compression_level)
            sys_flag = sys_flag & ~COMPRESSION_TYPE_MASK | CompressionType.ZLIB.sys_flag
    properties = change_properties(stored.properties_bytes, offsets, _REMOVED)
    if len(properties) > PROPERTIES_SIZE_MAX:
        properties = stored.properties_bytes
    return encode_record(
        stored.topic,
        stored.queue_id,
        stored.queue_offset,
        stored.physical_offset,
        body,
        properties,
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=stored.born_host,
        store_timestamp_ms=stored.store_timestamp_ms,
        store_host=stored.store_host,
        flag=stored.flag,
        sys_flag=sys_flag,
        reconsume_times=stored.reconsume_times,
        prepared_transaction_offset=stored.prepared_transaction_offset,
    )
