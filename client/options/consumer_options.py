"""Options that both kinds of consumers have, and their defaults, which are RocketMQ's.

Java counterpart: the common fields of DefaultMQPushConsumer and DefaultLitePullConsumer.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from ...remoting.bodies import ConsumeFromWhere
from ..connection.options import ClientOptions
from ..errors import ConfigurationError

StartName: TypeAlias = Literal["first", "last", "timestamp"]
"""Where a group begins that never consumed: CONSUME_FROM_FIRST_OFFSET and so on."""
PULL_BATCH_SIZE: Final = 32
"""Messages of one pull. RocketMQ: pullBatchSize; a lite pull consumer has 10."""
PULL_THRESHOLD_FOR_QUEUE: Final = 1000
"""Messages of a queue in memory at which pulling pauses. RocketMQ: pullThresholdForQueue."""
PULL_TIMEOUT_S: Final = 30.0
"""Time limit of a pull. RocketMQ: consumerTimeoutMillisWhenSuspend 30,000."""


SUSPEND_S: Final = 20.0
"""Time that a broker holds a pull. RocketMQ: brokerSuspendMaxTimeMillis 20,000."""


class ConsumerOptions(ClientOptions, total=False):
    """Keyword arguments of push and pull consumers, in addition to ClientOptions.

    Keys:
      consume_from_where: where a group without committed offsets begins: "last" (the default),
        "first" or "timestamp", or the member of ConsumeFromWhere.
      consume_timestamp_ms: with "timestamp", the time from which on a new group receives messages,
        in milliseconds since 1970; default: half an hour ago.
      pull_batch_size: largest number of messages of one pull; default 32.
      pull_threshold_for_queue: number of messages of a queue in memory at which pulling pauses;
        default 1,000.
      suspend_s: seconds that a broker holds a pull while there are no messages; default 15 for
        push consumers, 20 for pull consumers.
      trace: report each consumption to the trace topic, for `Admin.message_trace`, mqadmin and the
        Dashboard: True for RMQ_SYS_TRACE_TOPIC, or the name of another topic; default False.
    """

    consume_from_where: ConsumeFromWhere | StartName
    consume_timestamp_ms: int | None
    pull_batch_size: int
    pull_threshold_for_queue: int
    suspend_s: float
    trace: bool | str


class ConsumerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The values of ConsumerOptions without those of ClientOptions.

    Attributes:
      suspend_s: its default depends on the kind of consumer.
    """

    suspend_s: float
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp_ms: int | None = None
    pull_batch_size: int = PULL_BATCH_SIZE
    pull_threshold_for_queue: int = PULL_THRESHOLD_FOR_QUEUE
    trace: bool | str = False


def check_start_by_grpc(where: ConsumeFromWhere) -> None:
    """Check where a group begins that never consumed, for a consumer that speaks gRPC.

    Raises: ConfigurationError: not at the end.
    """
    if where is not ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET:
        raise ConfigurationError(
            f"consume_from_where={where.name} does not work by gRPC: groups begin at the end there."
            " Create the group's offsets before, by `trocket offset reset`"
        )
