"""A producer's options and their defaults, which are RocketMQ's.

Java counterpart: the fields of DefaultMQProducer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ..remoting.compression import COMPRESSION_LEVEL, CompressionType
from .core.send_header import DEFAULT_TOPIC_QUEUE_NUMS
from .core.topics import MESSAGE_SIZE_MAX
from .options import ClientOptions

DEFAULT_GROUP: Final = "trocket_producer"
"""A producer that does not care; RocketMQ refuses its own placeholder, DEFAULT_PRODUCER."""
RETRY_TIMES: Final = 2
"""RocketMQ: retryTimesWhenSendFailed."""
COMPRESS_OVER: Final = 4096
"""Bytes; RocketMQ: compressMsgBodyOverHowmuch."""
SEND_BUFFER_COUNT_MAX: Final = 1024
"""Messages; RocketMQ: backPressureForAsyncSendNum."""
SEND_BUFFER_SIZE_MAX: Final = 100 * 1024 * 1024
"""Bytes; RocketMQ: backPressureForAsyncSendSize."""


class ProducerOptions(ClientOptions, total=False):
    """Keyword arguments of a producer, beside those of its client.

    Keys:
      retry_times: tries after the first, each on another broker if there is one; 2.
      retry_when_not_stored_ok: try again too when the status is not SEND_OK; False.
      compress_over: bytes of a body above which it is compressed; 4,096.
      compression: how; ZLIB. Brokers before 5.0 know only that. LZ4 and ZSTD need
        `trocket[compression]`.
      compression_level: 0 to 9 for ZLIB, 1 to 22 for ZSTD; 5.
      message_size_max: bytes of a body, before compression; 4 MiB.
      default_topic_queue_nums: queues of a topic that a send creates; 4.
      send_latency_fault_enable: avoid brokers that answered late, the longer the later; False.
      serializer: makes bytes of bodies that are neither bytes nor str; default: none.
      send_buffer_count_max: messages that `send_soon` may have under way; 1,024.
      send_buffer_size_max: bytes of bodies that `send_soon` may have under way; 100 MiB.
    """

    retry_times: int
    retry_when_not_stored_ok: bool
    compress_over: int
    compression: CompressionType
    compression_level: int
    message_size_max: int
    default_topic_queue_nums: int
    send_latency_fault_enable: bool
    serializer: Callable[[Any], bytes] | None
    send_buffer_count_max: int
    send_buffer_size_max: int


class ProducerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The values of ProducerOptions that are not the client's."""

    retry_times: int = RETRY_TIMES
    retry_when_not_stored_ok: bool = False
    compress_over: int = COMPRESS_OVER
    compression: CompressionType = CompressionType.ZLIB
    compression_level: int = COMPRESSION_LEVEL
    message_size_max: int = MESSAGE_SIZE_MAX
    default_topic_queue_nums: int = DEFAULT_TOPIC_QUEUE_NUMS
    send_latency_fault_enable: bool = False
    serializer: Callable[[Any], bytes] | None = None
    send_buffer_count_max: int = SEND_BUFFER_COUNT_MAX
    send_buffer_size_max: int = SEND_BUFFER_SIZE_MAX
