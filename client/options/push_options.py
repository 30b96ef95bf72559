"""Options of the push consumer and their defaults, which are RocketMQ's.

Java counterpart: the fields of DefaultMQPushConsumer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ...remoting.bodies import MessageModel, MessageQueue
from ...remoting.receipt import POP_COUNT_MAX
from ..core.allocation import AllocateMessageQueueAveragely, AllocateMessageQueueStrategy
from ..errors import ConfigurationError
from .consumer_options import ConsumerConfig, ConsumerOptions, check_start_by_grpc

PULL_THRESHOLD_SIZE_FOR_QUEUE: Final = 100 * 1024 * 1024
"""Bytes of a queue in memory at which pulling pauses. RocketMQ: pullThresholdSizeForQueue."""
CONSUME_CONCURRENTLY_MAX_SPAN: Final = 2000
"""Offsets between the first and the last message in memory at which pulling pauses.

RocketMQ: consumeConcurrentlyMaxSpan.
"""
SUSPEND_S: Final = 15.0
"""Time that a broker holds a pull. RocketMQ: brokerSuspendMaxTimeMillis 15,000."""
PULL_RETRY_S: Final = 3.0
"""Pause after a failed pull. RocketMQ: pullTimeDelayMillsWhenException 3,000."""
PERSIST_OFFSETS_S: Final = 5.0
"""RocketMQ: persistConsumerOffsetInterval 5,000."""
REBALANCE_S: Final = 20.0
"""RocketMQ: rocketmq.client.rebalance.waitInterval 20,000."""
MISSING_TOPIC_S: Final = 2.0
"""Pause before a topic that no name server knew is looked up again. (Java's client: 30 s.)"""
FIRST_HEARTBEAT_S: Final = 1.0
"""Seconds until a consumer begins without the brokers that have not answered its first heartbeat or
its first question. Java's client waits for each in turn, 3 s each."""
REBALANCE_RETRY_S: Final = 1.0
"""Pause after an incomplete rebalance. RocketMQ: rocketmq.client.rebalance.minInterval 1,000."""
LOCK_S: Final = 20.0
"""Interval of renewing locks, which expire at the broker after 60 s.

RocketMQ: rocketmq.client.rebalance.lockInterval.
"""
LOCK_EXPIRED_S: Final = 60.0
"""Time after which a broker drops a lock. RocketMQ: rocketmq.broker.rebalance.lockMaxLiveTime."""
CONSUME_TIMEOUT_S: Final = 15 * 60.0
"""RocketMQ: consumeTimeout 15 minutes."""
SUSPEND_QUEUE_S: Final = 1.0
"""RocketMQ: suspendCurrentQueueTimeMillis 1,000."""
CONSUME_AGAIN_S: Final = 5.0
"""Delay of a redelivery by the client itself, for messages that could not be sent back.

Source: submitConsumeRequestLater.
"""
CONCURRENCY: Final = 20
"""Number of concurrent handlers. RocketMQ: consumeThreadMin and consumeThreadMax 20."""
CLOSE_TIMEOUT_S: Final = 20.0
"""Time limit of stopping and closing, for handlers and for leaving the group together. Kubernetes
kills a program 30 s after SIGTERM; the rest is for what else the program closes."""
LEAVE_TIMEOUT_S: Final = 5.0
"""Part of CLOSE_TIMEOUT_S for leaving: committing offsets, releasing locks, unregistering."""
LEAVE_S: Final = 1.0
"""Time for leaving the group after last commits that took their whole time."""
MAX_RECONSUME_TIMES: Final = 16
"""RocketMQ: maxReconsumeTimes of a concurrent consumer; an orderly one retries for ever."""

ModelName: TypeAlias = Literal["clustering", "broadcasting"]
"""Which members of a group get a message: MessageModel.CLUSTERING and so on."""
ConsumeMode: TypeAlias = Literal["pull", "pop"]
"""How a push consumer gets its messages."""

ASSIGNED_BY_BROKERS: Final = ("AVG", "AVG_BY_CIRCLE")
"""The names of the strategies by which brokers assign queues."""
POP_INVISIBLE_S: Final = 60.0
"""RocketMQ: popInvisibleTime 60,000, of 5,000 to 300,000."""
POP_INVISIBLE_S_MIN: Final = 5.0
POP_INVISIBLE_S_MAX: Final = 300.0
POP_THRESHOLD_FOR_QUEUE: Final = 96
"""RocketMQ: popThresholdForQueue 96."""


GRPC_INVISIBLE_S_MIN: Final = 10.0
"""Shortest invisible time of a receive by gRPC. Source: minInvisibleTimeMillsForRecv."""


class RetryLater(Exception):
    """Raised by a handler to have its message redelivered later.

    Args:
      delay_level: 1 to 18 for a delay of the broker's table; 0 for delays that grow with each
        retry; -1 to send it to the dead-letter queue instead.
    """

    def __init__(self, delay_level: int = 0) -> None:
        super().__init__(f"retry with delay level {delay_level}")
        self.delay_level = delay_level


class RebalanceListener:
    """Is notified when queues are assigned to a consumer or revoked; override the methods you need.

    The methods are called in the client's event loop, so they must not block. Exceptions are
    logged.
    """

    def on_assign(self, queues: Sequence[MessageQueue]) -> None:
        """Called before the first pull from newly assigned queues."""

    def on_revoke(self, queues: Sequence[MessageQueue]) -> None:
        """Called after queues were revoked and their offsets committed."""


class PushConsumerOptions(ConsumerOptions, total=False):
    """Keyword arguments of a push consumer, in addition to ConsumerOptions and ClientOptions.

    Keys:
      message_model: "clustering" to deliver each message to one member of the group (the default),
        or "broadcasting" to deliver it to all members; or the member of MessageModel.
      is_orderly: consume the messages of each queue one at a time, in order, with a lock at the
        broker; default False.
      strategy: assigns queues to the members of the group; all members must use the same. Default
        AllocateMessageQueueAveragely.
      pull_threshold_size_for_queue: bytes of a queue in memory at which pulling pauses; default
        100 MiB.
      consume_concurrently_max_span: difference of the first and last offset of a queue in memory at
        which pulling pauses, unless `is_orderly`; default 2,000.
      max_reconsume_times: number of redeliveries before a message is sent to the dead-letter queue;
        default 16, or unlimited if `is_orderly`; by gRPC, what the server says of the group.
      consume_timeout_s: time limit of a handler, in seconds; default 900.
      suspend_queue_s: seconds that an orderly queue pauses after a failure; default 1.
      rebalance_s: seconds between periodic rebalances; default 20.
      persist_offsets_s: seconds between commits of the offsets; default 5.
      close_timeout_s: time limit of stopping and closing as a whole, in seconds; default 20.
        Handlers that run have it, less the last 5 s (or the second half, if it is below 10), in
        which the consumer commits its offsets and leaves its group. See `PushConsumer.stop`.
      offset_path: file for the offsets of a broadcasting consumer; default: they are not saved.
      listener: see RebalanceListener; default: none.
      rate_limit: largest number of messages per second that are delivered to the program, evenly
        over time; redeliveries count, too. Default: no limit.
      mode: "pull", the default; or "pop": the brokers (5.0 or later) assign the queues, and those
        that they assign to be popped need no offsets and no exclusive owner. By gRPC, all pop.
      pop_invisible_s: with mode="pop", seconds until a message that is not settled is delivered
        again, 5 to 300; default 60.
      pop_batch_size: with mode="pop", largest number of messages of one pop, 1 to 32; default 32.
      pop_threshold_for_queue: with mode="pop", number of messages of a queue, or of a broker, that
        are not settled, at which popping pauses; default 96.
      pop_extend: with mode="pop", extend the invisible time of messages that a handler takes long
        for; default False: they are delivered again, as by Java's client.
    """

    message_model: MessageModel | ModelName
    is_orderly: bool
    strategy: AllocateMessageQueueStrategy
    pull_threshold_size_for_queue: int
    consume_concurrently_max_span: int
    max_reconsume_times: int | None
    consume_timeout_s: float
    suspend_queue_s: float
    rebalance_s: float
    persist_offsets_s: float
    close_timeout_s: float
    offset_path: Path | str | None
    listener: RebalanceListener | None
    rate_limit: float | None
    mode: ConsumeMode
    pop_invisible_s: float
    pop_batch_size: int
    pop_threshold_for_queue: int
    pop_extend: bool


class PushConsumerConfig(ConsumerConfig, frozen=True, kw_only=True):
    """The values of PushConsumerOptions without those of ClientOptions."""

    message_model: MessageModel = MessageModel.CLUSTERING
    is_orderly: bool = False
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
    rate_limit: float | None = None
    deserializer: Callable[[bytes], Any] | None = None
    mode: ConsumeMode = "pull"
    pop_invisible_s: float = POP_INVISIBLE_S
    pop_batch_size: int = POP_COUNT_MAX
    pop_threshold_for_queue: int = POP_THRESHOLD_FOR_QUEUE
    pop_extend: bool = False

    @property
    def leave_timeout_s(self) -> float:
        """The part of `close_timeout_s` for leaving the group, in seconds."""
        return min(LEAVE_TIMEOUT_S, self.close_timeout_s / 2)

    def __post_init__(self) -> None:
        if self.mode == "pull":
            return
        low, high = POP_INVISIBLE_S_MIN, POP_INVISIBLE_S_MAX
        if not low <= self.pop_invisible_s <= high:
            raise ConfigurationError(
                f"pop_invisible_s is {self.pop_invisible_s}: give {low:g} to {high:g} seconds"
            )
        if self.pop_batch_size > POP_COUNT_MAX:
            raise ConfigurationError(
                f"pop_batch_size is {self.pop_batch_size}: give 1 to {POP_COUNT_MAX}"
            )
        if self.is_orderly:
            raise ConfigurationError(
                'is_orderly does not go with mode="pop": use SimpleConsumer(is_orderly=True), or'
                " pull"
            )
        if self.message_model is not MessageModel.CLUSTERING:
            raise ConfigurationError(
                f'{self.message_model.name} does not go with mode="pop", in which the members of a'
                " group share all messages"
            )
        if self.strategy.name not in ASSIGNED_BY_BROKERS:
            raise ConfigurationError(
                f'the strategy {self.strategy.name} does not go with mode="pop": brokers assign by'
                f" {' and '.join(ASSIGNED_BY_BROKERS)}"
            )


def grpc_config(config: PushConsumerConfig, given: Mapping[str, Any]) -> PushConsumerConfig:
    """The configuration of a consumer that speaks gRPC: it pops.

    Args:
      given: the options that the program gave.

    Raises: ConfigurationError: one of them does not work by gRPC.
    """
    check_start_by_grpc(config.consume_from_where)
    for name, (taken, instead) in _BY_GRPC.items():
        if name in given and getattr(config, name) != taken:
            raise ConfigurationError(f"{name}={given[name]!r} does not work by gRPC: {instead}")
    if config.pop_invisible_s < GRPC_INVISIBLE_S_MIN:
        raise ConfigurationError(
            f"pop_invisible_s is {config.pop_invisible_s}: by gRPC, give"
            f" {GRPC_INVISIBLE_S_MIN:g} to {POP_INVISIBLE_S_MAX:g} seconds"
        )
    return msgspec.structs.replace(config, mode="pop")


_BY_GRPC: Final[Mapping[str, tuple[object, str]]] = {
    "mode": ("pop", "leave it out; consumers pop there"),
    "message_model": (MessageModel.CLUSTERING, "give each member its own group"),
    "is_orderly": (
        False,
        "leave it out; what a group with consumeMessageOrderly=true receives comes in order",
    ),
    "offset_path": (None, "leave it out; servers keep no offsets for clients"),
}
"""Options with the one value that works by gRPC, and what to do instead of another one."""
