"""Options of the pull consumer and their defaults, and the result of one pull.

Java counterpart: the fields of DefaultLitePullConsumer; PullResult.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Final

import msgspec

from ..checks.call_check import refuse_names
from ..checks.option_check import check_timeout, is_int
from ..checks.shown import shown
from ..core.allocation import AllocateMessageQueueAveragely, AllocateMessageQueueStrategy
from ..core.queue_requests import PullStatus
from ..errors import ConfigurationError
from ..messages.message import ReceivedMessage
from .consumer_options import SUSPEND_S, ConsumerConfig, ConsumerOptions
from .push_options import REBALANCE_S, RebalanceListener

POLL_TIMEOUT_S: Final = 5.0
"""RocketMQ: pollTimeoutMillis 5,000."""
AUTO_COMMIT_S: Final = 5.0
"""RocketMQ: autoCommitIntervalMillis 5,000."""


class PullConsumerOptions(ConsumerOptions, total=False):
    """Keyword arguments of a pull consumer, in addition to ConsumerOptions and ClientOptions.

    Keys:
      auto_commit: commit the messages of a `poll` when a later one has begun, periodically, and
        when the consumer is closed; default True. False: only `commit` commits.
      auto_commit_s: seconds between automatic commits; default 5.
      strategy: assigns queues to the members of the group, with `subscribe`; all members must use
        the same. Default AllocateMessageQueueAveragely.
      rebalance_s: seconds between periodic rebalances, with `subscribe`; default 20.
      listener: with `subscribe`, see RebalanceListener; default: none.
    """

    auto_commit: bool
    auto_commit_s: float
    strategy: AllocateMessageQueueStrategy
    rebalance_s: float
    listener: RebalanceListener | None


class PullConsumerConfig(ConsumerConfig, frozen=True, kw_only=True):
    """The values of PullConsumerOptions without those of ClientOptions."""

    auto_commit: bool = True
    auto_commit_s: float = AUTO_COMMIT_S
    strategy: Any = AllocateMessageQueueAveragely()
    rebalance_s: float = REBALANCE_S
    listener: RebalanceListener | None = None
    suspend_s: float = SUSPEND_S


class Pulled(msgspec.Struct, frozen=True):
    """The result of one `pull`.

    Attributes:
      status: FOUND, or the reason why there are no messages.
      messages: the messages that match the selector.
      next_offset: offset of the next pull.
      min_offset: offset of the first message in the queue.
      max_offset: offset of the next message to be stored in the queue.
    """

    status: PullStatus
    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int


def check_poll(
    count: object, timeout_s: object, unknown: Mapping[str, object], *, has_queues: bool
) -> None:
    """Check the arguments of `poll`, and that the consumer subscribes or has assigned queues.

    Raises: ConfigurationError: one is out of range, or it does neither.
    """
    refuse_names("poll", unknown)
    if not has_queues:
        raise ConfigurationError(
            "the consumer has no queues: call subscribe('orders'), or assign(queues), before poll"
        )
    if not is_int(count) or count < 1:
        raise ConfigurationError(
            f"max is {shown(count)}: give the largest number of messages, an int from 1 on; a time"
            " is poll(timeout_s=...)"
        )
    if timeout_s != inf:
        check_timeout("timeout_s", timeout_s)
