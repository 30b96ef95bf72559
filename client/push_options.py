"""A push consumer's options and their defaults, which are RocketMQ's.

Java counterpart: the fields of DefaultMQPushConsumer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from ..remoting.bodies import MessageModel, MessageQueue
from .consumer_options import ConsumerConfig, ConsumerOptions
from .core.allocation import AllocateMessageQueueAveragely, AllocateMessageQueueStrategy

PULL_THRESHOLD_SIZE_FOR_QUEUE: Final = 100 * 1024 * 1024
"""Bytes likewise. RocketMQ: the same name, 100 MiB."""
CONSUME_CONCURRENTLY_MAX_SPAN: Final = 2000
"""Offsets between the first and the last message in memory. RocketMQ: the same name."""
SUSPEND_S: Final = 15.0
"""How long a broker holds a pull. RocketMQ: brokerSuspendMaxTimeMillis 15,000."""
PULL_RETRY_S: Final = 3.0
"""Pause after a pull that failed. RocketMQ: pullTimeDelayMillsWhenException 3,000."""
PERSIST_OFFSETS_S: Final = 5.0
"""RocketMQ: persistConsumerOffsetInterval 5,000."""
REBALANCE_S: Final = 20.0
"""RocketMQ: rocketmq.client.rebalance.waitInterval 20,000."""
MISSING_TOPIC_S: Final = 2.0
"""Pause before a topic that no name server knew is looked for again. (Java's client: 30 s.)"""
REBALANCE_RETRY_S: Final = 1.0
"""Pause after a rebalance that could not be completed. RocketMQ: ...rebalance.minInterval 1,000."""
LOCK_S: Final = 20.0
"""How often locks are renewed; brokers keep them 60 s. RocketMQ: ...rebalance.lockInterval."""
CONSUME_TIMEOUT_S: Final = 15 * 60.0
"""RocketMQ: consumeTimeout 15 minutes."""
SUSPEND_QUEUE_S: Final = 1.0
"""RocketMQ: suspendCurrentQueueTimeMillis 1,000."""
CONSUME_AGAIN_S: Final = 5.0
"""When a message comes again that no broker took back. Source: submitConsumeRequestLater."""
CONCURRENCY: Final = 20
"""Handlers at one time. RocketMQ: consumeThreadMin and Max 20."""
CLOSE_TIMEOUT_S: Final = 5.0
"""How long closing may take for offsets and locks."""
MAX_RECONSUME_TIMES: Final = 16
"""RocketMQ: maxReconsumeTimes of a concurrent consumer; an orderly one tries for ever."""


class RetryLater(Exception):
    """Raised by a handler: hand the message out again later.

    Args:
      delay_level: 1 to 18; 0: the broker's ladder, longer each time; -1: never, to the DLQ.
    """

    def __init__(self, delay_level: int = 0) -> None:
        super().__init__(f"retry with delay level {delay_level}")
        self.delay_level = delay_level


class RebalanceListener:
    """Hears which queues a consumer gets and gives; override what is of use."""

    def on_assign(self, queues: Sequence[MessageQueue]) -> None:
        """These queues are about to be pulled."""

    def on_revoke(self, queues: Sequence[MessageQueue]) -> None:
        """These queues belong to somebody else now; their offsets have been committed."""


class PushConsumerOptions(ConsumerOptions, total=False):
    """Keyword arguments of a push consumer, beside those of ConsumerOptions and of its client.

    Keys:
      message_model: CLUSTERING (each message to one of the group), or BROADCASTING (to all).
      is_orderly: each queue's messages one after the other, by a lock at the broker; False.
      consume_timestamp_ms: where a group begins with CONSUME_FROM_TIMESTAMP, ms since 1970; half an
        hour ago.
      strategy: shares queues among the members; AllocateMessageQueueAveragely.
      pull_threshold_size_for_queue: bytes of a queue in memory at which pulling pauses; 100 MiB.
      consume_concurrently_max_span: offsets between first and last in memory; 2,000.
      max_reconsume_times: retries before the DLQ; 16, and for ever if orderly.
      consume_timeout_s: seconds that a handler may take; 900.
      suspend_queue_s: pause of an ordered queue after a failure; 1.
      rebalance_s: seconds between rebalances without a cause; 20.
      persist_offsets_s: seconds between commits; 5.
      close_timeout_s: seconds that closing may take; 5.
      offset_path: file of a broadcasting consumer's offsets; default: they are not kept.
      listener: hears of rebalances.
      deserializer: makes a message's `value` of its body.
    """

    message_model: MessageModel
    is_orderly: bool
    consume_timestamp_ms: int | None
    strategy: AllocateMessageQueueStrategy
    pull_threshold_size_for_queue: int
    consume_concurrently_max_span: int
    max_reconsume_times: int | None
    consume_timeout_s: float
    suspend_queue_s: float
    rebalance_s: float
    persist_offsets_s: float
    close_timeout_s: float
    offset_path: Path | None
    listener: RebalanceListener | None
    deserializer: Callable[[bytes], Any] | None


class PushConsumerConfig(ConsumerConfig, frozen=True, kw_only=True):
    """The values of PushConsumerOptions that are not the client's."""

    message_model: MessageModel = MessageModel.CLUSTERING
    is_orderly: bool = False
    consume_timestamp_ms: int | None = None
    strategy: Any = AllocateMessageQueueAveragely()
    pull_threshold_size_for_queue: int = PULL_THRESHOLD_SIZE_FOR_QUEUE
    consume_concurrently_max_span: int = CONSUME_CONCURRENTLY_MAX_SPAN
    max_reconsume_times: int | None = None
    consume_timeout_s: float = CONSUME_TIMEOUT_S
    suspend_queue_s: float = SUSPEND_QUEUE_S
    suspend_s: float = SUSPEND_S
    rebalance_s: float = REBALANCE_S
    persist_offsets_s: float = PERSIST_OFFSETS_S
    close_timeout_s: float = CLOSE_TIMEOUT_S
    offset_path: Path | None = None
    listener: RebalanceListener | None = None
    deserializer: Callable[[bytes], Any] | None = None
