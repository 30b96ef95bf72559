"""The options that both kinds of consumers have, and their defaults, which are RocketMQ's.

Java counterpart: what DefaultMQPushConsumer and DefaultLitePullConsumer have in common.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..remoting.bodies import ConsumeFromWhere
from .options import ClientOptions

PULL_BATCH_SIZE: Final = 32
"""Messages of one pull. RocketMQ: pullBatchSize; a lite pull consumer has 10."""
PULL_THRESHOLD_FOR_QUEUE: Final = 1000
"""Messages of a queue in memory above which it is not pulled. RocketMQ: the same name."""
PULL_TIMEOUT_S: Final = 30.0
"""How long a pull may take. RocketMQ: consumerTimeoutMillisWhenSuspend 30,000."""


class ConsumerOptions(ClientOptions, total=False):
    """Keyword arguments of push and pull consumers, beside those of their client.

    Keys:
      consume_from_where: where a group begins that has no offset: CONSUME_FROM_LAST_OFFSET, or
        CONSUME_FROM_FIRST_OFFSET; of a push consumer also CONSUME_FROM_TIMESTAMP.
      pull_batch_size: messages of one pull; 32.
      pull_threshold_for_queue: messages of a queue in memory at which pulling pauses; 1,000.
      suspend_s: seconds that a broker holds a pull; 15, of a pull consumer 20.
    """

    consume_from_where: ConsumeFromWhere
    pull_batch_size: int
    pull_threshold_for_queue: int
    suspend_s: float


class ConsumerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The values of ConsumerOptions that are not the client's.

    Attributes:
      suspend_s: has another default with each kind of consumer.
    """

    suspend_s: float
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    pull_batch_size: int = PULL_BATCH_SIZE
    pull_threshold_for_queue: int = PULL_THRESHOLD_FOR_QUEUE
