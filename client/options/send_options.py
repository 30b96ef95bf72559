"""Options of the producer and their defaults, which are RocketMQ's.

Java counterpart: the fields of DefaultMQProducer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ...remoting.body_compression import COMPRESSION_LEVEL, CompressionType
from ...remoting.send_template import DEFAULT_TOPIC_QUEUE_NUMS
from ..checks.message_check import DELAY_LEVEL_MAX
from ..connection.options import ClientOptions
from ..core.topics import MESSAGE_SIZE_MAX

CompressionName: TypeAlias = Literal["zlib", "lz4", "zstd"]
"""A compression method: CompressionType.ZLIB and so on."""
DEFAULT_GROUP: Final = "trocket_producer"
"""Default name of a producer group. (RocketMQ's DEFAULT_PRODUCER is not a valid name.)"""
RETRY_TIMES: Final = 2
"""RocketMQ: retryTimesWhenSendFailed."""
COMPRESS_OVER: Final = 4096
"""Bytes; RocketMQ: compressMsgBodyOverHowmuch."""
SEND_BUFFER_COUNT_MAX: Final = 1024
"""Messages; RocketMQ: backPressureForAsyncSendNum."""
SEND_BUFFER_SIZE_MAX: Final = 100 * 1024 * 1024
"""Bytes; RocketMQ: backPressureForAsyncSendSize."""
BATCH_SIZE_MAX: Final = 32 * 1024
"""Bytes of bodies and properties of an automatic batch; RocketMQ: ProduceAccumulator's holdSize."""
BATCH_COUNT_MAX: Final = 1024
"""Messages of an automatic batch, which a broker stores in one step. (RocketMQ: no limit.)"""


class ProducerOptions(ClientOptions, total=False):
    """Keyword arguments of a producer, in addition to ClientOptions.

    Keys:
      retry_times: number of attempts after the first one, each on another broker if there is one;
        default 2, where attempts of a broker that cannot be reached do not count: they are
        repeated, with pauses of 0.1 to 1 s, until the time limit.
      send_timeout_s: seconds for all attempts of a send; default: `timeout_s` if that is given,
        else 10, of which one attempt has at most 3. It outlives a restart of a broker of 5 s.
      retry_when_not_stored_ok: also try again when the status is not SEND_OK; default False.
      compress_over: size of a body in bytes above which it is compressed; default 4,096. By gRPC,
        none is.
      compression: "zlib" (the default, and the only one that brokers before 5.0 support), "lz4" or
        "zstd", which need `trocket[compression]`; or the member of CompressionType.
      compression_level: 0 to 9 for zlib, 1 to 22 for zstd; default 5.
      message_size_max: largest size of a body in bytes, before compression; default 4 MiB.
      delay_level_max: highest delay level of the brokers' table; default 18.
      default_topic_queue_nums: number of queues of a topic that a send creates; default 4.
      send_latency_fault_enable: avoid brokers that answered slowly, for a time that grows with the
        latency; default False.
      send_buffer_count_max: largest number of unconfirmed messages of `send_soon`; default 1,024.
      send_buffer_size_max: largest total size of their bodies in bytes; default 100 MiB.
      linger_s: seconds that a message of `send` or `send_soon` waits for others with the same
        topic, queue, sharding key, `wait_store_ok` and `timeout_s`, to be sent with them in one
        batch; default 0: each is sent at once. The time limit of a send begins after it. Delayed
        messages, messages with a selector, and bodies above `compress_over` or `batch_size_max` are
        sent alone.
      batch_size_max: bytes of bodies and properties at which such a batch is sent at once; default
        32 KiB.
      batch_count_max: number of its messages at which it is sent at once; default 1,024.
      trace: report each confirmed send, each end of a transaction and each recall to the trace
        topic, for `Admin.message_trace`, mqadmin and the Dashboard: True for RMQ_SYS_TRACE_TOPIC,
        or the name of another topic; default False.
    """

    retry_times: int | None
    send_timeout_s: float | None
    retry_when_not_stored_ok: bool
    compress_over: int
    compression: CompressionType | CompressionName
    compression_level: int
    message_size_max: int
    delay_level_max: int
    default_topic_queue_nums: int
    send_latency_fault_enable: bool
    send_buffer_count_max: int
    send_buffer_size_max: int
    linger_s: float
    batch_size_max: int
    batch_count_max: int
    trace: bool | str


class ProducerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The values of ProducerOptions without those of ClientOptions."""

    retry_times: int | None = None
    send_timeout_s: float | None = None
    retry_when_not_stored_ok: bool = False
    compress_over: int = COMPRESS_OVER
    compression: CompressionType = CompressionType.ZLIB
    compression_level: int = COMPRESSION_LEVEL
    message_size_max: int = MESSAGE_SIZE_MAX
    delay_level_max: int = DELAY_LEVEL_MAX
    default_topic_queue_nums: int = DEFAULT_TOPIC_QUEUE_NUMS
    send_latency_fault_enable: bool = False
    serializer: Callable[[Any], bytes | str] | None = None
    send_buffer_count_max: int = SEND_BUFFER_COUNT_MAX
    send_buffer_size_max: int = SEND_BUFFER_SIZE_MAX
    linger_s: float = 0.0
    batch_size_max: int = BATCH_SIZE_MAX
    batch_count_max: int = BATCH_COUNT_MAX
    trace: bool | str = False
