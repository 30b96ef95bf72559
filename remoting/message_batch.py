"""Bodies of batches: several messages for one topic in one request, or in one record.

Java counterpart: `MessageDecoder.encodeMessages`/`decodeMessages` and the batch side of
`MessageExtEncoder` (RocketMQ 5.3.3). Pure. Layout: `record_schema.BATCH_ENTRY`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from ..common.message_properties import IllegalPropertyError, properties_to_bytes
from .errors import LocalProtocolError, RemoteProtocolError
from .message import Message
from .record_schema import BATCH_ENTRY_HEAD, PROPERTIES_LENGTH

BATCH_COUNT_MAX: Final = 32_767
"""Messages of a batch. It is stored in one step, which blocks the loop for some 3 us a message.
Official examples send 20,000 in one; queues of batches cannot count further."""

ENTRY_SIZE_MIN: Final = BATCH_ENTRY_HEAD.size + PROPERTIES_LENGTH.size
"""Bytes of a message without body and properties."""


def iter_batch(body: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The messages of a batch's body, in order.

    A store that must not append half a batch calls `list(iter_batch(body))` first.

    Args:
      body: of a SEND_BATCH_MESSAGE request, or of a message with INNER_BATCH set.

    Yields: (flag, body, properties) of each message; properties are encoded, with or without a
      separator at the end.

    Raises:
      RemoteProtocolError: a length is negative or past the end of the body. Size, magic and CRC of
        an entry are ignored, as in Apache's broker.

    Source: RocketMQ 5.3.3 store/MessageExtEncoder.java encode(MessageExtBatch).
    """
    position, size = 0, len(body)
    head_size, unpack_head = BATCH_ENTRY_HEAD.size, BATCH_ENTRY_HEAD.unpack_from
    unpack_length = PROPERTIES_LENGTH.unpack_from
    while position < size:
        if size - position < head_size:
            raise RemoteProtocolError("a batch entry is cut short", position)
        _, _, _, flag, body_length = unpack_head(body, position)
        body_at = position + head_size
        body_end = body_at + body_length
        properties_at = body_end + 2
        # Checked before the slice, which Python would cut short without an error.
        if body_length < 0 or properties_at > size:
            raise RemoteProtocolError(f"a batch entry's body of {body_length} bytes", position)
        (properties_length,) = unpack_length(body, body_end)
        end = properties_at + properties_length
        if properties_length < 0 or end > size:
            raise RemoteProtocolError(
                f"a batch entry's properties of {properties_length} bytes", position
            )
        yield flag, body[body_at:body_end], body[properties_at:end]
        position = end


def refuse_long_batch(body: bytes) -> str | None:
    """The reason why a batch has too many messages; None: it has not.

    Raises: RemoteProtocolError: as `iter_batch`.
    """
    if len(body) <= BATCH_COUNT_MAX * ENTRY_SIZE_MIN:
        return None
    for count, _ in enumerate(iter_batch(body), 1):
        if count > BATCH_COUNT_MAX:
            return f"it has more than {BATCH_COUNT_MAX} messages: divide the batch"
    return None


def encode_entry(flag: int, body: bytes, properties: bytes) -> bytes:
    """Encode one message of a batch's body.

    Args:
      properties: encoded.

    Raises: LocalProtocolError: properties or a number do not fit.
    """
    size = BATCH_ENTRY_HEAD.size + len(body) + PROPERTIES_LENGTH.size + len(properties)
    try:
        head = BATCH_ENTRY_HEAD.pack(size, 0, 0, flag, len(body))
        length = PROPERTIES_LENGTH.pack(len(properties))
    except struct.error as error:
        raise LocalProtocolError(f"a field does not fit the batch: {error}") from error
    return b"".join((head, body, length, properties))


def encode_batch(messages: Iterable[Message]) -> bytes:
    """Encode the body of a batch.

    Args:
      messages: of one topic, which is not part of the body.

    Raises:
      LocalProtocolError: properties or a number do not fit.

    Source: RocketMQ 5.3.3 common/message/MessageDecoder.java encodeMessages.
    """
    parts: list[bytes] = []
    for message in messages:
        try:
            properties = properties_to_bytes(message.properties)
        except IllegalPropertyError as error:
            raise LocalProtocolError(str(error)) from error
        parts.append(encode_entry(message.flag, message.body, properties))
    return b"".join(parts)
