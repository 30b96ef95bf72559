"""Encoding of messages for workers. The layout is declared in `inside.frames`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...remoting.message import MessageExt
from .inside import frames


def message_frames(messages: Sequence[MessageExt]) -> Iterator[bytes]:
    """The MESSAGE frames that follow a BATCH, in pieces, so that bodies are not copied."""
    for message in messages:
        topic = message.topic.encode()
        head = frames.MESSAGE_HEAD.pack(
            message.queue_id,
            message.queue_offset,
            message.physical_offset,
            message.flag,
            message.sys_flag,
            message.born_timestamp_ms,
            message.store_timestamp_ms,
            message.reconsume_times,
            message.prepared_transaction_offset,
            message.store_size,
            message.body_crc,
            len(message.born_host),
            len(message.store_host),
            len(topic),
            len(message.properties_bytes),
        )
        rest = (message.born_host, message.store_host, topic, message.properties_bytes)
        size = len(head) + sum(map(len, rest)) + len(message.body)
        yield b"".join((frames.HEAD.pack(frames.MESSAGE, 0, size), head, *rest))
        yield message.body


def message_size(message: MessageExt) -> int:
    """The approximate size of a message in a frame, in bytes: its body and properties."""
    return len(message.body) + len(message.properties_bytes)
